//! Roll-up of a day: its spans and pods as rows, each with its time and money.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use stoker_core::base::engine_clock::Wall;
use stoker_core::base::ids::{GpuModel, NodeName, PoolName, ProviderId};
use stoker_core::base::shares::share_out;
use stoker_core::base::units::{UsdMicros, UsdPerHour};
use stoker_core::limits::commitment::{PaidBy, RanNodes, Settled, settle};
use stoker_core::market::offer::{CapacityType, InstanceSpec, Market, Place};
use stoker_core::market::price::PriceBook;
use stoker_core::policy::rules::commitment::{Commitment, Terms};

use super::allocate::{Part, WHOLE, split};
use super::gpu_use::{GpuUse, NodeUse, Read, Whose};
use super::{Figures, Known, NodeState, PodTime, Span};
use crate::rollup::PodLabels;

/// Seconds in an hour, by which clouds bill commitments.
const HOUR: i64 = 3_600;

/// Who held it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Holder {
    /// Pods of one workload with the same labels.
    Pods {
        /// Their namespace.
        namespace: Arc<str>,
        /// What made them.
        workload: Arc<str>,
        /// Their labels.
        labels: PodLabels,
    },
    /// Pods of one namespace whose workloads are no longer [kept apart](super::KeptDay).
    Others {
        /// Their namespace.
        namespace: Arc<str>,
    },
    /// No pod.
    Nobody,
    /// Nobody knows: no pods were recorded then.
    Unknown,
}

/// What the money went for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Use {
    /// Nodes.
    Nodes {
        /// Their pool.
        pool: PoolName,
        /// Where and how they were bought.
        market: Market,
        /// Their GPU model.
        model: GpuModel,
        /// What they did. A part of a node that pods hold which no pod holds is idle.
        state: NodeState,
        /// Who held them.
        holder: Holder,
    },
    /// What a commitment costs that is not used.
    Unused {
        /// What the policy calls it.
        commitment: String,
    },
}

/// What the time and money of a row belong to.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct RowKey {
    /// What it went for.
    pub of: Use,
    /// The machine and its reservation, where rows are kept apart by them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance: Option<(ProviderId, Option<String>)>,
    /// The discount that paid for it, by its name in the policy, where rows are kept apart by machine. Capacity that is kept is no
    /// discount.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paid_by: Option<Arc<str>>,
}

/// One row of a day.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DayRow {
    /// What it belongs to.
    pub key: RowKey,
    /// Its time and money.
    #[serde(flatten)]
    pub figures: Figures,
}

/// What is needed to bill a day, beside its spans and pods.
#[derive(Debug, Clone, Copy)]
pub struct Bill<'a> {
    /// The commitments of the policy.
    pub commitments: &'a [Commitment],
    /// What is sold where, and what it costs.
    pub prices: &'a PriceBook,
    /// What a node costs on demand where commitments keep capacity: so much an empty one costs.
    pub on_demand: &'a BTreeMap<Place, UsdPerHour>,
    /// When pods were recorded. At other times nobody knows who held a node.
    pub pods_known: &'a Known,
    /// When it is known what was held. Commitments cost at other times too, and nobody knows what they paid for.
    pub known: &'a Known,
    /// How busy GPUs were.
    pub gpu_use: &'a GpuUse,
    /// Whether machines are kept apart.
    pub by_instance: bool,
}

/// Money in the making: micro-dollars per hour × parts of a second. 2,594,592,000 of it are a micro-dollar.
const PER_MICRO: i128 = 3_600 * WHOLE;

#[derive(Debug, Clone, Copy, Default)]
struct Sums {
    node: i128,
    gpu: i128,
    list: i128,
    contracted: i128,
    effective: i128,
    unlisted: i128,
    read: i128,
    wasted: i128,
    covered: i128,
}

/// What commitments see of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct LineKey<'a> {
    market: &'a Market,
    rate: UsdPerHour,
}

