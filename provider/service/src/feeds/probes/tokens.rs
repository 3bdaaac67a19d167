//! Whose a ServiceAccount token is, by the API server's word.

use std::collections::HashMap;
use std::fmt;
use std::str::FromStr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, TokenReviewStatus};
use kube::api::{Api, PostParams};
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};

/// For whom a probe's token must be made: one for the API server, which every pod has, is none.
const AUDIENCE: &str = "stoker-probe";

/// Where the API server says on which node a token's pod runs (since Kubernetes 1.30).
const NODE_NAME: &str = "authentication.kubernetes.io/node-name";

/// How long a review counts: long enough for the streams that a restart of ours brings back, short enough for a pod that was deleted.
const REVIEW_COUNTS: Duration = Duration::from_mins(1);
/// How often the token of a stream that stands is reviewed anew, at least; and how much later at most, so that the streams which a restart of
/// ours brought back together are not reviewed together. At 5,000 nodes these are some ten reviews a second.
pub const REVIEW_AGAIN: Duration = Duration::from_mins(5);
/// When it is tried again where nobody could be asked.
const TRY_AGAIN: Duration = Duration::from_mins(1);
/// How long the API server may take.
const REVIEW_WITHIN: Duration = Duration::from_secs(5);
/// How long a review may wait until it is begun: with the review itself a little less than the 10 s that a probe waits for its stream. Apart
/// from [`REVIEW_WITHIN`], as a review that is begun when its time is nearly over costs the API server as much, and lets nobody in.
const BEGUN_WITHIN: Duration = Duration::from_secs(4);
/// Reviews under way. Beyond it others wait: the API server is not ours to flood.
const REVIEWS: usize = 16;
/// Most reviews remembered.
const REMEMBERED: usize = 16_384;
/// Longest token. Kubernetes makes them of one kilobyte.
const LONGEST: usize = 16 << 10;

/// The ServiceAccount that probes run under.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceAccount {
    namespace: String,
    name: String,
}

impl ServiceAccount {
    fn user(&self) -> String {
        format!("system:serviceaccount:{}:{}", self.namespace, self.name)
    }
}

impl Default for ServiceAccount {
    fn default() -> Self {
        Self { namespace: "stoker-probe".to_owned(), name: "stoker-probe".to_owned() }
    }
}

impl FromStr for ServiceAccount {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let named = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'.');
        match text.split_once('/') {
            Some((namespace, name)) if named(namespace) && named(name) => {
                Ok(Self { namespace: namespace.to_owned(), name: name.to_owned() })
            }
            _ => Err(format!("{text:?} is not a ServiceAccount: give NAMESPACE/NAME, e.g. stoker-probe/stoker-probe")),
        }
    }
}

impl fmt::Display for ServiceAccount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// Why a token proves no node.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TokenRefused {
    /// The API server could not be asked.
    #[error("the API server cannot be asked to review the token: {0}; try again")]
    Unavailable(String),
    /// It knows no such token.
    #[error("the token is not authentic: {0}; mount one for the audience `{AUDIENCE}`")]
    NotAuthentic(String),
    /// It is somebody else's.
    #[error("the token belongs to {user}, and probes run as {expected}")]
    NotAProbe {
        /// Whose it is.
        user: String,
        /// Whose it should be.
        expected: String,
    },
    /// It was of one node's pod and is of another's.
    #[error("the token now belongs to a pod on {now}")]
    Elsewhere {
        /// The node.
        now: String,
    },
    /// It is bound to no node.
    #[error(
        "the token does not say on which node its pod runs: use a token that the kubelet projects, of Kubernetes 1.30 or later"
    )]
    NoNode,
}

/// Asks the API server whose a token is.
pub struct Reviewer {
    reviews: Api<TokenReview>,
    account: ServiceAccount,
    under_way: Semaphore,
    again: Duration,
    /// By the token's hash: the token itself is not kept.
    known: Mutex<HashMap<blake3::Hash, (Instant, String)>>,
}

impl fmt::Debug for Reviewer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reviewer").field("account", &self.account).finish_non_exhaustive()
    }
}

impl Reviewer {
    /// Reviews tokens of that account; those of streams that stand `again` after so long, for which there is [`REVIEW_AGAIN`].
    pub fn new(client: &kube::Client, account: ServiceAccount, again: Duration) -> Self {
        Self { reviews: Api::all(client.clone()), account, under_way: Semaphore::new(REVIEWS), again, known: Mutex::default() }
    }

    /// The node on which the token's pod runs.
    ///
    /// # Errors
    /// Says why the token is refused, or that nobody could be asked. Only what the API server vouched for is remembered.
    pub async fn node_of(&self, token: &str) -> Result<String, TokenRefused> {
        if token.len() > LONGEST {
            return Err(TokenRefused::NotAuthentic("it is longer than any".to_owned()));
        }
        let hash = blake3::hash(token.as_bytes());
        match self.remembered(&hash) {
            Some(node) => Ok(node),
            None => self.asked(token, hash).await,
        }
    }

