//! Probes are asked before nodes go.

use jiff::SignedDuration;
use prometheus_client::registry::Registry;
use stoker_core::base::ids::{GpuUuid, LaunchKey, NodeGroupId, ProviderId, RecordId};
use stoker_core::base::kinds::Evidence;
use stoker_core::facts::reading::{DriverState, GpuReading, Measured, MemoryLevel, NodeReading, Source};
use stoker_core::state::memory::Memory;
use stoker_core::state::node_verdict::{Judged, Reason, Verdict};
use stoker_core::state::probe_history::ProbeHistory;
use stoker_core::state::record::{PodsSeen, Purchase, Record, State};
use stoker_proto::externalgrpc::NodeGroupDeleteNodesRequest;
use stoker_proto::externalgrpc::cloud_provider_server::CloudProvider as _;
use stoker_proto::probe::Hello;
use tokio::sync::Notify;
use tokio::time::Instant;
use tonic::{Code, Request, Status};

use super::super::provider::Provider;
use super::*;
use crate::api::confirm::Confirm;
use crate::clock::{Clock, VirtualClock};
use crate::feeds::probes::{Command, NotConfirmed, ProbeMetrics, Readings, Streams};
use crate::publish::telemetry::Metrics;

/// What a probe does when it is asked.
#[derive(Clone, Copy)]
enum Says {
    Quiet,
    AtWork,
    /// Its driver hangs.
    Hung,
    Nothing,
}

struct Rig {
    readings: Arc<Readings>,
    streams: Arc<Streams>,
    registry: Registry,
    view: View,
}

fn name(n: usize) -> NodeName {
    NodeName::new(format!("n{n}")).unwrap()
}

fn after(seconds: i64) -> Timestamp {
    now() + SignedDuration::from_secs(seconds)
}

fn read(at: Timestamp, source: Source, used: u64) -> NodeReading {
    let memory = Measured::Known(MemoryLevel { used, total: 24 << 30, reserved: 0 });
    let gpu = GpuReading { memory, ..GpuReading::default() };
    NodeReading {
        arrived: at,
        source,
        driver: DriverState::Ready,
        counted: Measured::Known(1),
        gpus: [(GpuUuid::new("GPU-a").unwrap(), gpu)].into(),
        gates: BTreeMap::new(),
    }
}

fn registered(id: u64, ready: bool) -> Record {
    let instance = ProviderId::new(format!("sim://{id}")).unwrap();
    let market = view().groups[&NodeGroupId::new(ONE_A).unwrap()].group.offers[0].market.clone();
    let key = LaunchKey::new(format!("test/{ONE_A}/{id}/1")).unwrap();
    let purchase =
        Purchase { key, market, price: UsdPerHour(1), boot_within: SignedDuration::from_mins(10), reservation: None };
    let state = State::Registered {
        purchase,
        instance,
        launched_at: now(),
        node: Some(name(usize::try_from(id).unwrap())),
        at: now(),
        ready_at: ready.then(now),
    };
    Record {
        id: RecordId(id),
        group: group_id(ONE_A),
        order: None,
        ordered_at: now(),
        credited_to: None,
        floor: false,
        attempts: 1,
        placeholder: ProviderId::new(format!("stoker://test/{ONE_A}/{id}")).unwrap(),
        pods: PodsSeen::NotYet,
        judged: None,
        state,
    }
}

impl Rig {
    /// So many Ready nodes of a pool with that evidence.
    fn new(nodes: u64, evidence: Evidence) -> Self {
        let metrics = ProbeMetrics::default();
        let clock = Clock::Virtual(VirtualClock::new(now()));
        let readings = Readings::new(clock, None, Arc::new(Notify::new()), metrics.clone());
        let mut view = view();
        let mut catalogue = Catalogue::clone(&view.catalogue);
        Arc::make_mut(&mut catalogue.policy).pools[0].evidence = evidence;
        view.catalogue = Arc::new(catalogue);
        let records = (0..nodes).map(|n| (RecordId(n), Arc::new(registered(n, true)))).collect();
        view.memory = Arc::new(Memory { records, ..Memory::default() });
        Self { readings, streams: Streams::new(metrics), registry: Registry::default(), view }
    }

