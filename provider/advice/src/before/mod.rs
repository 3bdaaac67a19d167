//! A cluster before it has Stoker, as samples of its metrics tell: which GPU nodes there were, how many of their GPUs pods held and how many
//! worked, and which pods there were to run.
//!
//! Samples stand on a [`Grid`], and each counts for one step from its time on. Of a step without any sample of the cluster nothing is
//! known: it is in no figure, and the demand goes on after it as if it had not been.

mod spells;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use stoker_core::base::units::{UsdMicros, UsdPerHour};
use stoker_core::market::offer::CapacityType;

pub use spells::Spells;

/// Seconds of an hour, and thousandths of a GPU.
const HOUR: i128 = 3_600;
const WHOLE: i128 = 1_000;

/// The times at which a cluster is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grid {
    /// The first, in Unix seconds.
    from: i64,
    /// From one to the next, in seconds.
    step: i64,
    /// How many there are.
    steps: u32,
}

impl Grid {
    /// Times at whole steps of so many seconds between two moments in Unix seconds, of which the last is not included.
    pub fn new(from: i64, until: i64, step: i64) -> Self {
        let step = step.max(1);
        let from = from.saturating_add(step - 1).div_euclid(step).saturating_mul(step);
        let steps = until.saturating_sub(from).max(0).saturating_add(step - 1) / step;
        Self { from, step, steps: u32::try_from(steps).unwrap_or(u32::MAX) }
    }

    /// Seconds of a step.
    pub const fn step(&self) -> i64 {
        self.step
    }

    /// How many steps there are.
    pub const fn steps(&self) -> u32 {
        self.steps
    }

    /// When a step begins, in Unix seconds.
    pub fn begins(&self, step: u32) -> i64 {
        self.from.saturating_add(i64::from(step).saturating_mul(self.step))
    }

    /// The step that a moment is in; `None` where that is before the first or after the last.
    pub fn step_of(&self, at: i64) -> Option<u32> {
        let step = u32::try_from(at.checked_sub(self.from)?.div_euclid(self.step)).ok()?;
        (step < self.steps).then_some(step)
    }

    fn seconds(&self, steps: u64) -> i64 {
        i64::try_from(steps).unwrap_or(i64::MAX).saturating_mul(self.step)
    }
}

/// What a node is: nodes that are alike are one line of the figures.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Kind {
    /// Its instance type; `None` where nobody tells.
    pub instance_type: Option<String>,
    /// Where it is.
    pub region: Option<String>,
    /// How it was bought.
    pub bought: Option<CapacityType>,
    /// Its GPU model.
    pub model: Option<String>,
    /// What it costs; `None` where no source tells.
    pub rate: Option<UsdPerHour>,
}

#[derive(Debug, Clone, Default)]
struct Node {
    there: Spells,
    /// GPUs that it had last.
    gpus: u32,
    /// Its GPUs, summed over the steps in which it was there.
    gpu_steps: u64,
    /// Of those, the ones of which readings tell how busy they were.
    read: u64,
    /// How busy those were: thousandths, summed alike.
    used: u64,
}

/// Which pod: namespace, name, and its uid where samples bear one.
pub type PodKey = (String, String, String);

#[derive(Debug, Clone, Default)]
struct Pod {
    /// While it waited for a node.
    waited: Spells,
    /// While it held its GPUs.
    held: Spells,
    node: Option<String>,
    gpus: u32,
    milli_cpu: u32,
    memory_mib: u32,
}

/// What samples told of a cluster.
#[derive(Debug, Clone)]
pub struct Observed {
    grid: Grid,
    known: Spells,
    nodes: BTreeMap<String, Node>,
    pods: BTreeMap<PodKey, Pod>,
}

/// Time of nodes and of their GPUs, and what it cost.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Amounts {
    /// Seconds of nodes.
    pub node_seconds: i64,
    /// Seconds of nodes whose price nobody tells: they are in no cost.
    pub unpriced_node_seconds: i64,
    /// Seconds of GPUs.
    pub gpu_seconds: i64,
    /// Those in which a pod held the GPU.
    pub held_seconds: i64,
    /// Those of which readings tell how busy the GPU was.
    pub read_seconds: i64,
    /// How many of those it worked: seconds × use.
    pub worked_seconds: i64,
    /// What the nodes cost whose price is known.
    pub cost: UsdMicros,
    /// Of that, what was paid for time of which readings tell.
    pub read: UsdMicros,
    /// Of that in turn, what GPUs could have done and did not: cost × (1 − use).
    wasted: UsdMicros,
}

impl Amounts {
    /// What was wasted of [`Self::read`]; `None` where no reading tells, or no price.
    pub fn waste(&self) -> Option<UsdMicros> {
        (self.read.0 > 0).then_some(self.wasted)
    }

