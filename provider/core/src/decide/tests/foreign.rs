//! GPU nodes that are not Stoker's, under the same quotas and commitments as its own.

use super::*;
use crate::base::engine_clock::Wall;
use crate::base::ids::Cloud;
use crate::base::kinds::QuotaUnit;
use crate::choose::explanation::Explanation;
use crate::facts::foreign::{Foreign, ForeignKind};
use crate::market::offer::{CapacityType, InstanceSpec};
use crate::policy::QuotaKey;
use crate::policy::rules::commitment::{Capacity, Commitment, CommittedNodes, Paid, Terms};

/// A world whose only market is spot in zone a, with 16 nodes of four vCPUs in its quota, where other nodes count.
fn world() -> World {
    let mut world = World::in_zone_a();
    world.policy(|policy| {
        policy.karpenter.count_nodes = true;
        policy.pools[0].prefer = vec![CapacityType::Spot];
        policy.pools[0].limits.max_nodes = 100;
    });
    world
}

/// Nodes like those of the world's group.
fn kind(capacity_type: CapacityType) -> ForeignKind {
    let world = world();
    let group = &world.catalogue.groups[&World::group(GROUP_A)];
    ForeignKind {
        cloud: Some(group.place.cloud.clone()),
        region: Some(group.place.region.clone()),
        zone: Some(group.place.zone.clone()),
        capacity_type: Some(capacity_type),
        spec: Some(InstanceSpec::clone(&group.spec)),
        gpus: group.spec.advertised_gpus(),
        vcpus: group.spec.vcpus.unwrap(),
        price: group.offers.iter().find_map(|offer| offer.quote(Wall(world.now)).ok()).map(|quote| quote.price),
    }
}

fn nodes(kind: ForeignKind, nodes: u32) -> Foreign {
    Foreign { nodes: [(kind, nodes)].into(), ..Foreign::default() }
}

/// How many nodes can be asked for next to those, 20 at most: all of them are launched, and the checker agrees.
fn bought(mut world: World, foreign: Foreign) -> usize {
    world.foreign = Some(Arc::new(foreign));
    world.pass();
    let asked = (0..20).take_while(|_| world.try_increase(GROUP_A, 1).is_ok()).count();
    assert_eq!(World::launched_markets(&world.pass()).len(), asked);
    asked
}

#[test]
fn what_is_promised_of_a_quota_is_not_bought() {
    let promised = |at: usize| {
        let quota = QuotaKey::of(&world().catalogue.policy.quotas[at]);
        Foreign { promised: [(quota, 40)].into(), ..Foreign::default() }
    };
    assert_eq!(bought(world(), promised(0)), 6);
    assert_eq!(bought(world(), promised(1)), 16);
}

#[test]
fn a_quota_half_used_by_others_leaves_half() {
    assert_eq!(bought(world(), Foreign::default()), 16);
    assert_eq!(bought(world(), nodes(kind(CapacityType::Spot), 8)), 8);
    // Others beyond the quota leave nothing.
    assert_eq!(bought(world(), nodes(kind(CapacityType::Spot), 40)), 0);
    // The quota of on-demand nodes is another one, and so is that of another region or cloud.
    assert_eq!(bought(world(), nodes(kind(CapacityType::OnDemand), 8)), 16);
    let elsewhere = Some("eu-west-1".to_owned().try_into().unwrap());
    assert_eq!(bought(world(), nodes(ForeignKind { region: elsewhere, ..kind(CapacityType::Spot) }, 8)), 16);
    let mut of_gcp = kind(CapacityType::Spot);
    of_gcp.cloud = Some(Cloud::new("gcp").unwrap());
    of_gcp.spec.as_mut().unwrap().cloud = Cloud::new("gcp").unwrap();
    assert_eq!(bought(world(), nodes(of_gcp, 8)), 16);
}

#[test]
fn what_was_asked_for_is_not_bought_where_others_came_first() {
    let mut world = world();
    world.foreign = Some(Arc::default());
    world.pass();
    world.increase(GROUP_A, 16);
    world.foreign = Some(Arc::new(nodes(kind(CapacityType::Spot), 6)));
    assert_eq!(World::launched_markets(&world.pass()).len(), 10);
}

#[test]
fn what_is_not_told_counts_wherever_it_might() {
    let spot = || kind(CapacityType::Spot);
    for unclear in [
        ForeignKind { capacity_type: None, ..spot() },
        ForeignKind { zone: None, ..spot() },
        ForeignKind { region: None, ..spot() },
        ForeignKind { cloud: None, region: None, zone: None, ..spot() },
        ForeignKind { spec: None, price: None, ..spot() },
    ] {
        assert_eq!(bought(world(), nodes(unclear.clone(), 8)), 8, "{unclear:?}");
    }
    // Told enough to be elsewhere.
    let elsewhere = Some(Cloud::new("gcp").unwrap());
    assert_eq!(bought(world(), nodes(ForeignKind { cloud: elsewhere, spec: None, ..spot() }, 8)), 16);
}