    /// A probe that has read its node as quiet for 20 s, and answers so.
    fn probe(&self, n: usize, says: Says) {
        self.quiet(n, Source::Probe);
        let hello = Hello { session: 1, ..Hello::default() };
        let (mut ticket, _) = self.streams.admit(&name(n), &hello, false).unwrap();
        let readings = Arc::clone(&self.readings);
        tokio::spawn(async move {
            let mut unanswered = Vec::new();
            while let Some(Command::Confirm { reply, .. }) = ticket.command().await {
                let used = match says {
                    Says::Quiet => 0,
                    Says::AtWork => 16 << 30,
                    Says::Hung => {
                        reply.send(Err(NotConfirmed::Unread)).unwrap();
                        continue;
                    }
                    Says::Nothing => {
                        unanswered.push(reply);
                        continue;
                    }
                };
                let reading = read(after(25), Source::Probe, used);
                readings.take(&name(n), reading.clone(), Vec::new()).unwrap();
                reply.send(Ok(reading)).unwrap();
            }
        });
    }

    fn quiet(&self, n: usize, source: Source) {
        for second in (0..=20).step_by(5) {
            self.readings.take(&name(n), read(after(second), source, 0), Vec::new()).unwrap();
        }
    }

    fn change(&mut self, n: u64, change: impl FnOnce(&mut Record)) {
        let memory = Arc::make_mut(&mut self.view.memory);
        change(Arc::make_mut(memory.records.get_mut(&RecordId(n)).unwrap()));
    }

    /// Deletes these; `Ok` where the order was filed.
    async fn delete(&mut self, nodes: &[&str]) -> Result<(), Status> {
        let metrics = Metrics::register(&mut self.registry);
        let confirm = Confirm::new(Arc::clone(&self.readings), Arc::clone(&self.streams), metrics);
        let View { at, groups, catalogue, memory, .. } = &self.view;
        let shown = View {
            ready: Ok(()),
            groups: groups.clone(),
            memory: Arc::clone(memory),
            ..View::starting(*at, Arc::clone(catalogue))
        };
        let mut handle: Handle<_> = handle!(shown);
        let provider = Provider::new(handle.engine.clone()).confirming(Some(Arc::new(confirm)));
        let nodes = nodes.iter().map(|id| node(id, id)).collect();
        let call = provider.node_group_delete_nodes(Request::new(NodeGroupDeleteNodesRequest { id: ONE_A.to_owned(), nodes }));
        tokio::select! {
            biased;
            answer = call => Err(answer.unwrap_err()),
            filed = handle.asked.recv() => filed.map(drop).ok_or_else(|| Status::internal("nobody asks")),
        }
    }

