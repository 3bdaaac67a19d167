//! The figures of a report, as programs get them.

use std::collections::{BTreeMap, HashMap};

use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use serde::Serialize;
use stoker_advice::spend::{By, CommitmentCost, DAY, Figures, Idle, KeptDay, Lives, NodeState, PARTS, Use, grouped, total};
use stoker_core::base::kinds::CommitmentKind;
use stoker_core::base::units::UsdMicros;
use stoker_core::market::offer::CapacityType;

use super::reckon::{Period, Reckoned, Summed, at};
use super::unit_cost::UnitCostLine;
use crate::cli::out::Money;
use crate::cli::simulate::BeforeAfter;

/// A rise from here on is named, in thousandths.
const NAMED_RISE: i64 = 200;

/// What was spent in a time.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Report {
    /// Since when.
    pub(super) from: Timestamp,
    /// Until when, not included.
    pub(super) until: Timestamp,
    /// What the lines are summed by.
    pub(super) by: String,
    /// What became of nodes that no pod holds.
    pub(super) idle: &'static str,
    /// Seconds of that time.
    pub(super) seconds: i64,
    /// Those among them of which it is known what nodes did.
    pub(super) known_seconds: i64,
    /// Those among them of which it is known which pods there were.
    pub(super) pods_known_seconds: i64,
    pub(super) total: Amounts,
    pub(super) lines: Vec<Line>,
    /// What nodes did. A part of a node that no pod holds is idle; unused commitments are in no state.
    pub(super) by_state: Vec<StateLine>,
    pub(super) by_capacity: Vec<CapacityLine>,
    /// What commitments cost that nothing used, which is of no state and no way of buying; `None` where all were used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) unused_commitments: Option<Amounts>,
    pub(super) by_month: Vec<MonthLine>,
    pub(super) by_day: Vec<DayLine>,
    pub(super) commitments: Vec<CommitmentLine>,
    pub(super) lives: Lives,
    /// What became of nodes is kept since then.
    pub(super) lives_since: Timestamp,
    /// The time before; `None` where nothing of it is known.
    pub(super) before: Option<Before>,
    /// Hours of nodes without a published price, counted at what was paid.
    pub(super) unlisted_node_seconds: i64,
    /// The same pods without Stoker, where that is asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) before_after: Option<BeforeAfter>,
    /// What one request or the like costs, of pools with signals that count such, where that is asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) unit_costs: Vec<UnitCostLine>,
}

/// Time and money.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Amounts {
    pub(super) node_seconds: i64,
    pub(super) gpu_seconds: i64,
    /// At published on-demand prices.
    pub(super) list: Money,
    /// At the prices that were paid, without commitments.
    pub(super) contracted: Money,
    /// With commitments, used or not.
    pub(super) effective: Money,
    /// Of that, what was paid for time of which readings tell how busy GPUs were.
    pub(super) read: Money,
    /// Of that in turn, what GPUs could have done and did not: cost × (1 − use); `None` where no reading tells.
    pub(super) waste: Option<Money>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Line {
    pub(super) name: String,
    #[serde(flatten)]
    pub(super) amounts: Amounts,
    /// How much more an hour of the time cost than one of the time before, in thousandths; `None` where it cost nothing
    /// then, or too little is known.
    pub(super) rise_permille: Option<i64>,
    /// Whether that is a rise of 20 % or more.
    pub(super) rose: bool,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct StateLine {
    pub(super) state: NodeState,
    #[serde(flatten)]
    pub(super) amounts: Amounts,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct CapacityLine {
    pub(super) capacity_type: CapacityType,
    #[serde(flatten)]
    pub(super) amounts: Amounts,
}

/// What a day cost with commitments.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct DayLine {
    pub(super) day: Date,
    /// Seconds of it of which it is known what nodes did.
    pub(super) known_seconds: i64,
    pub(super) effective: Money,
    pub(super) by_capacity: Vec<DayPart>,
}

/// Of that, one way of buying; `None` for unused commitments.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct DayPart {
    pub(super) capacity_type: Option<CapacityType>,
    pub(super) effective: Money,
}

/// What a month cost, as far as it is reported.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct MonthLine {
    /// `YYYY-MM`.
    pub(super) month: String,
    /// Seconds of it of which it is known what nodes did.
    pub(super) known_seconds: i64,
    #[serde(flatten)]
    pub(super) amounts: Amounts,
}

impl MonthLine {
    fn of((month, (known_seconds, figures)): (&Date, &(i64, Figures))) -> Self {
        let month = month.strftime("%Y-%m").to_string();
        Self { month, known_seconds: *known_seconds, amounts: (*figures).into() }
    }
}

