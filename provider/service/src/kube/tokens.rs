//! Bootstrap tokens: with one, the kubelet of a new machine asks for its certificate.
//!
//! A token is a Secret in `kube-system` with an end. Stoker creates and deletes these Secrets and reads none: the secret half of a
//! token follows from the launch key and from a seed that never leaves the state directory, so that a launch that is asked again gets
//! the same token.

use std::collections::BTreeSet;
use std::io::{self, Read as _, Write as _};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Secret;
use kube::Client;
use kube::api::{Api, DeleteParams, ObjectMeta, PostParams};
use stoker_core::base::ids::{ClusterName, LaunchKey};
use stoker_core::catalogue::template::CLUSTER_LABEL;
use stoker_core::state::memory::Memory;
use stoker_core::state::record::State;
use stoker_journal::private;

use super::FIELD_MANAGER;
use super::client::in_words;
use crate::clock::Clock;

/// Where Kubernetes looks for bootstrap tokens.
const NAMESPACE: &str = "kube-system";
/// Their type: the control plane reads no others, and deletes them at their end.
pub const TYPE: &str = "bootstrap.kubernetes.io/token";
/// How long a token is good: as long as the longest `bootDeadline`.
const GOOD_FOR: SignedDuration = SignedDuration::from_hours(1);
/// How often tokens that are not needed any more are deleted.
const CLEANED_EVERY: Duration = Duration::from_secs(10);
/// Groups of a token, whose members may ask for a kubelet's certificate: of kubeadm, of k3s, and Kubernetes' own word for all.
pub const GROUPS: &str =
    "system:bootstrappers:kubeadm:default-node-token,system:bootstrappers:k3s:default-node-token,system:bootstrappers:nodes";
/// The seed's file in the state directory.
pub const SEED_FILE: &str = "boot-seed";

/// Why there is no token.
#[derive(Debug, thiserror::Error)]
#[error("no bootstrap token: {0}")]
pub struct NoToken(String);

/// Makes and deletes the tokens of a cluster.
pub struct BootTokens {
    secrets: Api<Secret>,
    cluster: ClusterName,
    seed: [u8; 32],
    clock: Clock,
    /// Keys whose tokens this process made and has not deleted. What a killed process leaves ends by itself.
    made: Mutex<BTreeSet<LaunchKey>>,
}

impl BootTokens {
    /// Tokens for machines of that cluster. The seed is made in `state_dir` where there is none.
    ///
    /// # Errors
    /// When the seed can be neither read nor made.
    pub fn open(client: &Client, cluster: ClusterName, state_dir: &Path, clock: Clock) -> io::Result<Self> {
        let seed = seed(&state_dir.join(SEED_FILE))?;
        Ok(Self { secrets: Api::namespaced(client.clone(), NAMESPACE), cluster, seed, clock, made: Mutex::default() })
    }

    /// The token of a launch, as `kubeadm join` and a k3s agent take it.
    ///
    /// # Errors
    /// What the API server says.
    pub async fn mint(&self, key: &LaunchKey) -> Result<String, NoToken> {
        let (id, secret) = self.token(key);
        let parameters = PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
        let answer = self.secrets.create(&parameters, &self.object(key, &id, &secret, self.clock.times().wall.0)).await;
        if !matches!(&answer, Err(kube::Error::Api(status)) if status.code == 403) {
            // It is there, or may be.
            self.made().insert(key.clone());
        }
        match answer {
            Ok(_) => {}
            // Asked again: it is the same token.
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            Err(kube::Error::Api(status)) if status.code == 403 => {
                return Err(NoToken(format!("{}: kubectl apply -f manifests/boot gives the right", status.message)));
            }
            Err(error) => return Err(NoToken(in_words(&error))),
        }
        Ok(format!("{id}.{secret}"))
    }

    /// Deletes tokens whose machine has joined, or is not waited for any more, until the service stops.
    pub async fn clean(&self, memory: impl Fn() -> Arc<Memory>) {
        loop {
            tokio::time::sleep(CLEANED_EVERY).await;
            self.keep(&waited_for(&memory())).await;
        }
    }

    /// Deletes the tokens of all other keys.
    async fn keep(&self, waiting: &BTreeSet<LaunchKey>) {
        let over: Vec<LaunchKey> = self.made().difference(waiting).cloned().collect();
        for key in over {
            let name = name(&self.token(&key).0);
            match self.secrets.delete(&name, &DeleteParams::default()).await {
                Ok(_) => {}
                Err(kube::Error::Api(status)) if status.code == 404 => {}
                Err(error) => {
                    tracing::warn!(secret = name, error = in_words(&error), "a bootstrap token is not deleted; trying again");
                    continue;
                }
            }
            self.made().remove(&key);
        }
    }

    fn made(&self) -> MutexGuard<'_, BTreeSet<LaunchKey>> {
        // A set that each holder leaves whole.
        self.made.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The public and the secret half of a key's token.
    fn token(&self, key: &LaunchKey) -> (String, String) {
        const LETTERS: &[u8; 36] = b"abcdefghijklmnopqrstuvwxyz0123456789";
        let mut random = blake3::Hasher::new_keyed(&self.seed).update(key.as_str().as_bytes()).finalize_xof();
        let mut letters = |count: usize| -> String {
            let mut letter = || {
                let mut bytes = [0; 8];
                random.fill(&mut bytes);
                // Of so many numbers, none of 36 remainders is noticeably likelier than another.
                let at = usize::try_from(u64::from_le_bytes(bytes) % 36).unwrap_or_default();
                char::from(LETTERS.get(at).copied().unwrap_or(b'a'))
            };
            (0..count).map(|_| letter()).collect()
        };
        (letters(6), letters(16))
    }

