//! Credentials: what calls are signed with.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use aws_config::sts::AssumeRoleProvider;
use aws_config::{BehaviorVersion, Region, SdkConfig};
use aws_credential_types::Credentials;
use aws_credential_types::provider::error::CredentialsError;
use aws_credential_types::provider::{ProvideCredentials as _, SharedCredentialsProvider};
use aws_smithy_http_client::tls::{Provider, rustls_provider::CryptoMode};
use stoker_core::base::text::with_causes;

/// How long before their end credentials are fetched anew.
const AHEAD: Duration = Duration::from_mins(5);

/// How long credentials without an end are kept: files of keys are changed by hand.
const KEPT_FOR: Duration = Duration::from_mins(15);

/// A role to act in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Role {
    pub(crate) arn: String,
    pub(crate) external_id: Option<String>,
    pub(crate) session: String,
}

/// Credentials, fetched when they are needed.
#[derive(Debug)]
pub(crate) struct Keys {
    provider: SharedCredentialsProvider,
    held: Mutex<Option<Held>>,
}

#[derive(Debug, Clone)]
struct Held {
    credentials: Credentials,
    until: SystemTime,
}

impl Keys {
    /// Credentials as AWS's own tools find them: environment, profile, web identity, container, instance.
    pub(crate) async fn found(region: &str, role: Option<Role>) -> Self {
        let tls = Provider::Rustls(CryptoMode::Ring);
        let http = aws_smithy_http_client::Builder::new().tls_provider(tls).build_https();
        let loader = aws_config::defaults(BehaviorVersion::latest()).http_client(http).region(Region::new(region.to_owned()));
        let config: SdkConfig = loader.load().await;
        let provider = match role {
            Some(Role { arn, external_id, session }) => {
                let mut role = AssumeRoleProvider::builder(arn).session_name(session).configure(&config);
                if let Some(id) = external_id {
                    role = role.external_id(id);
                }
                Some(SharedCredentialsProvider::new(role.build().await))
            }
            None => config.credentials_provider(),
        };
        // The defaults always have one.
        Self::from(provider.unwrap_or_else(|| {
            SharedCredentialsProvider::new(aws_config::environment::EnvironmentVariableCredentialsProvider::new())
        }))
    }

    fn held(&self) -> MutexGuard<'_, Option<Held>> {
        // Plain data that each holder leaves whole.
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The credentials that count now.
    ///
    /// # Errors
    /// Why there are none; in words.
    pub(crate) async fn now(&self) -> Result<Credentials, String> {
        let now = SystemTime::now();
        if let Some(held) = self.held().as_ref().filter(|held| now < held.until) {
            return Ok(held.credentials.clone());
        }
        let credentials = self.provider.provide_credentials().await.map_err(|error| why_none(&error))?;
        let until = credentials.expiry().and_then(|end| end.checked_sub(AHEAD)).unwrap_or(now + KEPT_FOR);
        *self.held() = Some(Held { credentials: credentials.clone(), until });
        Ok(credentials)
    }

    /// AWS did not take them: the next call fetches them anew.
    pub(crate) fn forget(&self) {
        *self.held() = None;
    }
}

/// Why there are no credentials. An instance is asked last, and on most machines there is none: what is missing then is any of them.
fn why_none(error: &CredentialsError) -> String {
    let why = with_causes(error);
    if matches!(error, CredentialsError::CredentialsNotLoaded(_)) || why.contains("IMDS") {
        return "set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY; in a pod, give its service account a role by Pod \
                Identity or IRSA"
            .to_owned();
    }
    why
}

impl From<SharedCredentialsProvider> for Keys {
    fn from(provider: SharedCredentialsProvider) -> Self {
        Self { provider, held: Mutex::default() }
    }
}
