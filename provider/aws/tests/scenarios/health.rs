//! What EC2 says of machines that run: checks that fail, and maintenance that it has scheduled.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use stoker_core::base::ids::{Cloud, ProviderId, Region};
use stoker_core::facts::supply::InstanceState;
use stoker_fake_ec2::{Fault, Health, Rule, Scheduled};
use tokio::time::sleep;

use crate::bench::{Bench, file_of_two_regions};

/// Machines that run, two of them.
async fn running() -> (Bench, [ProviderId; 2], [String; 2]) {
    let bench = Bench::new().await;
    let launches = bench.many(1..=2);
    bench.launch_all(&launches).await;
    let ids = [bench.id_of(&launches[0]), bench.id_of(&launches[1])];
    let made = ids.each_ref().map(|id| ProviderId::new(format!("aws:///us-east-1a/{id}")).unwrap());
    sleep(Duration::from_secs(10)).await;
    (bench, made, ids)
}

fn health(bench: &Bench, id: &str, change: impl FnOnce(&mut Health)) {
    bench.world(|world| change(&mut world.machines.get_mut(id).unwrap().health));
}

fn event(code: &str, description: &str, not_before: Timestamp) -> Scheduled {
    Scheduled { code: code.to_owned(), description: description.to_owned(), not_before }
}

/// Facts are asked as the service does it.
async fn for_minutes(bench: &Bench, minutes: u32) {
    for _ in 0..minutes * 2 {
        sleep(Duration::from_secs(30)).await;
        bench.facts().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_machine_whose_check_fails_for_two_minutes_is_impaired_until_it_passes() {
    let (bench, [first, _], [id, _]) = running().await;
    bench.facts().await;
    let now = bench.peer.now();
    health(&bench, &id, |health| health.system_impaired = Some(now));
    for_minutes(&bench, 1).await;
    assert!(bench.list().await.unwrap().impaired.is_empty(), "it may pass");
    for_minutes(&bench, 2).await;
    let told = bench.list().await.unwrap();
    let said: Vec<(&ProviderId, &str)> = told.impaired.iter().map(|(id, why)| (id, why.as_str())).collect();
    let why = format!("EC2's system status check fails since {}", now.strftime("%Y-%m-%d %H:%M:%SZ"));
    assert_eq!(said, [(&first, why.as_str())]);
    assert!(told.unsure.is_empty());
    health(&bench, &id, |health| health.system_impaired = None);
    for_minutes(&bench, 2).await;
    assert!(bench.list().await.unwrap().impaired.is_empty());
}

/// Unknown is neither well nor impaired.
#[tokio::test(start_paused = true)]
async fn what_cannot_be_asked_is_unknown_after_a_while() {
    let (bench, [first, _], [id, _]) = running().await;
    let here = || (Cloud::new("aws").unwrap(), Region::new("us-east-1").unwrap());
    let unsure = async || bench.list().await.unwrap().unsure.contains(&here());
    assert!(unsure().await, "it was not asked yet");
    let long_ago = bench.peer.now() - SignedDuration::from_hours(1);
    health(&bench, &id, |health| health.instance_impaired = Some(long_ago));
    bench.facts().await;
    let told = bench.list().await.unwrap();
    assert!(told.impaired[&first].contains("instance status check") && told.unsure.is_empty(), "{told:?}");
    let denied = Fault::status(403, "UnauthorizedOperation", "not allowed");
    bench.world(|world| world.fault(Rule::of("DescribeInstanceStatus", denied)));
    for_minutes(&bench, 2).await;
    assert!(bench.list().await.unwrap().impaired.contains_key(&first), "what was told a moment ago stands");
    assert!(bench.faults().contains("states of machines cannot be asked") && bench.faults().contains("UnauthorizedOperation"));
    for_minutes(&bench, 5).await;
    assert!(unsure().await && bench.list().await.unwrap().impaired.is_empty());
}

/// A region that cannot be asked leaves the other's machines as they are told.
#[tokio::test(start_paused = true)]
async fn each_region_is_unknown_by_itself() {
    let bench = Bench::with_file(&file_of_two_regions()).await;
    bench.world(|world| _ = world.add_region("us-west-2", &[("a", "usw2-az1")]));
    let unknown = Fault::status(503, "Unavailable", "later");
    bench.world(|world| world.fault(Rule::of("DescribeInstanceStatus", unknown).region("us-west-2")));
    bench.facts().await;
    let unsure = bench.list().await.unwrap().unsure;
    assert_eq!(unsure.iter().map(|(_, region)| region.as_str()).collect::<Vec<_>>(), ["us-west-2"]);
}

/// A notice that came by a queue is gone with the process; what EC2 has scheduled is asked again.
#[tokio::test(start_paused = true)]
async fn scheduled_maintenance_is_known_after_a_restart_and_forgotten_when_it_is_cancelled() {
    let (mut bench, [first, second], [id, other]) = running().await;
    let start = Timestamp::from_second(bench.now().as_second()).unwrap() + SignedDuration::from_mins(40);
    health(&bench, &id, |health| {
        health.events = vec![
            event(
                "instance-reboot",
                "[Completed] The instance is scheduled for a reboot",
                start - SignedDuration::from_mins(39),
            ),
            event("instance-retirement", "The instance is running on degraded hardware", start),
        ];
    });
    health(&bench, &other, |health| {
        health.events = vec![event("system-reboot", "[Canceled] The instance is scheduled for a reboot", start)];
    });
    for_minutes(&bench, 2).await;
    assert_eq!(bench.listed(&first).await, Some(InstanceState::Running), "work is not driven off long before");
    for_minutes(&bench, 24).await;
    assert_eq!(bench.listed(&first).await, Some(InstanceState::Reclaiming { at: start }));
    bench.restart().await;
    bench.facts().await;
    assert_eq!(bench.listed(&first).await, Some(InstanceState::Reclaiming { at: start }));
    assert_eq!(bench.listed(&second).await, Some(InstanceState::Running));
    health(&bench, &id, |health| health.events.clear());
    for_minutes(&bench, 2).await;
    assert_eq!(bench.listed(&first).await, Some(InstanceState::Running));
}