/// Of one line in one time: seconds, and the parts of its rows.
#[derive(Debug, Default)]
struct LineTime {
    node_seconds: i64,
    rows: BTreeMap<usize, Weight>,
}

/// What a row has of a line: parts of a second, those of them of which readings tell, and those of these that were not used.
#[derive(Debug, Clone, Copy, Default)]
struct Weight {
    parts: i128,
    read: i128,
    wasted: i128,
    gpu: i128,
    list: i128,
    unlisted: i128,
}

impl Weight {
    /// So many `whole`ths of it, rounded down.
    fn part(self, of: i128, whole: i128) -> Self {
        let part = |amount: i128| (amount * of).checked_div(whole).unwrap_or(0);
        let Self { parts, read, wasted, gpu, list, unlisted } = self;
        Self {
            parts: part(parts),
            read: part(read),
            wasted: part(wasted),
            gpu: part(gpu),
            list: part(list),
            unlisted: part(unlisted),
        }
    }
}

/// The rows of a day, or of a part of it, between two moments. `spans` and `pods` may reach beyond it. Each kind of money is rounded once, for
/// all of that time, and its rows add up to that exactly.
pub fn roll_up(
    (begin, end): (i64, i64),
    spans: &[Span],
    pods: &BTreeMap<Arc<str>, Vec<PodTime>>,
    bill: &Bill<'_>,
) -> Vec<DayRow> {
    let mut rows = Rows::default();
    // Without commitments no hour differs from the next, and effective is contracted.
    let times = times(bill, begin, end);
    let gpu_use = bill.gpu_use.of(spans);
    let mut lines: Vec<BTreeMap<LineKey<'_>, LineTime>> = times.iter().map(|_| BTreeMap::new()).collect();
    for span in spans {
        let (since, until) = (span.since.max(begin), span.until.min(end));
        if since >= until {
            continue;
        }
        // A service that sees no Nodes knows machines by their own names.
        let name = span.node.as_ref().map_or(span.instance.as_str(), NodeName::as_str);
        let of_node = pods.get(name).filter(|_| span.state.takes_pods());
        let of_node = of_node.map(Vec::as_slice).unwrap_or_default();
        let line = LineKey { market: &span.market, rate: span.rate };
        split((since, until), span.units.max(1), of_node, |(from, to), part, share| {
            let pod = match part {
                Part::Pod(at) => of_node.get(at),
                Part::Rest => None,
            };
            let known = bill.pods_known.seconds(from, to);
            for (is_known, seconds) in [(true, known), (false, to - from - known)] {
                if seconds == 0 {
                    continue;
                }
                let at = rows.at(key_of(span, pod, is_known, bill.by_instance));
                let micros = i128::from(seconds) * share;
                let of = rows.of(at);
                of.node += micros;
                of.gpu += micros * i128::from(span.gpus);
                of.list += micros * i128::from(span.list.unwrap_or(span.rate).0);
                of.contracted += micros * i128::from(span.rate.0);
                of.unlisted += if span.list.is_none() { micros } else { 0 };
                if times.is_empty() {
                    let cost = micros * i128::from(span.rate.0);
                    let (read, wasted) = read_of(&gpu_use, span, pod, is_known, (from, to)).of(cost, to - from);
                    of.effective += cost;
                    of.read += read;
                    of.wasted += wasted;
                }
            }
            if times.is_empty() {
                return;
            }
            // What of it is known of pods, the hours do not ask: a row that is cut takes its parts in the order of time.
            for (time, lines) in times.iter().zip(&mut lines) {
                let (from, to) = (from.max(time.0), to.min(time.1));
                if from >= to {
                    continue;
                }
                let known = bill.pods_known.seconds(from, to);
                for (is_known, seconds) in [(true, known), (false, to - from - known)] {
                    if seconds > 0 {
                        let at = rows.at(key_of(span, pod, is_known, bill.by_instance));
                        let parts = i128::from(seconds) * share;
                        let (read, wasted) = read_of(&gpu_use, span, pod, is_known, (from, to)).of(parts, to - from);
                        let weight = lines.entry(line).or_default().rows.entry(at).or_default();
                        weight.parts += parts;
                        weight.read += read;
                        weight.wasted += wasted;
                        weight.gpu += parts * i128::from(span.gpus);
                        weight.list += parts * i128::from(span.list.unwrap_or(span.rate).0);
                        weight.unlisted += if span.list.is_none() { parts } else { 0 };
                    }
                }
            }
        });
        for (time, lines) in times.iter().zip(&mut lines) {
            let seconds = until.min(time.1) - since.max(time.0);
            if seconds > 0 {
                lines.entry(line).or_default().node_seconds += seconds;
            }
        }
    }
    for (time, lines) in times.iter().zip(&lines) {
        pay(&mut rows, *time, lines, bill);
    }
    rows.rounded()
}

