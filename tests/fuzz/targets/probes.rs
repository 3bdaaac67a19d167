//! A probe's stream from its first message: a level that is known is one that hardware can have, and
//! only the node of the Hello is reported.

use std::sync::Arc;

use prost::Message as _;
use stoker_core::base::ids::NodeName;
use stoker_core::facts::reading::{GpuReading, Measured};
use stoker_proto::limits;
use stoker_proto::probe::{FromProbe, Hello, from_probe};
use stoker_service::api::grpc::probe::ProbeService;
use stoker_service::clock::{Clock, VirtualClock};
use stoker_service::feeds::probes::identity::Identity;
use stoker_service::feeds::probes::{ProbeMetrics, Readings, Streams};
use stoker_tests::market;
use tokio::runtime::Runtime;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::{parts, rpc};

/// The node of a right Hello.
pub(crate) const NODE: &str = "gpu-1";

/// The Hello that a stream begins with whose input begins with another byte than zero.
pub(crate) fn hello() -> FromProbe {
    let (node, boot_id, version) = (NODE.to_owned(), "boot".to_owned(), "1".to_owned());
    FromProbe { kind: Some(from_probe::Kind::Hello(Hello { node, boot_id, session: 1, version, period_ms: 5_000 })) }
}

pub(super) fn run(data: &[u8]) {
    thread_local! {
        static RUNTIME: Runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().expect("a runtime");
    }
    RUNTIME.with(|runtime| runtime.block_on(stream(data)));
}

async fn stream(data: &[u8]) {
    let Some((first, rest)) = data.split_first() else { return };
    let hello = hello().encode_to_vec();
    let begins = (*first != 0).then_some(hello.as_slice());
    let messages: Vec<&[u8]> = begins.into_iter().chain(parts(rest)).collect();
    let clock = Clock::Virtual(VirtualClock::new(market::start()));
    let metrics = ProbeMetrics::default();
    let readings = Readings::new(clock, None, Arc::new(Notify::new()), metrics.clone());
    let door = ProbeService::new(Arc::clone(&readings), Streams::new(metrics), Identity::Unproven, CancellationToken::new());
    let answer = rpc::call(door, "/stoker.probe.v1.Probe/Watch", &messages).await;
    if begins.is_some() {
        assert!(!answer.messages.is_empty(), "a right Hello is not answered: {:?}", answer.status);
    }
    readings.look(market::start());
    readings.publish();
    let latest = readings.latest();
    assert!(latest.len() <= 1 && readings.seen().borrow().len() <= 1, "one stream, and several nodes");
    if begins.is_some() {
        assert!(latest.keys().all(|node| *node == NodeName::new(NODE).expect("a name")), "{:?}", latest.keys());
    }
    for reading in latest.values() {
        assert_eq!(reading.arrived, market::start());
        reading.gpus.values().for_each(sane);
    }
}

/// What is known of a GPU is what hardware can have.
pub(super) fn sane(gpu: &GpuReading) {
    if let Measured::Known(memory) = &gpu.memory {
        assert!(memory.used <= memory.total && memory.total <= limits::MEMORY, "{memory:?}");
    }
    if let Measured::Known(power) = gpu.power_mw {
        assert!(power <= limits::POWER_MW, "{power}");
    }
    if let Measured::Known(temperature) = gpu.temperature_c {
        assert!(limits::TEMPERATURE_C.contains(&temperature), "{temperature}");
    }
    for share in [gpu.utilization, gpu.sm_activity, gpu.memory_bandwidth, gpu.codec] {
        if let Measured::Known(share) = share {
            assert!(share.get() <= 1_000, "{share:?}");
        }
    }
    for text in [&gpu.name, &gpu.pci_bus_id] {
        assert!(text.len() <= 65_536);
    }
}
