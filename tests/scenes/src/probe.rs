//! Probes: what each reads of its node's GPUs, given the pods that are on it and what is broken, folded by the core's own digest.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use stoker_core::base::ids::GpuUuid;
use stoker_core::facts::reading::digest::Digest;
use stoker_core::facts::reading::{
    DriverState, Ecc, Gate, GateResult, GpuProcess, GpuReading, Happening, Interruption, Measured, MemoryLevel, Mig,
    MigReading, NodeEvent, NodeReading, Permille, RemappedRows, Source, Why,
};

/// How often a node is read.
pub(crate) const PERIOD: SignedDuration = SignedDuration::from_secs(5);

/// Without a reading for so long, a node is silent.
const MISSED: SignedDuration = SignedDuration::from_secs(15);

/// For so long after a change readings are taken one by one: all that the digest waits for has come by then. Later ones are the same again
/// and are skipped.
const SETTLES: SignedDuration = SignedDuration::from_secs(70);

const GIB: u64 = 1 << 30;

/// What is on one GPU or instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Load {
    Nothing,
    Work,
}

/// What is broken of a node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Broken {
    pub(crate) driver: Option<DriverState>,
    /// GPUs that are off the bus.
    pub(crate) lost: BTreeSet<u32>,
    pub(crate) uncorrected: BTreeMap<u32, u64>,
    pub(crate) remap_failed: BTreeSet<u32>,
    pub(crate) recovery: BTreeMap<u32, u8>,
    /// Gates that do not hold, and why.
    pub(crate) gates: BTreeMap<Gate, String>,
}

/// The probe of one node, and what the provider has heard from it.
#[derive(Debug)]
pub(crate) struct Probe {
    pub(crate) digest: Digest,
    node: String,
    gpus: u32,
    /// MIG instances of each GPU; nought where they are whole.
    instances: u32,
    pub(crate) online: bool,
    pub(crate) broken: Broken,
    load: Vec<Load>,
    /// GPUs or instances, counted like the load, on which a process works that belongs to no pod.
    strays: BTreeSet<u32>,
    /// What the probe sends again to a provider that has forgotten it.
    events: Vec<NodeEvent>,
    /// What it has not been able to send yet.
    unsent: Vec<NodeEvent>,
    heard: Timestamp,
    changed_at: Timestamp,
    next: Timestamp,
}

impl Probe {
    /// `ours`: the provider's clock, `now`: the true one.
    pub(crate) fn new(node: &str, (gpus, instances): (u32, u32), ours: Timestamp, now: Timestamp) -> Self {
        Self {
            digest: Digest::new(Source::Probe, ours),
            node: node.to_owned(),
            gpus,
            instances,
            online: true,
            broken: Broken::default(),
            load: Vec::new(),
            strays: BTreeSet::new(),
            events: Vec::new(),
            unsent: Vec::new(),
            heard: now,
            changed_at: now,
            next: now,
        }
    }

    pub(crate) fn uuid(&self, gpu: u32) -> GpuUuid {
        GpuUuid::new(format!("GPU-{}-{gpu}", self.node)).unwrap()
    }

    /// What is on its GPUs now: one for each, or for each instance.
    pub(crate) fn set_load(&mut self, load: Vec<Load>, now: Timestamp) {
        if self.load != load {
            self.load = load;
            self.touch(now);
        }
    }

    /// A process of no pod begins or ends on a GPU, or on an instance of it.
    pub(crate) fn stray(&mut self, gpu: u32, instance: u32, there: bool, now: Timestamp) {
        let at = gpu * self.instances.max(1) + instance;
        if there {
            self.strays.insert(at)
        } else {
            self.strays.remove(&at)
        };
        self.touch(now);
    }

    /// Something about it has changed.
    pub(crate) fn touch(&mut self, now: Timestamp) {
        self.changed_at = now;
        self.next = self.next.min(now + PERIOD);
    }

    /// The provider begins anew, and so does what it has heard.
    pub(crate) fn forgotten(&mut self, ours: Timestamp, now: Timestamp) {
        self.digest = Digest::new(Source::Probe, ours);
        self.heard = now;
        self.unsent.clone_from(&self.events);
        if self.online {
            self.send(ours);
            self.changed_at = now;
            self.next = now + SignedDuration::from_secs(1);
        }
    }

    /// Sends the events that have not been sent; whether the provider learns anything new.
    fn send(&mut self, ours: Timestamp) -> bool {
        let unsent = std::mem::take(&mut self.unsent).into_iter();
        unsent.fold(false, |news, event| self.digest.happened(&NodeEvent { arrived: ours, ..event }) | news)
    }

    /// Goes silent or speaks again, and then first of what happened meanwhile.
    pub(crate) fn switch(&mut self, online: bool, ours: Timestamp, now: Timestamp) {
        if self.online != online {
            self.online = online;
            if online {
                self.send(ours);
            }
            self.heard = if online { self.heard } else { now };
            self.touch(now);
        }
    }

