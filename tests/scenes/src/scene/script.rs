//! What a scene is moved by: pods, stock, hardware, people, clocks and processes.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::SignedDuration;
use stoker_core::base::ids::{NodeGroupId, PoolName, SignalName};
use stoker_core::base::units::MiB;
use stoker_core::catalogue::template::POOL_LABEL;
use stoker_core::decide::orders;
use stoker_core::facts::reading::{DriverState, Gate, Happening, Interruption, XidClass};
use stoker_core::market::sharing::GPU_RESOURCE;
use stoker_core::policy::rules::demand::{Amount, NoLevel, PoolDemand, SignalLevel};
use stoker_sim::model::{PodSpec, Requests, SCALE_DOWN_DISABLED, Toleration};

use super::{Living, Pod, Scene};

impl Scene {
    /// A pod comes.
    pub fn pod(&mut self, id: &str, pod: Pod) {
        let spec = PodSpec {
            id: id.to_owned(),
            requests: Requests {
                milli_cpu: 500 * u64::from(pod.gpus),
                memory: MiB(1024 * u64::from(pod.gpus)),
                gpus: pod.gpus,
                ..Requests::default()
            },
            node_selector: [(POOL_LABEL.to_owned(), pod.pool.clone())].into(),
            node_affinity: BTreeMap::new(),
            tolerations: vec![Toleration::of_key(GPU_RESOURCE)],
            movable: pod.movable,
        };
        let now = self.now;
        self.tell("user", &format!("{id} comes: {} GPU of {}", pod.gpus, pod.pool));
        self.autoscaler.cluster_mut().add_pod(spec, now);
        self.truth.asks(&pod.pool, now);
        self.pods.insert(id.to_owned(), Living { spec: pod, ends_at: None, goes_at: None });
        self.moved();
    }

    /// So many pods alike come, numbered from 0.
    pub fn pods(&mut self, prefix: &str, number: u32, pod: &Pod) {
        for n in 0..number {
            self.pod(&format!("{prefix}-{n}"), pod.clone());
        }
    }

    /// A pod is taken away by its user.
    pub fn finish(&mut self, id: &str) {
        assert!(self.pods.remove(id).is_some(), "no pod {id}");
        self.autoscaler.cluster_mut().finish_pod(id);
        self.tell("user", &format!("takes {id} away"));
        self.moved();
    }

    /// A pod begins to do something with its GPUs, or ceases to.
    pub fn works(&mut self, id: &str, works: bool) {
        let Some(pod) = self.pods.get_mut(id) else { panic!("no pod {id}") };
        pod.spec.works = works;
        self.tell("user", &format!("{id} {}", if works { "begins to work" } else { "does nothing any more" }));
    }

    /// The markets whose name contains `part` sell nothing any more.
    pub fn sell_out(&mut self, part: &str) {
        self.tell("cloud", &format!("{part} is sold out"));
        self.desk_mut().cloud.stock(part, Some(0));
    }

    /// They sell again.
    pub fn restock(&mut self, part: &str) {
        self.tell("cloud", &format!("{part} is in stock again"));
        self.desk_mut().cloud.stock(part, None);
    }

    /// How long machines take to join; those that are launched from now on.
    pub fn boots_in(&mut self, length: &str) {
        self.desk_mut().cloud.boot = length.parse().unwrap();
    }

    /// The next machines never join.
    pub fn next_machines_never_join(&mut self, number: u32) {
        self.tell("cloud", &format!("the next {number} machines will never join"));
        self.desk_mut().cloud.duds = number;
    }

    /// The cloud says that it takes a node's machine in so long.
    pub fn notice(&mut self, node: &str, within: &str) {
        let within: SignedDuration = within.parse().unwrap();
        let (now, ours) = (self.now, self.desk().ours());
        self.tell("cloud", &format!("will take {node} back in {}", crate::timeline::shown(within).trim_end()));
        let machine = self.desk_mut().cloud.of_node_mut(node);
        let Some(machine) = machine else { panic!("no machine {node}") };
        machine.reclaim = Some((now, now + within));
        let what = Happening::Interruption { kind: Interruption::Reclaim, deadline: Some(now + within) };
        self.happens(node, what, ours);
    }

    /// The cloud takes a notice back.
    pub fn withdraw(&mut self, node: &str) {
        let ours = self.desk().ours();
        self.tell("cloud", &format!("will not take {node} back after all"));
        if let Some(machine) = self.desk_mut().cloud.of_node_mut(node) {
            machine.reclaim = None;
        }
        let now = self.now;
        self.truth.withdrawn.insert(node.to_owned(), now);
        self.happens(node, Happening::Interruption { kind: Interruption::Withdrawn, deadline: None }, ours);
    }

