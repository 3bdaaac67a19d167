//! One full pass of the pure core with every rule on: 5,000 nodes in 500 groups, a price book of 50,000 markets, 20 orders of 10 nodes, 1 %
//! of the nodes changed since the last pass, explanations on. Beside it a lower bound: one copy of the memory and one walk over the same
//! facts.
//!
//! A group buys one instance type in one zone, so the 500 groups weigh 1,500 of the 50,000 markets; the others matter to
//! `Catalogue::derive`, which runs when prices or the policy change and not in each pass.

mod common {
    pub(crate) mod fleet;
    pub(crate) mod report;
    pub(crate) mod times;
}

use std::hint::black_box;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use common::fleet::{self, Fleet};
use common::report::{Report, is_short, short};
use common::times::Times;
use stoker_core::base::ids::DecisionId;
use stoker_core::catalogue::Catalogue;
use stoker_core::check::check;
use stoker_core::decide::decide;
use stoker_core::facts::snapshot::Snapshot;
use stoker_core::plan::Action;
use stoker_core::state::memory::Memory;

const PASSES: usize = 300;
const SHORT_PASSES: usize = 40;
/// What lies between two passes, as nothing makes them back to back: a machine that others use takes its share here and not inside one.
const REST: Duration = Duration::from_millis(2);
const DERIVATIONS: usize = 20;
const SHORT_DERIVATIONS: usize = 2;

fn main() -> Result<()> {
    let mut report = Report::new("decide");
    let (passes, derivations) = if is_short() { (SHORT_PASSES, SHORT_DERIVATIONS) } else { (PASSES, DERIVATIONS) };
    let fleet = Fleet::new()?;
    let offers: usize = fleet.catalogue.groups.values().map(|group| group.offers.len()).sum();
    println!(
        "{} records and {} nodes in {} groups with {offers} offers, of a book of {} markets",
        fleet.memory.records.len(),
        fleet.snapshot.cluster.as_ref().map_or(0, |cluster| cluster.nodes.len()),
        fleet.catalogue.groups.len(),
        fleet.book.entries().count()
    );

    let (mut decided, mut checked, mut both, mut bound) =
        (Times::default(), Times::default(), Times::default(), Times::default());
    for pass in 0..=passes {
        std::thread::sleep(REST);
        let begun = Instant::now();
        let decision = decide(&fleet.snapshot, &fleet.memory, &fleet.catalogue, fleet.now);
        let deciding = begun.elapsed();
        if pass == 0 {
            let (launches, holds) = counted(&decision.plan.actions);
            let explained: usize = decision.plan.explanations.iter().map(|explanation| explanation.candidates.len()).sum();
            println!("a pass: {launches} launches, {holds} holds and releases, {explained} candidates explained");
            // Half of the changed nodes are those that pods came to. Of these some are kept already: they are paid for, or of the floor.
            ensure!(launches == fleet::ORDERS * fleet::ORDER && holds >= fleet::CHANGED / 4, "not the pass that was meant");
        }
        let begun = Instant::now();
        let sound = check(decision, &fleet.memory, &fleet.snapshot, &fleet.catalogue, (DecisionId(1), fleet.now)).sound();
        let checking = begun.elapsed();
        if let Err(faults) = black_box(sound) {
            bail!("the plan is unsound: {faults:?}");
        }
        let begun = Instant::now();
        black_box(walk(&fleet.snapshot, &fleet.memory));
        let walking = begun.elapsed();
        if pass > 0 {
            decided.add(deciding);
            checked.add(checking);
            both.add(deciding + checking);
            bound.add(walking);
        }
    }
    let mut derived = Times::default();
    for _ in 0..derivations {
        let begun = Instant::now();
        black_box(Catalogue::derive(&fleet.catalogue.policy, &fleet.book, &fleet.suppliers));
        derived.add(begun.elapsed());
    }

    println!("\n{:<36} {:>10} {:>10}", "", "p50 ms", "p99 ms");
    for (what, times) in [
        ("decide", &decided),
        ("check", &checked),
        ("decide and check", &both),
        ("lower bound: copy and walk", &bound),
        ("Catalogue::derive, when prices change", &derived),
    ] {
        println!("{what:<36} {:>10} {:>10}", short(times.p50()), short(times.p99()));
    }
    println!("decide and check take {} times the lower bound", short(both.p50() / bound.p50()));
    for (what, figure) in
        [("decide, p50", decided.p50()), ("decide and check, p50", both.p50()), ("decide and check, p99", both.p99())]
    {
        report.judge(what, figure, "ms", "≤ 20 ms", figure <= 20.0);
    }
    // Of the quickest passes, which other work on the machine disturbs least.
    report.ratio("pass", both.within(0) / bound.within(0));
    report.print();
    Ok(())
}

/// Launches, and holds and releases.
fn counted(actions: &[Action]) -> (usize, usize) {
    let count = |of: fn(&&Action) -> bool| actions.iter().filter(of).count();
    (count(|a| matches!(a, Action::Launch { .. })), count(|a| matches!(a, Action::Hold { .. } | Action::Release { .. })))
}

/// The least that a pass can do: copy the memory, and look up each record's machine and node once.
fn walk(snapshot: &Snapshot, memory: &Memory) -> (Memory, usize) {
    let nodes = snapshot.cluster.iter().flat_map(|cluster| cluster.nodes.values());
    let nodes: std::collections::HashMap<_, _> = nodes.filter_map(|node| Some((node.provider_id.as_ref()?, node))).collect();
    let mut seen = 0;
    for record in memory.records.values() {
        let Some(instance) = record.instance() else { continue };
        let listed = snapshot.suppliers.values().flatten().any(|inventory| inventory.instances.contains_key(instance));
        let busy = nodes.get(instance).is_some_and(|node| node.is_busy());
        seen += usize::from(listed) + usize::from(busy);
    }
    (memory.clone(), seen)
}
