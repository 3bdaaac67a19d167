//! `stoker explain` and `stoker replay`, over a journal that holds an order, what was bought for it and what came of it.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use jiff::Timestamp;
use stoker_core::base::engine_clock::{Times, Wall};
use stoker_core::base::ids::{DecisionId, NodeGroupId, NodeName, ProviderId, SupplierName};
use stoker_core::catalogue::Catalogue;
use stoker_core::check::check;
use stoker_core::choose::rank::Scales;
use stoker_core::decide::decide;
use stoker_core::decide::orders;
use stoker_core::facts::snapshot::Snapshot;
use stoker_core::facts::supply::{Instance, InstanceState, LaunchOutcome, LaunchRequest, Observation, Refusal, RefusalKind};
use stoker_core::limits::usage::Usage;
use stoker_core::plan::Action;
use stoker_core::state::memory::Memory;
use stoker_journal::{AcceptedCall, DecisionEntry, Journal};
use stoker_service::price_tables::PriceTables;

use crate::binary::{golden, stoker};

/// A small engine: passes one after the other, each written down.
pub(crate) struct Passes {
    pub(crate) journal: Journal,
    pub(crate) price_tables: PriceTables,
    pub(crate) catalogue: Catalogue,
    memory: Memory,
    next: u64,
}

fn at(second: i64) -> Timestamp {
    "2026-11-01T12:00:00Z".parse::<Timestamp>().unwrap() + jiff::SignedDuration::from_secs(second)
}

impl Passes {
    pub(crate) async fn begin(state: &Path) -> Self {
        let input = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join("golden").join("input");
        let price_tables = PriceTables::load(Some(&input.join("prices")), None, at(0)).unwrap();
        let mut policy = price_tables.policy(Some(&input.join("policy.yaml"))).unwrap();
        // With a second zone that has spot, an order that spot refuses would not fall back to on-demand.
        policy.pools[0].zones = ["us-east-1a".to_owned()].into();
        let catalogue = price_tables.catalogue(policy);
        let (journal, _) = Journal::open(state).await.unwrap();
        Self { journal, price_tables, catalogue, memory: Memory::default(), next: 1 }
    }

    pub(crate) async fn order(&mut self, group: &str, delta: i32, now: Timestamp) {
        let group = NodeGroupId::new(group).unwrap();
        let before = self.memory.clone();
        let usage = Usage::count(&before, &self.catalogue, Wall(now));
        let scales =
            Scales { catalogue: &self.catalogue, memory: &before, usage: &usage, fresh: &|_| true, times: Times::at(now) };
        let limits = decide(&inventory(&[], now), &before, &self.catalogue, now).plan.limits;
        let (order, _) = orders::increase(&mut self.memory, &scales, &limits[&group], &group, delta).unwrap();
        self.journal.accept(now, &AcceptedCall::Increase { group, delta, order }, &before, &self.memory).await.unwrap();
    }

    /// One pass; what it did.
    pub(crate) async fn pass(&mut self, snapshot: Snapshot, now: Timestamp) -> Vec<Action> {
        let decision = decide(&snapshot, &self.memory, &self.catalogue, now);
        let id = DecisionId(self.next);
        let (plan, after) = check(decision, &self.memory, &snapshot, &self.catalogue, (id, now)).sound().unwrap();
        let entry = DecisionEntry {
            id,
            at: now,
            policy: &self.catalogue.policy,
            prices: &self.price_tables.prices,
            market_facts: &Arc::new(self.price_tables.facts.clone()),
            snapshot: &snapshot,
            before: &self.memory,
            after: &after,
            actions: &plan.actions,
            notes: &plan.notes,
            explanations: &plan.explanations,
            withheld: &[],
            added_notes: 0,
        };
        self.journal.decide(&entry).await.unwrap();
        self.next += 1;
        self.memory = after;
        plan.actions
    }
}

pub(crate) fn inventory(instances: &[Instance], now: Timestamp) -> Snapshot {
    let instances = instances.iter().map(|i| (i.provider_id.clone(), Arc::new(i.clone()))).collect();
    let seen = Observation::complete(now, instances);
    let supplier = SupplierName::new("simulated").unwrap();
    Snapshot { suppliers: BTreeMap::from([(supplier, Some(Arc::new(seen)))]), wall: Wall(now), ..Snapshot::default() }
}

/// The requests among actions.
pub(crate) fn launches(actions: &[Action]) -> Vec<LaunchRequest> {
    let request = |action: &Action| match action {
        Action::Launch { request, .. } => Some(request.clone()),
        _ => None,
    };
    actions.iter().filter_map(request).collect()
}

/// The market has nothing.
fn refused(actions: &[Action], now: Timestamp) -> Snapshot {
    let refusal = Refusal::of_market(RefusalKind::OutOfCapacity, "no spot capacity for g6.xlarge");
    let outcomes = launches(actions).into_iter().map(|request| (request.key, LaunchOutcome::Refused(refusal.clone())));
    Snapshot { outcomes: outcomes.collect(), ..inventory(&[], now) }
}

/// The machines are there.
pub(crate) fn made(actions: &[Action], now: Timestamp, state: InstanceState) -> Vec<Instance> {
    let instance = |(n, request): (usize, LaunchRequest)| Instance {
        key: request.key,
        provider_id: ProviderId::new(format!("sim:///us-east-1a/i-{n}")).unwrap(),
        node_name: NodeName::new(format!("sim-{n}")).unwrap(),
        market: request.market,
        launched_at: now,
        state,
    };
    launches(actions).into_iter().enumerate().map(instance).collect()
}

