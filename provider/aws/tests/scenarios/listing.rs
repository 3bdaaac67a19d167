//! The listing and the end of machines: nothing is taken for lost, and nobody else's machine is named.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::Timestamp;
use stoker_core::base::ids::{Cloud, ProviderId, Region};
use stoker_core::facts::supply::{Covered, EndedWhy, InstanceState, Observation};
use stoker_core::market::offer::CapacityType;
use stoker_fake_ec2::{ACCESS_KEY, Fault, Machine, Rule, World};
use tokio::time::sleep;

use crate::bench::{Bench, FILE, file_of_two_regions, file_with};

/// When a region was listed; `None` where it is not covered.
fn listed_at(listed: &Observation, region: &str) -> Option<Timestamp> {
    let Covered::Regions(regions) = &listed.covered else { panic!("{listed:?}") };
    regions.get(&(Cloud::new("aws").unwrap(), Region::new(region).unwrap())).copied()
}

/// Another machine like the first, of that record.
pub(crate) fn another(world: &mut World, record: u64, change: impl FnOnce(&mut Machine)) -> String {
    let mut machine = world.machines.values().next().unwrap().clone();
    machine.id = format!("i-0{record:016x}");
    machine.token = format!("of-{record}");
    machine.tags.insert("stoker.dev/launch-key".to_owned(), format!("prod/g/0c4de2a1/{record}/1"));
    change(&mut machine);
    let id = machine.id.clone();
    world.machines.insert(id.clone(), machine);
    id
}

fn id(machine: &str) -> ProviderId {
    ProviderId::new(format!("aws:///us-east-1a/{machine}")).unwrap()
}

/// Scenario 12.
#[tokio::test(start_paused = true)]
async fn a_machine_that_ec2_does_not_show_yet_is_listed() {
    let bench = Bench::new().await;
    bench.world(|world| world.listing_lag = Duration::from_secs(40));
    let made = bench.made(&bench.usual(1)).await;
    for _ in 0..30 {
        let listed = bench.list().await.unwrap();
        assert!(listed.complete && listed_at(&listed, "us-east-1").is_some());
        assert!(listed.instances.contains_key(&made.provider_id), "lost at {}", bench.now());
        sleep(Duration::from_secs(2)).await;
    }
    assert_eq!(bench.listed(&made.provider_id).await, Some(InstanceState::Running));
    // Its end shows late too, and is then an end.
    assert_eq!(bench.end(std::slice::from_ref(&made.provider_id)).await[&made.provider_id], Ok(()));
    sleep(Duration::from_mins(2)).await;
    assert_eq!(bench.listed(&made.provider_id).await, None);
}

/// Scenario 12: EC2 does not know the id either.
#[tokio::test(start_paused = true)]
async fn a_machine_that_ec2_does_not_know_yet_is_ended_later() {
    let bench = Bench::new().await;
    bench.world(|world| world.listing_lag = Duration::from_secs(40));
    let made = bench.made(&bench.usual(1)).await;
    bench.list().await.unwrap();
    let ended = bench.end(std::slice::from_ref(&made.provider_id)).await;
    let error = ended[&made.provider_id].as_ref().unwrap_err();
    assert!(error.message.contains("InvalidInstanceID.NotFound"), "{error}");
    assert!(bench.listed(&made.provider_id).await.is_some());
    sleep(Duration::from_secs(41)).await;
    assert_eq!(bench.end(std::slice::from_ref(&made.provider_id)).await[&made.provider_id], Ok(()));
    assert_eq!(bench.world(|world| world.alive().len()), 0);
}

/// A machine that ended before any listing had it is not kept alive by memory.
#[tokio::test(start_paused = true)]
async fn a_machine_that_ended_before_it_was_listed_is_not_listed() {
    let bench = Bench::new().await;
    for (record, code, why) in [
        (1, "Server.InsufficientInstanceCapacity", Some(EndedWhy::FailedBoot)),
        (2, "Server.InternalError", Some(EndedWhy::Broken)),
        (3, "Server.SomethingNew", None),
    ] {
        let launch = bench.usual(record);
        let made = bench.made(&launch).await;
        let machine = bench.id_of(&launch);
        bench.world(|world| world.end_by(&machine, code));
        sleep(Duration::from_secs(4)).await;
        let listed = bench.list().await.unwrap();
        assert!(!listed.instances.contains_key(&made.provider_id), "{code}");
        assert_eq!(listed.ended.get(&made.provider_id).copied(), why, "{code}");
    }
}

