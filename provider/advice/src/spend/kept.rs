//! Days as they are kept after their spans and pods are forgotten.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use stoker_core::base::kinds::CommitmentKind;
use stoker_core::base::units::UsdMicros;
use stoker_core::policy::rules::commitment::Commitment;

use super::totals::put;
use super::{DayRow, Holder, RowKey, Use};

/// Rows of pods that a kept day has at most. The smallest of the others become one row of their namespace, pool and market each: a day
/// of 50,000 workloads would take 20 MB, and 1,000 rows take half a megabyte.
pub const MOST_ROWS: usize = 1_000;

/// What a commitment cost in a time, used or not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CommitmentCost {
    /// What the policy calls it.
    pub name: String,
    /// Its kind.
    pub kind: CommitmentKind,
    /// What it cost; of capacity billed on demand, what it cost while it stood empty.
    pub cost: UsdMicros,
    /// Of that, what was not used.
    pub unused: UsdMicros,
}

impl CommitmentCost {
    /// The sum with what the same commitment cost at another time.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        Self { cost: self.cost.plus(other.cost), unused: self.unused.plus(other.unused), ..self.clone() }
    }
}

/// What a day came to. Namespaces, pools and markets stay exact; workloads are kept apart where they are not too many.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct KeptDay {
    /// The day of UTC, counted from 1970.
    pub day: i64,
    /// Seconds of which it is known what nodes did.
    pub known_seconds: i64,
    /// Seconds in which pods were recorded.
    pub pods_known_seconds: i64,
    /// The commitments that it was billed by.
    pub billed_by: Vec<Commitment>,
    /// What they cost.
    pub commitments: Vec<CommitmentCost>,
    /// Its rows.
    pub rows: Vec<DayRow>,
}

impl KeptDay {
    /// The same day without machines, and with at most [`MOST_ROWS`] rows of pods kept apart. Its sums are the same.
    #[must_use]
    pub fn folded(self) -> Self {
        self.without_machines().folded_to(MOST_ROWS)
    }

    /// The same day without machines and what paid for each. Its sums are the same.
    #[must_use]
    pub fn without_machines(mut self) -> Self {
        let mut rows: BTreeMap<RowKey, DayRow> = BTreeMap::new();
        for mut row in std::mem::take(&mut self.rows) {
            (row.key.instance, row.key.paid_by) = (None, None);
            put(&mut rows, row);
        }
        self.rows = rows.into_values().collect();
        self
    }

    /// Whether workloads were too many to be kept apart.
    pub fn is_folded(&self) -> bool {
        self.rows.iter().any(|row| matches!(row.key.of, Use::Nodes { holder: Holder::Others { .. }, .. }))
    }

    pub(super) fn folded_to(mut self, most: usize) -> Self {
        let mut of_pods: Vec<(UsdMicros, &RowKey)> = self
            .rows
            .iter()
            .filter(|row| namespace(&row.key.of).is_some())
            .map(|row| (row.figures.contracted, &row.key))
            .collect();
        if of_pods.len() <= most {
            return self;
        }
        of_pods.sort_unstable_by(|(cost, key), (other, at)| other.cmp(cost).then_with(|| key.cmp(at)));
        let small: BTreeSet<RowKey> = of_pods.iter().skip(most).map(|(_, key)| (*key).clone()).collect();
        let mut folded: BTreeMap<RowKey, DayRow> = BTreeMap::new();
        for mut row in std::mem::take(&mut self.rows) {
            if small.contains(&row.key)
                && let Use::Nodes { holder, .. } = &mut row.key.of
                && let Holder::Pods { namespace, .. } = &*holder
            {
                *holder = Holder::Others { namespace: namespace.clone() };
            }
            put(&mut folded, row);
        }
        self.rows = folded.into_values().collect();
        self
    }
}

fn namespace(of: &Use) -> Option<&str> {
    match of {
        Use::Nodes { holder: Holder::Pods { namespace, .. }, .. } => Some(namespace),
        _ => None,
    }
}
