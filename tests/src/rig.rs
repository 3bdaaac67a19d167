//! The model of the Cluster Autoscaler between the service and a cluster in memory, all on one clock.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use stoker_core::base::units::MiB;
use stoker_core::catalogue::template::{CLUSTER_LABEL, POOL_LABEL};
use stoker_core::facts::supply::KeyParts;
use stoker_proto::externalgrpc::NodeGroupAutoscalingOptions;
use stoker_sim::model::{
    Action, Autoscaler, CaClient, CaError, ExpanderOption, GroupInfo, GroupOptions, InstanceInfo, LoopReport, MemoryCluster,
    NodeRef, NodeView, PodSpec, Requests, Scoring, Settings, Template, Toleration,
};
use stoker_simulated::ca_client::GrpcCaClient;

use crate::client::Client;
use crate::harness::{Service, Setup};

/// The doors of a service as the model uses them. Unlike [`GrpcCaClient`] it sends the defaults of a newest-release client with
/// `GetOptions`, and believes a filled answer as such a client does.
pub struct WireDoor {
    doors: GrpcCaClient,
    client: Client,
}

impl WireDoor {
    /// Over the connections of that client.
    pub fn new(client: &Client) -> Self {
        let doors = GrpcCaClient::new(client.provider_channel.clone(), client.expander_channel.clone());
        Self { doors, client: client.clone() }
    }
}

fn wire(options: &GroupOptions) -> NodeGroupAutoscalingOptions {
    let duration = |time: SignedDuration| Some(stoker_proto::Duration { seconds: time.as_secs(), nanos: time.subsec_nanos() });
    NodeGroupAutoscalingOptions {
        scale_down_utilization_threshold: options.utilization_threshold,
        scale_down_gpu_utilization_threshold: options.gpu_utilization_threshold,
        ignore_daemon_sets_utilization: options.ignore_daemon_sets,
        scale_down_unneeded_duration: duration(options.unneeded),
        scale_down_unready_duration: duration(options.unready),
        max_node_provision_duration: duration(options.max_node_provision),
        ..NodeGroupAutoscalingOptions::default()
    }
}

/// What is missing is nought, as the real client has it.
fn read(options: &NodeGroupAutoscalingOptions) -> GroupOptions {
    let time = |duration: Option<stoker_proto::Duration>| {
        duration.map_or(SignedDuration::ZERO, |d| SignedDuration::new(d.seconds, d.nanos))
    };
    GroupOptions {
        utilization_threshold: options.scale_down_utilization_threshold,
        gpu_utilization_threshold: options.scale_down_gpu_utilization_threshold,
        ignore_daemon_sets: options.ignore_daemon_sets_utilization,
        unneeded: time(options.scale_down_unneeded_duration),
        unready: time(options.scale_down_unready_duration),
        max_node_provision: time(options.max_node_provision_duration),
    }
}

impl CaClient for WireDoor {
    async fn refresh(&mut self) -> Result<(), CaError> {
        self.doors.refresh().await
    }
    async fn node_groups(&mut self) -> Result<Vec<GroupInfo>, CaError> {
        self.doors.node_groups().await
    }
    async fn node_group_for_node(&mut self, node: &NodeRef) -> Result<Option<String>, CaError> {
        self.doors.node_group_for_node(node).await
    }
    async fn target_size(&mut self, group: &str) -> Result<i32, CaError> {
        self.doors.target_size(group).await
    }
    async fn increase_size(&mut self, group: &str, delta: i32) -> Result<(), CaError> {
        self.doors.increase_size(group, delta).await
    }
    async fn decrease_target_size(&mut self, group: &str, delta: i32) -> Result<(), CaError> {
        self.doors.decrease_target_size(group, delta).await
    }
    async fn delete_nodes(&mut self, group: &str, nodes: &[NodeRef]) -> Result<(), CaError> {
        self.doors.delete_nodes(group, nodes).await
    }
    async fn nodes(&mut self, group: &str) -> Result<Vec<InstanceInfo>, CaError> {
        self.doors.nodes(group).await
    }
    async fn template(&mut self, group: &str) -> Result<Template, CaError> {
        self.doors.template(group).await
    }
    async fn get_options(&mut self, group: &str, defaults: &GroupOptions) -> Result<Option<GroupOptions>, CaError> {
        let answer = self.client.options(group, Some(wire(defaults))).await;
        let answer = answer.map_err(|status| CaError::new(i32::from(status.code()), status.message()))?;
        Ok(answer.node_group_autoscaling_options.as_ref().map(read))
    }
    async fn gpu_label(&mut self) -> Result<String, CaError> {
        self.doors.gpu_label().await
    }
    async fn best_options(
        &mut self,
        options: &[ExpanderOption],
        templates: &BTreeMap<String, Arc<Template>>,
    ) -> Result<Vec<String>, CaError> {
        self.doors.best_options(options, templates).await
    }
}

/// A service, an autoscaler and a cluster.
pub struct Rig {
    /// The service.
    pub service: Service,
    /// The autoscaler.
    pub autoscaler: Autoscaler<WireDoor, MemoryCluster>,
    /// How long a node takes from joining to being Ready: a driver that is installed at boot.
    pub driver: SignedDuration,
    /// How many nodes may join in one step.
    pub joins: usize,
    /// What the autoscaler did so far, in order.
    pub actions: Vec<Action>,
    now: Timestamp,
}

