use std::collections::BTreeSet;

use stoker_core::base::ids::{Cloud, PoolName, SignalName};
use stoker_core::check::{Verified, check};
use stoker_core::decide::decide;
use stoker_core::facts::foreign::{Foreign, ForeignKind};
use stoker_core::plan::{Action, Checked, Plan};
use stoker_core::policy::rules::demand::{Amount, Demand, NoLevel, PoolDemand, SignalLevel};

use super::*;

/// What a decision said when it was made.
struct Made {
    id: DecisionId,
    world: World,
}

async fn life(journal: &Journal, steps: u32) -> Vec<Made> {
    let mut world = World::new();
    let mut made = Vec::new();
    for number in 0..steps {
        let (id, before) = (world.next, copy(&world));
        if number == 0 {
            world.pass(journal).await.unwrap();
        } else {
            if number == steps / 2 {
                // A new policy and new prices in the middle.
                world.policy = Arc::new(world::policy(50));
                world.prices = Arc::new(world::prices(world.now));
            }
            world.step(journal, number).await.unwrap();
        }
        if world.next != id {
            // `step` moved the clock and the facts before it decided; outcomes are the only fact that it clears.
            let mut inputs = copy(&world);
            (inputs.memory, inputs.next) = (before.memory, id);
            inputs.snapshot.outcomes = before.snapshot.outcomes;
            made.push(Made { id, world: inputs });
        }
    }
    made
}

fn copy(world: &World) -> World {
    let mut copy = World::new();
    copy.now = world.now;
    copy.policy = Arc::clone(&world.policy);
    copy.prices = Arc::clone(&world.prices);
    copy.facts = Arc::clone(&world.facts);
    copy.snapshot = world.snapshot.clone();
    copy.memory = world.memory.clone();
    copy.next = world.next;
    copy
}

fn said(plan: &Plan<Checked>) -> String {
    serde_json::to_string(&(&plan.actions, &plan.notes, &plan.explanations, &plan.limits)).unwrap()
}

#[tokio::test]
async fn the_inputs_of_a_decision_make_it_again() {
    let dir = tempdir().unwrap();
    let (journal, _) = reopened(dir.path()).await;
    let made = life(&journal, 60).await;
    assert!(made.len() > 30);
    // Read by another process, while this one may write.
    let reader = Journal::open_read_only(place(dir.path()).await).await.unwrap();
    let (mut launches, mut ends, mut notes) = (0, 0, 0);
    for Made { id, world } in &made {
        let inputs = reader.replay_inputs(*id).await.unwrap().unwrap();
        assert_eq!(inputs.memory, world.memory, "{id}");
        assert_eq!(inputs.policy, world.policy, "{id}");
        assert_eq!(inputs.prices, *world.prices, "{id}");
        assert_eq!(inputs.market_facts, *world.facts, "{id}");
        assert_eq!(inputs.now, world.now, "{id}");
        let (catalogue, at) = (inputs.catalogue(), (*id, inputs.now));
        let again = decide(&inputs.snapshot, &inputs.memory, &catalogue, inputs.now);
        let again = check(again, &inputs.memory, &inputs.snapshot, &catalogue, at);
        let stored = reader.explain(*id).await.unwrap().unwrap();
        assert_eq!(stored.actions, again.plan.actions, "{id}");
        assert_eq!(stored.notes, again.plan.notes, "{id}");
        assert_eq!(stored.explanations, again.plan.explanations, "{id}");
        // The memory that it led to is the next one's, but for the calls between.
        let catalogue = world.catalogue();
        let first = decide(&inputs.snapshot, &world.memory, &catalogue, world.now);
        let first = check(first, &world.memory, &inputs.snapshot, &catalogue, at);
        assert_eq!(said(&again.plan), said(&first.plan), "{id}");
        assert_eq!(again.memory, first.memory, "{id}");
        launches += stored.actions.iter().filter(|a| matches!(a, Action::Launch { .. })).count();
        ends += stored.actions.iter().filter(|a| matches!(a, Action::Terminate { .. })).count();
        notes += stored.notes.len() + stored.explanations.len();
    }
    assert!(launches > 5 && ends > 0 && notes > 5, "{launches} launches, {ends} ends, {notes} notes");
}