/// Scenario 13.
#[tokio::test(start_paused = true)]
async fn a_page_that_fails_makes_a_listing_old_and_no_machine_lost() {
    let bench = Bench::with_file(&file_of_two_regions()).await;
    bench.world(|world| {
        world.add_region("us-west-2", &[("a", "usw2-az1")]);
        world.page_limit = 2;
    });
    let mut all: BTreeSet<ProviderId> = BTreeSet::new();
    for record in 1..=5 {
        all.insert(bench.made(&bench.usual(record)).await.provider_id);
    }
    let west = bench.made(&bench.order(6, "g6.xlarge", "usw2-az1", CapacityType::OnDemand)).await;
    all.insert(west.provider_id.clone());
    sleep(Duration::from_mins(6)).await;
    let listed = bench.list().await.unwrap();
    assert_eq!((listed.instances.keys().cloned().collect(), listed.oldest()), (all.clone(), listed.as_of()));
    sleep(Duration::from_secs(30)).await;
    let page = Rule::of("DescribeInstances", Fault::status(500, "InternalError", "later"));
    bench.world(|world| world.fault(page.matching("NextToken", "page-2*").region("us-east-1")));
    let later = bench.list().await.unwrap();
    assert_eq!(later.instances.keys().cloned().collect::<BTreeSet<_>>(), all);
    assert_eq!(later.as_of_in(&bench.usual(1).request.market.place), listed.as_of());
    assert!(later.as_of() > listed.as_of(), "the other region is listed anew");
    // The other region goes on: what is ended there is seen.
    assert_eq!(bench.end(std::slice::from_ref(&west.provider_id)).await[&west.provider_id], Ok(()));
    sleep(Duration::from_mins(1)).await;
    assert_eq!(bench.list().await.unwrap().instances.len(), 5);
}

/// A zone that is down fails the question for its whole region. The others' machines are listed and end all the same.
#[tokio::test(start_paused = true)]
async fn a_zone_that_is_down_blinds_no_other() {
    let mut bench = Bench::new().await;
    let up = bench.made(&bench.usual(1)).await;
    let down = bench.made(&bench.order(2, "g6.xlarge", "use1-az2", CapacityType::OnDemand)).await;
    sleep(Duration::from_mins(6)).await;
    let before = bench.list().await.unwrap();
    assert_eq!((before.instances.len(), before.zones.len()), (2, 0));
    bench.world(|world| {
        world.fault(Rule::of("DescribeInstances", Fault::None).matching("Filter.availability-zone", "us-east-1a"));
        world.fault(Rule::of("DescribeInstances", Fault::status(500, "InternalError", "later")));
    });
    sleep(Duration::from_secs(30)).await;
    let listed = bench.list().await.unwrap();
    assert!(listed.complete && listed.instances.len() == 2);
    assert!(listed.as_of_in(&up.market.place) > before.as_of());
    assert_eq!(listed.as_of_in(&down.market.place), before.as_of());
    assert!(bench.faults().contains("the machines of us-east-1b"), "{}", bench.faults());
    assert_eq!(bench.end(std::slice::from_ref(&up.provider_id)).await[&up.provider_id], Ok(()));
    sleep(Duration::from_mins(1)).await;
    assert_eq!(bench.list().await.unwrap().instances.keys().collect::<Vec<_>>(), [&down.provider_id]);
    // Whoever has forgotten what the zone had does not take it for empty, and does not call a machine there ended.
    bench.restart().await;
    bench.facts().await;
    let listed = bench.list().await.unwrap();
    assert_eq!((listed.instances.len(), listed.as_of_in(&down.market.place)), (0, Timestamp::UNIX_EPOCH));
    bench.end(std::slice::from_ref(&down.provider_id)).await.remove(&down.provider_id).unwrap().unwrap_err();
    // Nor does a zone that nobody asked, as no subnet is there any more, count as listed.
    let third = bench.order(3, "g6.xlarge", "use1-az4", CapacityType::OnDemand).request.market.place;
    assert_eq!(listed.as_of_in(&third), Timestamp::UNIX_EPOCH);
    bench.world(|world| world.rules.clear());
    sleep(Duration::from_secs(30)).await;
    let listed = bench.list().await.unwrap();
    assert!(listed.instances.contains_key(&down.provider_id) && listed.zones.is_empty());
    assert_eq!(bench.faults(), "");
}

