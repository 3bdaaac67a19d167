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

use super::no_keys::why_none;

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
    /// Where STS is asked for it; `None` for its own address.
    pub(crate) sts: Option<String>,
}

/// Credentials, fetched when they are needed.
#[derive(Debug)]
pub(crate) struct Keys {
    provider: SharedCredentialsProvider,
    /// Of a role that is assumed: with what, and its name and where STS is.
    assumed: Option<(SharedCredentialsProvider, String)>,
    held: Mutex<Option<Held>>,
    /// Why there were none the first time: a profile says it only then.
    first_failure: Mutex<Option<String>>,
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
        let config: SdkConfig = Box::pin(loader.load()).await;
        // The defaults always have one.
        let base = config.credentials_provider().unwrap_or_else(|| {
            SharedCredentialsProvider::new(aws_config::environment::EnvironmentVariableCredentialsProvider::new())
        });
        let Some(Role { arn, external_id, session, sts }) = role else { return Self::from(base) };
        let host = sts.clone().unwrap_or_else(|| format!("https://sts.{region}.amazonaws.com"));
        let config = match sts {
            Some(address) => config.into_builder().endpoint_url(address).build(),
            None => config,
        };
        let assumed = Some((base, format!("{arn} at {host}")));
        let mut role = AssumeRoleProvider::builder(arn).session_name(session).configure(&config);
        if let Some(id) = external_id {
            role = role.external_id(id);
        }
        Self { assumed, ..Self::from(SharedCredentialsProvider::new(Box::pin(role.build()).await)) }
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
        let credentials = match self.provider.provide_credentials().await {
            Ok(credentials) => credentials,
            Err(error) => return Err(self.why_none(&error).await),
        };
        let until = credentials.expiry().and_then(|end| end.checked_sub(AHEAD)).unwrap_or(now + KEPT_FOR);
        *self.held() = Some(Held { credentials: credentials.clone(), until });
        Ok(credentials)
    }

    /// Why there are none, for people.
    async fn why_none(&self, error: &CredentialsError) -> String {
        let in_words = |error: &CredentialsError| {
            why_none(&with_causes(error), !matches!(error, CredentialsError::CredentialsNotLoaded(_)))
        };
        let why = match &self.assumed {
            Some((base, role)) => match base.provide_credentials().await {
                Ok(_) => format!("cannot assume {role}: {}", with_causes(error)),
                Err(error) => in_words(&error),
            },
            None => in_words(error),
        };
        let mut first = self.first_failure.lock().unwrap_or_else(PoisonError::into_inner);
        if why.contains("initialization error already taken") { first.get_or_insert(why) } else { first.insert(why) }.clone()
    }

    /// AWS did not take them: the next call fetches them anew.
    pub(crate) fn forget(&self) {
        *self.held() = None;
    }
}

impl From<SharedCredentialsProvider> for Keys {
    fn from(provider: SharedCredentialsProvider) -> Self {
        Self { provider, assumed: None, held: Mutex::default(), first_failure: Mutex::default() }
    }
}
