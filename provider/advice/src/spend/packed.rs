//! Rows of a day as they are stored: what many of them have in common stands there once.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use stoker_core::base::ids::ProviderId;

use super::totals::NUMBERS;
use super::{DayRow, Figures, Holder, RowKey, Use};

/// Rows of a day, of machines and workloads that are kept apart.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PackedRows {
    /// What the money went for, by no matter whom.
    uses: Vec<Use>,
    holders: Vec<Holder>,
    machines: Vec<Option<(ProviderId, Option<String>)>>,
    discounts: Vec<Option<Arc<str>>>,
    rows: Vec<Row>,
}

/// The places of a row's use, holder, machine and discount, and the numbers of its figures.
type Row = (usize, usize, usize, usize, [i64; NUMBERS]);

impl PackedRows {
    /// Packs rows.
    pub fn of(rows: &[DayRow]) -> Self {
        let (mut uses, mut holders) = (Once::default(), Once::default());
        let (mut machines, mut discounts) = (Once::default(), Once::default());
        let pack = |DayRow { key, figures }: &DayRow| {
            let (of, holder) = match &key.of {
                Use::Nodes { holder, .. } => (key.of.held_by(Holder::Nobody), holder),
                Use::Unused { .. } => (key.of.clone(), &Holder::Nobody),
            };
            let key = (uses.place(&of), holders.place(holder), machines.place(&key.instance), discounts.place(&key.paid_by));
            (key.0, key.1, key.2, key.3, figures.numbers())
        };
        let rows = rows.iter().map(pack).collect();
        let (uses, holders) = (uses.values(), holders.values());
        Self { uses, holders, machines: machines.values(), discounts: discounts.values(), rows }
    }

    /// The rows; `None` where one of them has a place that is not there.
    pub fn rows(&self) -> Option<Vec<DayRow>> {
        let unpack = |(of, holder, machine, discount, numbers): &Row| {
            let holder = self.holders.get(*holder)?;
            let instance = self.machines.get(*machine)?.clone();
            let key = RowKey {
                of: self.uses.get(*of)?.held_by(holder.clone()),
                instance,
                paid_by: self.discounts.get(*discount)?.clone(),
            };
            Some(DayRow { key, figures: Figures::of_numbers(*numbers) })
        };
        self.rows.iter().map(unpack).collect()
    }
}

/// Values that are there once each, in the order in which they came.
#[derive(Debug)]
struct Once<T> {
    places: BTreeMap<T, usize>,
}

impl<T> Default for Once<T> {
    fn default() -> Self {
        Self { places: BTreeMap::new() }
    }
}

impl<T: Ord + Clone> Once<T> {
    fn place(&mut self, value: &T) -> usize {
        if let Some(place) = self.places.get(value) {
            return *place;
        }
        let place = self.places.len();
        self.places.insert(value.clone(), place);
        place
    }

    fn values(self) -> Vec<T> {
        let mut values: Vec<(usize, T)> = self.places.into_iter().map(|(value, place)| (place, value)).collect();
        values.sort_unstable_by_key(|(place, _)| *place);
        values.into_iter().map(|(_, value)| value).collect()
    }
}