impl Rig {
    /// That service with an autoscaler of those settings and no pods.
    pub async fn start(setup: Setup, settings: Settings) -> Self {
        let service = setup.start().await;
        let door = WireDoor::new(service.client());
        let autoscaler = Autoscaler::new(door, MemoryCluster::new(Scoring::MostAllocated), settings);
        let now = service.now();
        Self { service, autoscaler, driver: SignedDuration::ZERO, joins: usize::MAX, actions: Vec::new(), now }
    }

    /// The time.
    pub const fn now(&self) -> Timestamp {
        self.now
    }

    /// Creates pods with one GPU each for a pool.
    pub fn want(&mut self, pool: &str, names: &[&str]) {
        for name in names {
            let pod = PodSpec {
                id: format!("default/{name}"),
                requests: Requests { milli_cpu: 1000, memory: MiB::from_gib(4), gpus: 1, ..Requests::default() },
                node_selector: [(POOL_LABEL.to_owned(), pool.to_owned())].into(),
                node_affinity: BTreeMap::new(),
                tolerations: vec![Toleration::of_key("nvidia.com/gpu")],
                movable: true,
            };
            self.autoscaler.cluster_mut().add_pod(pod, self.now);
        }
    }

    /// A restarted autoscaler: it remembers nothing and connects anew.
    pub async fn restart_autoscaler(&mut self) {
        self.autoscaler.restart();
        *self.autoscaler.provider_mut() = WireDoor::new(&self.service.another_client().await);
    }

    /// The autoscaler finds the service at its present address.
    pub fn reconnect(&mut self) {
        *self.autoscaler.provider_mut() = WireDoor::new(self.service.client());
    }

    /// Lets the time go by until a real one would start its next loop.
    pub fn wait(&mut self) {
        self.now = self.autoscaler.next_scan(self.now);
    }

    /// The machines' nodes join and leave, the scheduler binds.
    pub async fn arrive(&mut self) {
        self.service.at(self.now).await;
        self.register();
        self.autoscaler.cluster_mut().schedule();
    }

    /// The same, then the autoscaler loops once.
    pub async fn step(&mut self) -> LoopReport {
        self.arrive().await;
        self.run_once().await
    }

    /// The autoscaler loops once.
    pub async fn run_once(&mut self) -> LoopReport {
        let report = self.autoscaler.run_once(self.now).await;
        self.actions.extend(report.actions.iter().cloned());
        self.service.settle().await;
        report
    }

    /// One loop, at the time at which a real one would follow the last.
    pub async fn next(&mut self) -> LoopReport {
        self.wait();
        self.step().await
    }

    /// Loops for so long.
    pub async fn run(&mut self, time: SignedDuration) -> Vec<LoopReport> {
        let end = self.now + time;
        let mut reports = Vec::new();
        while self.autoscaler.next_scan(self.now) <= end {
            reports.push(self.next().await);
        }
        self.now = end;
        self.service.at(self.now).await;
        reports
    }

    /// The loops of a time in which the service is down.
    pub async fn run_without_service(&mut self, time: SignedDuration) -> Vec<LoopReport> {
        let end = self.now + time;
        let mut reports = Vec::new();
        while self.autoscaler.next_scan(self.now) <= end {
            self.now = self.autoscaler.next_scan(self.now);
            reports.push(self.autoscaler.run_once(self.now).await);
        }
        self.now = end;
        reports
    }

    /// What was asked of each group so far.
    pub fn asked(&self) -> BTreeMap<String, i32> {
        let mut asked = BTreeMap::new();
        for action in &self.actions {
            if let Action::ScaledUp { group, delta, .. } = action {
                *asked.entry(group.clone()).or_default() += delta;
            }
        }
        asked
    }

    /// Names of the registered nodes.
    pub fn nodes(&self) -> Vec<String> {
        self.autoscaler.cluster().all_nodes().map(|node| node.name.clone()).collect()
    }

    /// Pods that run on a node.
    pub fn running_pods(&self) -> usize {
        self.autoscaler.cluster().all_pods().filter(|pod| pod.node.is_some()).count()
    }

    fn register(&mut self) {
        let running = self.service.running();
        let view = running.handle.view();
        let machines = running.simulated.machines(self.now);
        let cluster = self.autoscaler.cluster_mut();
        let gone: Vec<String> = cluster
            .all_nodes()
            .filter(|node| node.labels.contains_key(CLUSTER_LABEL))
            .filter(|node| !machines.iter().any(|(machine, _)| machine.provider_id.as_str() == node.provider_id))
            .map(|node| node.name.clone())
            .collect();
        for name in gone {
            cluster.remove_node(&name, self.now);
        }
        let mut joins = self.joins;
        for (machine, up) in machines {
            if let Some(node) = cluster.node(machine.node_name.as_str()) {
                if !node.ready() && self.now >= node.created_at + self.driver {
                    cluster.set_ready(machine.node_name.as_str(), Some(self.now));
                }
                continue;
            }
            let key: Option<KeyParts> = machine.key.as_str().parse().ok();
            let Some(group) = key.filter(|_| up && joins > 0).and_then(|key| view.groups.get(&key.group).cloned()) else {
                continue;
            };
            joins -= 1;
            let template = &group.group.template;
            cluster.add_node(NodeView {
                name: machine.node_name.to_string(),
                provider_id: machine.provider_id.to_string(),
                labels: Arc::new(template.labels.clone()),
                annotations: Arc::default(),
                taints: template.taints.clone(),
                unschedulable: false,
                ready_since: self.driver.is_zero().then_some(self.now),
                created_at: self.now,
                allocatable: template.allocatable,
                capacity: template.capacity,
                slices: template.slices.clone(),
            });
        }
    }
}
