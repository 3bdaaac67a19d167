//! Stoker as it runs: its policy in variants, played by the production code.

use std::io::IsTerminal as _;
use std::sync::Arc;

use anyhow::{Result, anyhow};
use jiff::SignedDuration;
use stoker_core::policy::{Policy, RawPolicy};
use stoker_sim::demand::{Demand, types};
use stoker_sim::model::{Scoring, Settings};
use stoker_sim::simulate::Setup;
use stoker_sim::simulate::outcome::Outcome;
use stoker_sim::simulate::side_by_side::side_by_side;

/// One way to run Stoker.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Variant {
    pub(crate) name: &'static str,
    pub(crate) isolated: bool,
    /// Whether the autoscaler's own delays are taken off, so that windows are Stoker's alone.
    pub(crate) undelayed: bool,
    pub(crate) scoring: Scoring,
    /// `waitingUsdPerGpuHour`.
    pub(crate) waiting: &'static str,
    /// `window` and `scaleDown`.
    pub(crate) windows: &'static str,
    /// `warmFloor`, if any.
    pub(crate) floor: &'static str,
}

/// Each node may idle for the same money, for ten minutes at most.
pub(crate) const EQUAL_COST: &str = "window: equalCost, scaleDown: 10m";

impl Variant {
    /// By its defaults, with isolation and windows of equal cost.
    pub(crate) const DEFAULT: Self = Self {
        name: "Stoker",
        isolated: true,
        undelayed: false,
        scoring: Scoring::MostAllocated,
        waiting: "2",
        windows: EQUAL_COST,
        floor: "",
    };

    /// Without isolation.
    pub(crate) const SHARED: Self = Self { name: "Stoker without isolation", isolated: false, ..Self::DEFAULT };

    /// The same where the scheduler prefers the emptiest node.
    pub(crate) const fn spread(self, name: &'static str) -> Self {
        Self { name, scoring: Scoring::LeastAllocated, ..self }
    }

    /// The default with other words of the policy.
    pub(crate) const fn tuned(name: &'static str, waiting: &'static str, windows: &'static str, floor: &'static str) -> Self {
        Self { name, waiting, windows, floor, ..Self::DEFAULT }
    }

    /// Without the autoscaler's own delays.
    pub(crate) const fn undelayed(self, name: &'static str) -> Self {
        Self { name, undelayed: true, ..self }
    }

    /// A pool of those models. Isolation, windows and floors are what is compared; limits never bind.
    pub(crate) fn policy(&self, models: &[&str]) -> Result<Arc<Policy>> {
        let isolation = if self.isolated { "  isolation: { maxCostRatio: 1.0 }\n" } else { "" };
        let floor = if self.floor.is_empty() { String::new() } else { format!("  warmFloor: {}\n", self.floor) };
        let text = format!(
            "apiVersion: stoker.dev/v1alpha1
kind: Policy
clusterName: capbench
defaults: {{ unknownQuota: allow, bootDeadline: 14m }}
pools:
- name: gpu
  workload: batch
  gpu: {{ models: [{models}] }}
  where: {{ clouds: [aws], regions: [us-east-1, us-west-2] }}
  capacity: {{ prefer: [on-demand] }}
  limits: {{ maxNodes: 500 }}
  waitingUsdPerGpuHour: {waiting}
  stabilization: {{ {windows}, minimumLife: 15m }}
{floor}{isolation}",
            models = models.join(", "),
            waiting = self.waiting,
            windows = self.windows,
        );
        let raw: RawPolicy = serde_saphyr::from_str(&text)?;
        let policy = Policy::try_from_raw(&raw);
        Ok(Arc::new(
            policy.map_err(|faults| anyhow!("{}", faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")))?,
        ))
    }

    fn setup(&self, demand: &Arc<Demand>, models: &[&str], seed: u64, sample_every: i64) -> Result<Setup> {
        let catalogue = types::catalogue(&self.policy(models)?, &demand.types)?;
        let mut settings = Settings::recommended();
        if self.undelayed {
            settings.scale_down_unneeded = SignedDuration::ZERO;
            settings.scale_down_delay_after_add = SignedDuration::ZERO;
        }
        Ok(Setup { settings, scoring: self.scoring, sample_every, ..Setup::new(Arc::clone(demand), catalogue, seed) })
    }
}

/// Plays one variant on one demand, for each seed.
pub(crate) struct Job<'a> {
    pub(crate) variant: Variant,
    pub(crate) demand: &'a Arc<Demand>,
    pub(crate) models: &'a [&'a str],
    /// Seconds between two samples.
    pub(crate) sample_every: i64,
}

/// Plays jobs, as many at a time as there are processors; the outcomes of each by seed.
pub(crate) fn play(jobs: &[Job<'_>], seeds: u64) -> Result<Vec<Vec<Outcome>>> {
    let mut setups = Vec::new();
    for Job { variant, demand, models, sample_every } in jobs {
        for seed in 0..seeds {
            setups.push(variant.setup(demand, models, seed, *sample_every)?);
        }
    }
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let shown = std::io::stderr().is_terminal();
    let tell = |_: usize, done: usize| {
        if shown {
            let of = setups.len();
            eprint!("\r{done} of {of} runs of Stoker{}", if done == of { "\n" } else { "" });
        }
    };
    let mut outcomes = side_by_side(&setups, threads, tell).into_iter();
    let seeds = usize::try_from(seeds)?;
    jobs.iter().map(|_| outcomes.by_ref().take(seeds).map(|made| Ok(made?.outcome)).collect()).collect()
}
