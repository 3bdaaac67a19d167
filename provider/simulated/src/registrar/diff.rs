//! What has to change so that the Nodes are as wanted.

use std::collections::BTreeMap;

use stoker_core::base::ids::{NodeName, ProviderId};
use tracing::warn;

use super::{RegisteredNode, SIMULATED};

/// A Node that exists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Known {
    /// Of a simulated machine.
    Ours {
        machine: ProviderId,
        /// Tells it from a later Node of the same name.
        uid: String,
        ready: bool,
    },
    /// Of no simulated machine of this cluster; never touched.
    Theirs,
}

impl Known {
    pub(super) fn ours(machine: ProviderId, uid: Option<String>, ready: bool) -> Self {
        Self::Ours { machine, uid: uid.unwrap_or_default(), ready }
    }
}

/// One change.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    Create(RegisteredNode),
    /// Of the Node with that uid.
    SetReady(RegisteredNode, String),
    Delete(NodeName, ProviderId),
}

/// The steps from what is known to what is wanted; none where all is well.
pub(super) fn steps(known: &BTreeMap<NodeName, Known>, wanted: &[RegisteredNode]) -> Vec<Step> {
    let wanted: BTreeMap<&NodeName, &RegisteredNode> = wanted.iter().map(|node| (&node.instance.node_name, node)).collect();
    let mut steps = Vec::new();
    for (name, is) in known {
        let Known::Ours { machine, uid, ready } = is else { continue };
        match wanted.get(name) {
            Some(node) if node.instance.provider_id == *machine => {
                if node.ready != *ready {
                    steps.push(Step::SetReady((*node).clone(), uid.clone()));
                }
            }
            // The name is wanted for another machine: its Node is made once this one is gone.
            Some(_) | None => steps.push(Step::Delete(name.clone(), machine.clone())),
        }
    }
    for (name, node) in wanted {
        if known.contains_key(name) {
            continue;
        }
        if node.instance.provider_id.as_str().starts_with(SIMULATED) {
            steps.push(Step::Create(node.clone()));
        } else {
            warn!(node = %name, machine = %node.instance.provider_id, "not a simulated machine: it gets no Node from here");
        }
    }
    steps
}

/// Our Nodes that are not there any more, with their machines.
pub(super) fn widows(known: &BTreeMap<NodeName, Known>, listed: &BTreeMap<NodeName, Known>) -> Vec<(NodeName, ProviderId)> {
    let gone = known.iter().filter(|(name, _)| !listed.contains_key(*name));
    gone.filter_map(|(name, is)| match is {
        Known::Ours { machine, .. } => Some((name.clone(), machine.clone())),
        Known::Theirs => None,
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use stoker_core::base::units::MiB;
    use stoker_core::catalogue::template::{NodeTemplate, Resources};
    use stoker_core::facts::supply::{Instance, InstanceState};
    use stoker_core::market::offer::{CapacityType, Market, Place};
    use stoker_core::market::sharing::Slices;

    use super::*;

    fn wanted(name: &str, machine: &str, ready: bool) -> RegisteredNode {
        let id = |text: &str| text.to_owned();
        let resources = Resources { milli_cpu: 4_000, memory: MiB(1), ephemeral: MiB(1), pods: 1, gpus: 1 };
        let place = Place {
            cloud: id("aws").try_into().unwrap(),
            region: id("us-east-1").try_into().unwrap(),
            zone: id("use1-az1").try_into().unwrap(),
            instance_type: id("g6.xlarge").try_into().unwrap(),
        };
        RegisteredNode {
            instance: Arc::new(Instance {
                key: id("test/g/1/1").try_into().unwrap(),
                provider_id: id(machine).try_into().unwrap(),
                node_name: id(name).try_into().unwrap(),
                market: Market { place, capacity_type: CapacityType::Spot },
                launched_at: jiff::Timestamp::UNIX_EPOCH,
                state: InstanceState::Running,
            }),
            template: Arc::new(NodeTemplate {
                labels: BTreeMap::new(),
                taints: vec![],
                capacity: resources,
                allocatable: resources,
                slices: Slices::default(),
            }),
            ready,
        }
    }

    fn known(nodes: &[(&str, Option<&str>, bool)]) -> BTreeMap<NodeName, Known> {
        nodes
            .iter()
            .map(|(name, machine, ready)| {
                let ours = |id| Known::ours(ProviderId::new(id).unwrap(), Some("u".to_owned()), *ready);
                (NodeName::new(name).unwrap(), machine.map_or(Known::Theirs, ours))
            })
            .collect()
    }

    fn delete(name: &str, machine: &str) -> Step {
        Step::Delete(NodeName::new(name).unwrap(), ProviderId::new(machine).unwrap())
    }

    #[test]
    fn what_is_as_wanted_needs_no_step() {
        let wanted = [wanted("a", "sim://a", true), wanted("b", "sim://b", false)];
        assert!(steps(&known(&[("a", Some("sim://a"), true), ("b", Some("sim://b"), false)]), &wanted).is_empty());
    }

    #[test]
    fn nodes_come_change_and_go_with_their_machines() {
        let wanted = [wanted("a", "sim://a", true), wanted("b", "sim://b", true)];
        let known = known(&[("b", Some("sim://b"), false), ("c", Some("sim://c"), true)]);
        assert_eq!(
            steps(&known, &wanted),
            [Step::SetReady(wanted[1].clone(), "u".to_owned()), delete("c", "sim://c"), Step::Create(wanted[0].clone())]
        );
    }

    #[test]
    fn nodes_of_others_are_never_touched() {
        let wanted = [wanted("taken", "sim://x", true), wanted("real", "aws:///us-east-1a/i-1", true)];
        assert!(steps(&known(&[("taken", None, false), ("other", None, true)]), &wanted).is_empty());
    }

    #[test]
    fn a_name_passes_to_another_machine_in_two_rounds() {
        let wanted = [wanted("a", "sim://2", true)];
        assert_eq!(steps(&known(&[("a", Some("sim://1"), true)]), &wanted), [delete("a", "sim://1")]);
        assert_eq!(steps(&known(&[]), &wanted), [Step::Create(wanted[0].clone())]);
    }

    #[test]
    fn only_our_own_nodes_leave_pods_to_us() {
        let before = known(&[("a", Some("sim://a"), true), ("b", Some("sim://b"), true), ("theirs", None, true)]);
        let after = known(&[("b", Some("sim://2"), true)]);
        let gone = (NodeName::new("a").unwrap(), ProviderId::new("sim://a").unwrap());
        assert_eq!(widows(&before, &after), [gone]);
    }
}