    fn add(&mut self, other: &Self) {
        for (sum, more) in [
            (&mut self.node_seconds, other.node_seconds),
            (&mut self.unpriced_node_seconds, other.unpriced_node_seconds),
            (&mut self.gpu_seconds, other.gpu_seconds),
            (&mut self.held_seconds, other.held_seconds),
            (&mut self.read_seconds, other.read_seconds),
            (&mut self.worked_seconds, other.worked_seconds),
            (&mut self.cost.0, other.cost.0),
            (&mut self.read.0, other.read.0),
            (&mut self.wasted.0, other.wasted.0),
        ] {
            *sum = sum.saturating_add(more);
        }
    }
}

/// What there was and what it cost.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Figures {
    /// Seconds that were asked for.
    pub seconds: i64,
    /// Seconds of which samples tell.
    pub known_seconds: i64,
    /// Nodes at the last moment that is known.
    pub nodes_last: u32,
    /// The most nodes at any moment.
    pub nodes_most: u32,
    /// All of it.
    pub total: Amounts,
    /// By what nodes are, the most expensive first.
    pub lines: Vec<(Kind, Amounts)>,
}

/// A pod as it is to be run again. Times are seconds of known time from the first that is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodTime {
    /// `namespace/name`.
    pub name: String,
    /// The node that it ran on.
    pub node: String,
    /// What it asked for.
    pub gpus: u32,
    /// Thousandths of a CPU; 0 where it asked for none.
    pub milli_cpu: u32,
    /// MiB; 0 where it asked for none.
    pub memory_mib: u32,
    /// When it was first seen.
    pub arrives: i64,
    /// How long it held its GPUs.
    pub runs: i64,
    /// Whether it still did so at the end.
    pub goes_on: bool,
}

/// The pods of a cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PodTimes {
    /// Those that ran, by arrival.
    pub pods: Vec<PodTime>,
    /// Those that waited and never ran: for how long they would have, nobody knows.
    pub never_ran: Vec<String>,
}

impl Observed {
    /// Nothing yet.
    pub const fn new(grid: Grid) -> Self {
        Self { grid, known: Spells::new(), nodes: BTreeMap::new(), pods: BTreeMap::new() }
    }

    /// The times at which it is looked at.
    pub const fn grid(&self) -> &Grid {
        &self.grid
    }

    /// When something is known.
    pub const fn known(&self) -> &Spells {
        &self.known
    }

    /// The nodes that were ever there, with the GPUs that each had last.
    pub fn nodes(&self) -> impl Iterator<Item = (&str, u32)> {
        self.nodes.iter().map(|(name, node)| (name.as_str(), node.gpus))
    }

    /// Of that step something is known.
    pub fn take_known(&mut self, step: u32) {
        self.known.add(step);
    }

    /// A node was there with so many GPUs.
    pub fn take_node(&mut self, name: &str, step: u32, gpus: u32) {
        let node = entry(&mut self.nodes, name);
        if gpus > 0 && node.there.add(step) {
            node.gpus = gpus;
            node.gpu_steps += u64::from(gpus);
        }
    }

    /// So many GPUs of a node were read, and were so busy together: in thousandths of a GPU. Nodes come before their readings.
    pub fn take_use(&mut self, name: &str, step: u32, gpus: u32, permille: u64) {
        let Some(node) = self.nodes.get_mut(name).filter(|node| node.there.has(step)) else { return };
        // An exporter that was started anew is read twice for a moment.
        let read = gpus.min(node.gpus);
        let used = permille.saturating_mul(read.into()) / u64::from(gpus.max(1));
        node.read += u64::from(read);
        node.used += used.min(u64::from(read) * 1_000);
    }

    /// A pod asked for so many GPUs, and had a node or waited for one.
    pub fn take_pod(&mut self, key: &PodKey, step: u32, gpus: u32, node: Option<&str>) {
        if gpus == 0 {
            return;
        }
        let pod = self.pods.entry(key.clone()).or_default();
        pod.gpus = gpus;
        match node {
            Some(node) => {
                pod.held.add(step);
                if pod.node.as_deref() != Some(node) {
                    pod.node = Some(node.to_owned());
                }
            }
            None => {
                pod.waited.add(step);
            }
        }
    }

    /// What else a pod that was taken asked for, at the most.
    pub fn take_size(&mut self, key: &PodKey, milli_cpu: u32, memory_mib: u32) {
        if let Some(pod) = self.pods.get_mut(key) {
            pod.milli_cpu = pod.milli_cpu.max(milli_cpu);
            pod.memory_mib = pod.memory_mib.max(memory_mib);
        }
    }

