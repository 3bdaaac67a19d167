//! Gauges of the published view, written at each scrape: one view, never half of two, and ages as of the scrape.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::{SignedDuration, Timestamp};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeGaugeValue};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit;
use stoker_core::base::ids::{NodeGroupId, NodeName, PoolName, SupplierName};
use stoker_core::base::units::{MICROS_PER_USD, UsdPerHour};
use stoker_core::limits::budget::Budget;
use stoker_core::market::offer::CapacityType;
use stoker_core::state::budget::{BudgetOf, Stage};

use super::fleet::Fleet;
use super::labels::NodeState;
use crate::clock::Clock;

/// What the gauges show.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct View {
    /// Every group, listed or not.
    pub groups: BTreeMap<NodeGroupId, GroupGauges>,
    /// Nodes, by pool and where they stand.
    pub nodes: BTreeMap<(PoolName, NodeState), u32>,
    /// What the nodes cost, by pool and how they were bought.
    pub spend: BTreeMap<(PoolName, CapacityType), UsdPerHour>,
    /// How every budget stands.
    pub budgets: Vec<Budget>,
    /// What the consistency check found, by pool and kind; a fault of the fleet is of no pool.
    pub faults: BTreeSet<(Option<PoolName>, String)>,
    /// What the unused part of each commitment costs, by name; one of which that is not known is absent.
    pub unused: BTreeMap<String, UsdPerHour>,
}

/// What the gauges show of one group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupGauges {
    /// Its pool.
    pub pool: PoolName,
    /// The target size.
    pub target: u32,
    /// `minSize`.
    pub min: u32,
    /// `maxSize`.
    pub max: u32,
    /// Whether it is suspended because no pod joined its last nodes.
    pub suspended: bool,
}

/// Where facts come from.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Feed {
    /// Nodes and pods.
    Kubernetes,
    /// Readings of GPUs from Prometheus.
    Prometheus,
    /// A supplier's inventory.
    Supplier(SupplierName),
}

impl fmt::Display for Feed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kubernetes => f.pad("kubernetes"),
            Self::Prometheus => f.pad("prometheus"),
            Self::Supplier(name) => write!(f, "supplier/{name}"),
        }
    }
}

/// Says when the newest facts of a feed were true; `None` before the first.
#[derive(Clone)]
struct NewestFacts(Arc<dyn Fn() -> Option<Timestamp> + Send + Sync>);

impl fmt::Debug for NewestFacts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (self.0)().fmt(f)
    }
}

/// The collector; clones share what they show.
#[derive(Debug, Clone)]
pub(super) struct Published {
    /// What ages are told by.
    clock: Clock,
    /// When the process began: a feed without facts is as old.
    began: Timestamp,
    shown: Arc<Mutex<Shown>>,
}

#[derive(Debug, Default)]
struct Shown {
    view: Arc<View>,
    fleet: Option<Fleet>,
    feeds: BTreeMap<Feed, NewestFacts>,
    guests: Arc<BTreeSet<NodeName>>,
}

impl Published {
    pub(super) fn new(clock: Clock) -> Self {
        Self { began: clock.now(), clock, shown: Arc::default() }
    }

    pub(super) fn replace(&self, view: View) {
        self.lock().view = Arc::new(view);
    }

    pub(super) fn fleet(&self, fleet: Fleet) {
        self.lock().fleet = Some(fleet);
    }

    pub(super) fn last_fleet(&self) -> Option<Fleet> {
        self.lock().fleet.clone()
    }

    pub(super) fn follow(&self, feed: Feed, newest: impl Fn() -> Option<Timestamp> + Send + Sync + 'static) {
        self.lock().feeds.insert(feed, NewestFacts(Arc::new(newest)));
    }

    /// How old the newest facts of each feed are.
    pub(super) fn feed_ages(&self) -> Vec<(Feed, SignedDuration)> {
        let (feeds, now) = (self.lock().feeds.clone(), self.clock.now());
        let age = |newest: &NewestFacts| now.duration_since((newest.0)().unwrap_or(self.began)).max(SignedDuration::ZERO);
        feeds.iter().map(|(feed, newest)| (feed.clone(), age(newest))).collect()
    }

    pub(super) fn guests(&self, nodes: BTreeSet<NodeName>) {
        self.lock().guests = Arc::new(nodes);
    }

