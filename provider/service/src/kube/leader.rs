//! Which of several replicas leads: whoever holds a Lease of the cluster. Others wait until it is given back, or not renewed for its
//! whole duration by their own clock: what time the holder's clock shows does not matter.
//!
//! The Lease decides who tries. Who writes is settled by the journal, which refuses all but its newest leader; and an executor does nothing
//! once its own last renewal is too old, so that a replica that was paused does not act on what it knew before.
//!
//! A leader that cannot write to the journal says so on the Lease. Another replica takes the Lease only if it can write itself:
//! where the database is away from everybody, the leader goes on answering reads.

use std::fmt;
use std::str::FromStr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::future::BoxFuture;
use http::Request;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::api::PostParams;
use kube::client::Body;
use kube::{Api, Client, ResourceExt as _};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tower::{BoxError, service_fn};

use super::client::in_words;
use crate::clock::Clock;

/// How long a Lease holds that is not renewed: so long nobody leads after a crash.
const HELD_FOR: Duration = Duration::from_secs(12);

/// The longest duration of another's Lease that is believed.
const HELD_AT_MOST: Duration = Duration::from_mins(1);

/// How often it is renewed.
const RENEWED_EVERY: Duration = Duration::from_secs(2);

/// How long after its last renewal a leader still acts: well before another may.
const ACTS_FOR: Duration = Duration::from_secs(8);

/// How often a replica that waits looks: a Lease that is given back is taken as fast.
const LOOKS_EVERY: Duration = Duration::from_secs(1);

/// How long a leader may be unable to write before it lets another replica take over.
const UNWRITTEN_FOR: Duration = Duration::from_secs(10);

/// On the Lease of a leader that has been unable to write for that long.
const UNWRITTEN: &str = "stoker.dev/journal-unwritable";

/// How long one request may take.
const ANSWERED_WITHIN: Duration = Duration::from_secs(4);

/// A Lease by its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseName {
    namespace: String,
    name: String,
}

impl FromStr for LeaseName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let named = text.split_once('/').filter(|(namespace, name)| !namespace.is_empty() && !name.is_empty());
        let (namespace, name) = named.ok_or_else(|| format!("{text:?} is no NAMESPACE/NAME"))?;
        Ok(Self { namespace: namespace.to_owned(), name: name.to_owned() })
    }
}

impl fmt::Display for LeaseName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// Says whether this replica could write to the journal now.
pub type TryWrite = Box<dyn Fn() -> BoxFuture<'static, bool> + Send + Sync>;

/// One replica that would lead.
pub struct Candidate {
    leases: Api<Lease>,
    name: LeaseName,
    identity: String,
    clock: Clock,
    /// The Lease of another as it was seen last, and since when it is like that.
    seen: Option<(LeaseSpec, Instant)>,
    standing: Arc<Mutex<String>>,
    try_write: TryWrite,
}

/// A replica that leads. A clone tells of the same lead.
#[derive(Debug, Clone)]
pub struct Leader {
    since: Arc<Mutex<Since>>,
    lost: CancellationToken,
}

/// Moments of a lead.
#[derive(Debug, Clone, Copy)]
struct Since {
    /// Its last renewal.
    renewed: Instant,
    /// The first write that failed since the last that did not.
    unwritten: Option<Instant>,
}

/// A change to the cluster that was not sent, as this replica may not lead any more.
#[derive(Debug, thiserror::Error)]
#[error("this replica does not lead any more")]
struct NotLeading;

/// What became of a try to take a Lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Taken {
    /// It was this replica's, and still is.
    Renewed,
    /// It was nobody's, or over.
    Free,
    /// Another has it.
    No,
}

impl Candidate {
    /// A candidate of a name that no other has.
    pub fn new(client: Client, name: LeaseName, clock: Clock, try_write: TryWrite) -> Self {
        let host = std::env::var("HOSTNAME").unwrap_or_else(|_| "stoker".to_owned());
        let identity = format!("{host}_{:08x}", suffix());
        let leases = Api::namespaced(client, &name.namespace);
        let standing = Arc::new(Mutex::new(format!("Lease {name} has not been looked at yet")));
        Self { leases, name, identity, clock, seen: None, standing, try_write }
    }