    /// What there was and what it cost, by what each node is.
    pub fn figures(&self, kinds: &BTreeMap<String, Kind>) -> Figures {
        let mut held: BTreeMap<&str, u64> = BTreeMap::new();
        for pod in self.pods.values() {
            let Some((name, node)) = pod.node.as_ref().and_then(|node| self.nodes.get_key_value(node)) else { continue };
            *held.entry(name).or_default() += pod.held.shared(&node.there) * u64::from(pod.gpus);
        }
        let mut by_kind: BTreeMap<Kind, Amounts> = BTreeMap::new();
        let mut total = Amounts::default();
        for (name, node) in &self.nodes {
            let kind = kinds.get(name).cloned().unwrap_or_default();
            let amounts = self.amounts(node, held.get(name.as_str()).copied().unwrap_or(0), kind.rate);
            total.add(&amounts);
            by_kind.entry(kind).or_default().add(&amounts);
        }
        let mut lines: Vec<(Kind, Amounts)> = by_kind.into_iter().collect();
        lines.sort_by_key(|(_, amounts)| std::cmp::Reverse((amounts.cost, amounts.gpu_seconds)));
        let last = self.known.last();
        let is_last = |node: &&Node| last.is_some_and(|last| node.there.has(last));
        Figures {
            seconds: self.grid.seconds(self.grid.steps.into()),
            known_seconds: self.grid.seconds(self.known.count()),
            nodes_last: u32::try_from(self.nodes.values().filter(is_last).count()).unwrap_or(u32::MAX),
            nodes_most: spells::most(self.nodes.values().map(|node| &node.there)),
            total,
            lines,
        }
    }

    fn amounts(&self, node: &Node, held: u64, rate: Option<UsdPerHour>) -> Amounts {
        let node_seconds = self.grid.seconds(node.there.count());
        let step = i128::from(self.grid.step);
        let seconds = |steps: u64| i64::try_from(i128::from(steps) * step).unwrap_or(i64::MAX);
        let cost = rate.map_or(UsdMicros(0), |rate| rate.over_seconds(node_seconds));
        // The readings' share of its GPU time, and of that in turn what was not used.
        let micros = |share: i128, whole: i128| i64::try_from(i128::from(cost.0) * share / whole.max(1)).unwrap_or(i64::MAX);
        let (all, read) = (i128::from(node.gpu_steps), i128::from(node.read.min(node.gpu_steps)));
        let unused = (read * WHOLE - i128::from(node.used)).max(0);
        Amounts {
            node_seconds,
            unpriced_node_seconds: if rate.is_none() { node_seconds } else { 0 },
            gpu_seconds: seconds(node.gpu_steps),
            held_seconds: seconds(held.min(node.gpu_steps)),
            read_seconds: seconds(node.read.min(node.gpu_steps)),
            worked_seconds: i64::try_from(i128::from(node.used) * step / WHOLE).unwrap_or(i64::MAX),
            cost,
            read: UsdMicros(micros(read, all)),
            wasted: UsdMicros(micros(unused, all * WHOLE)),
        }
    }

    /// The pods as they are to be run again.
    pub fn pods(&self) -> PodTimes {
        let mut times = PodTimes::default();
        let last = self.known.last();
        for ((namespace, name, _), pod) in &self.pods {
            let name = format!("{namespace}/{name}");
            let first = pod.waited.first().into_iter().chain(pod.held.first()).min();
            let (Some(first), Some(node)) = (first, &pod.node) else {
                times.never_ran.push(name);
                continue;
            };
            times.pods.push(PodTime {
                name,
                node: node.clone(),
                gpus: pod.gpus,
                milli_cpu: pod.milli_cpu,
                memory_mib: pod.memory_mib,
                arrives: self.grid.seconds(self.known.before(first)),
                runs: self.grid.seconds(pod.held.shared(&self.known)),
                goes_on: last.is_some_and(|last| pod.held.has(last)),
            });
        }
        times.pods.sort_by(|a, b| (a.arrives, &a.name).cmp(&(b.arrives, &b.name)));
        times
    }
}

/// What an amount of so many seconds comes to in a month.
pub fn a_month(of: UsdMicros, seconds: i64) -> Option<UsdMicros> {
    let month = i128::from(crate::estimate::MONTH) * HOUR;
    (seconds > 0).then(|| UsdMicros(i64::try_from(i128::from(of.0) * month / i128::from(seconds)).unwrap_or(i64::MAX)))
}

/// The node of that name; most samples are of one that is known.
fn entry<'a>(nodes: &'a mut BTreeMap<String, Node>, name: &str) -> &'a mut Node {
    if !nodes.contains_key(name) {
        nodes.insert(name.to_owned(), Node::default());
    }
    nodes.entry(name.to_owned()).or_default()
}
