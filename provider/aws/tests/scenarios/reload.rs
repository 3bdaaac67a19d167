//! The file is read again while the supplier runs: it takes what holds, and loses no machine.

use std::time::Duration;

use stoker_core::facts::supply::{InstanceState, RefusalKind};
use stoker_core::market::offer::CapacityType;
use stoker_fake_ec2::{Fault, Rule};
use tempfile::TempDir;
use tokio::time::sleep;

use crate::bench::{Bench, FILE, file_of_two_regions};

/// A supplier with its file in a folder.
async fn with_file(text: &str) -> (TempDir, Bench) {
    let folder = tempfile::tempdir().unwrap();
    write(&folder, text);
    let bench = Bench::with_file_at(&folder.path().join("aws.yaml")).await;
    (folder, bench)
}

fn write(folder: &TempDir, text: &str) {
    std::fs::write(folder.path().join("aws.yaml"), text).unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_file_that_does_not_hold_changes_nothing_and_is_told() {
    let (folder, bench) = with_file(FILE).await;
    bench.facts().await;
    write(&folder, &FILE.replace("instanceProfile", "instanceProfil"));
    bench.facts().await;
    let faults = bench.faults();
    assert!(faults.contains("instanceProfil") && faults.contains("the last one that held stays"), "{faults}");
    bench.made(&bench.usual(1)).await;
    std::fs::remove_file(folder.path().join("aws.yaml")).unwrap();
    bench.facts().await;
    assert!(bench.faults().contains("cannot be read"), "{}", bench.faults());
    write(&folder, FILE);
    bench.facts().await;
    assert_eq!(bench.faults(), "");
}

#[tokio::test(start_paused = true)]
async fn a_region_that_is_added_sells_at_once() {
    let (folder, bench) = with_file(FILE).await;
    bench.world(|world| world.add_region("us-west-2", &[("a", "usw2-az1")]).spot_role = true);
    let east = bench.made(&bench.usual(1)).await;
    let west = bench.order(2, "g6.xlarge", "usw2-az1", CapacityType::OnDemand);
    // Nothing was ever asked there: it is a plain no.
    assert!(bench.refused(&west).await.message.contains("aws.yaml has no region us-west-2"));
    write(&folder, &file_of_two_regions());
    assert_eq!(bench.facts().await.regions.unwrap().len(), 2);
    let west = bench.made(&west).await;
    let listed = bench.list().await.unwrap();
    assert!(listed.instances.contains_key(&east.provider_id) && listed.instances.contains_key(&west.provider_id));
    // One that says the same goes on as it was. One that is left out sells nothing, and its machine is not lost.
    write(&folder, FILE);
    assert_eq!(bench.facts().await.regions.unwrap().len(), 1);
    assert_eq!(bench.world(|world| world.alive().len()), 2);
    let listed = bench.list().await.unwrap();
    assert!(listed.instances.contains_key(&east.provider_id) && listed.instances.contains_key(&west.provider_id));
    assert!(bench.end(std::slice::from_ref(&west.provider_id)).await.values().all(Result::is_ok));
    assert_eq!(bench.world(|world| world.alive().len()), 1);
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_is_found_although_the_file_has_other_tags_and_groups_now() {
    let (folder, bench) = with_file(FILE).await;
    bench.world(|world| world.fault(Rule::of("RunInstances", Fault::Lose).times(1)));
    let launch = bench.usual(1);
    bench.unclear(&launch).await;
    let other = FILE.replace("stoker-node }", "stoker-node, tags: { team: ml }, disk: { sizeGiB: 500 } }");
    write(
        &folder,
        &other.replace("securityGroups: { tags: { stoker.dev/discovery: prod } }", "securityGroups: { ids: [sg-us-east-1] }"),
    );
    bench.facts().await;
    bench.made(&launch).await;
    assert_eq!(bench.world(|world| world.alive().len()), 1);
    // The next one is made as the file says now.
    bench.made(&bench.usual(2)).await;
    let tags: Vec<Option<String>> = bench.world(|world| {
        let mut tags: Vec<_> = world.alive().iter().map(|machine| machine.tags.get("team").cloned()).collect();
        tags.sort();
        tags
    });
    assert_eq!(tags, [None, Some("ml".to_owned())]);
}

#[tokio::test(start_paused = true)]
async fn a_node_class_is_taken_from_the_file_as_it_is_now() {
    let (folder, bench) = with_file(FILE).await;
    bench.made(&bench.usual(1)).await;
    write(&folder, &FILE.replace("  gpu:", "  other:"));
    let classes = bench.facts().await.node_classes.unwrap();
    assert_eq!(classes.iter().map(ToString::to_string).collect::<Vec<_>>(), ["other"]);
    assert_eq!(bench.refused(&bench.usual(2)).await.kind, RefusalKind::Config);
    write(&folder, FILE);
    bench.facts().await;
    sleep(Duration::from_secs(1)).await;
    bench.made(&bench.usual(3)).await;
}

/// What a region knows stays with it: a notice that came before, and whose message is deleted, still holds.
#[tokio::test(start_paused = true)]
async fn a_region_whose_part_of_the_file_changes_keeps_what_it_knows() {
    let (folder, bench) = with_file(FILE).await;
    let launch = bench.order(1, "g6.xlarge", "use1-az1", CapacityType::Spot);
    let made = bench.made(&launch).await;
    let (id, now) = (bench.id_of(&launch), bench.now());
    sleep(Duration::from_secs(10)).await;
    bench.world(|world| world.reclaim(&id, now));
    sleep(Duration::from_secs(15)).await;
    let is_taken = async || matches!(bench.listed(&made.provider_id).await, Some(InstanceState::Reclaiming { .. }));
    assert!(is_taken().await);
    let groups = "securityGroups: { tags: { stoker.dev/discovery: prod } }";
    write(&folder, &FILE.replace(groups, "securityGroups: { ids: [sg-us-east-1] }"));
    bench.facts().await;
    bench.world(|world| world.fault(Rule::of("DescribeSpotInstanceRequests", Fault::Cut)));
    assert!(is_taken().await, "the notice is forgotten");
}