/// The times of a day in which commitments are the same, none longer than an hour; none where there are no commitments.
fn times(bill: &Bill<'_>, begin: i64, end: i64) -> Vec<(i64, i64)> {
    if bill.commitments.is_empty() {
        return Vec::new();
    }
    let moments = bill.commitments.iter().flat_map(Commitment::moments).map(jiff::Timestamp::as_second);
    let known = bill.known.0.iter().flat_map(|(since, until)| [*since, *until]);
    let hours = (begin..=end).step_by(usize::try_from(HOUR).unwrap_or(1));
    let cuts: BTreeSet<i64> = hours.chain(moments).chain(known).filter(|at| (begin..=end).contains(at)).collect();
    cuts.iter().zip(cuts.iter().skip(1)).map(|(from, to)| (*from, *to)).collect()
}

fn key_of(span: &Span, pod: Option<&PodTime>, is_known: bool, by_instance: bool) -> RowKey {
    let (state, holder) = match pod {
        Some(PodTime { namespace, workload, labels, .. }) => {
            let (namespace, workload, labels) = (namespace.clone(), workload.clone(), labels.clone());
            // A pod holds it until it is gone, whatever is to become of the node.
            (NodeState::Held, Holder::Pods { namespace, workload, labels })
        }
        None if span.state == NodeState::Held && is_known => (NodeState::Idle, Holder::Nobody),
        None if span.state == NodeState::Held => (NodeState::Held, Holder::Unknown),
        None => (span.state, Holder::Nobody),
    };
    let of = Use::Nodes { pool: span.pool.clone(), market: span.market.clone(), model: span.model.clone(), state, holder };
    RowKey { of, instance: by_instance.then(|| (span.instance.clone(), span.reservation.clone())), paid_by: None }
}

/// What readings tell of a part of a node.
fn read_of(gpu_use: &NodeUse<'_>, span: &Span, pod: Option<&PodTime>, is_known: bool, time: (i64, i64)) -> Read {
    let whose = match pod {
        Some(pod) => Whose::Pod(pod),
        None if span.state == NodeState::Held && !is_known => Whose::Unknown,
        None => Whose::Nobody,
    };
    gpu_use.read(span.node.as_ref(), whose, time)
}