#[tokio::test]
async fn decisions_are_made_again_byte_for_byte_and_what_differs_is_named() {
    let dir = tempdir().unwrap();
    let (journal, _) = reopened(dir.path()).await;
    let made = life(&journal, 60).await;
    let reader = Journal::open_read_only(place(dir.path()).await).await.unwrap();
    let ids = reader.decisions_since(None).await.unwrap();
    assert_eq!(ids, made.iter().map(|made| made.id).collect::<Vec<_>>());
    let late = reader.decisions_since(Some(made[9].world.now)).await.unwrap();
    assert_eq!(late, ids[9..]);
    let mut replay = reader.replay().await.unwrap();
    let (mut seen, mut spoiled) = (0, 0);
    // Forwards, and then some out of order: what was read before must not matter.
    for id in ids.iter().chain(&[ids[20], ids[3], ids[3]]) {
        let recorded = replay.read(*id).await.unwrap().unwrap();
        assert_eq!(recorded.release.as_deref(), Some(crate::replay::RELEASE));
        assert!(recorded.is_whole() && recorded.read_otherwise.is_empty(), "{id}: {:?}", recorded.read_otherwise);
        assert_eq!(recorded.again(&recorded.catalogue, |_| ()).unwrap(), [], "{id}");
        seen += 1;
        // A rule that would do nothing.
        let found = recorded.again(&recorded.catalogue, |decision| decision.plan.actions.clear()).unwrap();
        let stored = reader.explain(*id).await.unwrap().unwrap();
        assert_eq!(found.len(), stored.actions.len(), "{id}: {found:?}");
        assert!(found.iter().all(|found| found.now.is_none() && found.recorded.is_some()), "{id}: {found:?}");
        spoiled += usize::from(!found.is_empty());
        // And one that would forget.
        let forgets = |decision: &mut stoker_core::plan::Decision| decision.memory.next_order += 7;
        let found = recorded.again(&recorded.catalogue, forgets).unwrap();
        assert!(found.iter().any(|found| found.place == "next_order"), "{id}: {found:?}");
    }
    assert!(seen > 30 && spoiled > 10, "{seen} decisions, {spoiled} with actions");
    assert!(replay.read(DecisionId(10_000)).await.unwrap().is_none());
}

#[tokio::test]
async fn what_the_engine_left_out_and_added_is_no_difference_but_anything_else_is() {
    let dir = tempdir().unwrap();
    let (journal, _) = reopened(dir.path()).await;
    let mut world = World::new();
    world.pass(&journal).await.unwrap();
    world.order(&journal, 3).await.unwrap();
    let Verified { plan, memory, .. } = world.decided();
    assert_eq!(plan.actions.len(), 3);
    let added = World::note("aws:///us-east-1a/i-lost");
    let notes = [plan.notes.clone(), vec![added]].concat();
    let entry = DecisionEntry {
        id: world.next,
        at: world.now,
        policy: &world.policy,
        prices: &world.prices,
        market_facts: &world.facts,
        snapshot: &world.snapshot,
        before: &world.memory,
        after: &memory,
        actions: &[plan.actions[0].clone(), plan.actions[2].clone()],
        notes: &notes,
        explanations: &plan.explanations,
        withheld: &plan.actions[1..2],
        added_notes: 1,
    };
    journal.decide(&entry).await.unwrap();
    let mut replay = journal.reader().replay().await.unwrap();
    let recorded = replay.read(world.next).await.unwrap().unwrap();
    assert_eq!(recorded.again(&recorded.catalogue, |_| ()).unwrap(), []);
    // The action that was left out is another now.
    let found = recorded.again(&recorded.catalogue, |decision| {
        let Action::Launch { price, .. } = &mut decision.plan.actions[1] else { panic!("no launch") };
        price.0 += 1;
    });
    let found = found.unwrap();
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found[0].to_string().contains("left out as it was under way"), "{}", found[0]);
    assert!(found[1].place.starts_with("launch record") && found[1].recorded.is_none(), "{}", found[1]);
}

/// What the one signal of the pool says.
fn demand(level: SignalLevel) -> Demand {
    let signals = [(SignalName::new("queueDepth").unwrap(), level)].into();
    [(PoolName::new("infer").unwrap(), Arc::new(PoolDemand { signals }))].into()
}

/// Nodes that are not Stoker's.
fn others() -> Foreign {
    let cloud = Some(Cloud::new("aws").unwrap());
    let kind =
        ForeignKind { cloud, region: None, zone: None, capacity_type: None, spec: None, gpus: 8, vcpus: 96, price: None };
    Foreign { nodes: [(kind, 3)].into(), ..Foreign::default() }
}

