//! Nodes that leave less to pods than their group's template promises, as they are remembered.

use std::fmt;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use crate::base::ids::NodeName;
use crate::base::units::MiB;
use crate::catalogue::template::{NodeTemplate, Resources};
use crate::facts::snapshot::Allocatable;

/// How long a template promises less after a node fell short. Pods that ask for more get no node in that time, and without one nobody
/// would see that nodes are right again.
pub const COUNTS_FOR: SignedDuration = SignedDuration::from_hours(6);

/// What the last node of an instance type that became Ready leaves to pods, where that is less than was promised.
///
/// The autoscaler simulates a group that had a node with a copy of that node, and one that had none
/// with the group's template. A template that promises too much buys nodes that its pods do not fit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeShortfall {
    /// The node.
    pub node: NodeName,
    /// When that was seen.
    pub at: Timestamp,
    /// What was promised.
    pub promised: Allocatable,
    /// What it has.
    pub has: Allocatable,
}

impl NodeShortfall {
    /// What a node lacks; `None` where it has all that the template promises.
    pub fn of(node: &NodeName, has: Allocatable, template: &NodeTemplate, at: Timestamp) -> Option<Self> {
        let promised = template.allocatable.without_gpus();
        let Allocatable { milli_cpu, memory, ephemeral, pods } = promised;
        let lacks = has.milli_cpu < milli_cpu || has.memory < memory || has.ephemeral < ephemeral || has.pods < pods;
        lacks.then(|| Self { node: node.clone(), at, promised, has })
    }

    /// Whether it still counts: a template that promises something else is another promise, and after [`COUNTS_FOR`] it is tried again.
    pub fn counts(&self, template: &NodeTemplate, now: Timestamp) -> bool {
        self.promised == template.allocatable.without_gpus() && now.duration_since(self.at) < COUNTS_FOR
    }

    /// A template that promises no more than the node has.
    #[must_use]
    pub fn corrected(&self, template: &NodeTemplate) -> NodeTemplate {
        let Resources { milli_cpu, memory, ephemeral, pods, gpus } = template.allocatable;
        let allocatable = Resources {
            milli_cpu: milli_cpu.min(self.has.milli_cpu),
            memory: memory.min(self.has.memory),
            ephemeral: ephemeral.min(self.has.ephemeral),
            pods: pods.min(self.has.pods),
            gpus,
        };
        NodeTemplate { allocatable, ..template.clone() }
    }
}

impl fmt::Display for NodeShortfall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { promised, has, .. } = self;
        let mib = |MiB(mib): MiB| format!("{mib}Mi");
        let all = [
            ("cpu", format!("{}m", promised.milli_cpu), format!("{}m", has.milli_cpu), has.milli_cpu < promised.milli_cpu),
            ("memory", mib(promised.memory), mib(has.memory), has.memory < promised.memory),
            ("ephemeral-storage", mib(promised.ephemeral), mib(has.ephemeral), has.ephemeral < promised.ephemeral),
            ("pods", promised.pods.to_string(), has.pods.to_string(), has.pods < promised.pods),
        ];
        for (at, (what, promised, has, _)) in all.into_iter().filter(|(.., lacks)| *lacks).enumerate() {
            let and = if at == 0 { "" } else { ", " };
            write!(f, "{and}{what} {has} instead of {promised}")?;
        }
        Ok(())
    }
}
