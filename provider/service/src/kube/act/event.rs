//! Events: best effort, at a bounded rate.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::api::PostParams;
use kube::{Api, Client};
use stoker_core::base::ids::{NodeGroupId, NodeName, PoolName};
use stoker_core::state::budget::BudgetOf;
use tokio::time::{Instant, timeout};
use tracing::warn;

use super::super::FIELD_MANAGER;
use super::DEADLINE;

/// Events at once, and the time after which one more is allowed: a stock-out of many groups is told in full, and an error that
/// repeats cannot fill the API server's store, where an event lives for an hour.
const BURST: u32 = 50;
const INTERVAL: Duration = Duration::from_secs(2);

/// Longest note that the API server takes, in bytes.
const MAX_NOTE: usize = 1024;

/// What an event is about.
#[derive(Debug, Clone, Copy)]
pub enum About<'a> {
    /// A Node.
    Node(&'a NodeName),
    /// A node group of ours.
    Group(&'a NodeGroupId),
    /// A pool of the policy.
    Pool(&'a PoolName),
    /// A budget: of a pool, or of all of them.
    Budget(&'a BudgetOf),
    /// Stoker's own Deployment.
    Stoker,
    /// A `NodePool` of Karpenter's.
    NodePool(&'a str),
    /// A Pod, by its name, namespace and uid.
    Pod(&'a ObjectMeta),
}

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Severity {
    /// Just so that people know.
    Normal,
    /// People may have to act.
    Warning,
}

impl Severity {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Normal => "Normal",
            Self::Warning => "Warning",
        }
    }
}

pub(super) struct Recorder {
    client: Client,
    /// Where Events about what has no namespace go.
    namespace: String,
    instance: String,
    bucket: Mutex<Bucket>,
    sent: AtomicU64,
    dropped: AtomicU64,
}

impl Recorder {
    pub(super) fn new(client: &Client, namespace: &str) -> Self {
        let instance = std::env::var("HOSTNAME").ok().filter(|name| !name.is_empty());
        Self {
            client: client.clone(),
            namespace: namespace.to_owned(),
            instance: instance.unwrap_or_else(|| FIELD_MANAGER.to_owned()),
            bucket: Mutex::new(Bucket::default()),
            sent: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
        }
    }

    pub(super) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    pub(super) async fn record(&self, about: About<'_>, severity: Severity, reason: &'static str, note: &str) {
        let allowed = self.bucket.lock().unwrap_or_else(PoisonError::into_inner).take(Instant::now());
        if !allowed {
            self.dropped.fetch_add(1, Ordering::Relaxed);
            return;
        }
        // An Event lies in the namespace of what it is about.
        let namespace = match about {
            About::Pod(pod) => pod.namespace.as_deref().unwrap_or(&self.namespace),
            About::Node(_) | About::Group(_) | About::Pool(_) | About::Budget(_) | About::Stoker | About::NodePool(_) => {
                &self.namespace
            }
        };
        let events = Api::<Event>::namespaced(self.client.clone(), namespace);
        let event = self.event(about, severity, reason, note, Timestamp::now());
        let params = PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
        let error = match timeout(DEADLINE, events.create(&params, &event)).await {
            Ok(Ok(_)) => return,
            Ok(Err(error)) => error.to_string(),
            Err(_) => "no answer in time".to_owned(),
        };
        self.dropped.fetch_add(1, Ordering::Relaxed);
        warn!(reason, error, "cannot record an Event");
    }

    fn event(&self, about: About<'_>, severity: Severity, reason: &'static str, note: &str, now: Timestamp) -> Event {
        let regarding = match about {
            // The uid of a Node in events is its name, as kubelets have it; `kubectl describe node` looks for that.
            About::Node(name) => ObjectReference {
                api_version: Some("v1".to_owned()),
                kind: Some("Node".to_owned()),
                name: Some(name.to_string()),
                uid: Some(name.to_string()),
                ..ObjectReference::default()
            },
            About::Group(id) => ObjectReference {
                api_version: Some("stoker.dev/v1alpha1".to_owned()),
                kind: Some("NodeGroup".to_owned()),
                name: Some(id.to_string()),
                namespace: Some(self.namespace.clone()),
                ..ObjectReference::default()
            },
            About::Pool(name) => ObjectReference {
                api_version: Some("stoker.dev/v1alpha1".to_owned()),
                kind: Some("Pool".to_owned()),
                name: Some(name.to_string()),
                namespace: Some(self.namespace.clone()),
                ..ObjectReference::default()
            },
            About::Budget(of) => ObjectReference {
                api_version: Some("stoker.dev/v1alpha1".to_owned()),
                kind: Some(if of.pool().is_some() { "Pool" } else { "Policy" }.to_owned()),
                name: Some(of.pool().map_or_else(|| "limits".to_owned(), ToString::to_string)),
                namespace: Some(self.namespace.clone()),
                ..ObjectReference::default()
            },
            About::Stoker => ObjectReference {
                api_version: Some("apps/v1".to_owned()),
                kind: Some("Deployment".to_owned()),
                name: Some(deployment(&self.instance).to_owned()),
                namespace: Some(self.namespace.clone()),
                ..ObjectReference::default()
            },
            About::NodePool(name) => ObjectReference {
                api_version: Some("karpenter.sh/v1".to_owned()),
                kind: Some("NodePool".to_owned()),
                name: Some(name.to_owned()),
                ..ObjectReference::default()
            },
            About::Pod(pod) => ObjectReference {
                api_version: Some("v1".to_owned()),
                kind: Some("Pod".to_owned()),
                name: pod.name.clone(),
                namespace: pod.namespace.clone(),
                uid: pod.uid.clone(),
                ..ObjectReference::default()
            },
        };
        let number = self.sent.fetch_add(1, Ordering::Relaxed);
        Event {
            // Not made of the group's id, which may have characters that a name may not.
            metadata: ObjectMeta {
                name: Some(format!("stoker.{:x}.{number:x}", now.as_nanosecond())),
                namespace: Some(regarding.namespace.clone().unwrap_or_else(|| self.namespace.clone())),
                ..ObjectMeta::default()
            },
            event_time: Some(MicroTime(now)),
            reporting_controller: Some("stoker.dev/stoker".to_owned()),
            reporting_instance: Some(clipped(&self.instance, 128).to_owned()),
            action: Some(reason.to_owned()),
            reason: Some(reason.to_owned()),
            type_: Some(severity.as_str().to_owned()),
            note: Some(clipped(note, MAX_NOTE).to_owned()),
            regarding: Some(regarding),
            ..Event::default()
        }
    }
}

/// The Deployment of a Pod by its name, which ends with the hash of its template and five letters of its own.
fn deployment(pod: &str) -> &str {
    let made = |part: &str, from: usize, to: usize| {
        (from..=to).contains(&part.len()) && part.chars().all(|c| c.is_ascii_digit() || c.is_ascii_lowercase())
    };
    match pod.rsplitn(3, '-').collect::<Vec<_>>()[..] {
        [own, hash, name] if made(own, 5, 5) && made(hash, 6, 10) => name,
        _ => FIELD_MANAGER,
    }
}

/// As much of `text` as `max` bytes hold.
fn clipped(text: &str, max: usize) -> &str {
    text.get(..text.floor_char_boundary(max)).unwrap_or(text)
}

/// Lets [`BURST`] through at once and one more each [`INTERVAL`].
#[derive(Debug, Default)]
struct Bucket {
    /// When the bucket is full again; each event moves it on by an interval.
    full_at: Option<Instant>,
}

impl Bucket {
    fn take(&mut self, now: Instant) -> bool {
        let next = self.full_at.unwrap_or(now).max(now) + INTERVAL;
        let allowed = next <= now + INTERVAL * BURST;
        if allowed {
            self.full_at = Some(next);
        }
        allowed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_passes_and_then_one_each_interval() {
        let mut bucket = Bucket::default();
        let start = Instant::now();
        let passed = (0..200).filter(|_| bucket.take(start)).count();
        assert_eq!(passed, 50);
        assert!(!bucket.take(start + Duration::from_secs(1)));
        assert!(bucket.take(start + Duration::from_secs(2)));
        assert!(!bucket.take(start + Duration::from_secs(2)));
        let later = start + Duration::from_hours(1);
        assert_eq!((0..200).filter(|_| bucket.take(later)).count(), 50);
    }

    #[test]
    fn a_deployment_is_found_by_the_name_of_its_pod() {
        assert_eq!(deployment("stoker-6d4cf56db6-x7k2p"), "stoker");
        assert_eq!(deployment("gpu-stoker-blue-5f9c7d8b49-abcde"), "gpu-stoker-blue");
        // Of what is no Pod of a Deployment, as it is shipped.
        for name in ["", "stoker", "laptop", "stoker-0", "node-17.example.com", "build-host-a"] {
            assert_eq!(deployment(name), "stoker", "{name}");
        }
    }

    #[test]
    fn notes_are_clipped_between_characters() {
        assert_eq!(clipped("größe", 3), "gr");
        assert_eq!(clipped("größe", 4), "grö");
        assert_eq!(clipped("x", 4), "x");
    }
}
