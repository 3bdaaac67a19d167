//! Any demand under any policy, in virtual time: what it costs, how long pods wait, and which promises were broken.
//!
//! * [`region`]: the cloud that is bought from: boots, spot, stock-outs, the bill.
//! * [`work`]: the pods of the demand.
//! * [`outcome`]: what came of it.
//! * [`side_by_side`]: several at a time.
//! * [`least`]: the bound beside it.
//! * [`baselines`]: what the same pods cost without Stoker.
//!
//! What decides is the production `decide` and `check`, behind the model of the Cluster Autoscaler, as [`crate::in_process`] plays them.
//! Times are whole seconds. Pods that are there at the start are served at once, with nodes that are Ready at once.
//!
//! The same setup gives the same outcome, to the micro-dollar.

pub mod baselines;
pub mod least;
pub mod outcome;
pub mod region;
pub mod side_by_side;
#[cfg(test)]
mod tests;
pub mod work;

use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::SignedDuration;
use stoker_core::base::ids::SupplierName;
use stoker_core::catalogue::Catalogue;

use crate::demand::Demand;
use crate::in_process::desk::Desk;
use crate::in_process::play::{Loops, Play};
use crate::model::{Autoscaler, MemoryCluster, Scoring, Settings};
use crate::spot_month::jobs::Saving;
use outcome::Outcome;
use region::{Boot, Region, Shortage, Spot};
use work::Work;

pub use crate::demand::types::{START, SUPPLIER};

/// What is simulated.
#[derive(Debug, Clone)]
pub struct Setup {
    /// The pods, and how long they are watched.
    pub demand: Arc<Demand>,
    /// The policy with its groups and prices.
    pub catalogue: Catalogue,
    /// The autoscaler's flags.
    pub settings: Settings,
    /// How the scheduler chooses among nodes.
    pub scoring: Scoring,
    /// What the cloud does.
    pub world: World,
    /// What all chance is drawn from.
    pub seed: u64,
    /// How often the time series is sampled, in seconds.
    pub sample_every: i64,
    /// Whether every loop of the autoscaler is run, also those that can do nothing.
    pub every_loop: bool,
}

impl Setup {
    /// With the flags that Stoker recommends, a scheduler that packs, and a cloud that has everything.
    pub fn new(demand: Arc<Demand>, catalogue: Catalogue, seed: u64) -> Self {
        Self {
            demand,
            catalogue,
            settings: Settings::recommended(),
            scoring: Scoring::MostAllocated,
            world: World::default(),
            seed,
            sample_every: 900,
            every_loop: false,
        }
    }
}

/// What the cloud does.
#[derive(Debug, Clone)]
pub struct World {
    /// How long machines take from request to Ready.
    pub boot: Boot,
    /// When there is spot capacity; `None` where there always is, and none is taken back.
    pub spot: Option<Spot>,
    /// When there is no stock.
    pub shortages: Vec<Shortage>,
    /// Share of the launches on demand that find no stock, in thousandths.
    pub refused_milli: u32,
    /// How pods save their work.
    pub saving: Saving,
}

impl Default for World {
    fn default() -> Self {
        Self {
            boot: Boot::MEASURED,
            spot: None,
            shortages: Vec::new(),
            refused_milli: 0,
            saving: Saving { checkpoint: SignedDuration::from_mins(30), restart: SignedDuration::from_mins(2) },
        }
    }
}

/// An outcome with how long it took.
#[derive(Debug, Clone)]
pub struct Simulated {
    /// What came of it.
    pub outcome: Outcome,
    /// How long it took, by the wall clock.
    pub took: Duration,
}

/// Why nothing was simulated.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotSimulated {
    /// The catalogue has no group.
    #[error("the policy makes no node group from these prices")]
    NoGroups,
    /// An id is none.
    #[error(transparent)]
    Id(#[from] stoker_core::base::ids::IdError),
}

/// Plays a setup from its start to the end of its demand.
///
/// # Errors
/// When the policy makes no groups.
pub fn simulate(setup: &Setup) -> Result<Simulated, NotSimulated> {
    if setup.catalogue.groups.is_empty() {
        return Err(NotSimulated::NoGroups);
    }
    let began = Instant::now();
    let region = Region::new(setup);
    let desk = Desk::new(region, setup.catalogue.clone(), SupplierName::new(SUPPLIER)?, START);
    let mut autoscaler = Autoscaler::new(desk, MemoryCluster::new(setup.scoring), setup.settings.clone());
    autoscaler.without_transcript();
    let loops = if setup.every_loop { Loops::All } else { Loops::Needed };
    let mut play = Play::new(autoscaler, Work::new(setup), loops, START);
    play.begin();
    play.run();
    let outcome = Outcome::of(play, setup);
    Ok(Simulated { outcome, took: began.elapsed() })
}
