//! A node as `stoker nodes` shows it.

use jiff::{SignedDuration, Timestamp};
use serde::Serialize;
use stoker_advice::rollup::{Holder, Latest, LatestUnit, Occupancy};
use stoker_core::base::ids::{InstanceType, NodeGroupId, NodeName, PoolName, ProviderId};
use stoker_core::base::units::UsdPerHour;
use stoker_core::facts::outdated::Outdated;
use stoker_core::facts::reading::MemoryLevel;
use stoker_core::facts::snapshot::{Cordon, NodeFacts};
use stoker_core::market::offer::CapacityType;
use stoker_core::state::disruption::DrainReason;
use stoker_core::state::memory::Memory;
use stoker_core::state::node_verdict::Verdict;
use stoker_core::state::outdated::OutdatedNode;
use stoker_core::state::record::{Record, State};

use super::super::held::VerdictShown;
use super::super::out::Money;
use stoker_service::controllers::rollup::WRITE_EVERY;

/// Levels older than this are not shown as if they were now: two writings and a minute.
const FRESH_FOR: SignedDuration = SignedDuration::from_secs(2 * WRITE_EVERY.as_secs() + 60);

/// What a node is doing, as far as the facts say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum NodeState {
    /// It is made, and not a Ready node yet.
    Booting,
    /// GPU pods hold it.
    Busy,
    /// None does.
    Free,
    /// It is on its way out.
    Draining,
    /// Nobody can tell.
    Unknown,
}

impl NodeState {
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Booting => "booting",
            Self::Busy => "busy",
            Self::Free => "free",
            Self::Draining => "draining",
            Self::Unknown => "unknown",
        }
    }
}

