//! Messages of the wire to our own types, and back.

use prost_types::Timestamp;
use stoker_core::base::ids::{IdError, MAX_ID_LEN, NodeGroupId};
use stoker_core::base::sabotage;
use stoker_core::decide::orders::NodeRef;
use stoker_proto::InstanceErrorClass;
use stoker_proto::externalgrpc::instance_status::InstanceState;
use stoker_proto::externalgrpc::{ExternalGrpcNode, Instance, InstanceErrorInfo, InstanceStatus as WireStatus};

use super::status::{Refused, clip};
use crate::publish::view::{InstanceStatus, InstanceView};

/// Longest message of a failed instance, in bytes. The autoscaler takes answers of at most 4 MiB: so a group of 10,000 fits.
const MAX_INSTANCE_MESSAGE: usize = 240;

/// Nodes of one deletion. The autoscaler's largest batch is one group, of which it buys at most 1,000 nodes at a time.
const MAX_NODES: usize = 10_000;

const LIST_GROUPS: &str = "name a group that NodeGroups lists";
const NAME_NODE: &str = "send a node with its spec.providerID or its name";
const SEND_TIMES: &str = "send a start and an end after it, as the autoscaler does";

/// A group's id as a request names it.
pub(super) fn group_id(text: &str) -> Result<NodeGroupId, Refused> {
    NodeGroupId::new(text).map_err(|why| bad_id("id", &why, LIST_GROUPS))
}

/// The nodes of a deletion, in the order of the request.
pub(super) fn node_refs(nodes: Vec<ExternalGrpcNode>) -> Result<Vec<NodeRef>, Refused> {
    if nodes.len() > MAX_NODES {
        let fault = format!("has {} nodes, more than {MAX_NODES}", nodes.len());
        return Err(Refused::Field { field: "nodes", fault, cure: "delete them in several calls" });
    }
    nodes.into_iter().map(node_ref).collect()
}

fn node_ref(node: ExternalGrpcNode) -> Result<NodeRef, Refused> {
    if node.provider_id.is_empty() && node.name.is_empty() {
        let fault = "has a node with neither a providerID nor a name".to_owned();
        return Err(Refused::Field { field: "nodes", fault, cure: NAME_NODE });
    }
    named("nodes", &node)?;
    Ok(NodeRef { provider_id: node.provider_id, name: node.name })
}

/// A node that a request must have.
pub(super) fn node(node: Option<&ExternalGrpcNode>) -> Result<&ExternalGrpcNode, Refused> {
    let node = node.ok_or_else(|| Refused::Field { field: "node", fault: "is missing".to_owned(), cure: NAME_NODE })?;
    named("node", node)?;
    Ok(node)
}

/// Neither of a node's names is longer than an id may be, or has a control character.
fn named(field: &'static str, node: &ExternalGrpcNode) -> Result<(), Refused> {
    for (kind, text) in [("providerID", &node.provider_id), ("name", &node.name)] {
        let fault = if text.len() > MAX_ID_LEN {
            IdError::TooLong { kind, len: text.len() }
        } else if let Some(at) = text.find(char::is_control) {
            IdError::Control { kind, at }
        } else {
            continue;
        };
        return Err(bad_id(field, &fault, NAME_NODE));
    }
    Ok(())
}

fn bad_id(field: &'static str, why: &IdError, cure: &'static str) -> Refused {
    Refused::Field { field, fault: format!("is invalid: {why}"), cure }
}

/// How many hours a request wants priced; above nought.
pub(super) fn hours(interval: Option<(Timestamp, Timestamp)>) -> Result<f64, Refused> {
    const NANOS_PER_HOUR: f64 = 3.6e12;
    let bad = |fault: &str| Refused::Field { field: "interval", fault: fault.to_owned(), cure: SEND_TIMES };
    let (start, end) = interval.ok_or_else(|| bad("is missing"))?;
    let nanos = |at: Timestamp| -> Option<i128> {
        // The years 1 to 9999, which is all that a protobuf Timestamp may tell.
        let valid = (-62_135_596_800..=253_402_300_799).contains(&at.seconds) && (0..1_000_000_000).contains(&at.nanos);
        valid.then(|| i128::from(at.seconds) * 1_000_000_000 + i128::from(at.nanos))
    };
    let (start, end) = nanos(start).zip(nanos(end)).ok_or_else(|| bad("has a time outside the years 1 to 9999"))?;
    if end <= start {
        return Err(bad("does not end after its start"));
    }
    #[expect(clippy::cast_precision_loss, reason = "a price on the wire is a float, and an hour is exact")]
    let hours = (end - start) as f64 / NANOS_PER_HOUR;
    Ok(hours)
}

/// A size on the wire.
pub(super) fn size(n: u32) -> i32 {
    i32::try_from(n).unwrap_or(i32::MAX)
}

/// An instance as the autoscaler reads it. An error counts only on one that is being created, and only with a code.
pub(super) fn instance(shown: &InstanceView) -> Instance {
    let (state, error_info) = match &shown.state {
        InstanceStatus::Creating => (InstanceState::InstanceCreating, None),
        InstanceStatus::Running => (InstanceState::InstanceRunning, None),
        InstanceStatus::Deleting => (InstanceState::InstanceDeleting, None),
        InstanceStatus::Failed { code, message, out_of_resources } => {
            let class = if *out_of_resources { InstanceErrorClass::OutOfResources } else { InstanceErrorClass::Other };
            let message = clip(message.clone(), MAX_INSTANCE_MESSAGE);
            let code = if sabotage::on("code-is-message") { message.as_str() } else { *code };
            let code = if sabotage::on("error-without-code") { "" } else { code };
            let state =
                if sabotage::on("error-on-running") { InstanceState::InstanceRunning } else { InstanceState::InstanceCreating };
            (state, Some(InstanceErrorInfo::new(class, code, message.clone())))
        }
    };
    Instance { id: shown.id.clone(), status: Some(WireStatus { instance_state: state.into(), error_info }) }
}