    /// All spot nodes of the markets whose name contains `part` get notice, and nothing is sold there any more.
    pub fn spot_wave(&mut self, part: &str, within: &str) {
        self.sell_out(part);
        for node in self.desk().cloud.spot_in(part) {
            self.notice(&node, within);
        }
    }

    /// A machine vanishes without a word.
    pub fn vanishes(&mut self, node: &str) {
        let now = self.now;
        self.tell("cloud", &format!("takes {node} without a word"));
        if let Some(machine) = self.desk_mut().cloud.of_node_mut(node) {
            machine.reclaim = Some((now, now));
        }
    }

    fn happens(&mut self, node: &str, what: Happening, ours: jiff::Timestamp) {
        let now = self.now;
        if let Some(probe) = self.probes.get_mut(node) {
            let news = probe.happens(what, ours, now);
            let seen = Arc::new(probe.digest.seen().clone());
            let desk = self.desk_mut();
            if news && !desk.faults.down {
                desk.seen.insert(stoker_core::base::ids::NodeName::new(node).unwrap(), seen);
            }
        }
        self.moved();
    }

    /// A GPU's driver reports an error.
    pub fn xid(&mut self, node: &str, gpu: u32, code: u32) {
        let ours = self.desk().ours();
        self.tell("hardware", &format!("XID {code} on GPU {gpu} of {node}"));
        let Some(probe) = self.probes.get(node) else { panic!("no probe on {node}") };
        let what = Happening::Xid { code, gpu: Some(probe.uuid(gpu)) };
        if matches!(XidClass::of(code), XidClass::Drain | XidClass::Replace | XidClass::Suspect) {
            self.truth.sick.insert(node.to_owned());
        }
        self.happens(node, what, ours);
    }

    fn breaks(&mut self, node: &str, what: &str, how: impl FnOnce(&mut crate::probe::Broken)) {
        self.tell("hardware", &format!("{node}: {what}"));
        self.truth.sick.insert(node.to_owned());
        let now = self.now;
        let Some(probe) = self.probes.get_mut(node) else { panic!("no probe on {node}") };
        how(&mut probe.broken);
        probe.touch(now);
    }

    /// A GPU falls off the bus.
    pub fn loses_gpu(&mut self, node: &str, gpu: u32) {
        self.breaks(node, &format!("GPU {gpu} falls off the bus"), |broken| _ = broken.lost.insert(gpu));
    }

    /// A GPU's memory has errors that are not corrected.
    pub fn memory_errors(&mut self, node: &str, gpu: u32, errors: u64) {
        let what = format!("{errors} memory errors on GPU {gpu} that are not corrected");
        self.breaks(node, &what, |broken| _ = broken.uncorrected.insert(gpu, errors));
    }

    /// The driver wants something done with a GPU: 1 reset, 2 reboot; nought for nothing any more.
    pub fn wants(&mut self, node: &str, gpu: u32, action: u8) {
        self.breaks(node, &format!("the driver wants recovery action {action} for GPU {gpu}"), |broken| {
            _ = broken.recovery.insert(gpu, action);
        });
    }

    /// The driver stands otherwise.
    pub fn driver(&mut self, node: &str, state: DriverState) {
        self.breaks(node, &format!("the driver is {state:?}"), |broken| {
            broken.driver = (state != DriverState::Ready).then_some(state);
        });
    }

    /// A gate does not hold on the nodes that join from now on; `None` for all hold.
    pub fn gate(&mut self, failed: Option<(Gate, &str)>) {
        self.bad_gate = failed.map(|(gate, why)| (gate, why.to_owned()));
        self.tell("hardware", &format!("nodes from now on: {}", failed.map_or("all gates hold", |(_, why)| why)));
    }

    /// A gate holds on that node after all.
    pub fn gates_hold(&mut self, node: &str) {
        let now = self.now;
        self.tell("hardware", &format!("{node}: all gates hold"));
        if let Some(probe) = self.probes.get_mut(node) {
            probe.broken.gates.clear();
            probe.touch(now);
        }
    }

    /// A probe falls silent, or speaks again.
    pub fn probe(&mut self, node: &str, speaks: bool) {
        let (now, ours) = (self.now, self.desk().ours());
        self.tell("probe", &format!("{node}: {}", if speaks { "is heard again" } else { "falls silent" }));
        if let Some(probe) = self.probes.get_mut(node) {
            probe.switch(speaks, ours, now);
        }
    }

