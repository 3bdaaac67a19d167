//! What we do to Nodes. Each action reads first, writes only on top of what it read, and done twice changes nothing the second time.

mod clean;
mod drain;
mod event;
mod tell;

use std::time::Duration;

use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use kube::{Api, Client};
use serde_json::{Value, json};
use stoker_core::base::ids::{NodeName, ProviderId};
use stoker_core::facts::snapshot::Hold;
use tokio::time::timeout;

pub use super::pages::ListError;
pub use clean::Trace;
pub use drain::Emptied;
use event::Recorder;
pub use event::{About, Severity};

use super::thin::NodeRow;
use super::{FIELD_MANAGER, HELD, SCALE_DOWN_DISABLED};

/// How long one request may take before it counts as failed. Every action can be repeated.
pub(crate) const DEADLINE: Duration = Duration::from_secs(10);

/// How often an action begins again because the Node changed between reading and writing. Kubelets write every few minutes, so even a
/// second time is rare.
const ATTEMPTS: u32 = 5;

/// What an action came to.
#[must_use]
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Outcome {
    /// It did what was asked.
    Done,
    /// It was so already.
    Already,
    /// There is no such Node.
    Gone,
    /// Somebody opened the node again that we had closed: left open.
    Reopened,
    /// The annotation, or the machine behind the name, is somebody else's: left alone.
    NotOurs,
}

impl Outcome {
    /// A stable word for metrics and logs.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Already => "already",
            Self::Gone => "gone",
            Self::Reopened => "reopened",
            Self::NotOurs => "not-ours",
        }
    }
}

/// Why an action failed. Every action may be repeated.
#[derive(Debug, thiserror::Error)]
pub enum ActError {
    /// The API server refused or could not be asked.
    #[error("cannot {verb} Node {node}")]
    Api {
        /// What was tried.
        verb: &'static str,
        /// The Node.
        node: NodeName,
        /// What the server or the transport says.
        #[source]
        source: Box<kube::Error>,
    },
    /// No answer came in time; whether the server did it is unknown.
    #[error("cannot {verb} Node {node}: no answer within {}s", DEADLINE.as_secs())]
    TimedOut {
        /// What was tried.
        verb: &'static str,
        /// The Node.
        node: NodeName,
    },
    /// Others changed the Node each time between reading and writing.
    #[error("cannot {verb} Node {node}: it changed {ATTEMPTS} times meanwhile")]
    Contended {
        /// What was tried.
        verb: &'static str,
        /// The Node.
        node: NodeName,
    },
}

impl ActError {
    /// A stable word for metrics and logs.
    pub fn label(&self) -> &'static str {
        match self {
            Self::Api { source, .. } if matches!(&**source, kube::Error::Api(status) if status.is_forbidden()) => "forbidden",
            Self::Api { .. } => "api",
            Self::TimedOut { .. } => "timed-out",
            Self::Contended { .. } => "contended",
        }
    }
}

/// Acts on the cluster's Nodes.
pub struct KubeAct {
    client: Client,
    nodes: Api<NodeRow>,
    recorder: Recorder,
    /// Events about verdicts have a rate of their own: a fleet that changes leaves room for what is told of orders and groups.
    verdicts: Recorder,
}

/// What is changed of a Node.
struct Change {
    annotations: Value,
    spec: Option<Value>,
}

/// Both annotations of a hold, set or removed.
fn held(value: Option<&'static str>) -> Change {
    Change { annotations: json!({ SCALE_DOWN_DISABLED: value, HELD: value }), spec: None }
}

/// What an attempt to write on top of what was read came to.
enum Write {
    Written,
    Gone,
    Conflict,
}

impl KubeAct {
    /// Acts through `client`; events about groups go to `namespace`.
    pub fn new(client: &Client, namespace: &str) -> Self {
        let recorder = || Recorder::new(client, namespace);
        Self { client: client.clone(), nodes: Api::all(client.clone()), recorder: recorder(), verdicts: recorder() }
    }

    /// Keeps the autoscaler from removing a node, under our mark. A hold that somebody else set is left as it is.
    ///
    /// # Errors
    /// See [`ActError`].
    pub async fn hold(&self, node: &NodeName) -> Result<Outcome, ActError> {
        self.change("hold", node, |row| match row.hold {
            Hold::None => Ok(held(Some("true"))),
            Hold::Ours => Err(Outcome::Already),
            Hold::Theirs | Hold::Refused => Err(Outcome::NotOurs),
        })
        .await
    }