/// Lets the commitments pay for what ran within a time in which they are the same.
fn pay(rows: &mut Rows, (from, to): (i64, i64), lines: &BTreeMap<LineKey<'_>, LineTime>, bill: &Bill<'_>) {
    let Ok(at) = jiff::Timestamp::from_second(from) else { return };
    let is_known = bill.known.seconds(from, to) == to - from;
    let spec = |market: &Market| bill.prices.spec(&market.place.cloud, &market.place.instance_type);
    // What no table knows, no commitment is known to reach.
    let ran: Vec<(RanNodes<'_>, (&LineKey<'_>, &LineTime))> = lines
        .iter()
        .filter_map(|(key, time)| {
            let node_seconds = u32::try_from(time.node_seconds).unwrap_or(u32::MAX);
            Some((RanNodes { market: key.market, spec: spec(key.market)?, price: key.rate, node_seconds }, (key, time)))
        })
        .collect();
    let price_of = |place: &Place| -> Option<(&InstanceSpec, UsdPerHour)> {
        let market = Market { place: place.clone(), capacity_type: CapacityType::OnDemand };
        Some((spec(&market)?.as_ref(), *bill.on_demand.get(place)?))
    };
    let seconds = u32::try_from(to - from).unwrap_or(0);
    let used: Vec<RanNodes<'_>> = ran.iter().map(|(one, _)| one.clone()).collect();
    let settled = if is_known || !used.is_empty() {
        settle(bill.commitments, &used, seconds, Wall(at), price_of)
    } else {
        Settled::default()
    };
    for (((_, (key, time)), effective), paid) in ran.iter().zip(&settled.lines).zip(&settled.paid) {
        let mut left = Paid { effective: *effective, covered: paid.iter().map(|paid| paid.value).sum() };
        for PaidBy { commitment, value, share } in paid.iter().filter(|_| bill.by_instance) {
            let Some(commitment) = bill.commitments.get(*commitment) else { continue };
            if matches!(commitment.terms, Terms::Capacity(_)) {
                continue;
            }
            let whole = i128::from(key.rate.0) * i128::from(time.node_seconds);
            let parts = time.rows.iter().map(|(from, weight)| (*from, weight.part(*value, whole)));
            let parts: Vec<(usize, Weight)> = parts.filter(|(_, part)| part.parts > 0).collect();
            if parts.is_empty() {
                continue;
            }
            let part = Paid { effective: *share, covered: *value };
            left = Paid { effective: left.effective - part.effective, covered: left.covered - part.covered };
            let name: Arc<str> = commitment.name.as_str().into();
            let moved = parts.into_iter().map(|(from, part)| (rows.move_to(from, &name, part, key.rate), part));
            let moved: BTreeMap<usize, Weight> = moved.collect();
            rows.share(&moved, part);
        }
        rows.share(&time.rows, left);
    }
    for (key, time) in lines.iter().filter(|(key, _)| spec(key.market).is_none()) {
        let effective = i128::from(key.rate.0) * i128::from(time.node_seconds);
        rows.share(&time.rows, Paid { effective, covered: 0 });
    }
    for (commitment, unused) in bill.commitments.iter().zip(&settled.unused).filter(|(_, unused)| **unused != 0) {
        let at = rows.at(RowKey { of: Use::Unused { commitment: commitment.name.clone() }, instance: None, paid_by: None });
        rows.of(at).effective += unused * WHOLE;
    }
}

/// What a line costs, and what of it commitments paid for: micro-dollars per hour × seconds.
#[derive(Debug, Clone, Copy)]
struct Paid {
    effective: i128,
    covered: i128,
}

#[derive(Debug, Default)]
struct Rows {
    places: BTreeMap<RowKey, usize>,
    keys: Vec<RowKey>,
    sums: Vec<Sums>,
    none: Sums,
}

impl Rows {
    fn at(&mut self, key: RowKey) -> usize {
        let next = self.sums.len();
        if let Some(at) = self.places.get(&key) {
            return *at;
        }
        self.keys.push(key.clone());
        self.sums.push(Sums::default());
        self.places.insert(key, next);
        next
    }

    fn of(&mut self, at: usize) -> &mut Sums {
        self.sums.get_mut(at).unwrap_or(&mut self.none)
    }