    /// All probes fall silent, or speak again.
    pub fn all_probes(&mut self, speak: bool) {
        let (now, ours) = (self.now, self.desk().ours());
        self.tell("probe", if speak { "all are heard again" } else { "all fall silent" });
        self.deaf = !speak;
        for probe in self.probes.values_mut() {
            probe.switch(speak, ours, now);
        }
    }

    /// Nodes have no probes at all.
    pub const fn without_probes(&mut self) {
        self.probed = false;
    }

    /// GPUs are split into so many MIG instances each, as far as probes can tell.
    pub const fn split(&mut self, instances: u32) {
        self.instances = instances;
    }

    /// A process that belongs to no pod begins to work on an instance of a GPU, or ends.
    pub fn process(&mut self, node: &str, (gpu, instance): (u32, u32), works: bool) {
        let verb = if works { "begins" } else { "ends" };
        self.tell("user", &format!("a process of no pod {verb} on instance {instance} of GPU {gpu} of {node}"));
        let now = self.now;
        let Some(probe) = self.probes.get_mut(node) else { panic!("no probe on {node}") };
        probe.stray(gpu, instance, works, now);
    }

    /// A user cordons a node, or opens it.
    pub fn users_cordon(&mut self, node: &str, closed: bool) {
        self.tell("user", &format!("{} {node}", if closed { "cordons" } else { "uncordons" }));
        self.truth.touched.insert(node.to_owned());
        if closed {
            self.truth.cordoned.insert(node.to_owned());
        } else {
            self.truth.cordoned.remove(node);
        }
        self.cordon(node, closed);
        self.moved();
    }

    /// A user forbids the autoscaler a node, or allows it again.
    pub fn users_hold(&mut self, node: &str, on: bool) {
        self.tell("user", &format!("sets scale-down-disabled={on} on {node}"));
        self.truth.touched.insert(node.to_owned());
        self.held.remove(node);
        self.autoscaler.cluster_mut().annotate(node, SCALE_DOWN_DISABLED, on.then_some("true"));
        self.moved();
    }

    /// A node's Ready condition goes or comes.
    pub fn ready(&mut self, node: &str, ready: bool) {
        if ready {
            self.ailing.remove(node)
        } else {
            self.ailing.insert(node.to_owned())
        };
    }

    /// Disruption budgets forbid every eviction, or none.
    pub fn budgets_forbid(&mut self, forbid: bool) {
        self.tell("user", &format!("disruption budgets forbid {}", if forbid { "every eviction" } else { "none" }));
        self.budgeted = forbid;
    }

    /// The provider dies.
    pub fn provider_dies(&mut self) {
        self.tell("provider", "dies");
        self.desk_mut().die();
    }

    /// The provider starts again from its journal; the autoscaler connects anew, and probes say hello.
    pub fn provider_lives(&mut self) {
        self.tell("provider", "starts from its journal");
        let now = self.now;
        let desk = self.desk_mut();
        desk.live();
        orders::begin_session(&mut desk.memory);
        let ours = desk.ours();
        for probe in self.probes.values_mut() {
            probe.forgotten(ours, now);
        }
        self.truth.provider_begins(now);
        self.look();
        self.moved();
    }

    /// Both at once.
    pub fn provider_restarts(&mut self) {
        self.provider_dies();
        self.provider_lives();
    }

    /// The wall clock of the provider's machine jumps by so much, e.g. `-2h`.
    pub fn clock_jumps(&mut self, by: &str) {
        let by: SignedDuration = by.parse().unwrap();
        self.tell(
            "provider",
            &format!(
                "its clock goes {}",
                if by < SignedDuration::ZERO { format!("back by {:#}", by.abs()) } else { format!("ahead by {by:#}") }
            ),
        );
        self.desk_mut().jump(by);
        self.truth.wall_was_set = true;
        self.moved();
    }

    /// The provider's watch of Kubernetes is cut, or works again.
    pub fn watch_works(&mut self, works: bool) {
        self.tell("cluster", if works { "the provider's watch works again" } else { "the provider's watch is cut" });
        self.desk_mut().faults.blind = !works;
        self.moved();
    }

    /// The supplier tells what there is, or does not answer.
    pub fn inventory_works(&mut self, works: bool) {
        self.tell("cloud", if works { "its inventory can be read again" } else { "its inventory cannot be read" });
        self.desk_mut().faults.stale = !works;
        self.moved();
    }

