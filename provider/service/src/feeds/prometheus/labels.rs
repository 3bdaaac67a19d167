//! Which GPU and which node a series is of, by its labels.

use std::collections::{BTreeMap, BTreeSet};

use stoker_core::base::ids::{GpuUuid, NodeName};

use super::ask::Row;

/// What exporters call a GPU's UUID: today, and in their old namespace. A MIG instance bears that of its GPU.
pub(super) const UUIDS: [&str; 2] = ["UUID", "uuid"];
/// The MIG instance within the GPU.
pub(super) const INSTANCE: &str = "GPU_I_ID";
/// The MIG instance's profile.
pub(super) const PROFILE: &str = "GPU_I_PROFILE";
/// The GPU's place in the driver's order.
pub(super) const INDEX: &str = "gpu";
/// The GPU's model.
pub(super) const MODEL: &str = "modelName";
/// Where it is on the PCI bus.
pub(super) const PCI: &str = "pci_bus_id";

/// All that tells which GPU a series is of.
pub(super) const IDENTITY: [&str; 7] = [UUIDS[0], UUIDS[1], INSTANCE, PROFILE, INDEX, MODEL, PCI];

/// A GPU, or one MIG instance of it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Of {
    /// The GPU.
    pub(super) gpu: GpuUuid,
    /// The instance; `None` for the GPU as a whole.
    pub(super) instance: Option<u32>,
}

impl Of {
    /// What a series is of; `None` where its labels do not tell.
    pub(super) fn told_by(row: &Row) -> Option<Self> {
        let gpu = UUIDS.iter().find_map(|label| row.label(label)).and_then(|uuid| GpuUuid::new(uuid).ok())?;
        let instance = match row.label(INSTANCE) {
            None => None,
            Some(number) => Some(number.parse().ok()?),
        };
        Some(Self { gpu, instance })
    }
}

/// Why a series is not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Dropped {
    /// It has no GPU's UUID, or an instance that is no number.
    NoGpu,
    /// None of the labels that may name the node names one of this cluster.
    UnknownNode,
    /// Its labels name different nodes, or two nodes claim one GPU.
    Conflict,
    /// It was sampled too long ago.
    Stale,
    /// It was sampled after it was asked for.
    Future,
    /// A value that hardware cannot have, or that is not a number.
    Absurd,
    /// An XID that is no number.
    NoXid,
}

impl Dropped {
    pub(super) const ALL: [Self; 7] =
        [Self::NoGpu, Self::UnknownNode, Self::Conflict, Self::Stale, Self::Future, Self::Absurd, Self::NoXid];

    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::NoGpu => "no-gpu",
            Self::UnknownNode => "unknown-node",
            Self::Conflict => "conflict",
            Self::Stale => "stale",
            Self::Future => "future",
            Self::Absurd => "absurd",
            Self::NoXid => "no-xid",
        }
    }
}

/// How many series were not taken, by reason.
pub(super) type Drops = BTreeMap<Dropped, u64>;

/// Finds nodes by what series call them.
pub(super) struct Nodes {
    names: BTreeSet<NodeName>,
    /// By the part before the first dot; `None` where several begin so.
    hosts: BTreeMap<String, Option<NodeName>>,
}

impl Nodes {
    pub(super) fn new(known: Vec<NodeName>) -> Self {
        let mut hosts: BTreeMap<String, Option<NodeName>> = BTreeMap::new();
        for name in &known {
            if let Some((host, _)) = name.as_str().split_once('.') {
                hosts.entry(host.to_owned()).and_modify(|one| *one = None).or_insert_with(|| Some(name.clone()));
            }
        }
        Self { names: known.into_iter().collect(), hosts }
    }

    /// The node that a label's value means: by its name, or by the part of it that a machine calls itself; a port is left out.
    fn find(&self, value: &str) -> Option<&NodeName> {
        let host = value.rsplit_once(':').map_or(value, |(host, _)| host);
        let named = |text: &str| {
            NodeName::new(text)
                .ok()
                .and_then(|name| self.names.get(&name))
                .or_else(|| self.hosts.get(text).and_then(Option::as_ref))
        };
        named(value).or_else(|| named(host))
    }

    /// The node of a series. The labels are tried in order, and one that names no node of this cluster is passed over: it may be the
    /// exporter's pod. Where two name different nodes, neither is believed.
    pub(super) fn of(&self, row: &Row, labels: &[String]) -> Result<NodeName, Dropped> {
        self.of_labels(&row.metric, labels)
    }

    /// The same by all labels of a series; those that name no node are passed over, as empty ones are.
    pub(super) fn of_labels(&self, metric: &BTreeMap<String, String>, labels: &[String]) -> Result<NodeName, Dropped> {
        let mut named = labels.iter().filter_map(|label| metric.get(label)).filter_map(|value| self.find(value));
        let first = named.next().ok_or(Dropped::UnknownNode)?;
        if named.all(|other| other == first) { Ok(first.clone()) } else { Err(Dropped::Conflict) }
    }
}
