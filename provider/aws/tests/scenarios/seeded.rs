//! Runs that chance makes: machines are asked for, ended and taken back while EC2 throttles, loses answers, is out of order and out of
//! stock, and the supplier is killed. Whatever happens, no key has two machines, nothing is left, and nobody else's machine is named.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use rand::seq::IndexedRandom as _;
use rand::{Rng as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use stoker_core::base::ids::{LaunchKey, ProviderId};
use stoker_core::facts::supply::LaunchOutcome;
use stoker_core::market::offer::CapacityType;
use stoker_fake_ec2::{Fault, Machine, Market, Rule};
use stoker_service::suppliers::Launch;
use tokio::runtime::Builder;
use tokio::time::sleep;

use crate::bench::Bench;
use crate::listing::another;

/// How many runs there are, unless the environment says otherwise.
const RUNS: &str = "STOKER_AWS_RUNS";

/// Steps of a run, and most seconds between two.
const STEPS: u64 = 40;
const PAUSE: u64 = 30;

/// What a run remembers, as the service's journal would.
#[derive(Default)]
struct Asked {
    open: BTreeMap<LaunchKey, Launch>,
}

impl Asked {
    async fn ask(&mut self, bench: &Bench) {
        let batch: Vec<Launch> = self.open.values().cloned().collect();
        for (key, outcome) in bench.launch_all(&batch).await {
            match outcome {
                LaunchOutcome::Launched(made) => {
                    assert_eq!(made.key, key, "a machine of another launch");
                    self.open.remove(&key);
                }
                LaunchOutcome::Refused(no) => {
                    let is_of =
                        |machine: &&Machine| machine.tags.get("stoker.dev/launch-key").is_some_and(|of| of == key.as_str());
                    let there = bench.world(|world| world.alive().into_iter().find(is_of).map(|machine| machine.id.clone()));
                    assert_eq!(there, None, "{key} was refused, and there is a machine: {}", no.message);
                    self.open.remove(&key);
                }
                LaunchOutcome::Unclear { .. } => {}
            }
        }
    }
}

fn fault(chance: &mut ChaCha8Rng) -> Rule {
    let actions =
        ["RunInstances", "RunInstances", "RunInstances", "DescribeInstances", "TerminateInstances", "DescribeSubnets"];
    let faults = [
        Fault::Lose,
        Fault::Cut,
        Fault::Html,
        Fault::Truncated,
        Fault::status(503, "RequestLimitExceeded", "Request limit exceeded."),
        Fault::status(500, "InternalError", "An internal error has occurred."),
        Fault::status(400, "ExpiredToken", "The provided token has expired."),
        Fault::status(500, "InsufficientInstanceCapacity", "We currently do not have sufficient capacity."),
    ];
    let action = actions.choose(chance).copied().unwrap_or("RunInstances");
    let rule = Rule::of(action, faults.choose(chance).cloned().unwrap_or(Fault::Lose)).times(chance.random_range(1..4));
    if chance.random_ratio(1, 4) { rule.delay(Duration::from_secs(chance.random_range(1..40))) } else { rule }
}

async fn run(seed: u64) {
    let mut chance = ChaCha8Rng::seed_from_u64(seed);
    let (mut bench, mut asked) = (Bench::new().await, Asked::default());
    bench.world(|world| {
        world.require_tags = Some("prod".to_owned());
        world.listing_lag = Duration::from_secs(chance.random_range(0..20));
        let region = world.region("us-east-1");
        region.set_quota("L-DB2E81BA", 24);
        region.set_quota("L-3819A6DF", 16);
        region.set_stock("g6.2xlarge", "use1-az2", Market::OnDemand, Some(2));
    });
    let mut theirs = None;
    for step in 0..STEPS {
        if chance.random_ratio(1, 3) {
            bench.world(|world| world.fault(fault(&mut chance)));
        }
        match chance.random_range(0..10) {
            0..=4 => {
                let zone = ["use1-az1", "use1-az2"].choose(&mut chance).copied().unwrap_or("use1-az1");
                let name = ["g6.xlarge", "g6.2xlarge"].choose(&mut chance).copied().unwrap_or("g6.xlarge");
                let bought = if chance.random() { CapacityType::Spot } else { CapacityType::OnDemand };
                for record in 0..chance.random_range(1..4) {
                    let launch = bench.order(step * 10 + record, name, zone, bought);
                    asked.open.insert(launch.request.key.clone(), launch);
                }
            }
            5 | 6 => {
                // Only what the listing has is ended, as by the service.
                let listed = bench.list().await.map(|listed| listed.instances).unwrap_or_default();
                let ours: Vec<ProviderId> = listed.into_keys().filter(|_| chance.random_ratio(1, 3)).collect();
                bench.end(&ours).await;
            }
            7 => {
                let now = bench.now();
                bench.world(|world| {
                    let spot = world.alive().into_iter().find(|machine| machine.market == Market::Spot);
                    if let Some(id) = spot.map(|machine| machine.id.clone()) {
                        world.reclaim(&id, now);
                    }
                });
            }
            8 => bench.restart().await,
            _ => drop(bench.list().await),
        }
        asked.ask(&bench).await;
        // A machine of another cluster in the same account, like one of ours but for its tag.
        theirs = theirs.or_else(|| {
            bench.world(|world| {
                let of_other =
                    |machine: &mut Machine| drop(machine.tags.insert("stoker.dev/cluster".to_owned(), "other".to_owned()));
                (!world.alive().is_empty()).then(|| another(world, 1_000, of_other))
            })
        });
        sleep(Duration::from_secs(chance.random_range(0..PAUSE))).await;
    }
    // All is well again: what is open is settled, and what is there ends.
    bench.world(|world| world.rules.clear());
    for _ in 0..100 {
        if asked.open.is_empty() {
            break;
        }
        asked.ask(&bench).await;
        sleep(Duration::from_secs(10)).await;
    }
    assert!(asked.open.is_empty(), "run {seed}: never settled: {:?}", asked.open.keys());
    sleep(Duration::from_mins(6)).await;
    for _ in 0..20 {
        let listed = bench.list().await.unwrap();
        if listed.instances.is_empty() {
            break;
        }
        bench.end(&listed.instances.into_keys().collect::<Vec<_>>()).await;
        sleep(Duration::from_secs(20)).await;
    }
    bench.world(|world| {
        let is_ours = |machine: &&Machine| Some(&machine.id) != theirs.as_ref();
        let left: Vec<&String> = world.alive().into_iter().filter(is_ours).map(|machine| &machine.id).collect();
        assert!(left.is_empty(), "run {seed}: {left:?} are left");
        for (token, zones) in world.machines_by_token() {
            assert!(zones.len() == 1 && zones.values().all(|made| *made == 1), "run {seed}: {token} made {zones:?}");
        }
        let ours = world.machines.values().filter(is_ours);
        let keys: Vec<&String> = ours.filter_map(|machine| machine.tags.get("stoker.dev/launch-key")).collect();
        let distinct: BTreeSet<&&String> = keys.iter().collect();
        assert_eq!(keys.len(), distinct.len(), "run {seed}: a key has two machines");
        let named = theirs.as_ref().filter(|theirs| world.named_to_end.contains(*theirs));
        assert_eq!(named, None, "run {seed}: another's machine was named");
    });
}

#[test]
fn whatever_happens_no_key_has_two_machines_and_none_is_left() {
    let runs: u64 = std::env::var(RUNS).map_or(50, |runs| runs.parse().unwrap());
    for seed in 0..runs {
        // A runtime of its own: what a run leaves running ends with it.
        let runtime = Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        runtime.block_on(run(seed));
        if seed % 500 == 499 {
            println!("{} of {runs} runs", seed + 1);
        }
    }
}