#[tokio::test]
async fn the_snapshot_comes_back_as_it_was() {
    let dir = tempdir().unwrap();
    let (journal, _) = reopened(dir.path()).await;
    let mut world = World::new();
    world.pass(&journal).await.unwrap();
    world.order(&journal, 2).await.unwrap();
    let actions = world.pass(&journal).await.unwrap();
    world.answer(&actions, true);
    world.snapshot.demand = demand(SignalLevel::Known { amount: Amount(24_000_000), replicas: 4, at: world.now });
    world.snapshot.foreign = Some(Arc::new(others()));
    let with_outcomes = world.snapshot.clone();
    world.pass(&journal).await.unwrap();
    world.snapshot.cluster = None;
    world.snapshot.foreign = None;
    world.snapshot.demand = demand(SignalLevel::Unknown { why: NoLevel::Stale, since: world.now });
    world.snapshot.suppliers.values_mut().for_each(|inventory| *inventory = None);
    let unheard = world.snapshot.clone();
    world.pass(&journal).await.unwrap();
    let reader = journal.reader();
    assert_eq!(reader.replay_inputs(DecisionId(3)).await.unwrap().unwrap().snapshot, with_outcomes);
    assert_eq!(reader.replay_inputs(DecisionId(4)).await.unwrap().unwrap().snapshot, unheard);
    assert_eq!(reader.replay_inputs(DecisionId(5)).await.unwrap(), None);
    assert_eq!(reader.explain(DecisionId(5)).await.unwrap(), None);
}

#[tokio::test]
async fn a_nodes_decisions_are_found_by_every_name_it_has() {
    let dir = tempdir().unwrap();
    let (journal, _) = reopened(dir.path()).await;
    let mut world = World::new();
    world.pass(&journal).await.unwrap();
    world.order(&journal, 2).await.unwrap();
    let launched = world.next;
    let actions = world.pass(&journal).await.unwrap();
    world.answer(&actions, true);
    world.pass(&journal).await.unwrap();
    world.join();
    world.pass(&journal).await.unwrap();
    world.toggle_pod("ip-1");
    let held = world.next;
    let actions = world.pass(&journal).await.unwrap();
    world.guard(&actions);
    world.delete(&journal, RecordId(0)).await.unwrap();
    let ended = world.next;
    world.pass(&journal).await.unwrap();
    world.pass(&journal).await.unwrap();

    let reader = journal.reader();
    let first = [
        "ip-0",
        "aws:///us-east-1a/i-0",
        "r0",
        "0",
        "stoker://prod/infer.g6-xlarge.us-east-1a/0",
        "prod/infer.g6-xlarge.us-east-1a/0/1",
    ];
    let mut answers = BTreeSet::new();
    for name in first {
        let decisions: Vec<DecisionId> = reader.decisions_of_node(name).await.unwrap().iter().map(|d| d.id).collect();
        assert!(decisions.contains(&launched) && decisions.contains(&ended), "{name}: {decisions:?}");
        assert!(!decisions.contains(&held), "{name}: {decisions:?}");
        answers.insert(decisions);
    }
    assert_eq!(answers.len(), 1, "{answers:?}");
    let second = reader.decisions_of_node("ip-1").await.unwrap();
    assert_eq!(reader.last_of_node("ip-1", 1).await.unwrap()[..], second[second.len() - 1..]);
    assert!(second.iter().any(|d| d.id == held) && second.iter().all(|d| d.id != ended));
    assert!(second.windows(2).all(|pair| pair[0].id < pair[1].id));
    assert_eq!(second[0].explanations.len(), 1);
    assert_eq!(reader.decisions_of_node("ip-2").await.unwrap(), []);
    let recent: Vec<DecisionId> = reader.recent(2).await.unwrap().iter().map(|d| d.id).collect();
    assert_eq!(recent, [DecisionId(world.next.0 - 1), DecisionId(world.next.0 - 2)]);
}

#[tokio::test]
async fn a_machine_that_only_a_note_names_is_found() {
    let dir = tempdir().unwrap();
    let (journal, _) = reopened(dir.path()).await;
    let world = World::new();
    let notes = [World::note("aws:///us-east-1a/i-lost")];
    let entry = DecisionEntry {
        id: DecisionId(7),
        at: world.now,
        policy: &world.policy,
        prices: &world.prices,
        market_facts: &world.facts,
        snapshot: &world.snapshot,
        before: &world.memory,
        after: &world.memory,
        actions: &[],
        notes: &notes,
        explanations: &[],
        withheld: &[],
        added_notes: 0,
    };
    journal.decide(&entry).await.unwrap();
    let found = journal.reader().decisions_of_node("aws:///us-east-1a/i-lost").await.unwrap();
    assert_eq!(found.iter().map(|d| (d.id, &d.notes[..])).collect::<Vec<_>>(), [(DecisionId(7), &notes[..])]);
}