    async fn refused(&mut self, nodes: &[&str]) -> String {
        let status = self.delete(nodes).await.unwrap_err();
        assert_eq!(status.code(), Code::FailedPrecondition, "{status:?}");
        assert!(status.message().starts_with("NodeGroupDeleteNodes: ") && status.message().contains("nothing of this call"));
        status.message().to_owned()
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_goes_only_if_its_probe_says_now_that_it_is_quiet() {
    let mut rig = Rig::new(4, Evidence::Probe);
    for (n, says) in [Says::Quiet, Says::AtWork, Says::Hung, Says::Nothing].into_iter().enumerate() {
        rig.probe(n, says);
    }
    rig.delete(&["sim://0"]).await.unwrap();
    rig.delete(&["n0"]).await.unwrap();
    let busy = rig.refused(&["sim://1"]).await;
    assert!(busy.contains("n1 is busy: its probe sees work on GPU "), "{busy}");
    let hung = rig.refused(&["sim://2"]).await;
    assert!(hung.contains("n2 cannot be confirmed idle: the probe could not read"), "{hung}");
    let begun = Instant::now();
    let silent = rig.refused(&["sim://3"]).await;
    assert!(silent.contains("n3 cannot be confirmed idle: its probe did not answer within 3 s"), "{silent}");
    assert_eq!(begun.elapsed().as_secs(), 3);
    // All or none, and the whole call takes no longer than one answer.
    let begun = Instant::now();
    let first = rig.refused(&["sim://0", "sim://3", "sim://1", "sim://2"]).await;
    assert!(first.contains("n3 cannot"), "{first}");
    assert_eq!(begun.elapsed().as_secs(), 3);
}

#[tokio::test(start_paused = true)]
async fn nobody_is_asked_about_what_has_no_work_to_lose() {
    let mut rig = Rig::new(2, Evidence::Probe);
    rig.probe(0, Says::AtWork);
    rig.probe(1, Says::Quiet);
    rig.delete(&["sim://gone", "stoker://test/pool.gpu-1.zone-a/7"]).await.unwrap();
    rig.change(0, |record| *record = registered(0, false));
    rig.delete(&["sim://0", "n0"]).await.unwrap();
    rig.change(0, |record| {
        let State::Registered { purchase, instance, .. } = registered(0, true).state else { unreachable!() };
        let (kind, message) = (stoker_core::facts::supply::RefusalKind::BootTimeout, String::new());
        record.state = State::Failed { kind, message, at: now(), purchase: Some(purchase), instance: Some(instance) };
    });
    rig.delete(&["sim://0"]).await.unwrap();
    let mut pods = Rig::new(1, Evidence::Pods);
    pods.probe(0, Says::AtWork);
    pods.delete(&["sim://0"]).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_told_keeps_a_node_but_where_pods_are_the_evidence() {
    let mut rig = Rig::new(3, Evidence::Probe);
    rig.probe(1, Says::AtWork);
    let unheard = rig.refused(&["sim://0"]).await;
    assert!(unheard.contains("n0 cannot be confirmed idle: no probe reports for the node"), "{unheard}");
    // All probes have lapsed, and what one sees nevertheless counts.
    let by_pods = |is: bool| Arc::new(ProbeHistory { by_pods: is, ..ProbeHistory::default() });
    Arc::make_mut(&mut rig.view.memory).probe_history = [0, 1].map(|n| (RecordId(n), by_pods(true))).into();
    rig.delete(&["sim://0"]).await.unwrap();
    assert!(rig.refused(&["sim://1"]).await.contains("is busy"));
    // A node that goes because its GPU is broken need not be read.
    Arc::make_mut(&mut rig.view.memory).probe_history = [0, 1].map(|n| (RecordId(n), by_pods(false))).into();
    assert!(rig.delete(&["sim://0"]).await.is_err());
    let unhealthy = Judged { verdict: Verdict::Unhealthy, why: Reason::NoPods, since: now() };
    rig.change(0, |record| record.judged = Some(unhealthy.clone()));
    rig.delete(&["sim://0"]).await.unwrap();
    rig.change(1, |record| record.judged = Some(unhealthy));
    assert!(rig.refused(&["sim://1"]).await.contains("is busy"));
}

#[tokio::test(start_paused = true)]
async fn a_node_that_prometheus_reads_is_left_to_the_engine() {
    let mut rig = Rig::new(1, Evidence::Probe);
    rig.quiet(0, Source::Prometheus);
    rig.delete(&["sim://0"]).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_node_whose_kubelet_and_probe_are_both_long_gone_is_let_go_and_not_while_work_is_seen_on_it() {
    let mut rig = Rig::new(2, Evidence::Probe);
    rig.probe(1, Says::AtWork);
    for n in 0..2 {
        rig.change(n, |record| {
            record.judged = Some(Judged { verdict: Verdict::Booting, why: Reason::NotReady, since: now() });
        });
    }
    rig.view.at = after(599);
    assert!(rig.refused(&["sim://0"]).await.contains("no probe reports for the node"));
    rig.view.at = after(600);
    rig.delete(&["sim://0"]).await.unwrap();
    assert!(rig.refused(&["sim://1"]).await.contains("is busy"));
}
