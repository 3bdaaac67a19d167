//! Machines that would be made differently today are told, and no others.

use std::time::Duration;

use stoker_core::base::ids::{NodeClassName, ProviderId};
use stoker_core::facts::outdated::Outdated;
use stoker_fake_ec2::{Fault, Rule};
use tokio::time::sleep;

use crate::bench::{Bench, FILE};

/// AWS publishes a newer image for the architecture of the usual machines.
fn publish(bench: &Bench, release: &str) -> String {
    bench.world(|world| {
        let (region, now) = ("us-east-1", "2026-11-02T12:00:00Z".parse().unwrap());
        let region_of = world.region(region);
        let recommended =
            region_of.parameters.keys().find(|name| name.contains("x86_64/nvidia/recommended/image_id")).unwrap().clone();
        let version = recommended.split('/').nth(5).unwrap().to_owned();
        let name = format!("amazon-eks-node-al2023-x86_64-nvidia-{version}-{release}");
        let id = region_of.add_image(region, "x86_64", &name, now);
        let named = recommended.replace("recommended", &name);
        region_of.parameters.insert(named, id.clone());
        region_of.parameters.insert(recommended, id.clone());
        id
    })
}

/// How the machine is outdated, two minutes from now.
async fn outdated(bench: &Bench, machine: &ProviderId) -> Option<Outdated> {
    sleep(Duration::from_mins(2)).await;
    bench.facts().await;
    listed(bench, machine).await.and_then(|known| known)
}

/// How it is outdated by a listing now. `Some(None)` where that cannot be told.
async fn listed(bench: &Bench, machine: &ProviderId) -> Option<Option<Outdated>> {
    bench.list().await.unwrap().outdated.get(machine).cloned()
}

#[tokio::test(start_paused = true)]
async fn a_newer_image_makes_machines_outdated_once_new_ones_boot_it() {
    let mut bench = Bench::new().await;
    let made = bench.made(&bench.usual(1)).await;
    let runs = bench.world(|world| world.alive()[0].image.clone());
    assert_eq!(outdated(&bench, &made.provider_id).await, None);
    // The image is pinned while the supplier runs: all nodes of a group are alike.
    let now = publish(&bench, "v20261101");
    sleep(Duration::from_mins(10)).await;
    assert_eq!(outdated(&bench, &made.provider_id).await, None);
    // It stays when something else that was looked up is gone.
    let subnet_gone = Fault::status(400, "InvalidSubnetID.NotFound", "gone");
    bench.world(|world| world.fault(Rule::of("RunInstances", subnet_gone).times(1)));
    bench.made(&bench.usual(3)).await;
    assert!(bench.world(|world| world.alive().iter().all(|machine| machine.image == runs)));
    bench.restart().await;
    let told = Some(Outdated::Image { runs, now });
    assert_eq!(listed(&bench, &made.provider_id).await, Some(told.clone()), "by the first listing already");
    let second = bench.made(&bench.usual(2)).await;
    assert_eq!(outdated(&bench, &second.provider_id).await, None);
    assert_eq!(outdated(&bench, &made.provider_id).await, told);
}

#[tokio::test(start_paused = true)]
async fn an_image_that_is_gone_is_looked_up_again() {
    let bench = Bench::new().await;
    bench.made(&bench.usual(1)).await;
    let now = publish(&bench, "v20261101");
    let gone = Fault::status(400, "InvalidAMIID.NotFound", "gone");
    bench.world(|world| world.fault(Rule::of("RunInstances", gone).times(1)));
    let launch = bench.usual(2);
    bench.made(&launch).await;
    let id = bench.id_of(&launch);
    assert_eq!(bench.world(|world| world.machines[&id].image.clone()), now);
}

#[tokio::test(start_paused = true)]
async fn a_release_that_the_file_names_makes_the_others_outdated() {
    let mut bench = Bench::new().await;
    let made = bench.made(&bench.usual(1)).await;
    let now = publish(&bench, "v20261101");
    bench.restart_with(&FILE.replace("stoker-node }", "stoker-node, image: { version: v20261101 } }")).await;
    let told = outdated(&bench, &made.provider_id).await;
    assert!(matches!(told, Some(Outdated::Image { now: named, .. }) if named == now));
}

#[tokio::test(start_paused = true)]
async fn a_changed_class_makes_machines_outdated_and_its_tags_do_not() {
    let mut bench = Bench::new().await;
    let made = bench.made(&bench.usual(1)).await;
    bench.restart_with(&FILE.replace("stoker-node }", "stoker-node, tags: { team: ml } }")).await;
    assert_eq!(outdated(&bench, &made.provider_id).await, None);
    bench.restart_with(&FILE.replace("stoker-node }", "stoker-node, disk: { sizeGiB: 500 } }")).await;
    let class = Outdated::NodeClass { name: NodeClassName::new("gpu").unwrap() };
    assert_eq!(outdated(&bench, &made.provider_id).await, Some(class));
    // And back again.
    bench.restart_with(FILE).await;
    assert_eq!(outdated(&bench, &made.provider_id).await, None);
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_looked_up_makes_no_machine_outdated_and_hides_none() {
    let mut bench = Bench::new().await;
    let made = bench.made(&bench.usual(1)).await;
    publish(&bench, "v20261101");
    bench.restart().await;
    bench.world(|world| world.fault(Rule::of("GetParameter", Fault::status(500, "InternalServerError", "no"))));
    assert_eq!(listed(&bench, &made.provider_id).await, Some(None), "it is there, and nobody can tell");
}

#[tokio::test(start_paused = true)]
async fn machines_without_the_tag_of_their_class_are_left_alone() {
    let mut bench = Bench::new().await;
    let made = bench.made(&bench.usual(1)).await;
    bench.world(|world| world.machines.values_mut().for_each(|machine| drop(machine.tags.remove("stoker.dev/node-class"))));
    publish(&bench, "v20261101");
    bench.restart().await;
    assert_eq!(outdated(&bench, &made.provider_id).await, None);
}
