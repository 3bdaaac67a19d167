//! The Cluster Autoscaler model as a process: for tests where no real autoscaler is at hand.

use std::time::Duration;

use clap::Parser as _;
use jiff::Timestamp;
use stoker_sim::model::{Autoscaler, LoopReport, Outcome, ScaleUp};
use stoker_tests::e2e::door;
use stoker_tests::e2e::flags::Flags;
use stoker_tests::e2e::mirror::Mirror;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let flags = Flags::parse();
    let client = stoker_service::kube::client::connect(Some(&flags.kubeconfig)).await?;
    let door = door::open(&flags.cloud_config, &flags.grpc_expander_url, &flags.grpc_expander_cert)?;
    let mut autoscaler =
        Autoscaler::new(door, Mirror::new(client, flags.capacity_buffer_pod_injection_enabled), flags.settings());
    loop {
        let now = Timestamp::now();
        let report = autoscaler.run_once(now).await;
        tell(&report);
        let wait = autoscaler.next_scan(now).duration_since(Timestamp::now());
        tokio::time::sleep(Duration::try_from(wait).unwrap_or_default()).await;
    }
}

/// One line for a loop that did, held or failed anything.
fn tell(report: &LoopReport) {
    let idle = report.actions.is_empty() && report.outcome == Outcome::Done;
    if idle && matches!(report.scale_up, ScaleUp::NotTried | ScaleUp::NotNeeded) {
        return;
    }
    println!("{} {:?} {:?} {:?}", report.at, report.outcome, report.scale_up, report.actions);
    for option in &report.options {
        println!("  option {option:?}");
    }
}
