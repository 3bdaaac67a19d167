//! Whose a ServiceAccount token is, by the API server's word.

use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, TokenReviewStatus};
use kube::api::{Api, PostParams};
use tokio::time::{Instant, timeout};

use crate::listener::SharedByAddress;

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
/// Reviews under way for one address: a pod that invents tokens keeps no node waiting.
const REVIEWS_EACH: usize = 2;
/// How long a token that the API server does not vouch for is refused without asking again.
const BAD_COUNTS: Duration = Duration::from_secs(10);
/// How long such a token keeps its place among the reviews of its address: whoever invents another
/// one each time costs the API server two reviews a second.
const BAD_COSTS: Duration = Duration::from_secs(1);
/// Most tokens remembered that are good.
const REMEMBERED: usize = 16_384;
/// Most tokens remembered that are not.
const BAD_REMEMBERED: usize = 1024;
/// How far this machine's clock may be ahead where a token's own word says that it has expired.
const LEEWAY: Duration = Duration::from_mins(1);
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
    #[error("the token belongs to {user:?}, and probes run as {expected}")]
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
    under_way: SharedByAddress,
    again: Duration,
    /// The nodes of good tokens.
    good: Remembered<String>,
    bad: Remembered<TokenRefused>,
}

impl fmt::Debug for Reviewer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reviewer").field("account", &self.account).finish_non_exhaustive()
    }
}

impl Reviewer {
    /// Reviews tokens of that account; those of streams that stand `again` after so long, for which there is [`REVIEW_AGAIN`].
    pub fn new(client: &kube::Client, account: ServiceAccount, again: Duration) -> Self {
        Self {
            reviews: Api::all(client.clone()),
            account,
            under_way: SharedByAddress::new(REVIEWS, REVIEWS_EACH),
            again,
            good: Remembered::new(REMEMBERED),
            bad: Remembered::new(BAD_REMEMBERED),
        }
    }

    /// The node on which the pod of a token runs that came from this address.
    ///
    /// # Errors
    /// Says why the token is refused, or that nobody could be asked.
    pub async fn node_of(&self, token: &str, address: IpAddr) -> Result<String, TokenRefused> {
        // By its own word, which costs the API server nothing.
        Claims::of(token)?.check(&self.account)?;
        let hash = blake3::hash(token.as_bytes());
        if let Some(refused) = self.bad.get(&hash) {
            return Err(refused);
        }
        match self.good.get(&hash) {
            Some(node) => Ok(node),
            None => self.asked(token, hash, address).await,
        }
    }

