//! What the expander is told of a group's next nodes, and of nodes on their way, as whole passes leave it.

use super::*;
use crate::base::ids::{Cloud, InstanceType, RecordId, Region};
use crate::base::units::UsdPerHour;
use crate::choose::score::{Needs, Soon};
use crate::decide::orders::begin_session;
use crate::market::offer::CapacityType;
use crate::market::sharing::Slices;
use crate::policy::rules::commitment::{Commitment, CommittedNodes, Terms};
use crate::state::record::{Record, State, UNCREDITED_AT_MOST};

/// The spot price of $0.30 over what is useful of it, as ranked.
const SPOT: i64 = 327_273;
const ON_DEMAND: i64 = 800_000;

fn supply(world: &mut World) -> Vec<(u32, i64)> {
    let plan = world.pass();
    plan.limits[&World::group(GROUP_A)].supply.iter().map(|step| (step.nodes, step.price.0)).collect()
}

#[test]
fn covered_nodes_come_first_and_the_rest_at_its_own_price() {
    let mut world = World::new();
    world.policy(|policy| {
        policy.pools[0].prefer = vec![CapacityType::OnDemand];
        let terms = CommittedNodes {
            instance_type: InstanceType::new("gpu.1").unwrap(),
            region: Region::new("r").unwrap(),
            zone: None,
            nodes: 3,
            rate: UsdPerHour(500_000),
        };
        let cloud = Cloud::new("aws").unwrap();
        policy.commitments = vec![Commitment { name: "ri".into(), cloud, from: None, until: None, terms: Terms::Nodes(terms) }];
    });
    // The pool may have 10 nodes; a covered one costs the least there is.
    assert_eq!(supply(&mut world), [(3, 1), (7, ON_DEMAND)]);
    world.increase(GROUP_A, 3);
    world.pass();
    assert_eq!(supply(&mut world), [(7, ON_DEMAND)]);
}

#[test]
fn quotas_and_refusals_bound_each_step() {
    let mut world = World::new();
    assert_eq!(supply(&mut world), [(10, SPOT)]);
    // 8 vCPU are two nodes.
    world.policy(|policy| policy.quotas[0].limit = 8);
    assert_eq!(supply(&mut world), [(2, SPOT), (8, ON_DEMAND)]);
    // A market that refused is left alone, and then tried with one launch.
    world.increase(GROUP_A, 1);
    world.pass();
    world.refuse_all(RefusalKind::OutOfCapacity);
    assert_eq!(supply(&mut world), [(9, ON_DEMAND)]);
    world.advance(minutes(4));
    world.observe();
    assert_eq!(supply(&mut world), [(1, SPOT), (8, ON_DEMAND)]);
}

fn one_gpu() -> Needs {
    Needs { gpus: 1, slices: Slices::default(), milli_cpu: 1_000, memory_bytes: 1 << 30 }
}

#[test]
fn only_what_the_autoscaler_does_not_reckon_with_serves_pods_that_it_asks_for() {
    let mut world = World::with_node(GROUP_A, false);
    assert!(Soon::of(&world.memory, world.now).is_empty(), "the autoscaler asked for it and counts on it");
    begin_session(&mut world.memory);
    let mut soon = Soon::of(&world.memory, world.now);
    assert!(!soon.takes(&Needs { gpus: 2, ..one_gpu() }, |_| true));
    assert!(!soon.takes(&one_gpu(), |_| false));
    assert!(soon.takes(&one_gpu(), |node| node.labels.contains_key("stoker.dev/pool")));
    assert!(!soon.takes(&one_gpu(), |_| true), "its GPU is spoken for");
    assert!(Soon::of(&world.memory, world.now.saturating_add(UNCREDITED_AT_MOST).unwrap()).is_empty());
    world.join(true);
    world.pass();
    assert!(Soon::of(&world.memory, world.now).is_empty(), "the autoscaler sees a Ready node");
}

#[test]
fn a_failed_node_makes_the_autoscaler_forget_what_is_on_its_way_beside_it() {
    let mut world = World::with_node(GROUP_A, false);
    let record = world.records(GROUP_A).next().unwrap().clone();
    let message = "no stock".to_owned();
    let state = State::Failed { kind: RefusalKind::OutOfCapacity, message, at: world.now, purchase: None, instance: None };
    let failed = Record { id: RecordId(99), state, ..record.as_ref().clone() };
    world.memory.records.insert(failed.id, std::sync::Arc::new(failed));
    assert!(Soon::of(&world.memory, world.now).takes(&one_gpu(), |_| true));
}
