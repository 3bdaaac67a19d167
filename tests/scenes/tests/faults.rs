//! Seeded worlds of some hours in which everything goes wrong that can. After each step it is looked at from outside whether a promise
//! was broken; at the end the faults stop, and the world must come to order.
//!
//! `STOKER_FAULT_RUNS=10000 cargo test --release -p stoker-scenes --test faults -- --nocapture` makes as many runs, and
//! `STOKER_FAULT_SEED=123` tells one of them.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use jiff::SignedDuration;
use rand::Rng;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use stoker_scenes::Scene;

/// Runs where the environment does not say.
const RUNS: u64 = 24;

/// How long faults happen, and how long the world has to come to order then.
const TROUBLE: SignedDuration = SignedDuration::from_hours(3);
const QUIET: SignedDuration = SignedDuration::from_mins(100);

#[path = "faults/policies.rs"]
mod policies;
#[path = "faults/trouble.rs"]
mod trouble;

use trouble::Trouble;

/// What came of a run.
struct Outcome {
    broken: Vec<String>,
    counts: BTreeMap<&'static str, u64>,
    timeline: String,
}

fn run(seed: u64, told: bool) -> Outcome {
    let mut lots = ChaCha8Rng::seed_from_u64(seed);
    let policy = policies::ALL[lots.random_range(0..policies::ALL.len())];
    let mut scene = Scene::new(policy);
    if !told {
        scene.keep_only_the_end();
    }
    // For what a policy asks of them: in every second world floors come through buffers, and are warm once images are pulled.
    if seed % 2 == 1 {
        scene.serves_buffers();
        scene.images_pulled_in("3m");
    }
    let mut trouble = Trouble::new(lots, policies::pools(policy));
    let mut passed = SignedDuration::ZERO;
    while passed < TROUBLE {
        let wait = trouble.happens(&mut scene);
        scene.run_for(wait);
        passed += wait;
        if !scene.broken().is_empty() {
            break;
        }
    }
    if scene.broken().is_empty() {
        trouble.ends(&mut scene);
        scene.run_for(QUIET);
    }
    let mut broken = scene.broken();
    if broken.is_empty() {
        broken.extend(scene.disorder());
    }
    let mut counts = trouble.counts;
    for (what, number) in scene.counts() {
        *counts.entry(what).or_default() += number;
    }
    Outcome { broken, counts, timeline: scene.timeline() }
}

#[test]
fn no_fault_breaks_a_promise() {
    if let Some(seed) = number("STOKER_FAULT_SEED") {
        let outcome = run(seed, true);
        println!("{}", outcome.timeline);
        assert_eq!(outcome.broken, Vec::<String>::new(), "seed {seed}");
        return;
    }
    let runs = number("STOKER_FAULT_RUNS").unwrap_or(RUNS);
    let next = AtomicU64::new(0);
    let totals: Mutex<BTreeMap<&'static str, u64>> = Mutex::default();
    let failed: Mutex<BTreeMap<u64, Vec<String>>> = Mutex::default();
    let begun = std::time::Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= runs {
                        return;
                    }
                    let outcome = std::panic::catch_unwind(|| run(seed, false)).unwrap_or_else(|why| {
                        let text = why.downcast_ref::<String>().cloned().unwrap_or_else(|| "it panicked".to_owned());
                        let broken = vec![text.lines().next().unwrap_or_default().to_owned()];
                        Outcome { broken, counts: BTreeMap::new(), timeline: String::new() }
                    });
                    if !outcome.broken.is_empty() {
                        failed.lock().unwrap().insert(seed, outcome.broken);
                    }
                    let mut totals = totals.lock().unwrap();
                    for (what, number) in outcome.counts {
                        *totals.entry(what).or_default() += number;
                    }
                }
            });
        }
    });
    let hours = runs * u64::try_from((TROUBLE + QUIET).as_mins()).unwrap() / 60;
    println!("{runs} runs, {hours} hours of the world's time, in {:.0} s", begun.elapsed().as_secs_f64());
    for (what, number) in totals.into_inner().unwrap() {
        println!("{number:>10}  {what}");
    }
    let failed = failed.into_inner().unwrap();
    println!("{:>10}  runs in which a promise was broken", failed.len());
    let shown: Vec<String> = failed.iter().take(40).map(|(seed, broken)| format!("seed {seed}: {}", broken[0])).collect();
    assert!(failed.is_empty(), "STOKER_FAULT_SEED tells one of them:\n{}", shown.join("\n"));
}

/// A number that the environment gives; what is none counts as not given.
fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}
