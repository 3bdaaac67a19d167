//! GPUs that did nothing, by who held them: what `nodes --by` and `advise` show.

use std::collections::BTreeMap;
use std::str::FromStr;

use serde::Serialize;
use stoker_advice::rollup::{Owner, PodLabels};
use stoker_advice::workload::{Held, IdleKey, Observed};
use stoker_core::base::units::UsdPerHour;

use super::exit::NotFound;
use super::out::Money;
use stoker_service::print::table;

/// Most labels that are named to whoever asks for another.
const MOST_NAMED: usize = 12;

/// By what held GPUs are added up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum By {
    /// By workload: its namespace, and what made its pods.
    Owner,
    /// By namespace.
    Namespace,
    /// By a label of the pods.
    Label(String),
}

impl FromStr for By {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match (text, text.split_once('=')) {
            ("owner", _) => Ok(Self::Owner),
            ("namespace", _) => Ok(Self::Namespace),
            (_, Some(("label", name))) if !name.is_empty() => Ok(Self::Label(name.to_owned())),
            _ => Err("not owner, namespace or label=NAME, as in label=team".to_owned()),
        }
    }
}

impl By {
    /// What a pod of that owner and with those labels counts under, and whether that says whose it is.
    pub(super) fn name(&self, owner: &Owner, labels: &PodLabels) -> (bool, String) {
        match self {
            Self::Owner => (true, owner.to_string()),
            Self::Namespace => (true, owner.namespace.to_string()),
            Self::Label(label) => match labels.get(label) {
                Some(value) => (true, format!("{label}={value}")),
                None => (false, format!("pods without label {label}")),
            },
        }
    }
}

/// Who held GPUs, and for how long they did nothing.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct IdleRow {
    /// The workload, the namespace or the label's value; `None` where nobody held them or it cannot be told who did.
    owner: Option<String>,
    /// Why there is no owner; `None` where there is one.
    no_owner: Option<String>,
    /// GPU-seconds that readings stand for.
    held_seconds: u64,
    /// Those in which kernels ran.
    worked_seconds: u64,
    /// Those in which none ran and something lay in memory.
    resident_seconds: u64,
    /// Those in which nothing ran and nothing lay there.
    empty_seconds: u64,
    /// Those of which nobody knows.
    unknown_seconds: u64,
    /// What the idle ones cost.
    idle_cost: Money,
    /// The same an hour, over the hours with readings.
    idle_per_hour: Money,
    /// Idle GPU-seconds whose price no record told, and that are not in the cost.
    unpriced_seconds: u64,
    /// What nodes cost an hour that its pods hold now and do nothing with; `None` where there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    held_per_hour: Option<Money>,
    #[serde(skip)]
    shown: (String, UsdPerHour),
}

impl IdleRow {
    /// Who held them, where it is known.
    pub(super) fn owner(&self) -> Option<&str> {
        self.owner.as_deref()
    }

    /// What the idle ones cost an hour.
    pub(super) const fn per_hour(&self) -> UsdPerHour {
        self.shown.1
    }

    /// For how long they did nothing, in a sentence.
    pub(super) fn evidence(&self) -> String {
        let of = |seconds: u64| share(seconds, self.held_seconds);
        let (resident, empty) = (of(self.resident_seconds), of(self.empty_seconds));
        format!(
            "of {} GPU-hours that it held, no kernel ran in {resident}, with something in memory, and nothing at all lay there in {empty}",
            hours(self.held_seconds)
        )
    }
}

/// What was held and did nothing, dearest first; beside it what is `held` now, by name.
pub(super) fn rows(observed: &Observed, by: &By, mut held_now: BTreeMap<(bool, String), UsdPerHour>) -> Vec<IdleRow> {
    let mut sums: BTreeMap<(bool, String), Held> = BTreeMap::new();
    for (key, held) in observed.idle() {
        sums.entry(name(key, by)).or_default().merge(held);
    }
    // Who holds nodes and was not read has a row too.
    for name in held_now.keys() {
        sums.entry(name.clone()).or_default();
    }
    let hours = observed.known_hours();
    let mut rows: Vec<IdleRow> = sums
        .into_iter()
        .map(|(key, held)| {
            let held_per_hour = held_now.remove(&key).map(Into::into);
            let (owned, name) = key;
            let per_hour = held.per_hour(hours);
            IdleRow {
                owner: owned.then(|| name.clone()),
                no_owner: (!owned).then(|| name.clone()),
                held_seconds: held.seconds,
                worked_seconds: held.worked,
                resident_seconds: held.resident,
                empty_seconds: held.empty,
                unknown_seconds: held.unknown(),
                idle_cost: held.cost().into(),
                idle_per_hour: per_hour.into(),
                unpriced_seconds: held.unpriced,
                held_per_hour,
                shown: (name, per_hour),
            }
        })
        .collect();
    rows.sort_by(|a, b| (b.idle_cost.micro_usd, &a.shown.0).cmp(&(a.idle_cost.micro_usd, &b.shown.0)));
    rows
}

