//! What is asked of a machine that did not join, and how it ends.

use stoker_fake_ec2::{Fault, Rule};
use stoker_service::suppliers::{LimitedSupplier, Supplier as _};

use crate::bench::Bench;

const BOOTED: &str = "[    0.0] Linux\r\n[   41.2] nodeadm[1500]: failed to join: 403 Forbidden\r\n";

fn ended_at_once(bench: &Bench) -> Vec<bool> {
    bench.world(|world| {
        let ends = world.calls.iter().filter(|call| call.action == "TerminateInstances");
        ends.map(|call| call.params.get("SkipOsShutdown").is_some_and(|skips| skips == "true")).collect()
    })
}

/// Scenario 16, the supplier's part.
#[tokio::test(start_paused = true)]
async fn the_console_of_a_machine_is_read_as_it_is_now_also_after_its_end() {
    let bench = Bench::new().await;
    let launch = bench.usual(1);
    let made = bench.made(&launch).await;
    let supplier = LimitedSupplier::new(bench.aws.clone());
    assert_eq!(supplier.console(&made.provider_id).await, None, "it has not written yet");
    let id = bench.id_of(&launch);
    bench.world(|world| world.machines.get_mut(&id).unwrap().console = BOOTED.to_owned());
    let told = || async { supplier.console(&made.provider_id).await.unwrap() };
    assert!(told().await.ends_with("failed to join: 403 Forbidden"));
    bench.end(std::slice::from_ref(&made.provider_id)).await;
    assert!(told().await.ends_with("failed to join: 403 Forbidden"));
    let asked = bench.world(|world| world.calls.iter().rfind(|call| call.action == "GetConsoleOutput").unwrap().params.clone());
    assert_eq!(asked["Latest"], "true");
}

/// Machines on Xen tell only what was written in their first minutes.
#[tokio::test(start_paused = true)]
async fn a_console_that_cannot_be_read_now_is_read_as_it_was() {
    let bench = Bench::new().await;
    let launch = bench.usual(1);
    let made = bench.made(&launch).await;
    let id = bench.id_of(&launch);
    bench.world(|world| {
        world.machines.get_mut(&id).unwrap().console = BOOTED.to_owned();
        let refused = Fault::status(400, "UnsupportedOperation", "This instance type does not support retrieving the latest");
        world.fault(Rule::of("GetConsoleOutput", refused).matching("Latest", "true"));
    });
    assert_eq!(bench.aws.console(made.provider_id.clone()).await.unwrap().unwrap(), BOOTED);
    bench.world(|world| world.rules = vec![Rule::of("GetConsoleOutput", Fault::status(403, "UnauthorizedOperation", "no"))]);
    let said = bench.aws.console(made.provider_id).await.unwrap_err().message;
    assert!(said.contains("GetConsoleOutput") && said.contains("UnauthorizedOperation"), "{said}");
}

/// Nothing on a machine that did not join is to be stopped in good order; on another the kubelet gives its pods their time.
#[tokio::test(start_paused = true)]
async fn only_machines_that_did_not_join_end_without_a_shutdown() {
    let bench = Bench::new().await;
    let (joined, late) = (bench.made(&bench.usual(1)).await, bench.made(&bench.usual(2)).await);
    bench.end(&[joined.provider_id]).await;
    let ended = bench.aws.terminate_late(bench.now(), vec![late.provider_id.clone()]).await;
    assert_eq!(ended, [(late.provider_id, Ok(()))]);
    assert_eq!(ended_at_once(&bench), [false, true]);
    assert_eq!(bench.world(|world| world.alive().len()), 0);
}