    /// Why this replica does not lead, for people.
    pub fn standing(&self) -> impl Fn() -> String + Send + Sync + 'static {
        let standing = Arc::clone(&self.standing);
        move || lock(&standing).clone()
    }

    /// Waits until this replica leads.
    pub async fn wait(&mut self) -> Leader {
        loop {
            let asked_at = Instant::now();
            match self.try_take(false).await {
                Ok(Taken::Renewed | Taken::Free) => {
                    tracing::info!(lease = %self.name, identity = self.identity, "this replica leads");
                    return Leader::from(asked_at);
                }
                Ok(Taken::No) => {}
                Err(why) => self.say(format!("Lease {} cannot be read or taken: {why}", self.name)),
            }
            sleep(LOOKS_EVERY).await;
        }
    }

    /// Renews the Lease for as long as that works. Ends when this replica does not lead any more, and the leader knows.
    pub async fn keep(&mut self, leader: &Leader) {
        loop {
            sleep(RENEWED_EVERY).await;
            let (asked_at, led) = (Instant::now(), leader.leads());
            let why = match self.try_take(leader.is_unwritten()).await {
                Ok(Taken::Renewed) => {
                    lock(&leader.since).renewed = asked_at;
                    continue;
                }
                // Somebody deleted it, a moment ago.
                Ok(Taken::Free) if led => {
                    lock(&leader.since).renewed = asked_at;
                    continue;
                }
                // Others may have led meanwhile, and what this replica knows is of before.
                Ok(Taken::Free) => {
                    self.give_back().await;
                    "the Lease was given up while this replica stood still".to_owned()
                }
                Ok(Taken::No) => lock(&self.standing).clone(),
                Err(why) if leader.leads() => {
                    tracing::warn!(lease = %self.name, why, "the Lease could not be renewed; retrying");
                    continue;
                }
                Err(why) => why,
            };
            tracing::error!(lease = %self.name, why, "this replica does not lead any more");
            leader.lost.cancel();
            return;
        }
    }

    /// Gives the Lease back, so that another replica need not wait for its end.
    pub async fn give_back(&mut self) {
        let give = async {
            loop {
                let Some(mut lease) = self.leases.get_opt(&self.name.name).await? else { return Ok(()) };
                let spec = lease.spec.get_or_insert_default();
                if spec.holder_identity.as_deref() != Some(&self.identity) {
                    return Ok(());
                }
                spec.holder_identity = None;
                match self.leases.replace(&self.name.name, &PostParams::default(), &lease).await {
                    // A renewal was under way.
                    Err(kube::Error::Api(status)) if status.code == 409 => {}
                    given => return given.map(drop),
                }
            }
        };
        match timeout(ANSWERED_WITHIN, give).await {
            Ok(Ok(())) => tracing::info!(lease = %self.name, "the Lease is given back"),
            Ok(Err(error)) => tracing::warn!(lease = %self.name, why = in_words(&error), "the Lease could not be given back"),
            Err(_) => tracing::warn!(lease = %self.name, "the Lease could not be given back: no answer"),
        }
    }

    /// Takes or renews the Lease, unless another has it. `unwritten` is to stand on it.
    async fn try_take(&mut self, unwritten: bool) -> Result<Taken, String> {
        let late = |_| Err(format!("no answer within {} s", ANSWERED_WITHIN.as_secs()));
        timeout(ANSWERED_WITHIN, self.take(unwritten)).await.unwrap_or_else(late)
    }

    async fn take(&mut self, unwritten: bool) -> Result<Taken, String> {
        let found = self.leases.get_opt(&self.name.name).await.map_err(|error| in_words(&error))?;
        let known = found.as_ref().and_then(|lease| lease.spec.clone()).unwrap_or_default();
        let holder = known.holder_identity.clone().filter(|holder| !holder.is_empty());
        if let Some(holder) = holder.as_ref().filter(|holder| **holder != self.identity) {
            let since = match &self.seen {
                Some((seen, since)) if *seen == known => *since,
                _ => Instant::now(),
            };
            self.seen = Some((known.clone(), since));
            // As long as its holder says, where that is another release with another duration; within bounds, as anybody may edit it.
            let held_for = known.lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok());
            let is_held = since.elapsed() < held_for.map_or(HELD_FOR, Duration::from_secs).clamp(HELD_FOR, HELD_AT_MOST);
            let cannot_write = found.as_ref().is_some_and(|lease| lease.annotations().contains_key(UNWRITTEN));
            if is_held && !(cannot_write && (self.try_write)().await) {
                self.say(format!(
                    "{holder} leads, by Lease {}; delete the Lease where that replica is gone for good",
                    self.name
                ));
                return Ok(Taken::No);
            }
        }
        let at = MicroTime(self.clock.times().wall.0);
        let is_ours = holder.as_deref() == Some(&self.identity);
        let spec = LeaseSpec {
            holder_identity: Some(self.identity.clone()),
            lease_duration_seconds: Some(i32::try_from(HELD_FOR.as_secs()).unwrap_or(i32::MAX)),
            acquire_time: if is_ours { known.acquire_time } else { Some(at.clone()) },
            renew_time: Some(at),
            lease_transitions: Some(known.lease_transitions.unwrap_or(0).saturating_add(i32::from(!is_ours))),
            ..LeaseSpec::default()
        };
        let written = if let Some(mut lease) = found {
            lease.spec = Some(spec);
            if unwritten {
                lease.annotations_mut().insert(UNWRITTEN.to_owned(), "true".to_owned());
            } else {
                lease.annotations_mut().remove(UNWRITTEN);
            }
            // With the version that was read: of two who take it, one is refused.
            self.leases.replace(&self.name.name, &PostParams::default(), &lease).await
        } else {
            let metadata = ObjectMeta { name: Some(self.name.name.clone()), ..ObjectMeta::default() };
            self.leases.create(&PostParams::default(), &Lease { metadata, spec: Some(spec) }).await
        };
        match written {
            Ok(_) => {
                self.seen = None;
                Ok(if is_ours { Taken::Renewed } else { Taken::Free })
            }
            // Another was faster, or somebody edits it: the next look tells who has it.
            Err(kube::Error::Api(status)) if status.code == 409 => Err("it was changed meanwhile".to_owned()),
            Err(error) => Err(in_words(&error)),
        }
    }

    fn say(&self, standing: String) {
        let mut known = lock(&self.standing);
        if *known != standing {
            tracing::info!(standing, "this replica waits");
            *known = standing;
        }
    }
}