    /// Returns once a token that proved this node does so no more, and says why. While nobody can be asked it counts; `unavailable` is called
    /// then.
    pub async fn lapse(&self, token: &str, node: &str, address: IpAddr, unavailable: impl Fn() + Send + Sync) -> TokenRefused {
        let hash = blake3::hash(token.as_bytes());
        let spread = u32::from(hash.as_bytes()[0]);
        let mut pause = self.again + self.again * spread / 256;
        loop {
            // One that says when it ends is reviewed then; once more where the API server still vouches for it.
            let left = Claims::of(token).map_or(Duration::ZERO, |claims| claims.left());
            tokio::time::sleep(if left.is_zero() { pause } else { left.min(pause) }).await;
            pause = match self.asked(token, hash, address).await {
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

    /// Asks the API server, and remembers what it says.
    async fn asked(&self, token: &str, hash: blake3::Hash, address: IpAddr) -> Result<String, TokenRefused> {
        let unavailable = |why: &str| TokenRefused::Unavailable(why.to_owned());
        let waits = timeout(BEGUN_WITHIN, self.under_way.acquire(address, 1)).await;
        let place = waits.map_err(|_| unavailable("too many reviews are waiting"))?;
        let asked = Instant::now();
        let status = timeout(REVIEW_WITHIN, self.review(token)).await;
        let status = status.unwrap_or_else(|_| Err(unavailable("no answer within 5 s")))?;
        match self.judge(status) {
            Ok(node) => {
                let life = Claims::of(token).map_or(REVIEW_COUNTS, |claims| claims.left().min(REVIEW_COUNTS));
                self.good.put(hash, asked + life, node.clone());
                Ok(node)
            }
            Err(refused) => {
                self.good.forget(&hash);
                self.bad.put(hash, asked + BAD_COUNTS, refused.clone());
                tokio::spawn(async move {
                    tokio::time::sleep(BAD_COSTS).await;
                    drop(place);
                });
                Err(refused)
            }
        }
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
}

/// What was said of tokens, by their hashes: the tokens themselves are not kept.
#[derive(Debug)]
struct Remembered<T> {
    said: Mutex<HashMap<blake3::Hash, (Instant, T)>>,
    most: usize,
}

impl<T: Clone> Remembered<T> {
    fn new(most: usize) -> Self {
        Self { said: Mutex::default(), most }
    }

    fn get(&self, hash: &blake3::Hash) -> Option<T> {
        let said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        said.get(hash).filter(|(until, _)| Instant::now() < *until).map(|(_, said)| said.clone())
    }

    fn forget(&self, hash: &blake3::Hash) {
        self.said.lock().unwrap_or_else(PoisonError::into_inner).remove(hash);
    }

    fn put(&self, hash: blake3::Hash, until: Instant, what: T) {
        let now = Instant::now();
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        if said.len() >= self.most {
            said.retain(|_, (until, _)| now < *until);
        }
        if said.len() < self.most && now < until {
            said.insert(hash, (until, what));
        }
    }
}

/// What a token says of itself. Anybody can write that; only the API server knows whether it is
/// true.
#[derive(Debug, serde::Deserialize)]
struct Claims {
    #[serde(default)]
    aud: Audiences,
    #[serde(default)]
    sub: String,
    /// In seconds since 1970.
    exp: i64,
    #[serde(default, rename = "kubernetes.io")]
    kubernetes: Bound,
}

#[derive(Debug, serde::Deserialize)]
#[serde(untagged)]
enum Audiences {
    One(String),
    Many(Vec<String>),
}

impl Default for Audiences {
    fn default() -> Self {
        Self::Many(Vec::new())
    }
}

/// What a token is bound to.
#[derive(Debug, Default, serde::Deserialize)]
struct Bound {
    node: Option<BoundNode>,
}

#[derive(Debug, serde::Deserialize)]
struct BoundNode {
    name: String,
}

impl Claims {
    fn of(token: &str) -> Result<Self, TokenRefused> {
        use base64::Engine as _;
        let bad = |why: &str| TokenRefused::NotAuthentic(why.to_owned());
        if token.len() > LONGEST {
            return Err(bad("it is longer than any"));
        }
        let claims = token.split('.').nth(1).and_then(|part| {
            let claims = base64::engine::general_purpose::URL_SAFE_NO_PAD.decode(part).ok()?;
            serde_json::from_slice(&claims).ok()
        });
        claims.ok_or_else(|| bad("it is no ServiceAccount token"))
    }

    /// Refuses what the API server would refuse, or would say of another.
    fn check(&self, account: &ServiceAccount) -> Result<(), TokenRefused> {
        let bad = |why: &str| Err(TokenRefused::NotAuthentic(why.to_owned()));
        let for_us = match &self.aud {
            Audiences::One(audience) => audience == AUDIENCE,
            Audiences::Many(audiences) => audiences.iter().any(|audience| audience == AUDIENCE),
        };
        let expected = account.user();
        if !for_us {
            bad("it is for another audience")
        } else if self.sub != expected {
            let user = self.sub.chars().take(expected.len() + 64).collect();
            Err(TokenRefused::NotAProbe { user, expected })
        } else if self.kubernetes.node.as_ref().is_none_or(|node| node.name.is_empty()) {
            Err(TokenRefused::NoNode)
        } else if self.exp.saturating_add_unsigned(LEEWAY.as_secs()) < jiff::Timestamp::now().as_second() {
            bad("it has expired")
        } else {
            Ok(())
        }
    }

    /// How long the token still lives.
    fn left(&self) -> Duration {
        let left = self.exp.saturating_sub(jiff::Timestamp::now().as_second());
        Duration::from_secs(u64::try_from(left).unwrap_or(0))
    }
}

#[cfg(test)]
pub(crate) mod tests;