    /// Answers of launches get lost, or come.
    pub fn answers_come(&mut self, come: bool) {
        self.tell("cloud", if come { "its answers come again" } else { "its answers get lost" });
        self.desk_mut().faults.unclear = !come;
    }

    /// Every deletion is asked for twice.
    pub fn deletions_repeat(&mut self, repeat: bool) {
        self.desk_mut().faults.repeated = repeat;
    }

    /// Some autoscaler asks for a node to be deleted, whatever the real one would do; why the provider refuses.
    pub fn deletion_of(&mut self, node: &str) -> Result<(), String> {
        self.tell("autoscaler", &format!("deletes {node}, whatever is on it"));
        let Some(machine) = self.desk().cloud.of_node(node) else { panic!("no machine {node}") };
        let provider_id = machine.made.provider_id.to_string();
        let group = NodeGroupId::new(machine.made.key.as_str().split('/').nth(1).unwrap_or_default()).unwrap();
        let nodes = [orders::NodeRef { provider_id, name: node.to_owned() }];
        let refused = self.desk_mut().delete(&group, &nodes).map_err(|why| why.to_string());
        if let Err(why) = &refused {
            self.tell("provider", &format!("refuses to delete: {why}"));
        }
        self.moved();
        refused
    }

    /// The autoscaler starts anew and has forgotten all that it asked for.
    pub fn autoscaler_restarts(&mut self) {
        self.tell("autoscaler", "starts anew");
        self.autoscaler.restart();
        orders::begin_session(&mut self.desk_mut().memory);
        self.moved();
    }

    /// The autoscaler is stopped, or runs.
    pub fn autoscaler_runs(&mut self, runs: bool) {
        self.tell("autoscaler", if runs { "runs again" } else { "is stopped" });
        self.scans = runs;
        self.changed = true;
    }

    /// Another policy is taken up.
    pub fn policy(&mut self, text: &str) {
        self.tell("user", "changes the policy");
        self.desk_mut().reload(text);
        self.moved();
    }

    /// A demand signal asks for so many replicas; `None` while it cannot be read.
    pub fn signal(&mut self, pool: &str, signal: &str, replicas: Option<u32>) {
        let (text, at) = (replicas.map_or_else(|| "is unknown".to_owned(), |n| format!("asks for {n}")), self.desk().ours());
        self.tell("signal", &format!("{signal} of {pool} {text}"));
        let level = match replicas {
            Some(replicas) => SignalLevel::Known { amount: Amount(u64::from(replicas) * 1_000_000), replicas, at },
            None => SignalLevel::Unknown { why: NoLevel::Unreachable, since: at },
        };
        let demand = self.desk_mut().demand.entry(PoolName::new(pool).unwrap()).or_default();
        let mut signals: PoolDemand = demand.as_ref().clone();
        signals.signals.insert(SignalName::new(signal).unwrap(), level);
        *demand = Arc::new(signals);
        self.moved();
    }

    /// The nodes that there are, by name.
    pub fn nodes(&self) -> Vec<String> {
        self.autoscaler.cluster().all_nodes().map(|node| node.name.clone()).collect()
    }

    /// The machines that run or boot.
    pub fn machines(&self) -> usize {
        self.desk().cloud.machines.values().filter(|machine| machine.ends_at.is_none()).count()
    }

    /// What the provider concludes of a node; empty where it concludes nothing.
    pub fn verdict(&self, node: &str) -> &'static str {
        let id = self.desk().cloud.of_node(node).map(|machine| machine.made.provider_id.clone());
        let record =
            self.desk().memory.records.values().find(|record| record.instance().is_some() && record.instance() == id.as_ref());
        record.and_then(|record| record.judged.as_ref()).map_or("", |judged| judged.verdict.as_str())
    }

    /// The node that a pod is bound to; empty while it waits.
    pub fn node_of(&self, pod: &str) -> String {
        self.autoscaler.cluster().pod(pod).and_then(|pod| pod.node.clone()).unwrap_or_default()
    }

    /// The first pod on a node.
    pub fn pod_on(&self, node: &str) -> String {
        self.pods_on(node).into_iter().next().unwrap_or_default()
    }

    /// How many pods wait for a node.
    pub fn pods_waiting(&self) -> usize {
        self.autoscaler.cluster().all_pods().filter(|pod| pod.node.is_none()).count()
    }

    /// `minSize` of a group.
    pub fn min_size(&self, group: &str) -> u32 {
        NodeGroupId::find(&self.desk().limits, group).map_or(0, |limits| limits.min)
    }

    /// Target size of a group.
    pub fn target(&self, group: &str) -> u32 {
        NodeGroupId::find(&self.desk().limits, group).map_or(0, |limits| limits.target)
    }

    /// Whether a node is kept from the autoscaler.
    pub fn is_held(&self, node: &str) -> bool {
        self.autoscaler.cluster().node(node).is_some_and(|node| node.is_kept())
    }

    /// Whether a node takes no new pods.
    pub fn is_closed(&self, node: &str) -> bool {
        self.autoscaler.cluster().node(node).is_some_and(|node| node.unschedulable)
    }

    /// The lines of the timeline that contain all of these words.
    pub fn told(&self, words: &[&str]) -> Vec<String> {
        let all = |line: &&str| words.iter().all(|word| line.contains(word));
        self.timeline().lines().filter(all).map(ToOwned::to_owned).collect()
    }
}