impl From<Instant> for Leader {
    /// One that took its Lease then.
    fn from(renewed: Instant) -> Self {
        Self { since: Arc::new(Mutex::new(Since { renewed, unwritten: None })), lost: CancellationToken::new() }
    }
}

impl Leader {
    /// Whether this replica may act: its Lease was renewed lately.
    pub fn leads(&self) -> bool {
        !self.lost.is_cancelled() && lock(&self.since).renewed.elapsed() < ACTS_FOR
    }

    /// The same client, which changes nothing in the cluster any more once this replica may not act.
    pub fn guard(&self, client: Client) -> Client {
        let (leader, namespace) = (self.clone(), client.default_namespace().to_owned());
        let send = move |request: Request<Body>| {
            let (may, client) = (request.method().is_safe() || leader.leads(), client.clone());
            async move { if may { client.send(request).await.map_err(BoxError::from) } else { Err(NotLeading.into()) } }
        };
        Client::new(service_fn(send), namespace)
    }

    /// Takes down whether the journal could be written.
    pub fn note_write(&self, written: bool) {
        let mut since = lock(&self.since);
        since.unwritten = if written { None } else { since.unwritten.or_else(|| Some(Instant::now())) };
    }

    /// Whether nothing could be written for so long that another replica may try.
    fn is_unwritten(&self) -> bool {
        lock(&self.since).unwritten.is_some_and(|since| since.elapsed() >= UNWRITTEN_FOR)
    }

    /// From here on this replica acts no more.
    pub fn resign(&self) {
        self.lost.cancel();
    }

    /// Waits until this replica does not lead any more.
    pub async fn lost(&self) {
        self.lost.cancelled().await;
    }
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    // Plain data that each holder leaves whole.
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What tells one process from the next in a pod of the same name.
fn suffix() -> u32 {
    let mut bytes = [0; 4];
    // Without a random number the process id will do: it is only to differ from the process before.
    getrandom::fill(&mut bytes).map_or_else(|_| std::process::id(), |()| u32::from_le_bytes(bytes))
}

#[cfg(test)]
impl Leader {
    /// One that lost the lead.
    pub(crate) fn lost_it() -> Self {
        let leader = Self::from(Instant::now());
        leader.resign();
        leader
    }
}

#[cfg(test)]
mod tests;
