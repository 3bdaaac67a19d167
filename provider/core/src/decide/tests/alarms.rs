//! Every alarm of the checker: for each, a decision forged that it must catch.

use std::collections::BTreeSet;

use super::budgets::{cents, judged_after};
use super::commitments::more_than_kept;
use super::reclaimed::{on_spot, reclaim};
use super::unhealthy::fleet;
use super::verdicts::Shown;
use super::*;
use crate::base::ids::{DecisionId, InstanceType, NodeName};
use crate::base::units::{Percent, UsdPerHour};
use crate::check::{Verified, Violation, without_decision};
use crate::facts::snapshot::Snapshot;
use crate::facts::supply::{Covered, LaunchRequest};
use crate::market::offer::InstanceSpec;
use crate::market::price::{Entry, NoSignal, Quote, QuoteKind};
use crate::plan::Evict;
use crate::policy::UnknownQuota;
use crate::policy::rules::health::UnhealthyAction;
use crate::state::disruption::{Disruption, DrainReason, Stage};
use crate::state::probe_reclaims::ProbeReclaims;
use crate::state::record::Purchase;

pub(super) fn violations(verified: Verified) -> Vec<Violation> {
    verified.findings.into_iter().map(|finding| finding.violation).collect()
}

/// A decision, and all that it is judged by.
pub(super) struct Forged {
    pub(super) world: World,
    pub(super) snapshot: Snapshot,
    pub(super) decision: Decision,
}

impl Forged {
    /// What the world decides now, before anybody has changed it.
    pub(super) fn of(world: World) -> Self {
        let snapshot = world.snapshot();
        let decision = decide(&snapshot, &world.memory, &world.catalogue, world.now);
        assert_eq!(world.checked(decision.clone(), &world.memory, &snapshot).findings, []);
        Self { world, snapshot, decision }
    }

    /// What the world decides once it empties so many nodes, no later than in two hours.
    pub(super) fn draining(mut world: World, nodes: usize) -> Self {
        for _ in 0..2 * 60 * 3 {
            world.advance(seconds(20));
            world.observe();
            let forged = Self::of(world.clone());
            let evicts = |a: &&Action| matches!(a, Action::Drain { evict, .. } if *evict != Evict::Nobody);
            if forged.decision.plan.actions.iter().filter(evicts).count() == nodes {
                return forged;
            }
            world.pass();
            world.drain(None);
        }
        panic!("nothing is emptied")
    }

    pub(super) fn checked(&self) -> Verified {
        self.world.checked(self.decision.clone(), &self.world.memory, &self.snapshot)
    }

    fn rings(mut self, change: impl FnOnce(&mut Self)) -> Vec<Violation> {
        change(&mut self);
        violations(self.checked())
    }

    fn launch(&mut self) -> (&mut LaunchRequest, &mut UsdPerHour) {
        let launch = |action| match action {
            &mut Action::Launch { ref mut request, ref mut price, .. } => Some((request, price)),
            _ => None,
        };
        self.decision.plan.actions.iter_mut().find_map(launch).expect("a launch")
    }

    fn drain(&mut self) -> (&mut NodeName, &mut Evict) {
        let drain = |action| match action {
            &mut Action::Drain { ref mut node, ref mut evict, .. } => Some((node, evict)),
            _ => None,
        };
        self.decision.plan.actions.iter_mut().find_map(drain).expect("a drain")
    }

    /// Ends the machine of the first record, for that reason.
    fn end(&mut self, why: Ending) {
        let record = self.decision.memory.records.values().next().expect("a record");
        let supplier = self.world.catalogue.groups[&record.group].supplier.clone();
        let instance = record.instance().expect("a machine").clone();
        self.decision.plan.actions.push(Action::Terminate { supplier, instance, why });
    }

    fn offers(&mut self, entry: &Entry) {
        let group = self.world.catalogue.groups.get_mut(&World::group(GROUP_A)).unwrap();
        Arc::make_mut(group).offers.iter_mut().for_each(|offer| offer.entry = Some(entry.clone()));
    }
}

/// Two spot nodes are bought.
fn buying() -> Forged {
    let mut world = World::in_zone_a();
    world.increase(GROUP_A, 2);
    Forged::of(world)
}

/// A node in use.
fn in_use() -> Forged {
    let mut world = World::with_node(GROUP_A, true);
    world.bind_pod();
    Forged::of(world)
}

/// A busy node is moved back to spot, and another one like it stays.
fn moving() -> Forged {
    Forged::draining(super::back::fallen_back(2), 1)
}