    /// Returns once a token that proved this node does so no more, and says why. While nobody can be asked it counts; `unavailable` is called
    /// then.
    pub async fn lapse(&self, token: &str, node: &str, unavailable: impl Fn() + Send + Sync) -> TokenRefused {
        let hash = blake3::hash(token.as_bytes());
        let spread = u32::from(hash.as_bytes()[0]);
        let mut pause = self.again + self.again * spread / 256;
        loop {
            // One that says when it ends is reviewed then; once more where the API server still vouches for it.
            tokio::time::sleep(life(token).filter(|left| !left.is_zero()).map_or(pause, |left| left.min(pause))).await;
            pause = match self.asked(token, hash).await {
                Ok(now) if now == node => self.again + self.again * spread / 256,
                Ok(now) => return TokenRefused::Elsewhere { now },
                Err(TokenRefused::Unavailable(_)) => {
                    unavailable();
                    TRY_AGAIN.min(self.again)
                }
                Err(refused) => return refused,
            };
        }
    }

    /// Asks the API server, and remembers what it vouched for.
    async fn asked(&self, token: &str, hash: blake3::Hash) -> Result<String, TokenRefused> {
        let unavailable = |why: &str| TokenRefused::Unavailable(why.to_owned());
        // The semaphore is never closed.
        let waits = timeout(BEGUN_WITHIN, self.under_way.acquire()).await;
        let _permit = waits.map_err(|_| unavailable("too many reviews are waiting"))?;
        let asked = Instant::now();
        let status = timeout(REVIEW_WITHIN, self.review(token)).await;
        let status = status.unwrap_or_else(|_| Err(unavailable("no answer within 5 s")))?;
        let node = self.judge(status).inspect_err(|_| self.forget(&hash))?;
        let life = life(token).map_or(REVIEW_COUNTS, |life| life.min(REVIEW_COUNTS));
        self.remember(hash, asked + life, &node);
        Ok(node)
    }

    async fn review(&self, token: &str) -> Result<TokenReviewStatus, TokenRefused> {
        let spec = TokenReviewSpec { audiences: Some(vec![AUDIENCE.to_owned()]), token: token.to_owned() };
        let review = TokenReview { spec, ..TokenReview::default() };
        let reviewed = self
            .reviews
            .create(&PostParams::default(), &review)
            .await
            .map_err(|error| TokenRefused::Unavailable(error.to_string()))?;
        Ok(reviewed.status.unwrap_or_default())
    }

    fn judge(&self, status: TokenReviewStatus) -> Result<String, TokenRefused> {
        let for_us = status.audiences.iter().flatten().any(|audience| audience == AUDIENCE);
        if !status.authenticated.unwrap_or(false) || !for_us {
            let why = status.error.filter(|why| !why.is_empty());
            return Err(TokenRefused::NotAuthentic(why.unwrap_or_else(|| "the API server does not vouch for it".to_owned())));
        }
        let user = status.user.unwrap_or_default();
        let (name, expected) = (user.username.unwrap_or_default(), self.account.user());
        if name != expected {
            return Err(TokenRefused::NotAProbe { user: name, expected });
        }
        let nodes = user.extra.and_then(|mut extra| extra.remove(NODE_NAME)).unwrap_or_default();
        match <[String; 1]>::try_from(nodes) {
            Ok([node]) if !node.is_empty() => Ok(node),
            _ => Err(TokenRefused::NoNode),
        }
    }

    fn remembered(&self, hash: &blake3::Hash) -> Option<String> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(hash).filter(|(until, _)| Instant::now() < *until).map(|(_, node)| node.clone())
    }

    fn forget(&self, hash: &blake3::Hash) {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).remove(hash);
    }

    fn remember(&self, hash: blake3::Hash, until: Instant, node: &str) {
        let now = Instant::now();
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= REMEMBERED {
            known.retain(|_, (until, _)| now < *until);
        }
        if known.len() < REMEMBERED && now < until {
            known.insert(hash, (until, node.to_owned()));
        }
    }
}

/// How long a token still lives, by its own word: it was vouched for. `None` where it does not say.
fn life(token: &str) -> Option<Duration> {
    use base64::Engine as _;
    #[derive(serde::Deserialize)]
    struct Claims {
        exp: i64,
    }
    let claims = token.split('.').nth(1)?;
    let claims = base64::engine::general_purpose::URL_SAFE_NO_PAD.decode(claims).ok()?;
    let claims: Claims = serde_json::from_slice(&claims).ok()?;
    let left = claims.exp.saturating_sub(jiff::Timestamp::now().as_second());
    Some(Duration::from_secs(u64::try_from(left).unwrap_or(0)))
}

#[cfg(test)]
mod tests;