/// Two nodes are asked, spot has none, on-demand has; both join, and one is lost.
pub(crate) async fn write_a_story(state: &Path) {
    let mut passes = Passes::begin(state).await;
    passes.order("serving.g6-xlarge.us-east-1a", 2, at(1)).await;
    let asked = passes.pass(inventory(&[], at(1)), at(1)).await;
    let bought = passes.pass(refused(&asked, at(3)), at(3)).await;
    let booting = made(&bought, at(4), InstanceState::Pending);
    let answered = booting.iter().map(|instance| (instance.key.clone(), LaunchOutcome::Launched(instance.clone()))).collect();
    passes.pass(Snapshot { outcomes: answered, ..inventory(&booting, at(6)) }, at(6)).await;
    let running = made(&bought, at(4), InstanceState::Running);
    passes.pass(inventory(&running, at(120)), at(120)).await;
    passes.pass(inventory(&running[..1], at(900)), at(900)).await;
    passes.pass(inventory(&running[..1], at(901)), at(901)).await;
    passes.journal.close().await;
}

#[test]
fn a_decision_is_explained_from_what_was_asked_to_what_came_of_it() {
    let state = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(write_a_story(state.path()));
    let explain = |args: &[&str]| stoker(&[&["explain", "--state-dir", state.path().to_str().unwrap()], args].concat());

    let decision = explain(&["d1"]);
    assert_eq!(decision.code, 0, "{decision:?}");
    assert!(decision.out.lines().count() <= 10, "{}", decision.out);
    golden("explain-decision", &decision.out);
    golden("explain-fallback", &explain(&["2", "--all"]).out);
    let node = explain(&["sim:///us-east-1a/i-1"]).out;
    assert_eq!(explain(&["sim-1"]).out, node, "without a cluster the supplier tells a Node's name");
    golden("explain-node", &node);
    golden("explain-json", &explain(&["d1", "-o", "json"]).out);

    let unknown = ["d99", "nobody"].map(|subject| explain(&[subject]));
    assert_eq!([unknown[0].code, unknown[1].code], [5, 5]);
    let place = state.path().to_str().unwrap();
    golden("explain-unknown", &format!("{}{}", unknown[0].err, unknown[1].err).replace(place, "STATE"));
}

/// The same policy, but for a pool that wants no spot.
const ON_DEMAND: &str = "apiVersion: stoker.dev/v1alpha1
kind: Policy
clusterName: golden
pools:
- name: serving
  workload: inference
  gpu: { models: [L4, A10G], count: 1 }
  where: { clouds: [aws, gcp], regions: [us-east-1, us-central1], zones: [us-east-1a] }
  capacity: { prefer: [on-demand] }
  limits: { maxNodes: 8, maxUsdPerHour: 5 }
";

#[test]
fn decisions_are_replayed_and_another_policy_differs_where_it_would() {
    let state = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(write_a_story(state.path()));
    let place = state.path().to_str().unwrap();
    let replay = |args: &[&str]| stoker(&[&["replay", "--state-dir", place], args].concat());

    let same = replay(&[]);
    assert_eq!(same.code, 0, "{same:?}");
    golden("replay", &same.out);
    assert_eq!(replay(&["d2", "d1"]).out, "2 decisions, all the same\n");
    assert_eq!(replay(&["--since", "2026-11-01T12:15:00Z"]).out, "2 decisions, all the same\n");
    let none = replay(&["--since", "2026-11-02T00:00:00Z"]).out;
    assert!(none.starts_with("no decision to replay since 2026-11-02T00:00:00Z; the last, d"), "{none}");

    let policy = state.path().join("on-demand.yaml");
    std::fs::write(&policy, ON_DEMAND).unwrap();
    let policy = policy.to_str().unwrap();
    let other = replay(&["--policy", policy]);
    assert_eq!(other.code, 6, "{other:?}");
    assert!(other.out.lines().all(|line| line.chars().count() <= 120 + place.len()), "{}", other.out);
    golden("replay-policy", &other.out.replace(policy, "on-demand.yaml"));
    let json: serde_json::Value = serde_json::from_str(&replay(&["d1", "--policy", policy, "-o", "json"]).out).unwrap();
    assert_eq!((&json["decisions"], &json["differing"]), (&1.into(), &1.into()), "{json}");
    let differences = json["differ"][0]["differences"].as_array().unwrap();
    let bought = |found: &&serde_json::Value| found["recorded"] == "spot" && found["now"] == "on-demand";
    assert_eq!(differences.iter().find(bought).map(|found| &found["part"]), Some(&"action".into()), "{json}");

    let unknown = [&["d99"][..], &["nobody"], &["--since", "noon"]].map(replay);
    assert_eq!(unknown.each_ref().map(|ran| ran.code), [5, 2, 2]);
    let said: String = unknown.iter().map(|ran| ran.err.as_str()).collect();
    golden("replay-unknown", &said.replace(place, "STATE"));
}

#[test]
fn a_state_directory_without_a_journal_is_left_as_it_is() {
    let state = tempfile::tempdir().unwrap();
    for command in ["explain", "replay"] {
        let absent = stoker(&[command, "d1", "--state-dir", state.path().to_str().unwrap()]);
        assert_eq!(absent.code, 5, "{absent:?}");
    }
    assert_eq!(std::fs::read_dir(state.path()).unwrap().count(), 0);
}