/// Scenario 13: a region that was never listed is as old as time, and all of them down are an error.
#[tokio::test(start_paused = true)]
async fn a_region_that_is_down_from_the_start_does_not_blind_the_other() {
    let bench = Bench::with_file(&file_of_two_regions()).await;
    bench.world(|world| world.add_region("us-west-2", &[("a", "usw2-az1")]).spot_role = true);
    bench.world(|world| world.fault(Rule { region: Some("us-west-2".to_owned()), answer: Fault::Cut, ..Rule::default() }));
    let made = bench.made(&bench.usual(1)).await;
    let listed = bench.list().await.unwrap();
    assert!(listed.instances.contains_key(&made.provider_id));
    assert_eq!(listed_at(&listed, "us-west-2"), Some(Timestamp::UNIX_EPOCH));
    let mut bench = bench;
    bench.restart().await;
    bench.world(|world| world.fault(Rule { answer: Fault::Cut, ..Rule::default() }));
    let error = bench.list().await.unwrap_err();
    assert!(error.message.contains("the connection was cut"), "{error}");
}

/// Nobody lists it: whoever has a machine there on record hears nothing of it, and does not take it for lost.
#[tokio::test(start_paused = true)]
async fn a_region_that_is_left_out_before_a_restart_is_not_covered() {
    let mut bench = Bench::with_file(&file_of_two_regions()).await;
    bench.world(|world| world.add_region("us-west-2", &[("a", "usw2-az1")]).spot_role = true);
    let east = bench.made(&bench.usual(1)).await;
    let west = bench.made(&bench.order(2, "g6.xlarge", "usw2-az1", CapacityType::OnDemand)).await;
    bench.restart_with(FILE).await;
    sleep(Duration::from_mins(1)).await;
    let listed = bench.list().await.unwrap();
    assert_eq!(listed.instances.keys().collect::<Vec<_>>(), [&east.provider_id]);
    assert_eq!(listed_at(&listed, "us-east-1"), Some(listed.as_of()));
    assert_eq!(listed_at(&listed, "us-west-2"), None);
    let error = bench.end(std::slice::from_ref(&west.provider_id)).await.remove(&west.provider_id).unwrap().unwrap_err();
    assert!(error.message.contains("add it again"), "{error}");
    bench.restart_with(&file_of_two_regions()).await;
    assert_eq!(bench.list().await.unwrap().instances.len(), 2);
}

/// Scenario 14.
#[tokio::test(start_paused = true)]
async fn other_credentials_that_see_nothing_are_not_believed() {
    let bench = Bench::new().await;
    let made = bench.made(&bench.usual(1)).await;
    sleep(Duration::from_mins(6)).await;
    assert_eq!(bench.list().await.unwrap().instances.len(), 1);
    bench.world(|world| {
        world.accounts = [("AKIDOTHER".to_owned(), "222222222222".to_owned())].into();
    });
    bench.rotate("AKIDOTHER");
    sleep(Duration::from_mins(2)).await;
    let listed = bench.list().await.unwrap();
    assert!(listed.instances.contains_key(&made.provider_id));
    assert!(listed.oldest() < bench.now() - Duration::from_mins(1));
    bench.unclear(&bench.usual(2)).await;
    bench.facts_or_error().await.unwrap_err();
    let faults = bench.faults();
    assert!(faults.contains("account 222222222222") && faults.contains("were of 111111111111"), "{faults}");
    assert_eq!(bench.world(|world| world.machines.len()), 1);
}

