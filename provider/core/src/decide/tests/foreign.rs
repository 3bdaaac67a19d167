//! What Karpenter runs and was promised, under the same quotas and kept capacity as Stoker's own nodes.

use std::collections::BTreeMap;

use super::*;
use crate::base::ids::Cloud;
use crate::base::kinds::QuotaUnit;
use crate::choose::explanation::Explanation;
use crate::facts::foreign::{Foreign, ForeignNodes, QuotaKey};
use crate::market::offer::{CapacityType, InstanceSpec, Market};
use crate::policy::rules::commitment::{Capacity, Commitment, Paid, Terms};
use crate::policy::rules::karpenter::{Lever, Steering};

/// A world whose only market is spot in zone a, with 16 nodes of four vCPUs in its quota, next to a Karpenter whose limits are steered.
fn world() -> World {
    let mut world = World::in_zone_a();
    world.policy(|policy| {
        policy.karpenter = Steering { levers: [Lever::Limits].into(), dry_run: false };
        policy.pools[0].prefer = vec![CapacityType::Spot];
        policy.pools[0].limits.max_nodes = 100;
    });
    world
}

fn spec(world: &World) -> InstanceSpec {
    InstanceSpec::clone(&world.catalogue.groups[&World::group(GROUP_A)].spec)
}

fn nodes(world: &World, capacity_type: CapacityType, nodes: u32) -> Foreign {
    let market = Market { place: world::place("zone-a"), capacity_type };
    Foreign { nodes: [(market, ForeignNodes { spec: spec(world), nodes })].into(), promised: BTreeMap::new() }
}

fn promised(world: &World, quota: usize, units: u64) -> Foreign {
    Foreign { promised: [(QuotaKey::of(&world.policy.quotas[quota]), units)].into(), ..Foreign::default() }
}

/// How many of 20 nodes are bought next to that; the checker agrees with each.
fn bought(mut world: World, foreign: Option<Foreign>) -> usize {
    world.foreign = foreign.map(Arc::new);
    world.pass();
    for _ in 0..20 {
        if world.try_increase(GROUP_A, 1).is_err() {
            break;
        }
        world.pass();
    }
    world.memory.records.values().filter(|record| record.purchase().is_some()).count()
}

#[test]
fn a_quota_half_used_by_karpenter_leaves_half() {
    let world = world();
    assert_eq!(bought(self::world(), Some(Foreign::default())), 16);
    assert_eq!(bought(self::world(), Some(nodes(&world, CapacityType::Spot, 8))), 8);
    // The quota of on-demand nodes is another one.
    assert_eq!(bought(self::world(), Some(nodes(&world, CapacityType::OnDemand, 8))), 16);
    let elsewhere = {
        let mut foreign = nodes(&world, CapacityType::Spot, 8);
        let (mut market, some) = foreign.nodes.pop_first().unwrap();
        market.place.cloud = Cloud::new("gcp").unwrap();
        Foreign { nodes: [(market, some)].into(), ..foreign }
    };
    assert_eq!(bought(self::world(), Some(elsewhere)), 16);
}

#[test]
fn a_node_without_gpus_counts_by_its_vcpus_and_not_as_a_gpu() {
    let counted = |unit| {
        let mut world = world();
        world.policy(|policy| {
            policy.quotas[0].unit = unit;
            policy.quotas[0].limit = if unit == QuotaUnit::Gpus { 16 } else { 64 };
        });
        let mut foreign = nodes(&world, CapacityType::Spot, 8);
        foreign.nodes.values_mut().for_each(|some| some.spec.gpus.0 = 0);
        bought(world, Some(foreign))
    };
    assert_eq!(counted(QuotaUnit::Vcpus), 8);
    assert_eq!(counted(QuotaUnit::Gpus), 16);
}

#[test]
fn what_is_promised_is_not_bought() {
    let world = world();
    assert_eq!(bought(self::world(), Some(promised(&world, 0, 40))), 6);
    assert_eq!(bought(self::world(), Some(promised(&world, 1, 40))), 16);
}

#[test]
fn nothing_is_bought_while_nobody_knows_what_karpenter_has() {
    let mut world = world();
    assert!(world.try_increase(GROUP_A, 1).is_err());
    world.foreign = Some(Arc::default());
    world.pass();
    world.increase(GROUP_A, 1);
    // What was known stands where a pass is not told.
    world.foreign = None;
    assert_eq!(World::launched_markets(&world.pass()), ["spot"]);
    assert!(world.memory.foreign.is_some());
    let told = bought(self::world(), None);
    assert_eq!(told, 0);
}

#[test]
fn what_is_not_steered_is_neither_counted_nor_remembered() {
    let mut world = world();
    world.foreign = Some(Arc::new(nodes(&world, CapacityType::Spot, 8)));
    world.pass();
    assert!(world.memory.foreign.is_some());
    world.policy(|policy| policy.karpenter.dry_run = true);
    world.pass();
    assert_eq!(world.memory.foreign, None);
    assert_eq!(bought(world, Some(Foreign::default())), 16);
}

#[test]
fn kept_capacity_that_karpenter_holds_is_not_bought_again() {
    let kept = || {
        let mut world = world();
        world.policy(|policy| {
            policy.pools[0].prefer = vec![CapacityType::Reserved, CapacityType::Spot];
            let capacity = Capacity { place: world::place("zone-a"), nodes: 3, paid: Paid::OnDemand };
            let cloud = Cloud::new("aws").unwrap();
            let terms = Terms::Capacity(capacity);
            policy.commitments = vec![Commitment { name: "kept".into(), cloud, from: None, until: None, terms }];
        });
        world
    };
    let reserved = |held: u32| {
        let mut world = kept();
        world.foreign = Some(Arc::new(nodes(&world, CapacityType::Reserved, held)));
        world.pass();
        world.increase(GROUP_A, 4);
        let plan = world.pass();
        let told: Vec<String> = plan
            .explanations
            .iter()
            .flat_map(|Explanation { candidates, .. }| candidates)
            .map(|c| c.verdict.to_string())
            .collect();
        let of_kept = World::launched_markets(&plan).iter().filter(|market| **market == "reserved").count();
        (of_kept, told)
    };
    assert_eq!(reserved(0).0, 3);
    assert_eq!(reserved(2).0, 1);
    let (none, told) = reserved(5);
    assert_eq!(none, 0);
    assert!(told.iter().any(|verdict| verdict == "commitment kept is full: 3 of 3 nodes used"), "{told:?}");
}