/// Days that were summed up.
#[derive(Debug, Default)]
pub(super) struct Sums {
    total: Figures,
    /// By each of what was asked for.
    lines: Vec<(By, HashMap<String, Figures>)>,
    states: BTreeMap<Option<NodeState>, Figures>,
    capacity: BTreeMap<Option<CapacityType>, Figures>,
    /// By month, with the seconds that are known of each.
    months: BTreeMap<Date, (i64, Figures)>,
    days: Vec<DayLine>,
    /// Whether workloads of one of the days were not kept apart.
    is_folded: bool,
}

impl Sums {
    /// Of no day yet.
    pub(super) fn by(by: &[&By]) -> Self {
        let lines = by.iter().map(|by| ((*by).clone(), HashMap::new())).collect();
        Self { lines, ..Self::default() }
    }

    /// The lines by `by`; `None` where they were not asked for.
    pub(super) fn lines(&self, by: &By) -> Option<&HashMap<String, Figures>> {
        self.lines.iter().find(|(known, _)| known == by).map(|(_, lines)| lines)
    }

    /// Adds a day. Days come in their order.
    pub(super) fn add(&mut self, day: &KeptDay) {
        let of_day = total(&day.rows);
        let capacity = grouped(&day.rows, Use::capacity_type);
        let month = self.months.entry(date(day.day).first_of_month()).or_default();
        month.0 += day.known_seconds;
        month.1.add(&of_day);
        for (state, figures) in grouped(&day.rows, Use::state) {
            self.states.entry(state).or_default().add(&figures);
        }
        for (capacity_type, figures) in &capacity {
            self.capacity.entry(*capacity_type).or_default().add(figures);
        }
        for (by, lines) in &mut self.lines {
            for row in &day.rows {
                lines.entry(row.key.of.line(by)).or_default().add(&row.figures);
            }
        }
        self.total.add(&of_day);
        self.days.push(DayLine::of(day, of_day, capacity));
        self.is_folded |= day.is_folded();
    }
}

/// The date of a day, which is counted from 1970.
fn date(day: i64) -> Date {
    at(day * DAY).to_zoned(TimeZone::UTC).date()
}

impl DayLine {
    fn of(day: &KeptDay, total: Figures, by_capacity: BTreeMap<Option<CapacityType>, Figures>) -> Self {
        let part = |(capacity_type, figures): (Option<CapacityType>, Figures)| DayPart {
            capacity_type,
            effective: figures.effective.into(),
        };
        Self {
            day: date(day.day),
            known_seconds: day.known_seconds,
            effective: total.effective.into(),
            by_capacity: by_capacity.into_iter().map(part).collect(),
        }
    }
}

/// A commitment over the known part of the time.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct CommitmentLine {
    pub(super) name: String,
    pub(super) kind: CommitmentKind,
    /// What it cost, used or not; of capacity billed on demand, what it cost while it stood empty.
    pub(super) cost: Money,
    pub(super) used: Money,
    pub(super) unused: Money,
}