    fn lock(&self) -> MutexGuard<'_, Shown> {
        self.shown.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Collector for Published {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        // Copied out: a slow scrape must not hold up the loop.
        let (view, fleet, guests) = {
            let shown = self.lock();
            (Arc::clone(&shown.view), shown.fleet.clone(), Arc::clone(&shown.guests))
        };
        let now = self.clock.now();
        if let Some(fleet) = fleet {
            fleet.encode(&mut encoder, now, &guests)?;
        }
        let groups = |of: fn(&GroupGauges) -> u32| {
            view.groups
                .iter()
                .map(move |(id, group)| ([("pool", group.pool.to_string()), ("group", id.to_string())], i64::from(of(group))))
        };
        let nodes = Unit::Other("nodes".to_owned());
        gauges(&mut encoder, "group_target", "Target size of a group", Some(&nodes), groups(|g| g.target))?;
        gauges(&mut encoder, "group_min", "minSize of a group, as the autoscaler sees it", Some(&nodes), groups(|g| g.min))?;
        gauges(&mut encoder, "group_max", "maxSize of a group, as the autoscaler sees it", Some(&nodes), groups(|g| g.max))?;
        let suspended = groups(|g| u32::from(g.suspended));
        gauges(
            &mut encoder,
            "group_suspended",
            "1 while a group is suspended because no pod was scheduled on its last nodes",
            None,
            suspended,
        )?;
        let states = view.nodes.iter().map(|((pool, state), count)| {
            ([("pool", pool.to_string()), ("state", state.as_str().to_owned())], i64::from(*count))
        });
        gauges(&mut encoder, "nodes", "Nodes, by state from order to termination", None, states)?;
        let spend = view.spend.iter().map(|((pool, capacity), rate)| {
            ([("pool", pool.to_string()), ("capacity_type", capacity.to_string())], dollars(*rate))
        });
        let per_hour = Unit::Other("usd_per_hour".to_owned());
        gauges(
            &mut encoder,
            "spend",
            "Cost of the nodes now, in US dollars per hour, before commitments",
            Some(&per_hour),
            spend,
        )?;
        // The label `pool` is empty, and so as good as absent, where the budget is of all pools.
        let budgets = |of: fn(&Budget) -> UsdPerHour| {
            view.budgets.iter().map(move |budget| (budget_labels(&budget.of), dollars(of(budget))))
        };
        let help = "Uncommitted spend that counts against a budget, in US dollars per hour";
        gauges(&mut encoder, "budget_spend", help, Some(&per_hour), budgets(|budget| budget.spent))?;
        gauges(
            &mut encoder,
            "budget_limit",
            "A budget, in US dollars per hour",
            Some(&per_hour),
            budgets(|budget| budget.limit),
        )?;
        let by_budget = view.budgets.iter().map(|budget| {
            let stage = Stage::ALL.iter().position(|stage| *stage == budget.stage).unwrap_or_default();
            (budget_labels(&budget.of), i64::try_from(stage).unwrap_or(i64::MAX))
        });
        let help = "What a budget still allows: 0 everything, 1 everything (near its limit), 2 only spot for pools that may \
                    buy it, 3 only committed capacity";
        gauges(&mut encoder, "budget_stage", help, None, by_budget)?;
        // The label `pool` is empty, and so as good as absent, where the fault is of the fleet.
        let faults = view.faults.iter().map(|(pool, fault)| {
            ([("pool", pool.as_ref().map(ToString::to_string).unwrap_or_default()), ("fault", fault.clone())], 1_i64)
        });
        let help =
            "1 while the internal consistency check finds this fault: the pool, or without one every pool, does not grow";
        gauges(&mut encoder, "consistency_fault", help, None, faults)?;
        let unused = view.unused.iter().map(|(name, rate)| ([("commitment", name.clone())], dollars(*rate)));
        let help = "Cost of the unused part of a commitment, in US dollars per hour";
        gauges(&mut encoder, "commitment_unused", help, Some(&per_hour), unused)?;
        let ages = self.feed_ages().into_iter().map(|(feed, age)| ([("feed", feed.to_string())], age.as_secs_f64()));
        gauges(
            &mut encoder,
            "feed_age",
            "Age of the newest facts of a feed; of one that has not reported yet, the time since the start",
            Some(&Unit::Seconds),
            ages,
        )
    }
}

/// Writes one metric; nothing at all where it has no series.
pub(super) fn gauges<const N: usize, V: EncodeGaugeValue>(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    unit: Option<&Unit>,
    series: impl Iterator<Item = ([(&'static str, String); N], V)>,
) -> fmt::Result {
    let mut series = series.peekable();
    if series.peek().is_none() {
        return Ok(());
    }
    // The registry ends the help of its own metrics with a full stop.
    let help = format!("{help}.");
    let mut metric = encoder.encode_descriptor(name, &help, unit, MetricType::Gauge)?;
    for (labels, value) in series {
        if labels.is_empty() {
            metric.encode_gauge(&value)?;
        } else {
            metric.encode_family(&labels)?.encode_gauge(&value)?;
        }
    }
    Ok(())
}

fn budget_labels(of: &BudgetOf) -> [(&'static str, String); 2] {
    let scope = if of.pool().is_some() { "pool" } else { "all" };
    [("scope", scope.to_owned()), ("pool", of.pool().map(ToString::to_string).unwrap_or_default())]
}

#[expect(clippy::cast_precision_loss, reason = "a gauge is a float; below 9 billion dollars an hour no micro-dollar is lost")]
pub(super) fn dollars(rate: UsdPerHour) -> f64 {
    rate.0 as f64 / MICROS_PER_USD as f64
}
