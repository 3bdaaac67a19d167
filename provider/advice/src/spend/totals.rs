//! Totals: the rows of days, summed by whatever is asked for.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use stoker_core::base::ids::PoolName;
use stoker_core::base::shares::share_out;
use stoker_core::base::units::UsdMicros;
use stoker_core::market::offer::{CapacityType, Market};

use super::{DayRow, Holder, NodeState, RowKey, Use};

/// What rows are summed by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum By {
    /// The pool.
    Pool,
    /// The namespace of the pods.
    Namespace,
    /// The namespace and what made the pods.
    Workload,
    /// The value of that label of the pods.
    Label(String),
    /// The GPU model.
    Model,
    /// How nodes were bought.
    Capacity,
    /// The zone.
    Zone,
}

/// What becomes of time and money of nodes that no pod holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Idle {
    /// It is a line of its own.
    #[default]
    Separate,
    /// The pods of the same pool and market bear it, in proportion to what they hold.
    Spread,
}

/// The numbers of [`Figures`].
pub(super) const NUMBERS: usize = 9;

/// Time and money.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Figures {
    /// Time of nodes, in [parts](super::PARTS) of a second.
    pub node_parts: i64,
    /// Time of GPUs, likewise.
    pub gpu_parts: i64,
    /// At the published on-demand prices. Where none is published, at the contracted one.
    pub list: UsdMicros,
    /// At the prices that are paid, without commitments.
    pub contracted: UsdMicros,
    /// What it costs with commitments: what they leave to pay, and its part of what they cost.
    pub effective: UsdMicros,
    /// Of `node_parts`, those without a published price.
    pub unlisted_parts: i64,
    /// Of `effective`, what was paid for time of which readings tell how busy the GPUs were.
    pub read: UsdMicros,
    /// Of `read`, what was paid for what the GPUs could have done and did not: cost × (1 − use).
    pub wasted: UsdMicros,
    /// Of `contracted`, what commitments paid for. Without that use they would cost the same.
    pub covered: UsdMicros,
}

impl Figures {
    /// Its numbers, in the order of its fields.
    pub(super) const fn numbers(&self) -> [i64; NUMBERS] {
        let Self { node_parts, gpu_parts, list, contracted, effective, unlisted_parts, read, wasted, covered } = *self;
        [node_parts, gpu_parts, list.0, contracted.0, effective.0, unlisted_parts, read.0, wasted.0, covered.0]
    }

    /// The figures of those [numbers](Self::numbers).
    pub(super) const fn of_numbers(numbers: [i64; NUMBERS]) -> Self {
        let [node_parts, gpu_parts, list, contracted, effective, unlisted_parts, read, wasted, covered] = numbers;
        let (list, contracted, effective) = (UsdMicros(list), UsdMicros(contracted), UsdMicros(effective));
        let (read, wasted, covered) = (UsdMicros(read), UsdMicros(wasted), UsdMicros(covered));
        Self { node_parts, gpu_parts, list, contracted, effective, unlisted_parts, read, wasted, covered }
    }

    /// Adds others.
    pub fn add(&mut self, other: &Self) {
        let mut sums = self.numbers();
        sums.iter_mut().zip(other.numbers()).for_each(|(sum, number)| *sum = sum.saturating_add(number));
        *self = Self::of_numbers(sums);
    }

    /// What was paid beside commitments: so much less would be spent without it.
    pub fn cash(&self) -> UsdMicros {
        UsdMicros(self.contracted.0.saturating_sub(self.covered.0).max(0))
    }

    /// The time of nodes that no commitment paid for, in [parts](super::PARTS) of a second.
    pub fn cash_parts(&self) -> i64 {
        let parts = i128::from(self.node_parts) * i128::from(self.cash().0);
        parts.checked_div(i128::from(self.contracted.0)).and_then(|parts| i64::try_from(parts).ok()).unwrap_or(0)
    }

    /// Cost × (1 − use), as far as readings tell; `None` where they tell nothing: that is unknown, and not nothing.
    pub fn waste(&self) -> Option<UsdMicros> {
        (self.read.0 > 0).then_some(self.wasted)
    }
}

impl Use {
    /// The same, held by another; what is no node, nobody holds.
    pub(super) fn held_by(&self, holder: Holder) -> Self {
        match self {
            Self::Nodes { pool, market, model, state, holder: _ } => {
                Self::Nodes { pool: pool.clone(), market: market.clone(), model: model.clone(), state: *state, holder }
            }
            Self::Unused { .. } => self.clone(),
        }
    }

