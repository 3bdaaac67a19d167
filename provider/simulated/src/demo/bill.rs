//! The bill at the end of the day.

use std::fmt;

use jiff::SignedDuration;
use stoker_core::base::units::{MICROS_PER_USD, UsdMicros};
use stoker_core::policy::Policy;

use super::day::Played;
use super::fleet::Fleet;
use stoker_service::print::{count, table};

/// The bill of a day beside two other ways to spend it.
pub(super) struct Bill<'a> {
    pub(super) ours: &'a Played,
    pub(super) theirs: &'a Played,
    pub(super) fleet: Fleet,
    pub(super) policy: &'a Policy,
    pub(super) length: SignedDuration,
}

/// A cent in micro-dollars.
const CENT: i64 = MICROS_PER_USD / 100;

/// An amount as the bill states it, in whole cents. What it adds up is rounded first, so that a row and a total never differ.
fn to_the_cent(amount: UsdMicros) -> UsdMicros {
    UsdMicros(amount.0.saturating_add(CENT / 2).div_euclid(CENT).saturating_mul(CENT))
}

/// What the rows of a day's bill add up to.
fn total(played: &Played) -> UsdMicros {
    played.paid.values().fold(UsdMicros::default(), |sum, paid| sum.plus(to_the_cent(*paid)))
}

/// The n-th percentile by nearest rank.
fn percentile(sorted: &[i64], n: usize) -> i64 {
    let rank = (sorted.len() * n).div_ceil(100).max(1);
    sorted.get(rank - 1).copied().unwrap_or(0)
}

fn waits(played: &Played) -> String {
    if played.waits.is_empty() {
        // No pod has got a node.
        return "-".to_owned();
    }
    let mut sorted = played.waits.clone();
    sorted.sort_unstable();
    format!("{} s / {} s", percentile(&sorted, 50), percentile(&sorted, 95))
}

impl fmt::Display for Bill<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let paid = self.ours.paid.iter().map(|((pool, capacity), paid)| {
            let bought = self.ours.bought.get(&(pool.clone(), *capacity)).copied().unwrap_or(0);
            vec![pool.to_string(), capacity.to_string(), bought.to_string(), to_the_cent(*paid).to_string()]
        });
        let hours = count(self.length.as_hours().unsigned_abs(), "hour");
        writeln!(f, "The bill of {hours}")?;
        writeln!(f, "{}", table(&["pool", "capacity", "nodes bought", "paid"], &["nodes bought", "paid"], paid.collect()))?;

        let share = |paid: UsdMicros| format!("{} %", i128::from(paid.0) * 100 / i128::from(self.fleet.cost.0.max(1)));
        let row = |name: &str, played: &Played| {
            let paid = total(played);
            vec![name.to_owned(), paid.to_string(), share(paid), waits(played), played.waiting.to_string()]
        };
        let header = ["the same day", "paid", "of the fleet", "pod wait p50 / p95", "pods waiting at the end"];
        let fleet = self.fleet.cost;
        let rows = vec![
            row("stoker", self.ours),
            row("autoscaler's defaults, on-demand", self.theirs),
            vec![
                "static on-demand fleet, sized for the peak".to_owned(),
                fleet.to_string(),
                share(fleet),
                "0 s / 0 s".to_owned(),
                "0".to_owned(),
            ],
        ];
        writeln!(f, "{}", table(&header, &header[1..], rows))?;
        let fleet: Vec<String> = self.fleet.nodes.iter().map(|(name, n)| format!("{n} × {name}")).collect();
        writeln!(f, "The static fleet: {}.\n", fleet.join(", "))?;

        let limits = self.policy.pools.iter().map(|pool| {
            let nodes = self.ours.most_nodes.get(&pool.name).copied().unwrap_or(0);
            let spend = self.ours.most_spend.get(&pool.name).copied().unwrap_or_default();
            let budget = pool.limits.max_usd_per_hour.map_or_else(|| "-".to_owned(), |limit| limit.to_string());
            vec![pool.name.to_string(), nodes.to_string(), pool.limits.max_nodes.to_string(), spend.to_string(), budget]
        });
        let header = ["pool", "most nodes", "maxNodes", "highest $/h", "maxUsdPerHour"];
        writeln!(f, "{}", table(&header, &header[1..], limits.collect()))?;
        if !self.policy.quotas.is_empty() {
            let quotas = self.policy.quotas.iter().map(|quota| {
                let used = self.ours.most_quota.get(&quota.name).copied().unwrap_or(0);
                vec![quota.name.clone(), used.to_string(), quota.limit.to_string(), quota.unit.to_string()]
            });
            writeln!(f, "{}", table(&["quota", "most used", "limit", "unit"], &["most used", "limit"], quotas.collect()))?;
        }
        let verdict = if self.ours.broken.is_empty() {
            "No limit or quota was ever exceeded, as counted from the simulated cloud's own machines."
        } else {
            "LIMITS WERE EXCEEDED."
        };
        writeln!(f, "{verdict}")?;
        write!(
            f,
            "Launches refused for lack of capacity: {}; nodes reclaimed by the cloud while in use: {}; autoscaler loops: {}.",
            self.ours.refused, self.ours.reclaimed, self.ours.loops
        )
    }
}