/// A node is emptied because the cloud takes it.
fn reclaimed() -> Forged {
    let mut world = on_spot(1);
    reclaim(&mut world, 0);
    Forged::of(world)
}

fn launch_without_record() -> Vec<Violation> {
    let mut rung = buying().rings(|forged| {
        let (request, _) = forged.launch();
        request.market.capacity_type = crate::market::offer::CapacityType::OnDemand;
    });
    // Nor one that nobody is to have.
    rung.extend(buying().rings(|forged| drop(forged.decision.memory.records.pop_first())));
    let own = |violation: &&Violation| matches!(violation, Violation::LaunchWithoutRecord { .. });
    assert_eq!(rung.iter().filter(own).count(), 2, "{rung:?}");
    rung
}

fn key_twice() -> Vec<Violation> {
    buying().rings(|forged| {
        let again = forged.decision.plan.actions[0].clone();
        forged.decision.plan.actions.push(again);
    })
}

fn under_way() -> Vec<Violation> {
    buying().rings(|forged| {
        let key = forged.launch().0.key.clone();
        forged.snapshot.launching.insert(key);
    })
}

fn no_price() -> Vec<Violation> {
    buying().rings(|forged| *forged.launch().1 = UsdPerHour(0))
}

fn stale_price() -> Vec<Violation> {
    let start = world::start();
    let quote = |kind, as_of| Entry::Price(Quote { price: UsdPerHour(300_000), kind, as_of, source: Arc::from("test") });
    let ago = |hours: i64| Some(start - minutes(60 * hours));
    let stale = [
        quote(QuoteKind::Live, ago(1)),
        quote(QuoteKind::Simulated, ago(1)),
        quote(QuoteKind::Spot, ago(7 * 24)),
        quote(QuoteKind::Spot, None),
        Entry::NoSignal(NoSignal::Floor),
    ];
    for fresh in [quote(QuoteKind::List, ago(10_000)), quote(QuoteKind::Spot, ago(7 * 24 - 1)), quote(QuoteKind::Live, ago(0))]
    {
        assert_eq!(buying().rings(|forged| forged.offers(&fresh)), []);
    }
    let rung: Vec<Violation> = stale.iter().flat_map(|entry| buying().rings(|forged| forged.offers(entry))).collect();
    assert_eq!(rung.len(), 2 * stale.len(), "{rung:?}");
    rung
}

fn stale_inventory() -> Vec<Violation> {
    let inventory = |change: &dyn Fn(&mut Option<Arc<Observation>>)| {
        buying().rings(|forged| forged.snapshot.suppliers.values_mut().for_each(change))
    };
    let with = |change: &dyn Fn(&mut Observation)| {
        inventory(&move |known: &mut Option<Arc<Observation>>| change(Arc::make_mut(known.as_mut().unwrap())))
    };
    let older = |known: &mut Observation, by| known.covered = Covered::Everywhere(known.as_of() - by);
    assert_eq!(with(&|known| older(known, minutes(2))), []);
    let rung = [
        with(&|known| older(known, minutes(2) + seconds(1))),
        with(&|known| known.covered = Covered::Regions([].into())),
        with(&|known| known.complete = false),
        inventory(&|known: &mut Option<Arc<Observation>>| *known = None),
    ];
    assert!(rung.iter().all(|rung| rung.len() == 2), "{rung:?}");
    rung.concat()
}

fn too_many_nodes() -> Vec<Violation> {
    buying().rings(|forged| forged.world.numbers(|policy| policy.pools[0].limits.max_nodes = 1))
}

fn too_much_spend() -> Vec<Violation> {
    buying().rings(|forged| forged.world.numbers(|policy| policy.pools[0].limits.max_usd_per_hour = Some(cents(59))))
}

fn too_much_spend_overall() -> Vec<Violation> {
    judged_after(Some(cents(959)), None)
}

/// Another pool does not use what is kept for it.
fn takes_guaranteed() -> Vec<Violation> {
    buying().rings(|forged| {
        forged.world.numbers(|policy| {
            let mut other = policy.pools[0].clone();
            (other.name, other.limits.guaranteed) = (crate::base::ids::PoolName::new("other").unwrap(), cents(900));
            policy.pools.push(other);
            policy.max_usd_per_hour = Some(cents(959));
        });
    })
}

fn not_spot() -> Vec<Violation> {
    judged_after(Some(cents(977)), None)
}