/// The credentials of another account, in which a cluster of the same name has machines: after a restart too nothing of it is believed.
#[tokio::test(start_paused = true)]
async fn credentials_of_another_account_than_the_file_says_are_refused() {
    let file = file_with("account: \"111111111111\"\n  interruptionQueue: stoker-prod");
    let mut bench = Bench::with_file(&file).await;
    bench.world(|world| world.region("us-east-1").add_queue("stoker-prod"));
    let made = bench.made(&bench.usual(1)).await;
    assert_eq!(bench.list().await.unwrap().instances.len(), 1);
    bench.world(|world| {
        let account = "222222222222".to_owned();
        let there = stoker_fake_ec2::Region::furnished("us-east-1", &[("a", "use1-az1")], &world.types, world.now());
        world.regions.insert((account.clone(), "us-east-1".to_owned()), there);
        world.accounts.insert("AKIDOTHER".to_owned(), account.clone());
        another(world, 2, |machine| machine.account = account);
    });
    bench.rotate("AKIDOTHER");
    bench.restart().await;
    let calls = bench.world(|world| world.calls.len());
    let error = bench.list().await.unwrap_err().to_string();
    for part in
        ["account 222222222222", "aws.yaml says account 111111111111 for us-east-1", "give Stoker credentials of 111111111111"]
    {
        assert!(error.contains(part), "{error}");
    }
    assert!(bench.unclear(&bench.usual(3)).await.contains("account 222222222222"));
    bench.facts_or_error().await.unwrap_err();
    assert!(bench.faults().contains("aws.yaml says account 111111111111"), "{}", bench.faults());
    sleep(Duration::from_mins(1)).await;
    bench.world(|world| {
        let asked: BTreeSet<&str> = world.calls[calls..].iter().map(|call| call.action.as_str()).collect();
        assert!(!asked.contains("ReceiveMessage") && !asked.contains("RunInstances"), "{asked:?}");
    });
    // With the right ones it goes on.
    bench.rotate(ACCESS_KEY);
    bench.restart().await;
    assert_eq!(bench.list().await.unwrap().instances.keys().collect::<Vec<_>>(), [&made.provider_id]);
    bench.made(&bench.usual(3)).await;
}

/// Credentials are asked whose they are once for each access key, and not at each listing.
#[tokio::test(start_paused = true)]
async fn an_empty_account_is_not_asked_for_its_name_at_each_listing() {
    let bench = Bench::new().await;
    for _ in 0..20 {
        assert_eq!(bench.list().await.unwrap().instances.len(), 0);
        sleep(Duration::from_secs(25)).await;
    }
    assert!(bench.count("DescribeInstances") >= 20 && bench.count("GetCallerIdentity") == 1);
}

/// Keys that were rotated are fetched anew at the first call that is refused for them.
#[tokio::test(start_paused = true)]
async fn rotated_keys_of_the_same_account_are_taken_at_once() {
    let bench = Bench::new().await;
    bench.made(&bench.usual(1)).await;
    bench.world(|world| world.accounts = [("AKIDNEW".to_owned(), crate::bench::ACCOUNT.to_owned())].into());
    bench.rotate("AKIDNEW");
    bench.made(&bench.usual(2)).await;
    assert_eq!(bench.list().await.unwrap().instances.len(), 2);
}

/// Scenario 16, the supplier's part: a machine that never joined is ended as any other. That its console is read is not done yet.
#[tokio::test(start_paused = true)]
async fn a_machine_that_never_joined_is_ended() {
    let bench = Bench::new().await;
    let made = bench.made(&bench.usual(1)).await;
    sleep(Duration::from_mins(20)).await;
    assert_eq!(bench.listed(&made.provider_id).await, Some(InstanceState::Running));
    assert_eq!(bench.end(std::slice::from_ref(&made.provider_id)).await[&made.provider_id], Ok(()));
    sleep(Duration::from_secs(4)).await;
    assert_eq!(bench.listed(&made.provider_id).await, Some(InstanceState::Stopping));
    sleep(Duration::from_secs(30)).await;
    let listed = bench.list().await.unwrap();
    assert!(listed.instances.is_empty());
    assert_eq!(listed.ended[&made.provider_id], EndedWhy::Deleted);
}

/// Scenario 21.
#[tokio::test(start_paused = true)]
async fn one_protected_machine_keeps_no_other_alive_and_no_foreign_one_is_named() {
    let bench = Bench::new().await;
    let first = bench.usual(1);
    let made = bench.made(&first).await;
    let (gone, protected, foreign) = bench.world(|world| {
        let gone = another(world, 2, |_| {});
        let protected = another(world, 3, |machine| machine.protected = true);
        let foreign =
            another(world, 4, |machine| drop(machine.tags.insert("stoker.dev/cluster".to_owned(), "other".to_owned())));
        (gone, protected, foreign)
    });
    sleep(Duration::from_mins(6)).await;
    let listed: BTreeSet<ProviderId> = bench.list().await.unwrap().instances.into_keys().collect();
    assert_eq!(listed, [made.provider_id.clone(), id(&gone), id(&protected)].into());
    bench.world(|world| drop(world.machines.remove(&gone)));
    let ended = bench.end(&[made.provider_id.clone(), id(&gone), id(&protected), id(&foreign)]).await;
    assert_eq!((&ended[&made.provider_id], &ended[&id(&gone)]), (&Ok(()), &Ok(())));
    let error = ended[&id(&protected)].as_ref().unwrap_err();
    assert!(error.message.contains("somebody protected the machine"), "{error}");
    bench.world(|world| {
        assert_eq!(
            world.alive().iter().map(|machine| machine.id.clone()).collect::<Vec<_>>(),
            [protected.clone(), foreign.clone()]
        );
        assert!(!world.named_to_end.contains(&foreign));
        assert!(world.calls.iter().all(|call| !call.params.values().any(|value| *value == foreign)));
    });
}

