//! A month of training jobs on spot capacity that comes and goes, replayed against the real decision and against what people run
//! without it.
//!
//! * [`availability`]: when each zone has spot capacity, by the laws that were fitted to measured zones.
//! * [`jobs`]: the work, with checkpoints, and how late it gets.
//! * [`cloud`]: what a region sells, how its machines boot and go, and the bill.
//! * [`stoker`]: the decision behind the model of the autoscaler, as [`crate::in_process`] plays it.
//! * [`accounts`]: where the bill goes.
//! * [`baseline`]: always on demand, spot only, and spot with a sticky fallback.
//! * [`bound`]: the least that the work can cost.
//!
//! The same seed gives the same month, to the second and the micro-dollar.

pub mod accounts;
pub mod availability;
pub mod baseline;
pub mod bound;
pub mod cloud;
pub mod jobs;
mod sold;
pub mod stoker;
#[cfg(test)]
mod tests;

use serde_json::json;
use stoker_core::base::units::UsdMicros;
use stoker_core::policy::RawPolicy;

use accounts::Accounts;
use availability::{Availability, ZoneLaw};
use cloud::Bill;
use jobs::{DAY, Job, Ledger, Saving};

/// What is played: some days of work in one region.
#[derive(Debug, Clone)]
pub struct Month {
    /// What all chance is drawn from.
    pub seed: u64,
    /// The work.
    pub jobs: Vec<Job>,
    /// When there is spot.
    pub availability: Availability,
}

impl Month {
    /// Jobs that arrive in so many days and use `load` GPUs on average, in three zones. The longest job takes three days more, and
    /// whoever lets it wait longer still: availability is drawn for twice the days and a fortnight.
    pub fn draw(seed: u64, days: i64, load: f64, zone_law: &ZoneLaw) -> Self {
        let availability = Availability::draw(seed, zone_law, cloud::SPOT_MILLI.len(), (2 * days + 14) * DAY);
        Self { seed, jobs: jobs::jobs(seed, days, load), availability }
    }

    /// Plays a baseline.
    pub fn baseline(&self, baseline: baseline::Baseline, saving: Saving) -> Outcome {
        baseline::replay(baseline, self.seed, &self.jobs, &self.availability, saving)
    }

    /// The least that the work can cost.
    pub fn bound(&self) -> UsdMicros {
        bound::bound(&self.jobs, &self.availability)
    }
}

/// The policy that is played: one pool that takes spot first, saves checkpoints, and is limited by quotas that the work does not fill. Free
/// nodes go by the autoscaler's timers alone, as in the ways that it is compared with.
pub fn policy(saving: Saving) -> serde_json::Result<RawPolicy> {
    let quota = |name: &str| json!({ "name": name, "cloud": sold::CLOUD, "region": sold::REGION, "limit": QUOTA_VCPUS });
    serde_json::from_value(json!({
        "apiVersion": "stoker.dev/v1alpha1", "kind": "Policy", "clusterName": "replay",
        "pools": [{
            "name": sold::POOL, "workload": "training",
            "gpu": { "models": [sold::MODEL] },
            "where": { "clouds": [sold::CLOUD], "regions": [sold::REGION] },
            "capacity": {
                "prefer": ["spot", "on-demand"],
                "spot": {
                    "checkpoint": format!("{}s", saving.checkpoint.as_secs()),
                    "restart": format!("{}s", saving.restart.as_secs()),
                },
            },
            "limits": { "maxNodes": 400 },
            "stabilization": { "scaleDown": "1s", "minimumLife": "0s" },
        }],
        "quotas": [quota("L-417A185B"), quota("L-7212CCBC")],
    }))
}

/// The limit of both quotas, on-demand and spot: 256 GPUs.
pub const QUOTA_VCPUS: u32 = 2048;

/// What a replay came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// The bill.
    pub bill: Bill,
    /// Where it went; `None` for baselines, of which it is not counted.
    pub accounts: Option<Accounts>,
    /// Jobs that are done, and jobs that there were.
    pub finished: (usize, usize),
    /// Late jobs, in millionths.
    pub late_ppm: i64,
    /// Jobs stopped by a reclaim.
    pub stopped: u64,
    /// Jobs moved.
    pub moved: u64,
    /// GPU-hours of work lost.
    pub lost_gpu_hours: i64,
    /// Promises that were broken, in words. There is none.
    pub broken: Vec<String>,
}

impl Outcome {
    fn new(bill: &Bill, ledger: &Ledger, jobs: usize, broken: Vec<String>) -> Self {
        Self {
            bill: *bill,
            accounts: None,
            finished: (ledger.finished(), jobs),
            late_ppm: ledger.late_ppm(i64::MAX),
            stopped: ledger.reclaims,
            moved: ledger.moves,
            lost_gpu_hours: ledger.lost_gpu_hours(),
            broken,
        }
    }
}