fn quota_exceeded() -> Vec<Violation> {
    buying().rings(|forged| forged.world.numbers(|policy| policy.quotas[0].limit = 7))
}

fn quota_unlisted() -> Vec<Violation> {
    buying().rings(|forged| {
        forged.world.numbers(|policy| policy.unknown_quota = Some(UnknownQuota::Deny));
        let group = Arc::make_mut(forged.world.catalogue.groups.get_mut(&World::group(GROUP_A)).unwrap());
        let instance_type = InstanceType::new("g6.xlarge").unwrap();
        group.spec = Arc::new(InstanceSpec { instance_type, ..InstanceSpec::clone(&group.spec) });
    })
}

fn foreign_unknown() -> Vec<Violation> {
    buying().rings(|forged| forged.world.numbers(|policy| policy.karpenter.count_nodes = true))
}

fn too_much_spot() -> Vec<Violation> {
    let share = |policy: &mut crate::policy::Policy| policy.pools[0].spot.as_mut().unwrap().max_share = Percent(50);
    buying().rings(|forged| forged.world.numbers(share))
}

fn too_much_in_zone() -> Vec<Violation> {
    buying().rings(|forged| forged.world.numbers(|policy| policy.pools[0].max_zone_share = Some(Percent(50))))
}

fn too_much_of_model() -> Vec<Violation> {
    buying().rings(|forged| {
        forged.world.numbers(|policy| {
            let pool = &mut policy.pools[0];
            pool.max_model_share = pool.models.iter().map(|model| (model.clone(), Percent(50))).collect();
        });
    })
}

fn ends_busy() -> Vec<Violation> {
    in_use().rings(|forged| {
        forged.decision.memory.records.values_mut().for_each(|record| {
            let record = Arc::make_mut(record);
            let (purchase, instance) = (record.purchase().unwrap().clone(), record.instance().unwrap().clone());
            record.state = State::Deleting { purchase, instance, since: world::start(), late: false };
        });
        forged.decision.plan.limits.values_mut().for_each(|limits| limits.target = 0);
        forged.end(Ending::BootTimeout);
    })
}

fn ends_counted() -> Vec<Violation> {
    in_use().rings(|forged| forged.end(Ending::Deleted))
}

fn not_held() -> Vec<Violation> {
    in_use().rings(|forged| forged.decision.plan.actions.retain(|action| !matches!(action, Action::Hold { .. })))
}

fn drains_unasked() -> Vec<Violation> {
    let opens = reclaimed().rings(|forged| {
        let node = forged.drain().0.clone();
        let provider_id = forged.decision.memory.records.values().next().unwrap().instance().unwrap().clone();
        forged.decision.plan.actions.push(Action::Uncordon { node, provider_id });
    });
    let mut rung = reclaimed().rings(|forged| forged.decision.memory.disruptions.clear());
    rung.extend(opens);
    assert_eq!(rung.len(), 2, "{rung:?}");
    rung
}

fn must_not_move() -> Vec<Violation> {
    let mut rung = moving().rings(|forged| {
        forged
            .world
            .numbers(|policy| policy.pools[0].spot.as_mut().unwrap().return_to_spot = crate::base::kinds::ReturnToSpot::Never);
    });
    assert_eq!(rung.len(), 1, "{rung:?}");
    rung.extend(moving().rings(|forged| {
        forged.decision.memory.records.values_mut().for_each(|record| {
            let State::Registered { purchase: Purchase { market, .. }, .. } = &mut Arc::make_mut(record).state else { return };
            market.capacity_type = crate::market::offer::CapacityType::Reserved;
        });
    }));
    rung
}

/// A node with pods is replaced past its deadline, and another one like it stays.
fn replacing() -> Forged {
    let mut world = super::outdated::in_use(2);
    world.policy(|policy| policy.pools[0].outdated.deadline = Some(minutes(60)));
    let image = crate::facts::outdated::Outdated::Image { runs: "ami-1".into(), now: "ami-2".into() };
    world.outdated = world.machines.keys().map(|machine| (machine.clone(), Some(image.clone()))).collect();
    world.live(minutes(59));
    world.advance(minutes(1));
    world.observe();
    Forged::of(world)
}

fn not_outdated() -> Vec<Violation> {
    let mut rung = replacing().rings(|forged| {
        forged.snapshot.suppliers.values_mut().for_each(|known| Arc::make_mut(known.as_mut().unwrap()).outdated.clear());
    });
    rung.extend(replacing().rings(|forged| forged.world.numbers(|policy| policy.pools[0].outdated.paused = true)));
    rung.extend(replacing().rings(|forged| forged.world.numbers(|policy| policy.pools[0].outdated.deadline = None)));
    assert_eq!(rung.len(), 3, "{rung:?}");
    rung
}