/// Refuses a label that no pod had: it is misspelt, or there are only nodes that nobody held.
pub(super) fn label_is_known(observed: &Observed, by: &By) -> Result<(), NotFound> {
    let By::Label(label) = by else { return Ok(()) };
    let known = observed.label_names();
    if known.contains(label.as_str()) {
        return Ok(());
    }
    let shown: Vec<&str> = known.into_iter().take(MOST_NAMED).collect();
    let cure = if shown.is_empty() { "no pod had a label".to_owned() } else { format!("pods had {}", shown.join(", ")) };
    let place = "the readings of these hours".to_owned();
    Err(NotFound { what: "pod label", name: label.clone(), place, cure: Some(cure) })
}

/// Whether there is an owner, and what it is called.
fn name(key: &IdleKey, by: &By) -> (bool, String) {
    let of_pool = |pool: &Option<stoker_core::base::ids::PoolName>| {
        pool.as_ref().map(|pool| format!(" (pool {pool})")).unwrap_or_default()
    };
    match (key, by) {
        (IdleKey::Owner(owner, labels), by) => by.name(owner, labels),
        (IdleKey::Nobody(pool), _) => (false, format!("nobody{}", of_pool(pool))),
        (IdleKey::Unattributed(why, pool), _) => (false, format!("unknown: {}{}", why.as_str(), of_pool(pool))),
    }
}

/// The rows as a table.
pub(super) fn shown(rows: &[IdleRow]) -> String {
    let mut header = vec!["GPU-H", "WORKED", "ALLOCATED IDLE", "EMPTY", "UNKNOWN", "IDLE $/H", "IDLE $", "OWNER"];
    let now = header.len() - 1;
    let any_held = rows.iter().any(|row| row.held_per_hour.is_some());
    if any_held {
        header.insert(now, "IDLE NOW $/H");
    }
    let cells = rows.iter().map(|row| {
        let (whose, per_hour) = &row.shown;
        let of = |seconds: u64| share(seconds, row.held_seconds);
        let mut cells = vec![
            hours(row.held_seconds),
            of(row.worked_seconds),
            of(row.resident_seconds),
            of(row.empty_seconds),
            of(row.unknown_seconds),
            per_hour.to_string(),
            stoker_core::base::units::UsdMicros(row.idle_cost.micro_usd).to_string(),
            whose.clone(),
        ];
        if any_held {
            let held = row.held_per_hour.as_ref().map_or_else(|| "-".to_owned(), |held| UsdPerHour(held.micro_usd).to_string());
            cells.insert(now, held);
        }
        cells
    });
    let numbers: Vec<&str> = header.iter().copied().filter(|name| *name != "OWNER").collect();
    table(&header, &numbers, cells.collect())
}

/// Seconds as hours with one decimal.
pub(super) fn hours(seconds: u64) -> String {
    let tenths = (seconds + 180) / 360;
    format!("{}.{}", tenths / 10, tenths % 10)
}

/// A part of a whole in percent; a part of nothing is none.
fn share(part: u64, whole: u64) -> String {
    (part * 100 + whole / 2).checked_div(whole).map_or_else(|| "-".to_owned(), |percent| format!("{percent}%"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_held_now_has_a_column_where_there_is_any_and_a_row_for_whoever_was_not_read() {
        let held = BTreeMap::from([((true, "ml/notebook".to_owned()), UsdPerHour(2_500_000))]);
        let held = rows(&Observed::default(), &By::Owner, held);
        let [row] = held.as_slice() else { panic!("{held:?}") };
        assert_eq!(
            (row.owner.as_deref(), row.held_per_hour.clone()),
            (Some("ml/notebook"), Some(UsdPerHour(2_500_000).into()))
        );
        let text = shown(&held);
        let cells = |line: usize| {
            text.lines().nth(line).unwrap().split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect::<Vec<_>>()
        };
        assert_eq!(cells(0)[7..], ["IDLE NOW $/H", "OWNER"], "{text}");
        assert_eq!(cells(1)[7..], ["$2.5000", "ml/notebook"], "{text}");
        assert!(!shown(&rows(&Observed::default(), &By::Owner, BTreeMap::new())).contains("IDLE NOW"));
    }
}