    /// An event happens; whether the provider hears of it.
    pub(crate) fn happens(&mut self, what: Happening, ours: Timestamp, now: Timestamp) -> bool {
        let event = NodeEvent { arrived: ours, at: now, what };
        if matches!(event.what, Happening::Interruption { kind: Interruption::Withdrawn, .. }) {
            self.events.retain(|event| !matches!(event.what, Happening::Interruption { .. }));
        } else {
            self.events.push(event.clone());
        }
        self.unsent.push(event);
        self.online && self.send(ours)
    }

    /// When something is to be done next.
    pub(crate) fn next(&self) -> Option<Timestamp> {
        if self.online {
            return (self.next < Timestamp::MAX).then_some(self.next);
        }
        // Silence is found when it is one second late.
        let late = self.heard + MISSED + SignedDuration::from_secs(1);
        matches!(self.digest.seen().hearing, stoker_core::facts::reading::seen::Hearing::Heard { .. }).then_some(late)
    }

    /// Reads, or is found silent, if that is due; whether the provider learns anything new. `ours` is the provider's clock.
    pub(crate) fn advance(&mut self, held: bool, ours: Timestamp, now: Timestamp) -> bool {
        if self.next().is_none_or(|at| at > now) {
            // Readings that are skipped are heard all the same.
            if self.online {
                self.heard = now;
            }
            return false;
        }
        if !self.online {
            let lag = now.duration_since(self.heard);
            return self.digest.silent(ours.saturating_sub(lag).unwrap_or(ours), ours);
        }
        self.heard = now;
        let settled = now.duration_since(self.changed_at) >= SETTLES;
        self.next = if settled { Timestamp::MAX } else { now + PERIOD };
        let reading = self.reading(ours);
        self.digest.read(&reading, Some(held))
    }

    fn reading(&self, arrived: Timestamp) -> NodeReading {
        let driver = self.broken.driver.unwrap_or(DriverState::Ready);
        let there = (0..self.gpus).filter(|gpu| driver == DriverState::Ready && !self.broken.lost.contains(gpu));
        let gpus = there.map(|gpu| (self.uuid(gpu), self.gpu(gpu))).collect();
        let failed = |gate: Gate| self.broken.gates.get(&gate).map(|why| GateResult::Failed(why.clone()));
        let all = [Gate::Driver, Gate::DriverVersion, Gate::GpuCount, Gate::GpuModel, Gate::GpuMemory, Gate::Events];
        let gates = all.into_iter().map(|gate| (gate, failed(gate).unwrap_or(GateResult::Passed))).collect();
        let counted = if driver == DriverState::Ready { Measured::Known(self.gpus) } else { Measured::Unknown(Why::Failed) };
        NodeReading { arrived, source: Source::Probe, driver, counted, gpus, gates }
    }

    fn gpu(&self, gpu: u32) -> GpuReading {
        let stray = |at: u32| self.strays.contains(&at).then_some(Load::Work);
        let on = |at: u32| stray(at).or_else(|| self.load.get(at as usize).copied()).unwrap_or(Load::Nothing);
        let level =
            |load: Load| MemoryLevel { used: if load == Load::Work { 8 * GIB } else { 0 }, total: 24 * GIB, reserved: 0 };
        let processes = |load: Load| {
            let process = GpuProcess { pid: 1, memory: Some(8 * GIB), container: None, pod_uid: None };
            Measured::Known(if load == Load::Work { vec![process] } else { Vec::new() })
        };
        let share = |load: Load| Measured::Known(Permille::new(if load == Load::Work { 700 } else { 0 }).unwrap());
        let mut reading = GpuReading {
            index: gpu,
            name: "NVIDIA".to_owned(),
            ecc: Measured::Known(Ecc {
                enabled: true,
                uncorrected_volatile: self.broken.uncorrected.get(&gpu).copied().unwrap_or(0),
                corrected_volatile: 0,
                uncorrected_aggregate: 0,
            }),
            remapped_rows: Measured::Known(RemappedRows {
                correctable: 0,
                uncorrectable: 0,
                pending: Measured::Known(false),
                failed: self.broken.remap_failed.contains(&gpu),
            }),
            recovery_action: Measured::Known(self.broken.recovery.get(&gpu).copied().unwrap_or(0)),
            mig: Measured::Known(Mig::default()),
            ..GpuReading::default()
        };
        if self.instances == 0 {
            let load = on(gpu);
            reading.memory = Measured::Known(level(load));
            reading.processes = processes(load);
            reading.utilization = share(load);
            reading.sm_activity = share(load);
            return reading;
        }
        // Of a GPU that is split, its instances tell of their work and not the GPU.
        reading.memory = Measured::Known(level(Load::Nothing));
        reading.processes = Measured::Unknown(Why::NotSupported);
        reading.utilization = Measured::Unknown(Why::NotSupported);
        let devices = (0..self.instances).map(|instance| {
            let load = on(gpu * self.instances + instance);
            let uuid = GpuUuid::new(format!("MIG-{}-{gpu}-{instance}", self.node)).unwrap();
            let reading = MigReading {
                gpu_instance: instance,
                memory: Measured::Known(level(load)),
                processes: processes(load),
                sm_activity: share(load),
                ..MigReading::default()
            };
            (uuid, reading)
        });
        reading.mig = Measured::Known(Mig { enabled: true, pending_change: false, devices: devices.collect() });
        reading
    }
}