fn replaces_together() -> Vec<Violation> {
    replacing().rings(|forged| {
        let memory = &mut forged.decision.memory;
        let (first, disruption) = memory.disruptions.first_key_value().map(|(id, known)| (*id, Arc::clone(known))).unwrap();
        let other = memory.records.keys().copied().find(|id| *id != first).unwrap();
        memory.disruptions.insert(other, disruption);
    })
}

fn moves_together() -> Vec<Violation> {
    moving().rings(|forged| {
        let Decision { plan, memory, .. } = &mut forged.decision;
        let (first, disruption) =
            memory.disruptions.first_key_value().map(|(id, disruption)| (*id, Arc::clone(disruption))).unwrap();
        let other = memory.records.values().find(|record| record.id != first).unwrap();
        let State::Registered { node: Some(node), instance, .. } = &other.state else { panic!("a node") };
        let (record, node, provider_id) = (other.id, node.clone(), instance.clone());
        memory.disruptions.insert(record, disruption);
        plan.actions.push(Action::Drain { record, node, provider_id, evict: Evict::Movable, gone_by: None });
    })
}

fn tells_wrong_pods() -> Vec<Violation> {
    reclaimed().rings(|forged| *forged.drain().1 = Evict::Movable)
}

fn no_reclaim() -> Vec<Violation> {
    reclaimed().rings(|forged| forged.snapshot.seen.clear())
}

fn unconfirmed_reclaim() -> Vec<Violation> {
    let mut rung = reclaimed().rings(|forged| {
        // Three others have gone within five minutes.
        let begun = (1..4).map(|n| (RecordId(90 + n), forged.world.now)).collect();
        let pool = forged.world.catalogue.policy.pools[0].name.clone();
        let known = ProbeReclaims { begun, ..ProbeReclaims::default() };
        forged.world.memory.probe_reclaims.insert(pool, Arc::new(known));
    });
    rung.extend(reclaimed().rings(|forged| {
        forged.decision.memory.records.values_mut().for_each(|record| {
            let State::Registered { purchase: Purchase { market, .. }, .. } = &mut Arc::make_mut(record).state else { return };
            market.capacity_type = crate::market::offer::CapacityType::OnDemand;
        });
    }));
    rung
}

fn replaces_too_many() -> Vec<Violation> {
    let mut world = fleet(1, UnhealthyAction::Drain);
    world.show(0, Shown::Broken);
    Forged::draining(world, 1).rings(|forged| forged.world.numbers(|policy| policy.pools[0].unhealthy.max_replacements = 0))
}

fn ends_full() -> Vec<Violation> {
    reclaimed().rings(|forged| {
        forged.decision.memory.records.values_mut().for_each(|record| {
            let record = Arc::make_mut(record);
            let (purchase, instance) = (record.purchase().unwrap().clone(), record.instance().unwrap().clone());
            record.state = State::Deleting { purchase, instance, since: world::start(), late: false };
        });
        forged.end(Ending::Reclaimed);
    })
}

fn bad_limits() -> Vec<Violation> {
    in_use().rings(|forged| {
        let limits = forged.decision.plan.limits.get_mut(&World::group(GROUP_A)).unwrap();
        limits.min = limits.max + 1;
    })
}

fn wrong_target() -> Vec<Violation> {
    in_use().rings(|forged| forged.decision.plan.limits.get_mut(&World::group(GROUP_A)).unwrap().target -= 1)
}

fn shared_machine() -> Vec<Violation> {
    in_use().rings(|forged| {
        let record = forged.decision.memory.records.values().next().unwrap();
        let twin = Record { id: RecordId(99), ..Record::clone(record) };
        forged.decision.memory.records.insert(twin.id, Arc::new(twin));
    })
}

