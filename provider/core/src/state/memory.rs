//! Memory of the decision, from one pass to the next.
//!
//! All of it is here and journalled: nothing that a decision depends on hides in a cache or a task.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::base::ids::{
    Cloud, Incarnation, InstanceType, NodeGroupId, OrderId, PoolName, ProviderId, RecordId, Region, SessionId,
};
use crate::catalogue::Catalogue;
use crate::catalogue::group::Group;
use crate::catalogue::template::NodeTemplate;
use crate::facts::foreign::Foreign;
use crate::facts::images::PoolImages;
use crate::facts::supply::{RefusalKind, RefusedArea};
use crate::market::offer::{Market, Place};
use crate::policy::rules::stabilization::Released;
use crate::policy::rules::warm_floor::FloorMemory;
use crate::state::budget::{BudgetOf, MonthSpend, Stage};
use crate::state::cordon::{Announced, Cordoned, Replacements};
use crate::state::disruption::{self, Disruption, Moves};
use crate::state::outdated::OutdatedNode;
use crate::state::paused::{Concern, Pause, StandingFault};
use crate::state::probe_history::ProbeHistory;
use crate::state::probe_reclaims::ProbeReclaims;
use crate::state::record::Record;
use crate::state::shortfall::NodeShortfall;
use crate::state::spot_history::{RegionReclaims, SpotHistory};

/// Memory of the decision.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Memory {
    /// Every node wanted.
    pub records: BTreeMap<RecordId, Arc<Record>>,
    /// Markets that said no.
    #[serde(with = "crate::base::pairs")]
    pub refused: BTreeMap<Market, Arc<Backoff>>,
    /// Where a supplier said no for more than a market.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty", with = "crate::base::pairs")]
    pub refused_areas: BTreeMap<RefusedArea, Arc<Backoff>>,
    /// What is remembered of spot markets.
    #[serde(with = "crate::base::pairs")]
    pub spot: BTreeMap<Place, Arc<SpotHistory>>,
    /// Regions with reclaims within the last hour, or whose spot is left alone.
    #[serde(with = "crate::base::pairs")]
    pub reclaims: BTreeMap<(Cloud, Region), Arc<RegionReclaims>>,
    /// When the running spot nodes were last counted in `spot`; `None` before the first time.
    pub exposure_at: Option<Timestamp>,
    /// Budgets that are not ample, as they were last told of.
    #[serde(with = "crate::base::pairs")]
    pub budgets: BTreeMap<BudgetOf, Stage>,
    /// What was spent of the month, of budgets with a monthly limit.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty", with = "crate::base::pairs")]
    pub months: BTreeMap<BudgetOf, Arc<MonthSpend>>,
    /// What is remembered of a group: present while it has records or a reason to be closed.
    pub groups: BTreeMap<NodeGroupId, Arc<GroupMemory>>,
    /// Nodes that are being let go, or that were to go and stay for a while.
    pub disruptions: BTreeMap<RecordId, Arc<Disruption>>,
    /// Since when nodes are free, of those that had GPU pods.
    pub free: BTreeMap<RecordId, Timestamp>,
    /// How the last moves back to spot of a pool went.
    pub moves: BTreeMap<PoolName, Arc<Moves>>,
    /// Nodes that take no new pods and are not let go.
    pub cordons: BTreeMap<RecordId, Arc<Cordoned>>,
    /// Nodes of which it was announced that they will be emptied.
    pub announced: BTreeMap<RecordId, Arc<Announced>>,
    /// Unhealthy nodes that were replaced lately.
    pub replaced: BTreeMap<PoolName, Arc<Replacements>>,
    /// Nodes that would be made differently today.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub outdated: BTreeMap<RecordId, Arc<OutdatedNode>>,
    /// When the machine of the last outdated node ended that is needed, of pools that wait for another in its place.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub outdated_replaced: BTreeMap<PoolName, Timestamp>,
    /// Instance types of which the last node leaves less to pods than its template promises, by pool.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty", with = "crate::base::pairs")]
    pub shortfalls: BTreeMap<(PoolName, InstanceType), Arc<NodeShortfall>>,
    /// Reclaims that only probes announced lately.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub probe_reclaims: BTreeMap<PoolName, Arc<ProbeReclaims>>,
    /// How the nodes of pools with probes were watched.
    pub probe_history: BTreeMap<RecordId, Arc<ProbeHistory>>,
    /// Pools of whose probes none is heard, so that their pods are the evidence; since when.
    pub lapsed: BTreeMap<PoolName, Timestamp>,
    /// When it was last noted that somebody watches.
    pub watched_at: Option<Timestamp>,
    /// What is remembered of the pools' warm floors.
    pub floors: BTreeMap<PoolName, Arc<FloorMemory>>,
    /// What bounds how many nodes of a pool go, of the pools that bound it.
    pub windows: BTreeMap<PoolName, Arc<Released>>,
    /// The images that GPU pods use, of pools that ask for them on warm nodes.
    pub images: BTreeMap<PoolName, Arc<PoolImages>>,
    /// GPU nodes of the cluster that are not Stoker's, as this decision counted them; `None` where the policy does not, or nobody knew yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub foreign: Option<Arc<Foreign>>,
    /// Machines of Stoker's whose group nobody knows any more, once they were told of.
    pub orphans: BTreeSet<ProviderId>,
    /// What the last consistency check found, ordered by what it concerns and its kind. A pool that is named here does not grow.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub faults: Vec<StandingFault>,
    /// The journal that keeps this memory; launch keys carry it. `None` where no journal does.
    pub incarnation: Option<Incarnation>,
    /// Until when nothing is ended or drained but what the cloud takes, because a journal was lost;
    /// `None` while that is not so.
    pub cautious_until: Option<Timestamp>,
    /// The number of the next record.
    pub next_record: u64,
    /// The number of the next order.
    pub next_order: u64,
    /// The autoscaler's current session; `None` before the first.
    pub session: Option<SessionId>,
}