    /// The name of the line that it belongs to, by what is asked. Words with a blank are no name that Kubernetes allows.
    pub fn line(&self, by: &By) -> String {
        let Self::Nodes { pool, market, model, state: _, holder } = self else { return "unused commitments".to_owned() };
        let of_pods = |word: &dyn Fn(&str, &str, Option<&str>) -> String| match holder {
            Holder::Pods { namespace, workload, labels } => {
                let label = match by {
                    By::Label(key) => labels.get(key),
                    _ => None,
                };
                word(namespace, workload, label)
            }
            Holder::Others { namespace } => match by {
                By::Namespace => namespace.to_string(),
                By::Workload => format!("{namespace}/small workloads"),
                _ => "small workloads".to_owned(),
            },
            Holder::Nobody => "no pod".to_owned(),
            Holder::Unknown => "not recorded".to_owned(),
        };
        match by {
            By::Pool => pool.to_string(),
            By::Namespace => of_pods(&|namespace, _, _| namespace.to_owned()),
            By::Workload => of_pods(&|namespace, workload, _| format!("{namespace}/{workload}")),
            By::Label(_) => of_pods(&|_, _, label| label.map_or_else(|| "no label".to_owned(), str::to_owned)),
            By::Model => model.to_string(),
            By::Capacity => market.capacity_type.to_string(),
            By::Zone => market.place.zone.to_string(),
        }
    }

    /// What the nodes did; `None` of what is no node.
    pub const fn state(&self) -> Option<NodeState> {
        match self {
            Self::Nodes { state, .. } => Some(*state),
            Self::Unused { .. } => None,
        }
    }

    /// How the nodes were bought; `None` of what is no node.
    pub const fn capacity_type(&self) -> Option<CapacityType> {
        match self {
            Self::Nodes { market, .. } => Some(market.capacity_type),
            Self::Unused { .. } => None,
        }
    }
}

/// The sum of rows.
pub fn total<'a>(rows: impl IntoIterator<Item = &'a DayRow>) -> Figures {
    let mut total = Figures::default();
    rows.into_iter().for_each(|row| total.add(&row.figures));
    total
}

/// Rows summed by something. The sums add up to [`total`] exactly.
pub fn grouped<'a, K: Ord>(rows: impl IntoIterator<Item = &'a DayRow>, key: impl Fn(&'a Use) -> K) -> BTreeMap<K, Figures> {
    let mut groups: BTreeMap<K, Figures> = BTreeMap::new();
    for row in rows {
        groups.entry(key(&row.key.of)).or_default().add(&row.figures);
    }
    groups
}

/// The rows of one day in which pods bear what no pod held: of their own pool and market where there were any, else of
/// their pool. What they bear is of no one machine: a row for each machine and each of them would be millions. What is
/// left, of pools without pods that day, and unused commitments stay as they are. The sum is the same.
pub fn spread(rows: &[DayRow]) -> Vec<DayRow> {
    let bearers = Bearers::of(rows);
    let (mut all, mut free) = (BTreeMap::new(), BTreeMap::new());
    for row in rows {
        if bearers.bear(&row.key.of).is_some() {
            put(&mut free, DayRow { key: RowKey { instance: None, ..row.key.clone() }, ..row.clone() });
        } else {
            put(&mut all, row.clone());
        }
    }
    for DayRow { key, figures } in free.values() {
        let bearers = bearers.bear(&key.of).into_iter().flatten();
        let (holders, weights): (Vec<&Holder>, Vec<i128>) = bearers.map(|(holder, weight)| (*holder, *weight)).unzip();
        let mut shares: Vec<[i64; NUMBERS]> = vec![[0; NUMBERS]; holders.len()];
        for (at, amount) in figures.numbers().into_iter().enumerate() {
            for (share, part) in shares.iter_mut().zip(share_out(i128::from(amount), &weights)) {
                if let Some(number) = share.get_mut(at) {
                    *number = i64::try_from(part).unwrap_or(0);
                }
            }
        }
        for (holder, share) in holders.into_iter().zip(shares) {
            let key = RowKey { of: key.of.held_by(holder.clone()), ..key.clone() };
            put(&mut all, DayRow { key, figures: Figures::of_numbers(share) });
        }
    }
    all.into_values().collect()
}

/// Who held nodes, and for how long.
#[derive(Debug, Default)]
struct Bearers<'a> {
    by_market: BTreeMap<(&'a PoolName, &'a Market), BTreeMap<&'a Holder, i128>>,
    by_pool: BTreeMap<&'a PoolName, BTreeMap<&'a Holder, i128>>,
}

impl<'a> Bearers<'a> {
    fn of(rows: &'a [DayRow]) -> Self {
        let mut all = Self::default();
        for DayRow { key, figures } in rows {
            if let Use::Nodes { pool, market, holder: holder @ (Holder::Pods { .. } | Holder::Others { .. }), .. } = &key.of {
                for bearers in [all.by_market.entry((pool, market)).or_default(), all.by_pool.entry(pool).or_default()] {
                    *bearers.entry(holder).or_default() += i128::from(figures.node_parts);
                }
            }
        }
        all
    }

    /// Those who bear what no pod held, with their weights; `None` of what pods held, and where there are none.
    fn bear<'b>(&'b self, of: &'b Use) -> Option<&'b BTreeMap<&'a Holder, i128>> {
        let Use::Nodes { pool, market, holder: Holder::Nobody, .. } = of else { return None };
        self.by_market.get(&(pool, market)).or_else(|| self.by_pool.get(pool))
    }
}

pub(super) fn put(all: &mut BTreeMap<RowKey, DayRow>, row: DayRow) {
    match all.get_mut(&row.key) {
        Some(known) => known.figures.add(&row.figures),
        None => {
            all.insert(row.key.clone(), row);
        }
    }
}