/// Nothing is decided, and what nobody may wait with goes on.
fn panicked() -> Vec<Violation> {
    let mut world = on_spot(1);
    world.list_reclaimed(0);
    world.observe();
    let Forged { world, snapshot, decision } = Forged::of(world);
    let shown = (decision.plan.limits, decision.plan.accounts);
    let at = (DecisionId(1), world.now);
    let verified = without_decision("index".to_owned(), &world.memory, shown, (&snapshot, &world.catalogue), at);
    let emptied = |a: &Action| matches!(a, Action::Drain { evict: Evict::All, gone_by: Some(_), .. });
    assert!(verified.plan.actions.iter().any(emptied), "{:?}", verified.plan.actions);
    assert!(verified.plan.limits.values().all(|limits| limits.max == limits.target && limits.closed.is_some()));
    assert_eq!(Memory { faults: Vec::new(), ..verified.memory.clone() }, world.memory);
    let held = in_use();
    let shown = (held.decision.plan.limits, held.decision.plan.accounts);
    let (snapshot, catalogue) = (&held.snapshot, &held.world.catalogue);
    let of = without_decision(String::new(), &held.world.memory, shown, (snapshot, catalogue), (DecisionId(1), held.world.now));
    assert!(matches!(&of.plan.actions[..], [Action::Hold { .. }]), "{:?}", of.plan.actions);
    let mut world = World::with_node(GROUP_A, true);
    world.delete(GROUP_A, &["node-0"]).unwrap();
    let (snapshot, shown) = (world.snapshot(), Default::default());
    let of = without_decision(String::new(), &world.memory, shown, (&snapshot, &world.catalogue), (DecisionId(1), world.now));
    assert!(matches!(&of.plan.actions[..], [Action::Terminate { .. }]), "{:?}", of.plan.actions);
    // A drain that was given up is none of Stoker's endings.
    let (id, at) = (*world.memory.records.keys().next().unwrap(), world.now);
    let stage = Stage::DrainAbandoned { until: at + minutes(60) };
    let why = DrainReason::CapacityEnds { commitment: "kept".to_owned(), at };
    let given_up = Disruption { why, since: at, stage, asked: false, pods: BTreeSet::new() };
    world.memory.disruptions.insert(id, Arc::new(given_up));
    let of =
        without_decision(String::new(), &world.memory, Default::default(), (&snapshot, &world.catalogue), (DecisionId(1), at));
    assert!(matches!(&of.plan.actions[..], [Action::Terminate { .. }]), "{:?}", of.plan.actions);
    violations(verified)
}

macro_rules! forgeries {
    ($($alarm:ident => $forge:ident,)+) => {
        /// The decision that rings an alarm. An alarm without one does not compile.
        const fn forgery(of: &Violation) -> fn() -> Vec<Violation> {
            match of {
                $(Violation::$alarm { .. } => $forge,)+
            }
        }

        const FORGERIES: &[fn() -> Vec<Violation>] = &[$($forge),+];
    };
}

forgeries! {
    LaunchWithoutRecord => launch_without_record,
    KeyTwice => key_twice,
    UnderWay => under_way,
    NoPrice => no_price,
    StalePrice => stale_price,
    StaleInventory => stale_inventory,
    TooManyNodes => too_many_nodes,
    TooMuchSpend => too_much_spend,
    TooMuchSpendOverall => too_much_spend_overall,
    TakesGuaranteed => takes_guaranteed,
    NotSpot => not_spot,
    QuotaExceeded => quota_exceeded,
    QuotaUnlisted => quota_unlisted,
    ForeignUnknown => foreign_unknown,
    TooMuchSpot => too_much_spot,
    TooMuchInZone => too_much_in_zone,
    TooMuchOfModel => too_much_of_model,
    MoreThanKept => more_than_kept,
    EndsBusy => ends_busy,
    NotHeld => not_held,
    EndsCounted => ends_counted,
    DrainsUnasked => drains_unasked,
    MustNotMove => must_not_move,
    MovesTogether => moves_together,
    TellsWrongPods => tells_wrong_pods,
    NoReclaim => no_reclaim,
    UnconfirmedReclaim => unconfirmed_reclaim,
    ReplacesTooMany => replaces_too_many,
    NotOutdated => not_outdated,
    ReplacesTogether => replaces_together,
    EndsFull => ends_full,
    BadLimits => bad_limits,
    WrongTarget => wrong_target,
    SharedMachine => shared_machine,
    Panicked => panicked,
}

#[test]
fn every_alarm_rings_for_the_decision_that_it_must_catch() {
    let mut rung = BTreeSet::new();
    for forge in FORGERIES.iter().copied() {
        let found = forge();
        let own = found.iter().find(|violation| std::ptr::fn_addr_eq(forgery(violation), forge));
        let own = own.unwrap_or_else(|| panic!("its own alarm does not ring, but {found:?}"));
        // What else is found of the same decision is found of a few, and each has a decision of its own.
        assert!(rung.insert(own.as_str()), "{own:?} is rung twice");
    }
}