/// First wait after a refusal. Karpenter's cache keeps a refused offering out for as long; of measured H100 spot requests only
/// 13 % succeed ten minutes after a failure (GCP, 2025: `SkyNomad`'s probes), so asking sooner is noise.
pub const FIRST_BACKOFF: SignedDuration = SignedDuration::from_mins(3);

/// Longest wait: above it, a market that came back is missed for longer than a boot is worth.
pub const LONGEST_BACKOFF: SignedDuration = SignedDuration::from_mins(30);

/// Longest wait that a supplier may ask for: a day, after which a mistake in its answer is tried out again.
pub const LONGEST_ASKED_FOR: SignedDuration = SignedDuration::from_hours(24);

/// How long caution lasts after a journal was lost: long enough for a person to see the alarm, and
/// for probes, watches and inventories to tell anew what is in use.
pub const CAUTION: SignedDuration = SignedDuration::from_mins(10);

/// What said no, a market or all of an area, and how long it is left alone. Once `until` has passed, one launch at a time may
/// try it; a success forgets it, another refusal doubles the wait.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Backoff {
    /// Why it said no.
    pub kind: RefusalKind,
    /// Its own words.
    pub message: String,
    /// When it last said no.
    pub since: Timestamp,
    /// Left alone until then.
    pub until: Timestamp,
    /// Refusals in a row.
    pub refusals: u32,
}

/// A market that is closed, or may be tried once.
#[derive(Debug, Clone, Copy)]
pub struct RefusedMarket<'a> {
    /// The market.
    pub market: &'a Market,
    /// The area of it that was refused; `None` where that was the market alone.
    pub area: Option<&'a RefusedArea>,
    /// Why, and how long it is left alone.
    pub backoff: &'a Backoff,
}

/// What is remembered of a group.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GroupMemory {
    /// What the group was when it got its first record: a group whose pool is gone from the policy is listed by this until empty.
    pub group: Arc<Group>,
    /// Nodes in a row that no pod joined in time.
    pub unused: u32,
    /// The order of the last node that the autoscaler deleted before any pod came.
    pub unused_order: Option<OrderId>,
    /// Suspended since then, because too many nodes in a row stayed without a pod.
    pub suspended_since: Option<Timestamp>,
}

impl Backoff {
    /// Another refusal on top of `before`: twice the wait, up to the longest, and no shorter than `asked_for`.
    pub fn after(
        before: Option<&Self>,
        kind: RefusalKind,
        message: String,
        asked_for: Option<SignedDuration>,
        now: Timestamp,
    ) -> Self {
        let refusals = before.map_or(0, |b| b.refusals) + 1;
        let doublings = (refusals - 1).min(8);
        let wait = SignedDuration::from_secs(FIRST_BACKOFF.as_secs() << doublings).min(LONGEST_BACKOFF);
        let wait = asked_for.map_or(wait, |asked_for| wait.max(asked_for.min(LONGEST_ASKED_FOR)));
        Self { kind, message, since: now, until: now.saturating_add(wait).unwrap_or(Timestamp::MAX), refusals }
    }
}

impl RefusedMarket<'_> {
    /// Whether a launch for a node of `group` in `market` tries what was refused.
    pub fn is_tried_in(&self, group: &Group, market: &Market, catalogue: &Catalogue) -> bool {
        self.area.map_or(market == self.market, |area| catalogue.is_in(area, group, market))
    }
}

