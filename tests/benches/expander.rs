//! `BestOptions` with 500 options of 20 pods each against the running service, beside a bare tonic service that decodes the same bytes
//! and answers; and the scoring alone.

mod common {
    pub(crate) mod bare;
    pub(crate) mod logs;
    pub(crate) mod pods;
    pub(crate) mod report;
    pub(crate) mod service;
    pub(crate) mod times;
    pub(crate) mod wait;
}

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use common::bare::{Bare, LIMIT};
use common::report::{Report, is_short, short};
use common::times::Times;
use common::{logs, pods, service, wait};
use prost::Message as _;
use stoker_proto::Bytes;
use stoker_proto::expander::expander_client::ExpanderClient;
use stoker_proto::expander::{BestOptionsRequest, ExpanderOption};
use stoker_proto::externalgrpc::NodeGroup;
use stoker_service::api::grpc::expander::best_option;
use stoker_service::publish::view::View;
use stoker_simulated::start;
use tonic::transport::{Channel, Endpoint};

/// Pools, of six groups each.
const POOLS: usize = 84;
const OPTIONS: usize = 500;
const PODS: usize = 20;
/// Options that help the same pods: those of one pool of shapes. Each set has pods of its own.
const SAME_PODS: usize = 25;
const ROUNDS: usize = 40;
const SHORT_ROUNDS: usize = 8;

fn main() -> Result<()> {
    logs::to_nowhere()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(run())
}

async fn run() -> Result<()> {
    let mut report = Report::new("expander");
    let rounds = if is_short() { SHORT_ROUNDS } else { ROUNDS };
    let dir = tempfile::tempdir()?;
    let (options, world) = service::options(service::policy(POOLS), dir.path());
    let running = start(options, world).await?;
    let ready = || usize::from(running.handle.view().ready.is_ok());
    wait::until("ready views", ready, 1, Duration::from_secs(30)).await?;
    let view = running.handle.view().clone();
    let request = request(&view);
    ensure!(request.options.len() == OPTIONS, "{} options", request.options.len());
    let bytes = request.encoded_len();
    let distinct = OPTIONS.div_ceil(SAME_PODS) * PODS;
    println!(
        "{OPTIONS} options × {PODS} pods, {distinct} of them distinct: {} MiB",
        short(f64::from(u32::try_from(bytes)?) / 1_048_576.0)
    );

    let bare = Bare { group: NodeGroup::default(), target: 0 }.serve()?;
    let (mut ours, mut bare) = (connect(running.expander).await?, connect(bare).await?);
    let (mut our_times, mut bare_times) = (Times::default(), Times::default());
    for round in 0..=rounds {
        let (mut unused, mut unused_too) = (Times::default(), Times::default());
        let (our_times, bare_times) =
            if round == 0 { (&mut unused, &mut unused_too) } else { (&mut our_times, &mut bare_times) };
        // Whoever goes first meets what the other left: they change places.
        if round % 2 == 0 {
            ask(&mut ours, &request, our_times).await?;
            ask(&mut bare, &request, bare_times).await?;
        } else {
            ask(&mut bare, &request, bare_times).await?;
            ask(&mut ours, &request, our_times).await?;
        }
    }
    let scoring = score(&request, &view, rounds)?;
    running.stop().await;

    println!("\n{:<28} {:>10} {:>10}", "", "p50 ms", "p99 ms");
    for (what, times) in [("ours", &our_times), ("bare: decode and answer", &bare_times), ("scoring alone", &scoring)] {
        println!("{what:<28} {:>10} {:>10}", short(times.p50()), short(times.p99()));
    }
    let (ratio, p50, p99) = (our_times.p50() / bare_times.p50(), scoring.p50(), scoring.p99());
    report.judge("BestOptions, p50, times the bare decode", ratio, "×", "≤ 2 ×", ratio <= 2.0);
    report.judge("scoring, p50", p50, "ms", "≤ 5 ms", p50 <= 5.0);
    report.judge("scoring, p99", p99, "ms", "≤ 5 ms", p99 <= 5.0);
    report.ratio("best-options", ratio);
    report.print();
    Ok(())
}

async fn connect(addr: SocketAddr) -> Result<ExpanderClient<Channel>> {
    let channel = Endpoint::from_shared(format!("http://{addr}"))?.connect().await?;
    Ok(ExpanderClient::new(channel).max_encoding_message_size(LIMIT).max_decoding_message_size(LIMIT))
}

/// As the autoscaler sends it: an option for each group that would help, with its pods, and the template of every group.
fn request(view: &View) -> BestOptionsRequest {
    let sets: Vec<Vec<Bytes>> =
        (0..OPTIONS.div_ceil(SAME_PODS)).map(|set| (0..PODS).map(|pod| pods::protobuf(set * PODS + pod)).collect()).collect();
    let option = |(n, group): (usize, &stoker_core::base::ids::NodeGroupId)| ExpanderOption {
        node_group_id: group.to_string(),
        node_count: i32::try_from(n % 20 + 1).unwrap_or(1),
        pod_bytes: sets.get(n / SAME_PODS).cloned().unwrap_or_default(),
        ..ExpanderOption::default()
    };
    let options: Vec<ExpanderOption> = view.groups.keys().take(OPTIONS).enumerate().map(option).collect();
    let templates: BTreeMap<String, Bytes> =
        view.groups.iter().map(|(id, group)| (id.to_string(), group.template.clone())).collect();
    BestOptionsRequest { options, node_bytes_map: templates, ..BestOptionsRequest::default() }
}

async fn ask(client: &mut ExpanderClient<Channel>, request: &BestOptionsRequest, times: &mut Times) -> Result<()> {
    let request = request.clone();
    let begun = Instant::now();
    let answer = client.best_options(request).await?.into_inner();
    times.add(begun.elapsed());
    ensure!(answer.options.len() == 1, "{} options are left, where one is the best", answer.options.len());
    Ok(())
}

/// The scoring of a request as it comes from the wire; each time from bytes of its own, as no cache has seen a request before.
fn score(request: &BestOptionsRequest, view: &View, rounds: usize) -> Result<Times> {
    let encoded = request.encode_to_vec();
    let mut times = Times::default();
    for _ in 0..rounds * 2 {
        let request = BestOptionsRequest::decode(Bytes::from(encoded.clone()))?;
        let begun = Instant::now();
        let best = best_option(&request.options, view);
        times.add(begun.elapsed());
        ensure!(best.is_some(), "no option can be ranked");
    }
    Ok(times)
}
