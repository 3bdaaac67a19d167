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

/// `12.3 GPU-hours` of GPU-seconds.
fn gpu_hours(seconds: u64) -> String {
    let tenths = (seconds + 180) / 360;
    format!("{}.{} GPU-hours", tenths / 10, tenths % 10)
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
            let quotas = self.policy.quotas.iter().enumerate().map(|(at, quota)| {
                let used = self.ours.most_quota.get(&at).copied().unwrap_or(0);
                let place = quota.region.as_ref().map_or_else(|| quota.cloud.to_string(), |of| format!("{}/{of}", quota.cloud));
                vec![quota.name.clone(), place, used.to_string(), quota.limit.to_string(), quota.unit.to_string()]
            });
            let header = ["quota", "region", "most used", "limit", "unit"];
            writeln!(f, "{}", table(&header, &["most used", "limit"], quotas.collect()))?;
        }
        let verdict = if self.ours.broken.is_empty() {
            "No limit or quota was ever exceeded, as counted from the simulated cloud's own machines."
        } else {
            "LIMITS WERE EXCEEDED."
        };
        writeln!(f, "{verdict}")?;
        write!(
            f,
            "Launches refused for lack of capacity: {}; nodes reclaimed by the cloud while in use: {}, which lost {} of \
             work that was done again, and is paid for above; autoscaler loops: {}.",
            self.ours.refused,
            self.ours.reclaimed,
            gpu_hours(self.ours.lost_gpu_seconds),
            self.ours.loops
        )
    }
}

#[cfg(test)]
mod tests {
    use stoker_service::policy_file;

    use super::*;

    /// A quota's name is the same in every region: each has a row of its own, with its own use.
    #[test]
    fn the_bill_tells_quotas_by_region_and_the_work_that_reclaims_cost() {
        let listed = "- { name: L-417A185B, cloud: aws, region: us-east-1, limit: 768 }\n\
                      - { name: L-417A185B, cloud: aws, region: us-west-2, limit: 384 }\n";
        let policy = policy_file::example();
        let (before, _) = policy.split_once("\nquotas:\n").unwrap();
        let policy = policy_file::parse("policy.yaml", &format!("{before}\nquotas:\n{listed}"), None).unwrap();
        let ours =
            Played { most_quota: [(0, 96), (1, 192)].into(), reclaimed: 3, lost_gpu_seconds: 9_000, ..Played::default() };
        let (theirs, fleet) = (Played::default(), Fleet::default());
        let length = SignedDuration::from_hours(1);
        let bill = Bill { ours: &ours, theirs: &theirs, fleet, policy: &policy, length }.to_string();
        let rows: Vec<Vec<&str>> = bill.lines().map(|line| line.split_whitespace().collect()).collect();
        for row in [["L-417A185B", "aws/us-east-1", "96", "768", "vCPU"], ["L-417A185B", "aws/us-west-2", "192", "384", "vCPU"]]
        {
            assert!(rows.iter().any(|shown| shown[..] == row), "{row:?}: {bill}");
        }
        assert!(bill.contains("reclaimed by the cloud while in use: 3, which lost 2.5 GPU-hours of work"), "{bill}");
    }
}