impl Memory {
    /// The refusal that keeps a market of that group closed longest: its own, or one of an area that it is in.
    pub fn refusal<'a>(&'a self, market: &'a Market, group: &Group, catalogue: &Catalogue) -> Option<RefusedMarket<'a>> {
        let refused = |area, backoff| RefusedMarket { market, area, backoff };
        let own = self.refused.get(market).map(|backoff| refused(None, backoff.as_ref()));
        let areas = self.refused_areas.iter().filter(|(area, _)| catalogue.is_in(area, group, market));
        own.into_iter()
            .chain(areas.map(|(area, backoff)| refused(Some(area), backoff.as_ref())))
            .max_by_key(|refused| refused.backoff.until)
    }

    /// Whether the autoscaler is to count a record's machine as one of its group. One that we end of our own accord, without its taint, is
    /// Ready until it is gone: counted, it would stand for the next node that is asked for, which would be bought twice.
    pub fn shows(&self, record: &Record) -> bool {
        !self.disruptions.get(&record.id).is_some_and(|disruption| disruption.stage == disruption::Stage::Ending)
    }

    /// Why a pool is paused, and since which decision; `None` while it is not. Its own faults are named before those of the fleet.
    pub fn pause_of(&self, pool: Option<&PoolName>) -> Option<Pause> {
        let paused = self.faults.iter().filter(|fault| fault.concern.covers(pool)).map(StandingFault::pause);
        paused.min_by_key(|pause| (pause.concern == Concern::Fleet, pause.decision))
    }

    /// The same, with every moment in it moved by `by`: after a restart on a wall clock that stands elsewhere than it should, whatever is
    /// waited for is as far away as it was. What is read by the wall stays: prices, and the end of commitments.
    ///
    /// # Errors
    /// Where a memory cannot be written and read back, which the journal does with every one.
    pub fn rebased(&self, by: SignedDuration) -> Result<Self, serde_json::Error> {
        let mut written = serde_json::to_value(self)?;
        rebase(&mut written, by);
        serde_json::from_value(written)
    }

    /// Until when nothing is ended or drained but what the cloud takes; `None` where that is not so
    /// at `now`.
    pub fn caution(&self, now: Timestamp) -> Option<Timestamp> {
        self.cautious_until.filter(|until| *until > now)
    }

    /// The records of a group that count in its target.
    pub fn target(&self, group: &NodeGroupId) -> u32 {
        let n = self.records.values().filter(|r| r.group == *group && r.counts()).count();
        u32::try_from(n).unwrap_or(u32::MAX)
    }

    /// The disruption by which a record's node is being drained; `None` where it is not.
    pub fn drain_of(&self, record: RecordId) -> Option<&Disruption> {
        self.disruptions.get(&record).map(AsRef::as_ref).filter(|disruption| disruption.is_open())
    }

    /// Whether a record's node is being drained.
    pub fn is_draining(&self, record: RecordId) -> bool {
        self.drain_of(record).is_some()
    }

    /// Takes the next record number.
    pub(crate) fn take_record_id(&mut self) -> RecordId {
        let id = RecordId(self.next_record);
        self.next_record += 1;
        id
    }

    /// Takes the next order number.
    pub(crate) fn take_order_id(&mut self) -> OrderId {
        let id = OrderId(self.next_order);
        self.next_order += 1;
        id
    }
}

/// Moves every moment of a value. Generic, so that no field that is added can be forgotten.
fn rebase(value: &mut Value, by: SignedDuration) {
    match value {
        Value::Object(fields) => {
            let by_the_wall = fields.get("for").is_some_and(|reason| reason == "capacityEnds");
            // What is remembered of a group holds its prices.
            let of_group = fields.contains_key("group") && fields.contains_key("unused_order");
            let stays = |name: &str| (of_group && name == "group") || (by_the_wall && name == "at");
            for (_, value) in fields.iter_mut().filter(|(name, _)| !stays(name)) {
                rebase(value, by);
            }
        }
        Value::Array(values) => values.iter_mut().for_each(|value| rebase(value, by)),
        Value::String(text) => {
            if let Ok(at) = text.parse::<Timestamp>() {
                *text = at.saturating_add(by).unwrap_or(at).to_string();
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

impl Memory {
    /// The template of a group as the autoscaler is to simulate with it; `None` where that is its own: its nodes have what it promises.
    pub fn corrected_template(&self, group: &Group) -> Option<NodeTemplate> {
        if self.shortfalls.is_empty() {
            return None;
        }
        let of_type = (group.pool.clone(), group.place.instance_type.clone());
        Some(self.shortfalls.get(&of_type)?.corrected(&group.template))
    }
}

impl Catalogue {
    /// A group by its id: as it is now, or as it was when its pool was still in the policy.
    pub fn group_or_remembered<'a>(&'a self, id: &NodeGroupId, memory: &'a Memory) -> Option<&'a Arc<Group>> {
        self.groups.get(id).or_else(|| memory.groups.get(id).map(|remembered| &remembered.group))
    }
}