#[test]
fn a_quota_of_gpus_counts_gpus() {
    let mut world = world();
    world.policy(|policy| {
        policy.quotas[0].unit = QuotaUnit::Gpus;
        policy.quotas[0].limit = 16;
    });
    assert_eq!(bought(world, nodes(ForeignKind { gpus: 4, ..kind(CapacityType::Spot) }, 3)), 4);
}

#[test]
fn nothing_is_bought_while_nobody_knows_the_other_nodes() {
    let mut world = world();
    world.pass();
    assert!(world.try_increase(GROUP_A, 1).is_err());
    world.foreign = Some(Arc::default());
    world.pass();
    world.increase(GROUP_A, 1);
    // What was known stands where a pass is not told.
    world.foreign = None;
    assert_eq!(World::launched_markets(&world.pass()), ["spot"]);
    assert!(world.memory.foreign.is_some());
}

#[test]
fn nodes_that_do_not_count_are_not_remembered() {
    let mut world = world();
    world.foreign = Some(Arc::new(nodes(kind(CapacityType::Spot), 8)));
    world.pass();
    assert!(world.memory.foreign.is_some());
    world.policy(|policy| policy.karpenter.count_nodes = false);
    world.pass();
    assert_eq!(world.memory.foreign, None);
    assert_eq!(bought(world, nodes(kind(CapacityType::Spot), 8)), 16);
}

fn committed(prefer: Vec<CapacityType>, terms: Terms) -> World {
    let mut world = world();
    world.policy(|policy| {
        policy.pools[0].prefer = prefer;
        let cloud = Cloud::new("aws").unwrap();
        policy.commitments = vec![Commitment { name: "kept".into(), cloud, from: None, until: None, terms }];
    });
    world
}

#[test]
fn kept_capacity_that_others_hold_is_not_bought_again() {
    let reserved = |held: ForeignKind, nodes: u32| {
        let capacity = Capacity { place: world::place("zone-a"), nodes: 3, paid: Paid::OnDemand };
        let mut world = committed(vec![CapacityType::Reserved, CapacityType::Spot], Terms::Capacity(capacity));
        world.foreign = Some(Arc::new(self::nodes(held, nodes)));
        world.pass();
        world.increase(GROUP_A, 4);
        let plan = world.pass();
        let told: Vec<String> = plan
            .explanations
            .iter()
            .flat_map(|Explanation { candidates, .. }| candidates)
            .map(|c| c.verdict.to_string())
            .collect();
        (World::launched_markets(&plan).iter().filter(|market| **market == "reserved").count(), told)
    };
    assert_eq!(reserved(kind(CapacityType::Reserved), 0).0, 3);
    assert_eq!(reserved(kind(CapacityType::Reserved), 2).0, 1);
    assert_eq!(reserved(ForeignKind { capacity_type: None, zone: None, ..kind(CapacityType::Spot) }, 2).0, 1);
    assert_eq!(reserved(kind(CapacityType::OnDemand), 2).0, 3);
    let (none, told) = reserved(kind(CapacityType::Reserved), 5);
    assert_eq!(none, 0);
    assert!(told.iter().any(|verdict| verdict == "commitment kept is full: 3 of 3 nodes used"), "{told:?}");
}

#[test]
fn a_commitment_that_others_use_makes_no_node_cheaper() {
    let free = |others: u32| {
        let (region, instance_type) = (world::place("zone-a").region, world::place("zone-a").instance_type);
        let terms = CommittedNodes { region, zone: None, instance_type, nodes: 3, rate: crate::base::units::UsdPerHour(1) };
        let mut world = committed(vec![CapacityType::OnDemand], Terms::Nodes(terms));
        world.foreign = Some(Arc::new(nodes(kind(CapacityType::OnDemand), others)));
        world.pass();
        let usage = crate::limits::usage::Usage::count(&world.memory, &world.catalogue, Wall(world.now));
        let group = &world.catalogue.groups[&World::group(GROUP_A)];
        let offer = group.offers.iter().find(|offer| offer.market.capacity_type == CapacityType::OnDemand).unwrap();
        let price = offer.quote(Wall(world.now)).unwrap().price;
        usage.committed.marginal(&world.catalogue, group, &offer.market, price).cash == price
    };
    assert!(!free(0) && !free(2));
    assert!(free(3) && free(9));
}
