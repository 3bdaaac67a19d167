//! One region of a cloud, as both the decision and the baselines meet it: three zones, one GPU model in three sizes.

use std::collections::BTreeMap;

use stoker_core::base::units::{UsdMicros, UsdPerHour};

use super::availability::Availability;
use crate::world::draw::{Seed, whole};

/// A size of node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// The instance type.
    pub name: &'static str,
    /// GPUs.
    pub gpus: u32,
    /// vCPUs.
    pub vcpus: u32,
    /// Memory in GiB.
    pub memory_gib: u64,
    /// On-demand price.
    pub on_demand: UsdPerHour,
}

/// V100 nodes of AWS, smallest first; on-demand prices of 2025-04-04 in us-west-2 (`pricing/tables/aws.csv`).
pub const SHAPES: [Shape; 3] = [
    Shape { name: "p3.2xlarge", gpus: 1, vcpus: 8, memory_gib: 61, on_demand: UsdPerHour(3_060_000) },
    Shape { name: "p3.8xlarge", gpus: 4, vcpus: 32, memory_gib: 244, on_demand: UsdPerHour(12_240_000) },
    Shape { name: "p3.16xlarge", gpus: 8, vcpus: 64, memory_gib: 488, on_demand: UsdPerHour(24_480_000) },
];

/// Spot prices in thousandths of on-demand in us-west-2a, b and c: means of February to April 2023, by the prices in `SkyNomad`'s
/// probes (github.com/andylizf/skynomad-artifact).
pub const SPOT_MILLI: [i64; 3] = [309, 310, 308];

/// Spot GPUs that a zone sells while it is open. Assumed: about the mean of the jobs' GPUs at a time.
pub const ZONE_GPUS: u32 = 64;

/// From request to Ready, in seconds: median and spread of the logarithm. Operators report 4 to 6 min on AWS
/// (kubernetes/autoscaler issue 3464).
const BOOT_MEDIAN: f64 = 270.0;
const BOOT_SIGMA: f64 = 0.4;

/// The mean of that, which is 270 × e^0.08.
pub const BOOT_MEAN: i64 = 292;

/// All nodes of a zone get their notice within so many seconds: 92 % of those that go together do (arXiv
/// 2604.16457).
const SPREAD: i64 = 180;
/// From the notice to the end (AWS).
const NOTICE: i64 = 120;
/// So long after its zone has shut, the last node is gone.
pub(super) const LINGERS: i64 = SPREAD + NOTICE;
/// A machine is billed for a minute at least.
const LEAST_BILLED: i64 = 60;

/// Spot price of a shape in a zone.
pub fn spot_price(shape: &Shape, zone: usize) -> UsdPerHour {
    UsdPerHour(shape.on_demand.0 * SPOT_MILLI.get(zone).copied().unwrap_or(1000) / 1000)
}

/// A machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Machine {
    /// Index in [`SHAPES`].
    pub shape: usize,
    /// Its zone.
    pub zone: usize,
    /// Whether it is spot.
    pub spot: bool,
    /// When it was asked for.
    pub launched: i64,
    /// When it is Ready.
    pub ready: i64,
    /// When the cloud says that it will take it, and when it does.
    pub reclaim: Option<(i64, i64)>,
    price: UsdPerHour,
}

impl Machine {
    /// Its size.
    pub fn shape(&self) -> &'static Shape {
        SHAPES.get(self.shape).unwrap_or(&SHAPES[0])
    }

    /// What an hour of it costs.
    pub const fn price(&self) -> UsdPerHour {
        self.price
    }

    /// The moments at which it changes by itself.
    fn moments(&self) -> impl Iterator<Item = i64> {
        let (notice, gone) = self.reclaim.unzip();
        [Some(self.ready), notice, gone].into_iter().flatten()
    }
}

/// What was paid.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Bill {
    /// For spot.
    pub spot: UsdMicros,
    /// For on-demand.
    pub on_demand: UsdMicros,
    /// The part of it that was paid while no zone had spot.
    pub no_spot: UsdMicros,
    /// Machines bought.
    pub launches: u64,
    /// Spot machines asked for and not had.
    pub refused: u64,
    /// Machines that the cloud took.
    pub reclaimed: u64,
    /// Most vCPUs of spot and of on-demand at a time.
    pub most_vcpus: (u32, u32),
}