    fn object(&self, key: &LaunchKey, id: &str, secret: &str, now: Timestamp) -> Secret {
        let ends = now.saturating_add(GOOD_FOR).unwrap_or(now);
        let data = [
            ("token-id", id.to_owned()),
            ("token-secret", secret.to_owned()),
            ("expiration", ends.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()),
            ("usage-bootstrap-authentication", "true".to_owned()),
            // `kubeadm join` finds the cluster by a signature of the token.
            ("usage-bootstrap-signing", "true".to_owned()),
            ("auth-extra-groups", GROUPS.to_owned()),
            ("description", format!("Stoker's, for the machine of {key}")),
        ];
        let labels = [(CLUSTER_LABEL.to_owned(), self.cluster.to_string())];
        Secret {
            metadata: ObjectMeta { name: Some(name(id)), labels: Some(labels.into()), ..ObjectMeta::default() },
            type_: Some(TYPE.to_owned()),
            string_data: Some(data.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()),
            ..Secret::default()
        }
    }
}

/// Kubernetes wants it by the public half.
fn name(id: &str) -> String {
    format!("bootstrap-token-{id}")
}

/// Keys of machines that have not joined yet.
fn waited_for(memory: &Memory) -> BTreeSet<LaunchKey> {
    let key = |state: &State| match state {
        State::Launching { purchase, .. } | State::Booting { purchase, .. } => Some(purchase.key.clone()),
        _ => None,
    };
    memory.records.values().filter_map(|record| key(&record.state)).collect()
}

fn seed(path: &Path) -> io::Result<[u8; 32]> {
    let mut seed = [0; 32];
    match std::fs::File::open(path) {
        Ok(mut file) => file.read_exact(&mut seed)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            getrandom::fill(&mut seed).map_err(|error| io::Error::other(error.to_string()))?;
            let mut file = private::options().write(true).create_new(true).open(path)?;
            file.write_all(&seed)?;
            file.sync_all()?;
        }
        Err(error) => return Err(error),
    }
    Ok(seed)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use http::{Method, StatusCode};
    use serde_json::json;
    use stoker_fake_apiserver::{ApiServer, failure};
    use tempfile::TempDir;

    use super::*;

    fn key(number: u32) -> LaunchKey {
        LaunchKey::new(format!("c/g/0c4de2a1/{number}/1")).unwrap()
    }

    fn tokens(server: &ApiServer, dir: &TempDir) -> BootTokens {
        BootTokens::open(&server.client(), ClusterName::new("c").unwrap(), dir.path(), Clock::system()).unwrap()
    }

    fn secret(token: &str) -> String {
        format!("/api/v1/namespaces/kube-system/secrets/bootstrap-token-{}", &token[..6])
    }

    fn server() -> ApiServer {
        let server = ApiServer::new(Timestamp::now);
        server.serve_kind("secrets");
        server
    }

    #[tokio::test]
    async fn a_launch_has_one_token_also_after_a_restart_and_nobody_else_can_tell_it() {
        let (server, dir, elsewhere) = (server(), TempDir::new().unwrap(), TempDir::new().unwrap());
        let token = tokens(&server, &dir).mint(&key(1)).await.unwrap();
        assert_eq!(tokens(&server, &dir).mint(&key(1)).await.unwrap(), token);
        assert_ne!(tokens(&server, &dir).mint(&key(2)).await.unwrap(), token);
        assert_ne!(tokens(&server, &elsewhere).mint(&key(1)).await.unwrap(), token);
        let mode = std::fs::metadata(dir.path().join(SEED_FILE)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let (id, rest) = token.split_once('.').unwrap();
        assert!(
            id.len() == 6
                && rest.len() == 16
                && token.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'.')
        );
        let object = server.get(&secret(&token)).unwrap();
        assert_eq!((&object["type"], &object["stringData"]["token-secret"]), (&json!(TYPE), &json!(rest)));
        let ends: Timestamp = object["stringData"]["expiration"].as_str().unwrap().parse().unwrap();
        assert!(ends > Timestamp::now() && ends <= Timestamp::now() + GOOD_FOR);
    }

    #[tokio::test]
    async fn a_token_goes_when_its_machine_is_not_waited_for_and_again_where_that_fails() {
        let (server, dir) = (server(), TempDir::new().unwrap());
        let tokens = tokens(&server, &dir);
        let (stays, goes) = (tokens.mint(&key(1)).await.unwrap(), tokens.mint(&key(2)).await.unwrap());
        server.answer(|_, call| (call.method == Method::DELETE).then(|| failure(StatusCode::INTERNAL_SERVER_ERROR, "not now")));
        tokens.keep(&[key(1)].into()).await;
        assert!(server.get(&secret(&goes)).is_some());
        server.answer(|_, _| None);
        tokens.keep(&[key(1)].into()).await;
        assert_eq!((server.get(&secret(&stays)).is_some(), server.get(&secret(&goes))), (true, None));
    }

    #[tokio::test]
    async fn a_right_that_is_missing_is_told_with_its_manifest() {
        let (server, dir) = (server(), TempDir::new().unwrap());
        server.answer(|_, _| Some(failure(StatusCode::FORBIDDEN, "secrets is forbidden")));
        let error = tokens(&server, &dir).mint(&key(1)).await.unwrap_err().to_string();
        assert_eq!(error, "no bootstrap token: secrets is forbidden: kubectl apply -f manifests/boot gives the right");
    }
}