    /// Moves a part of a row to the row of the same that a discount paid for; where that is.
    fn move_to(&mut self, from: usize, discount: &Arc<str>, part: Weight, rate: UsdPerHour) -> usize {
        let Some(key) = self.keys.get(from) else { return from };
        let to = self.at(RowKey { paid_by: Some(Arc::clone(discount)), ..key.clone() });
        let contracted = part.parts * i128::from(rate.0);
        for (at, sign) in [(from, -1), (to, 1)] {
            let of = self.of(at);
            of.node += sign * part.parts;
            of.gpu += sign * part.gpu;
            of.list += sign * part.list;
            of.contracted += sign * contracted;
            of.unlisted += sign * part.unlisted;
        }
        to
    }

    /// Splits what a line costs over its rows, by their time.
    fn share(&mut self, parts: &BTreeMap<usize, Weight>, Paid { effective, covered }: Paid) {
        let weights: Vec<i128> = parts.values().map(|weight| weight.parts).collect();
        let shares = share_out(effective * WHOLE, &weights).into_iter().zip(share_out(covered * WHOLE, &weights));
        for ((at, weight), (share, covered)) in parts.iter().zip(shares) {
            let of = self.of(*at);
            of.effective += share;
            of.covered += covered;
            of.read += share * weight.read / weight.parts.max(1);
            of.wasted += share * weight.wasted / weight.parts.max(1);
        }
    }

    fn rounded(mut self) -> Vec<DayRow> {
        // Discounts paid for all of what is left of nothing.
        let sums = std::mem::take(&mut self.sums);
        self.places.retain(|_, at| sums.get(*at).is_some_and(|of| of.node != 0 || of.effective != 0));
        self.sums = sums;
        let of = |at: &usize| self.sums.get(*at).copied().unwrap_or_default();
        let exact: Vec<Sums> = self.places.values().map(of).collect();
        let money = |kind: fn(&Sums) -> i128| {
            let exact: Vec<i128> = exact.iter().map(kind).collect();
            rounded(&exact).into_iter().map(UsdMicros)
        };
        let (mut list, mut contracted) = (money(|sums| sums.list), money(|sums| sums.contracted));
        let mut effective = money(|sums| sums.effective);
        let (mut read, mut wasted) = (money(|sums| sums.read), money(|sums| sums.wasted));
        let mut covered = money(|sums| sums.covered);
        let parts = |amount: i128| i64::try_from(amount).unwrap_or(i64::MAX);
        let mut rows = Vec::with_capacity(exact.len());
        for (key, sums) in self.places.into_keys().zip(&exact) {
            let figures = Figures {
                node_parts: parts(sums.node),
                gpu_parts: parts(sums.gpu),
                list: list.next().unwrap_or_default(),
                contracted: contracted.next().unwrap_or_default(),
                effective: effective.next().unwrap_or_default(),
                unlisted_parts: parts(sums.unlisted),
                read: read.next().unwrap_or_default(),
                wasted: wasted.next().unwrap_or_default(),
                covered: covered.next().unwrap_or_default(),
            };
            rows.push(DayRow { key, figures });
        }
        rows
    }
}

/// Amounts in micro-dollars whose sum is the exact sum, rounded to the nearest. Each is at most one away from its own exact value.
fn rounded(exact: &[i128]) -> Vec<i64> {
    let sum: i128 = exact.iter().sum();
    let total = (sum + PER_MICRO / 2).div_euclid(PER_MICRO);
    let mut whole: Vec<i128> = exact.iter().map(|amount| amount.div_euclid(PER_MICRO)).collect();
    let left = usize::try_from(total - whole.iter().sum::<i128>()).unwrap_or(0);
    let mut by_rest: Vec<(i128, usize)> =
        exact.iter().enumerate().map(|(at, amount)| (-amount.rem_euclid(PER_MICRO), at)).collect();
    by_rest.sort_unstable();
    for (_, at) in by_rest.iter().take(left) {
        if let Some(amount) = whole.get_mut(*at) {
            *amount += 1;
        }
    }
    whole.into_iter().map(|amount| i64::try_from(amount).unwrap_or(i64::MAX)).collect()
}