impl Bill {
    /// All of it.
    pub const fn total(&self) -> UsdMicros {
        self.spot.plus(self.on_demand)
    }
}

/// The region.
#[derive(Debug, Clone)]
pub struct Cloud {
    seed: Seed,
    availability: Availability,
    machines: BTreeMap<u64, Machine>,
    /// What was paid so far, for machines that are gone.
    pub bill: Bill,
}

impl Cloud {
    /// A region without machines.
    pub const fn new(seed: u64, availability: Availability) -> Self {
        let bill = Bill {
            spot: UsdMicros(0),
            on_demand: UsdMicros(0),
            no_spot: UsdMicros(0),
            launches: 0,
            refused: 0,
            reclaimed: 0,
            most_vcpus: (0, 0),
        };
        Self { seed: Seed(seed), availability, machines: BTreeMap::new(), bill }
    }

    /// Buys a machine; `None` where there is no capacity.
    pub fn launch(&mut self, now: i64, shape: usize, zone: usize, spot: bool) -> Option<u64> {
        let size = SHAPES.get(shape)?;
        if spot && self.room(zone, now).is_none_or(|room| room < size.gpus) {
            self.bill.refused += 1;
            return None;
        }
        let id = self.bill.launches;
        self.bill.launches += 1;
        let mut stream = self.seed.stream("machine", &[], i64::try_from(id).unwrap_or(i64::MAX));
        let ready = now + whole(stream.log_normal(BOOT_MEDIAN, BOOT_SIGMA)).max(1);
        let reclaim = spot.then(|| self.availability.shuts_after(zone, now)).flatten().map(|shuts| {
            let notice = shuts + stream.up_to(SPREAD);
            (notice, notice + NOTICE)
        });
        let price = if spot { spot_price(size, zone) } else { size.on_demand };
        self.machines.insert(id, Machine { shape, zone, spot, launched: now, ready, reclaim, price });
        let vcpus = |spot| self.machines.values().filter(|m| m.spot == spot).map(|m| m.shape().vcpus).sum::<u32>();
        let most = &mut self.bill.most_vcpus;
        *most = (most.0.max(vcpus(true)), most.1.max(vcpus(false)));
        Some(id)
    }

    /// Zones.
    pub const fn zones(&self) -> usize {
        self.availability.zones()
    }

    /// GPUs that a zone sells as spot beside those that it has sold; `None` while it sells none.
    pub fn room(&self, zone: usize, now: i64) -> Option<u32> {
        let sold = || self.machines.values().filter(|m| m.spot && m.zone == zone).map(|m| m.shape().gpus).sum();
        self.availability.is_open(zone, now).then(|| ZONE_GPUS.saturating_sub(sold()))
    }

    /// Ends a machine.
    pub fn end(&mut self, now: i64, id: u64) {
        let Some(machine) = self.machines.remove(&id) else { return };
        let paid = machine.price.over_seconds((now - machine.launched).max(LEAST_BILLED));
        let part = if machine.spot { &mut self.bill.spot } else { &mut self.bill.on_demand };
        *part = part.plus(paid);
        if !machine.spot {
            let paid = machine.price.over_seconds(self.availability.all_shut(machine.launched, now));
            self.bill.no_spot = self.bill.no_spot.plus(paid);
        }
    }

    /// The cloud takes the machines whose time has come; answers which.
    pub fn reclaim(&mut self, now: i64) -> Vec<u64> {
        let due = |(_, m): &(&u64, &Machine)| m.reclaim.is_some_and(|(_, gone)| gone <= now);
        let gone: Vec<u64> = self.machines.iter().filter(due).map(|(id, _)| *id).collect();
        for id in &gone {
            self.bill.reclaimed += 1;
            self.end(now, *id);
        }
        gone
    }

    /// The machines, by number.
    pub const fn machines(&self) -> &BTreeMap<u64, Machine> {
        &self.machines
    }

    /// The next moment after `now` at which a machine changes by itself.
    pub fn next_change(&self, now: i64) -> Option<i64> {
        self.machines.values().flat_map(Machine::moments).filter(|at| *at > now).min()
    }
}