impl CommitmentLine {
    fn of(CommitmentCost { name, kind, cost, unused }: &CommitmentCost) -> Self {
        let used = UsdMicros(cost.0 - unused.0);
        Self { name: name.clone(), kind: *kind, cost: (*cost).into(), used: used.into(), unused: (*unused).into() }
    }
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Before {
    pub(super) from: Timestamp,
    pub(super) until: Timestamp,
    pub(super) known_seconds: i64,
    pub(super) total: Amounts,
    /// How much more an hour costs now, in thousandths.
    pub(super) rise_permille: Option<i64>,
    /// Whether that is a rise of 20 % or more.
    pub(super) rose: bool,
}

impl From<Figures> for Amounts {
    fn from(figures: Figures) -> Self {
        Self {
            node_seconds: seconds(figures.node_parts),
            gpu_seconds: seconds(figures.gpu_parts),
            list: figures.list.into(),
            contracted: figures.contracted.into(),
            effective: figures.effective.into(),
            read: figures.read.into(),
            waste: figures.waste().map(Money::from),
        }
    }
}

/// Whole seconds, rounded to the nearest.
fn seconds(parts: i64) -> i64 {
    (parts + PARTS / 2).div_euclid(PARTS)
}

/// Two times, compared by what an hour cost: as much as is known of each, in seconds. So neither gaps nor the lengths of
/// months are a rise.
#[derive(Debug, Clone, Copy)]
struct Trend {
    now: i64,
    before: i64,
}

impl Trend {
    /// How much more an hour cost than before, in thousandths; `None` where it cost nothing then, or where less than half
    /// as much of the time is known.
    fn rise(self, now: UsdMicros, before: UsdMicros) -> Option<i64> {
        if before.0 <= 0 || self.before.saturating_mul(2) < self.now {
            return None;
        }
        let (now, before) = (i128::from(now.0) * i128::from(self.before), i128::from(before.0) * i128::from(self.now));
        (now - before).saturating_mul(1_000).checked_div(before).and_then(|rise| i64::try_from(rise).ok())
    }
}

/// Whether a rise is named.
fn is_named(rise_permille: Option<i64>) -> bool {
    rise_permille.is_some_and(|rise| rise >= NAMED_RISE)
}

impl Report {
    pub(super) fn of(now: &Summed, before: &Summed, by: &By, idle: Idle) -> Self {
        let (Summed { reckoned, sums }, Summed { reckoned: before, sums: sums_before }) = (now, before);
        let Reckoned { period, commitments, lives, lives_since, .. } = reckoned;
        let Period { from, until } = *period;
        // Of a day that is kept folded, workloads have but a part: a rise would be none.
        let is_folded = matches!(by, By::Workload | By::Label(_)) && sums_before.is_folded;
        let of_all = Trend { now: reckoned.known_seconds, before: before.known_seconds };
        let of_lines = match by {
            By::Namespace | By::Workload | By::Label(_) => {
                Trend { now: reckoned.pods_known_seconds, before: before.pods_known_seconds }
            }
            By::Pool | By::Model | By::Capacity | By::Zone => of_all,
        };
        let lines_before = sums_before.lines(by).filter(|_| !is_folded);
        let line = |(name, figures): (&String, &Figures)| {
            let before = lines_before.and_then(|lines| lines.get(name));
            let rise_permille = before.and_then(|before| of_lines.rise(figures.effective, before.effective));
            Line { name: name.clone(), amounts: (*figures).into(), rise_permille, rose: is_named(rise_permille) }
        };
        let mut lines: Vec<Line> = sums.lines(by).into_iter().flatten().map(line).collect();
        lines.sort_by(|a, b| (b.amounts.effective.micro_usd, &a.name).cmp(&(a.amounts.effective.micro_usd, &b.name)));
        let state =
            |(state, figures): (&Option<NodeState>, &Figures)| Some(StateLine { state: (*state)?, amounts: (*figures).into() });
        let capacity_line = |(capacity_type, figures): (&Option<CapacityType>, &Figures)| {
            Some(CapacityLine { capacity_type: (*capacity_type)?, amounts: (*figures).into() })
        };
        let rise_permille = of_all.rise(sums.total.effective, sums_before.total.effective);
        Self {
            from: at(from),
            until: at(until),
            by: word(by),
            idle: match idle {
                Idle::Separate => "separate",
                Idle::Spread => "spread",
            },
            seconds: until - from,
            known_seconds: reckoned.known_seconds,
            pods_known_seconds: reckoned.pods_known_seconds,
            total: sums.total.into(),
            lines,
            by_state: sums.states.iter().filter_map(state).collect(),
            by_capacity: sums.capacity.iter().filter_map(capacity_line).collect(),
            unused_commitments: sums.states.get(&None).map(|figures| (*figures).into()),
            by_month: sums.months.iter().map(MonthLine::of).collect(),
            by_day: sums.days.clone(),
            commitments: commitments.iter().map(CommitmentLine::of).collect(),
            lives: lives.clone(),
            lives_since: at(*lives_since),
            before: (before.known_seconds > 0).then(|| Before {
                from: at(before.period.from),
                until: at(before.period.until),
                known_seconds: before.known_seconds,
                total: sums_before.total.into(),
                rise_permille,
                rose: is_named(rise_permille),
            }),
            unlisted_node_seconds: seconds(sums.total.unlisted_parts),
            before_after: None,
            unit_costs: Vec::new(),
        }
    }
}

/// What is summed by, in the word of the command line.
fn word(by: &By) -> String {
    match by {
        By::Pool => "pool".to_owned(),
        By::Namespace => "namespace".to_owned(),
        By::Workload => "workload".to_owned(),
        By::Label(key) => format!("label={key}"),
        By::Model => "model".to_owned(),
        By::Capacity => "capacity".to_owned(),
        By::Zone => "zone".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Spend that stays the same is no rise, whatever the lengths of the times and of what is known of them.
    #[test]
    fn a_rise_is_that_of_an_hour() {
        let rise = |(now, cost): (i64, i64), (before, cost_before): (i64, i64)| {
            Trend { now: now * 86_400, before: before * 86_400 }
                .rise(UsdMicros(cost * 1_000_000), UsdMicros(cost_before * 1_000_000))
        };
        // $10 a day: February against January, and a month of which half of the one before is known.
        assert_eq!([rise((28, 280), (31, 310)), rise((30, 300), (15, 150))], [Some(0), Some(0)]);
        // $1,199 and $1,200 against $1,000.
        let rises = [1_199, 1_200].map(|cost| rise((30, cost), (30, 1_000)));
        assert_eq!((rises, rises.map(is_named)), ([Some(199), Some(200)], [false, true]));
        assert_eq!(rise((30, 250), (30, 1_000)), Some(-750));
        // Of nothing, and of the last evening of a month.
        assert_eq!([rise((30, 300), (30, 0)), rise((30, 300), (1, 90)), rise((0, 0), (0, 0))], [None; 3]);
    }
}
