//! What Nodes are told of their verdicts, pass by pass.

use super::*;
use crate::base::ids::NodeName;
use crate::facts::node_status::ShownStatus;
use crate::facts::snapshot::Cordon;
use crate::state::node_status::StatusUpdate;
use crate::state::node_verdict::{Reason, Verdict};

/// The Nodes bear what the plan tells them, as the API server would show it.
fn do_tells(world: &mut World, plan: &Plan<Checked>) {
    for StatusUpdate { node, verdict, .. } in &plan.tells {
        let told_at = world.now;
        world.edit_node(node, |facts| facts.shown = ShownStatus::of(verdict.as_ref(), told_at).map(Arc::new));
    }
}

fn words(plan: &Plan<Checked>) -> Vec<(String, Option<Verdict>)> {
    plan.tells.iter().map(|tell| (tell.node.to_string(), tell.verdict.as_ref().map(|judged| judged.verdict))).collect()
}

fn node(world: &World) -> NodeName {
    NodeName::new(world.node_name()).unwrap()
}

#[test]
fn a_node_is_told_each_change_of_its_verdict_until_it_bears_it() {
    let mut world = World::with_node(GROUP_A, true);
    let warm = vec![(world.node_name(), Some(Verdict::Warm))];
    for _ in 0..2 {
        let plan = world.pass();
        assert_eq!(words(&plan), warm, "it does not bear it yet");
    }
    let plan = world.pass();
    do_tells(&mut world, &plan);
    assert_eq!(words(&world.pass()), []);
    world.advance(minutes(30));
    world.bind_pod();
    let plan = world.pass();
    assert_eq!(words(&plan), [(world.node_name(), Some(Verdict::Busy))]);
    let told = plan.tells[0].verdict.as_ref().unwrap();
    assert_eq!((told.since, &told.why), (world.now, &Reason::Pods));
    do_tells(&mut world, &plan);
    assert_eq!(words(&world.pass()), []);
    // Somebody takes the annotation away, or writes into the condition.
    let name = node(&world);
    world.edit_node(&name, |facts| Arc::make_mut(facts.shown.as_mut().unwrap()).word = None);
    let plan = world.pass();
    assert_eq!(words(&plan), [(world.node_name(), Some(Verdict::Busy))]);
}

#[test]
fn a_reason_that_changes_alone_is_told_after_a_while() {
    let mut world = World::with_node(GROUP_A, true);
    let plan = world.pass();
    do_tells(&mut world, &plan);
    let name = node(&world);
    let told_at = world.now;
    world.edit_node(&name, |facts| {
        let shown = Arc::make_mut(facts.shown.as_mut().unwrap());
        shown.condition.as_mut().unwrap().message = "an earlier reason".into();
    });
    world.advance(minutes(4));
    let decision = decide(&world.snapshot(), &world.memory, &world.catalogue, world.now);
    assert_eq!(decision.plan.tells, []);
    let due = told_at.saturating_add(minutes(5)).unwrap();
    assert!(decision.next_change_at.is_some_and(|at| at <= due), "{:?}", decision.next_change_at);
    world.advance(minutes(1));
    world.observe();
    assert_eq!(words(&world.pass()), [(world.node_name(), Some(Verdict::Warm))]);
}

#[test]
fn what_is_not_judged_any_more_is_taken_back() {
    let mut world = World::with_node(GROUP_A, true);
    let plan = world.pass();
    do_tells(&mut world, &plan);
    world.numbers(|policy| policy.pools[0].evidence = crate::base::kinds::Evidence::None);
    let plan = world.pass();
    assert_eq!(words(&plan), [(world.node_name(), None)]);
    do_tells(&mut world, &plan);
    assert_eq!(words(&world.pass()), []);
}

#[test]
fn a_node_without_a_record_gives_back_what_it_bears_of_ours_unless_it_is_at_work() {
    let mut world = World::with_node(GROUP_A, true);
    let plan = world.pass();
    do_tells(&mut world, &plan);
    let name = node(&world);
    world.edit_node(&name, |facts| facts.scale_down_disabled = Hold::Ours);
    world.close(Cordon::Ours);
    // The machine is somebody else's by now, so that the Node is left without a record.
    let stranger = crate::base::ids::ProviderId::new("test:///zone-a/stranger").unwrap();
    let mut snapshot = world.snapshot();
    let mut inventory = snapshot.suppliers.values().flatten().next().unwrap().as_ref().clone();
    let mut made = inventory.instances.values().next().unwrap().as_ref().clone();
    made.key = crate::base::ids::LaunchKey::new("test/gone.group.zone-a/7/1").unwrap();
    made.provider_id = stranger.clone();
    inventory.instances.insert(stranger.clone(), Arc::new(made));
    snapshot.suppliers.insert(snapshot.suppliers.keys().next().unwrap().clone(), Some(Arc::new(inventory)));
    let passed = |world: &World, snapshot: &Snapshot| {
        let snapshot = Snapshot { cluster: world.snapshot().cluster, ..snapshot.clone() };
        decide(&snapshot, &world.memory, &world.catalogue, world.now).plan
    };
    let on_node = |plan: &Plan<crate::plan::Proposed>| {
        let about = |action: &&Action| matches!(action, Action::Hold { .. } | Action::Release { .. } | Action::Uncordon { .. });
        plan.actions.iter().filter(about).cloned().collect::<Vec<_>>()
    };
    world.edit_node(&name, |facts| facts.provider_id = Some(stranger.clone()));
    let plan = passed(&world, &snapshot);
    assert_eq!(plan.tells, [StatusUpdate { node: name.clone(), provider_id: Some(stranger.clone()), verdict: None }]);
    let open = Action::Uncordon { node: name.clone(), provider_id: stranger.clone() };
    assert_eq!(on_node(&plan), [Action::Release { node: name.clone() }, open]);
    world.edit_node(&name, |facts| facts.gpu_pods = ["default/pod".to_owned()].into());
    assert_eq!(on_node(&passed(&world, &snapshot)), []);
    // A probe sees work that no pod holds.
    world.edit_node(&name, |facts| facts.gpu_pods.clear());
    for (activity, kept) in [(verdicts::active(world.now), true), (verdicts::quiet(world.now), false)] {
        snapshot.seen.insert(name.clone(), Arc::new(verdicts::seen(world.now, [activity; 2])));
        assert_eq!(on_node(&passed(&world, &snapshot)).is_empty(), kept, "{activity:?}");
    }
    // A user's own is nobody's to take back.
    world.edit_node(&name, |facts| {
        facts.gpu_pods.clear();
        (facts.scale_down_disabled, facts.cordon) = (Hold::Theirs, Cordon::Theirs);
    });
    assert_eq!(on_node(&passed(&world, &snapshot)), []);
}