/// What fault runs ask of the world.
impl Scene {
    /// The pods that there are.
    pub fn pods_there(&self) -> Vec<String> {
        self.pods.keys().cloned().collect()
    }

    /// The nodes that have a probe, heard or not.
    pub fn nodes_with_probe(&self) -> Vec<String> {
        self.probes.keys().cloned().collect()
    }

    /// Whether a node is a spot machine that runs.
    pub fn is_spot(&self, node: &str) -> bool {
        use stoker_core::market::offer::CapacityType;
        let machine = self.desk().cloud.of_node(node);
        machine.is_some_and(|machine| machine.made.market.capacity_type == CapacityType::Spot && machine.ends_at.is_none())
    }

    /// Whether the autoscaler hears how its calls end.
    pub fn calls_heard(&mut self, heard: bool) {
        self.desk_mut().faults.unheard = !heard;
    }

    /// All probes speak.
    pub fn probes_speak(&mut self) {
        self.all_probes(true);
    }

    /// What happened, counted.
    pub fn counts(&self) -> std::collections::BTreeMap<&'static str, u64> {
        let mut counts = self.truth.counts.clone();
        counts.insert("nodes asked for by the autoscaler, calls", self.truth.asked);
        counts.insert("passes", self.desk().passes);
        counts
    }

    /// What is not in order, in a world without faults that has had time to come to rest.
    pub fn disorder(&self) -> Vec<String> {
        let mut faults = Vec::new();
        for node in self.autoscaler.cluster().all_nodes() {
            // The longest window of all, and some.
            let long_free = self.truth.free_for(&node.name, self.now) > SignedDuration::from_mins(30);
            // A GPU that was lost while the provider was away cannot be told of, and the node is kept until somebody looks.
            let untold = self.truth.sick.contains(&node.name) && self.verdict(&node.name) == "unknown";
            // A broken one is kept from the autoscaler until it may be replaced, or until people look.
            let broken = self.verdict(&node.name) == "unhealthy";
            let floor = self.keeps_floor(&node.name);
            if long_free && !untold && !broken && !floor && self.held.contains(&node.name) && node.is_kept() {
                faults.push(format!("{} is free and still held by us: {}", node.name, self.verdict(&node.name)));
            }
            if self.desk().cloud.of_node(&node.name).is_none() {
                faults.push(format!("{} is a Node without a machine", node.name));
            }
        }
        for (pool, warm, wanted, blocked) in self.floors_lack() {
            // Stock is back, so no market may be the reason any more.
            let why = blocked.as_deref().and_then(|said| self.explains(&pool, said));
            if why.is_none_or(|why| why == "stock") {
                let why = blocked.unwrap_or_else(|| "nothing says why".to_owned());
                faults.push(format!("the floor of {pool} has {warm} of {wanted} nodes: {why}"));
            }
        }
        let counted: u32 = self.desk().limits.values().map(|limits| limits.target).sum();
        if usize::try_from(counted).ok() != Some(self.machines()) {
            faults.push(format!("{counted} nodes count in the groups' targets, and {} machines run", self.machines()));
        }
        let waits = |id: &str| self.pods.get(id).is_none_or(|pod| !self.is_full(&pod.spec.pool));
        let waiting = self.autoscaler.cluster().all_pods().filter(|pod| pod.node.is_none() && waits(&pod.id));
        let waiting: Vec<String> = waiting.map(|pod| pod.id.clone()).collect();
        if !waiting.is_empty() {
            faults.push(format!("{} still wait for a node", waiting.join(", ")));
        }
        faults
    }
}