    /// Takes back our own hold, and a mark of ours that marks nothing.
    ///
    /// # Errors
    /// See [`ActError`].
    pub async fn release(&self, node: &NodeName) -> Result<Outcome, ActError> {
        self.change("release", node, |row| match row.hold {
            Hold::Ours => Ok(held(None)),
            Hold::Theirs | Hold::Refused => Err(Outcome::NotOurs),
            Hold::None if row.marked => Ok(held(None)),
            Hold::None => Err(Outcome::Already),
        })
        .await
    }

    /// Deletes the Node object of a machine that is gone, and no other: `machine` must be its `spec.providerID`.
    ///
    /// # Errors
    /// See [`ActError`].
    pub async fn delete_node(&self, node: &NodeName, machine: &ProviderId) -> Result<Outcome, ActError> {
        let verb = "delete";
        for _ in 0..ATTEMPTS {
            let Some(row) = self.read(verb, node).await? else { return Ok(Outcome::Gone) };
            if row.provider_id.as_deref() != Some(machine.as_str()) {
                return Ok(Outcome::NotOurs);
            }
            let as_read = Preconditions { uid: row.meta.uid, resource_version: row.meta.resource_version };
            let params = DeleteParams { preconditions: Some(as_read), ..DeleteParams::default() };
            match self.write(verb, node, self.nodes.delete(node.as_str(), &params)).await? {
                Write::Written => return Ok(Outcome::Done),
                Write::Gone => return Ok(Outcome::Gone),
                Write::Conflict => {}
            }
        }
        Err(ActError::Contended { verb, node: node.clone() })
    }

    /// Tells people about a group or a node by a Kubernetes Event. Events are best effort: beyond a small rate they are dropped, and
    /// one that fails is only logged.
    pub async fn event(&self, about: About<'_>, severity: Severity, reason: &'static str, note: &str) {
        self.recorder.record(about, severity, reason, note).await;
    }

    /// Events not sent so far, because they came too fast or the server did not take them.
    pub fn events_dropped(&self) -> u64 {
        self.recorder.dropped() + self.verdicts.dropped()
    }

    /// Changes a Node as `decide` says of it as it is now.
    async fn change(
        &self,
        verb: &'static str,
        node: &NodeName,
        decide: impl Fn(&NodeRow) -> Result<Change, Outcome>,
    ) -> Result<Outcome, ActError> {
        for _ in 0..ATTEMPTS {
            let Some(row) = self.read(verb, node).await? else { return Ok(Outcome::Gone) };
            let Change { annotations, spec } = match decide(&row) {
                Ok(change) => change,
                Err(outcome) => return Ok(outcome),
            };
            // The resource version makes the server refuse the patch if the Node is not as we read it; the uid, if it is another.
            let mut patch = json!({ "metadata": {
                "uid": row.meta.uid,
                "resourceVersion": row.meta.resource_version,
                "annotations": annotations,
            }});
            if let Some(spec) = spec {
                patch["spec"] = spec;
            }
            let patch = Patch::Merge(patch);
            let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
            match self.write(verb, node, self.nodes.patch(node.as_str(), &params, &patch)).await? {
                Write::Written => return Ok(Outcome::Done),
                Write::Gone => return Ok(Outcome::Gone),
                Write::Conflict => {}
            }
        }
        Err(ActError::Contended { verb, node: node.clone() })
    }

    async fn read(&self, verb: &'static str, node: &NodeName) -> Result<Option<NodeRow>, ActError> {
        match timeout(DEADLINE, self.nodes.get_opt(node.as_str())).await {
            Ok(answer) => answer.map_err(|source| ActError::Api { verb, node: node.clone(), source: Box::new(source) }),
            Err(_) => Err(ActError::TimedOut { verb, node: node.clone() }),
        }
    }

    async fn write<T>(
        &self,
        verb: &'static str,
        node: &NodeName,
        request: impl Future<Output = kube::Result<T>>,
    ) -> Result<Write, ActError> {
        match timeout(DEADLINE, request).await {
            Ok(Ok(_)) => Ok(Write::Written),
            Ok(Err(kube::Error::Api(status))) if status.is_not_found() => Ok(Write::Gone),
            Ok(Err(kube::Error::Api(status))) if status.is_conflict() => Ok(Write::Conflict),
            Ok(Err(source)) => Err(ActError::Api { verb, node: node.clone(), source: Box::new(source) }),
            Err(_) => Err(ActError::TimedOut { verb, node: node.clone() }),
        }
    }
}

#[cfg(test)]
mod tests;