/// The one place that says what a node is doing. `None` for a record without a machine.
fn state(record: &Record, memory: &Memory, facts: Option<&NodeFacts>) -> Option<NodeState> {
    let disruption = memory.disruptions.get(&record.id).is_some_and(|disruption| disruption.is_open());
    match &record.state {
        State::Wanted | State::Launching { .. } | State::Cancelled { .. } | State::Failed { instance: None, .. } => None,
        State::Failed { instance: Some(_), .. } => Some(NodeState::Unknown),
        State::Deleting { .. } => Some(NodeState::Draining),
        State::Registered { .. } if disruption || facts.is_some_and(|facts| facts.cordon == Cordon::Ours) => {
            Some(NodeState::Draining)
        }
        State::Booting { .. } | State::Registered { ready_at: None, .. } => Some(NodeState::Booting),
        State::Registered { .. } => Some(match facts {
            Some(facts) if facts.is_busy() => NodeState::Busy,
            Some(_) => NodeState::Free,
            None => NodeState::Unknown,
        }),
    }
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct NodeRow {
    pub(super) node: String,
    pub(super) machine: ProviderId,
    pub(super) group: NodeGroupId,
    /// `None` where nobody remembers its group.
    pub(super) pool: Option<PoolName>,
    pub(super) instance_type: InstanceType,
    pub(super) zone: String,
    pub(super) capacity_type: CapacityType,
    /// What it cost when it was chosen, without commitments.
    pub(super) per_hour: Money,
    pub(super) state: NodeState,
    /// What is concluded of it; `None` where nothing can tell.
    pub(super) verdict: Option<VerdictShown>,
    /// How it differs from a node that would be made today, and since when; `None` where it does not.
    pub(super) outdated: Option<OutdatedRow>,
    /// GPU pods on it; `None` where that is not known.
    pub(super) held_by: Option<Vec<String>>,
    /// When its GPUs were last read.
    pub(super) read_at: Option<Timestamp>,
    /// Why none of them is told; `None` where they are.
    pub(super) unread: Option<String>,
    pub(super) gpus: Vec<GpuRow>,
    #[serde(skip)]
    pub(super) price: UsdPerHour,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct OutdatedRow {
    pub(super) since: Timestamp,
    pub(super) why: Outdated,
    /// The same, in words.
    pub(super) message: String,
    /// Whether it is being replaced.
    pub(super) replacing: bool,
}

impl OutdatedRow {
    fn of(record: &Record, memory: &Memory) -> Option<Self> {
        let OutdatedNode { since, why } = memory.outdated.get(&record.id)?.as_ref();
        let drain = memory.drain_of(record.id);
        let replacing = drain.is_some_and(|drain| matches!(drain.why, DrainReason::Outdated { .. }));
        Some(Self { since: *since, why: why.clone(), message: why.to_string(), replacing })
    }
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct GpuRow {
    #[serde(flatten)]
    pub(super) latest: LatestUnit,
    /// Share of its memory in use, in thousandths.
    pub(super) memory_permille: Option<u16>,
    pub(super) per_hour: Money,
    #[serde(skip)]
    pub(super) price: UsdPerHour,
}

impl GpuRow {
    pub(super) fn is_held_idle(&self) -> bool {
        matches!(self.latest.holder, Holder::Pod { .. })
            && matches!(self.latest.activity, Occupancy::Resident | Occupancy::Empty)
    }
}

impl NodeRow {
    pub(super) fn is_held(&self) -> bool {
        self.verdict.as_ref().is_some_and(|shown| shown.verdict == Verdict::Held)
    }

    pub(super) fn of(
        record: &Record,
        memory: &Memory,
        name: Option<&NodeName>,
        facts: Option<&NodeFacts>,
        read: Option<&Latest>,
        now: Timestamp,
    ) -> Option<Self> {
        let (state, purchase) = (state(record, memory, facts)?, record.purchase()?);
        let group = memory.groups.get(&record.group).map(|remembered| &remembered.group);
        let fresh = read.filter(|read| now.duration_since(read.at) <= FRESH_FOR);
        let unread = match (read, fresh, name) {
            (_, Some(_), _) => None,
            (Some(read), None, _) => Some(format!("last read at {}", read.at.strftime("%Y-%m-%d %H:%M:%SZ"))),
            (None, _, Some(_)) => Some("never read: is a probe on it?".to_owned()),
            (None, _, None) => Some("its Node is not known".to_owned()),
        };
        let (gpus, units) = group.map_or((1, 1), |group| (group.spec.advertised_gpus(), group.units()));
        let gpu = |latest: &LatestUnit| {
            let price = purchase.price.per(if latest.unit.mig.is_some() { units } else { gpus }.max(1));
            let share = |level: &MemoryLevel| {
                (u128::from(level.used) * 1_000)
                    .checked_div(u128::from(level.total))
                    .and_then(|share| u16::try_from(share.min(1_000)).ok())
            };
            GpuRow {
                memory_permille: latest.memory.known().and_then(share),
                latest: latest.clone(),
                per_hour: price.into(),
                price,
            }
        };
        let mut gpus: Vec<GpuRow> = fresh.into_iter().flat_map(|read| &read.units).map(gpu).collect();
        gpus.sort_by(|a, b| (a.latest.index, &a.latest.unit).cmp(&(b.latest.index, &b.latest.unit)));
        let place = &purchase.market.place;
        Some(Self {
            node: name.map_or_else(|| record.shown_id().to_string(), ToString::to_string),
            machine: record.instance()?.clone(),
            group: record.group.clone(),
            pool: group.map(|group| group.pool.clone()),
            instance_type: place.instance_type.clone(),
            zone: group.map_or_else(|| place.zone.to_string(), |group| group.zone_name.to_string()),
            capacity_type: purchase.market.capacity_type,
            per_hour: purchase.price.into(),
            state,
            verdict: record.judged.as_ref().map(VerdictShown::from),
            outdated: OutdatedRow::of(record, memory),
            held_by: facts.map(|facts| facts.gpu_pods.iter().cloned().collect()),
            read_at: read.map(|read| read.at),
            unread,
            gpus,
            price: purchase.price,
        })
    }
}