/// A hundred machines are not ended one by one because EC2 is busy.
#[tokio::test(start_paused = true)]
async fn a_throttled_end_is_asked_again_as_a_whole() {
    let bench = Bench::new().await;
    bench.made(&bench.usual(1)).await;
    let ids: Vec<ProviderId> = (2..=60).map(|record| id(&bench.world(|world| another(world, record, |_| {})))).collect();
    sleep(Duration::from_secs(30)).await;
    bench.list().await.unwrap();
    bench.world(|world| world.fault(Rule::of("TerminateInstances", Fault::status(503, "RequestLimitExceeded", "too many"))));
    assert!(bench.end(&ids).await.values().all(Result::is_err));
    assert!(bench.count("TerminateInstances") <= 4, "{} calls", bench.count("TerminateInstances"));
    bench.world(|world| world.rules.clear());
    assert!(bench.end(&ids).await.values().all(Result::is_ok));
    assert_eq!(bench.world(|world| world.alive().len()), 1);
}

/// A machine that somebody stopped costs its disks, and is ended.
#[tokio::test(start_paused = true)]
async fn a_machine_that_somebody_stopped_is_ended() {
    let bench = Bench::new().await;
    let launch = bench.usual(1);
    let made = bench.made(&launch).await;
    let machine = bench.id_of(&launch);
    bench.world(|world| world.stop(&machine));
    sleep(Duration::from_mins(1)).await;
    assert_eq!(bench.listed(&made.provider_id).await, Some(InstanceState::Stopping));
    sleep(Duration::from_mins(1)).await;
    assert_eq!(bench.listed(&made.provider_id).await, None);
}

/// A machine of the cluster whose key cannot be read is told of, and never ended.
#[tokio::test(start_paused = true)]
async fn a_machine_without_a_launch_key_is_told_and_left_alone() {
    let bench = Bench::new().await;
    bench.made(&bench.usual(1)).await;
    let lost = bench.world(|world| another(world, 2, |machine| drop(machine.tags.remove("stoker.dev/launch-key"))));
    sleep(Duration::from_secs(30)).await;
    assert_eq!(bench.list().await.unwrap().instances.len(), 1);
    assert!(bench.faults().contains(&format!("machine {lost} has no launch key")), "{}", bench.faults());
    assert_eq!(bench.end(&[id(&lost)]).await[&id(&lost)], Ok(()));
    assert!(bench.world(|world| world.named_to_end.is_empty()));
}

#[tokio::test(start_paused = true)]
async fn five_thousand_machines_are_listed_in_pages() {
    let bench = Bench::new().await;
    bench.made(&bench.usual(1)).await;
    bench.world(|world| {
        for record in 2..=5_000 {
            another(world, record, |_| {});
        }
    });
    sleep(Duration::from_secs(30)).await;
    let before = bench.count("DescribeInstances");
    let listed = bench.list().await.unwrap();
    assert_eq!((listed.instances.len(), listed.complete), (5_000, true));
    assert_eq!(bench.count("DescribeInstances") - before, 5);
    let keys: BTreeSet<&str> = listed.instances.values().map(|made| made.key.as_str()).collect();
    assert_eq!(keys.len(), 5_000);
}

/// Somebody made it like one of ours, or mends its tags: it is not ours to end.
#[tokio::test(start_paused = true)]
async fn a_stopped_machine_whose_key_cannot_be_read_is_told_and_not_ended() {
    let bench = Bench::new().await;
    bench.made(&bench.usual(1)).await;
    let copied = bench.world(|world| {
        let now = world.now();
        another(world, 2, |machine| {
            machine.tags.remove("stoker.dev/launch-key");
            machine.stopped = Some(now);
        })
    });
    sleep(Duration::from_secs(30)).await;
    bench.list().await.unwrap();
    assert!(bench.faults().contains(&copied), "{}", bench.faults());
    bench.world(|world| assert!(!world.named_to_end.contains(&copied)));
}
