//! How fast the simulator is: a month of a small cluster, and a crowd of pods on thousands of nodes, in seconds of one core.
//!
//! Beside each figure stands what the same demand takes by [`peers::replay`], which has neither a scheduler nor the loops of an autoscaler
//! nor passes of the decision: what goes from event to event at the least. Where `STOKER_BENCHMARK_REFERENCE` names the folder of the
//! reference in Python, the month is its trace (W1), and the reference runs the same beside it where python3 can.
//!
//! `cargo bench -p stoker-sim --bench simulator`, for CI with `-- --short`; `-- --profile NAME` plays one of them alone.

use std::collections::BTreeMap;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use stoker_core::base::units::UsdMicros;
use stoker_core::policy::{Policy, RawPolicy};
use stoker_sim::demand::{Demand, InstanceType, Pod, Resources, openb, synthetic, types};
use stoker_sim::peers::{self, Boots};
use stoker_sim::simulate::outcome::Outcome;
use stoker_sim::simulate::{Setup, simulate};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// The month must be played within so many seconds.
const MONTH_WITHIN: f64 = 5.0;
/// So must the crowd.
const CROWD_WITHIN: f64 = 60.0;

/// For so long the bare replay is played.
const BARE_FOR: Duration = Duration::from_millis(200);

/// Instance types with what they leave to pods and dollars an hour, for drawn demand: those of the trace's models on AWS.
const SOLD: [(&str, &str, [u32; 3], f64); 14] = [
    ("g4dn.2xlarge", "T4", [1, 7_910, 29_636], 0.752),
    ("g4dn.4xlarge", "T4", [1, 15_890, 59_946], 1.204),
    ("g4dn.12xlarge", "T4", [4, 47_810, 178_933], 3.912),
    ("g5.2xlarge", "A10G", [1, 7_910, 29_636], 1.212),
    ("g5.12xlarge", "A10G", [4, 47_810, 178_933], 5.672),
    ("g5.48xlarge", "A10G", [8, 191_450, 720_000], 16.288),
    ("g6.2xlarge", "L4", [1, 7_910, 29_636], 0.978),
    ("g6.12xlarge", "L4", [4, 47_810, 178_933], 4.602),
    ("g6.48xlarge", "L4", [8, 191_450, 720_000], 13.35),
    ("g6e.2xlarge", "L40S", [1, 7_910, 59_946], 2.242),
    ("g6e.48xlarge", "L40S", [8, 191_450, 1_440_000], 30.131),
    ("p3.2xlarge", "V100", [1, 7_910, 55_000], 3.06),
    ("p3.8xlarge", "V100", [4, 31_850, 235_000], 12.24),
    ("p3.16xlarge", "V100", [8, 63_770, 472_000], 24.48),
];

/// Families of the reference's catalogue, and the model of each.
const FAMILIES: [(&str, &str); 6] =
    [("g4dn.", "T4"), ("g5.", "A10G"), ("g6.", "L4"), ("g6e.", "L40S"), ("p3.", "V100"), ("p3dn.", "V100-32GB")];

/// What the reference plays: W1 under Cluster Autoscaler's price expander, which it needs the least time for.
const REFERENCE: &str = "import time; from wl import *; from sim import Sim; p, T, _ = al23(); t = time.process_time(); \
    Sim(p, T, prov='price', tau=600, cooldown=600, delay=10, gpubuf=30).run(); print(time.process_time() - t)";

#[expect(clippy::cast_possible_truncation, reason = "prices are small")]
fn sold(name: &str, model: &str, [gpus, milli_cpu, memory_mib]: [u32; 3], usd: f64) -> InstanceType {
    let allocatable = Resources { gpus, milli_cpu, memory_mib };
    InstanceType { name: name.to_owned(), model: model.to_owned(), allocatable, hourly: UsdMicros((usd * 1e6).round() as i64) }
}

fn sold_for_drawn() -> Vec<InstanceType> {
    SOLD.iter().map(|(name, model, room, usd)| sold(name, model, *room, *usd)).collect()
}

/// The folder of the reference, where it is named.
fn reference() -> Option<PathBuf> {
    std::env::var_os("STOKER_BENCHMARK_REFERENCE").map(PathBuf::from)
}

/// A file of the reference.
fn find(root: &Path, name: &str) -> Result<PathBuf> {
    let mut folders = ["", "benchmark", "data/traces"].iter().map(|folder| root.join(folder).join(name));
    Ok(folders.find(|path| path.is_file()).ok_or_else(|| format!("no {name} in {}", root.display()))?)
}

/// The reference's trace on its own types.
fn traced(root: &Path) -> Result<Demand> {
    let catalogue: BTreeMap<String, Value> = serde_json::from_slice(&std::fs::read(find(root, "catalog.json")?)?)?;
    let of = |(name, of): (&String, &Value)| {
        let (_, model) = FAMILIES.iter().find(|(family, _)| name.starts_with(family))?;
        let number = |key: &str| of.get(key).and_then(Value::as_f64).unwrap_or(0.0);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "what a machine has")]
        let leaves = ["gpu", "cpu_milli", "mem_mib"].map(|key| number(key) as u32);
        Some(sold(name, model, leaves, number("usd_h")))
    };
    let mut all: Vec<InstanceType> = catalogue.iter().filter_map(of).collect();
    let older = SOLD.iter().filter(|(name, ..)| name.starts_with("p3.") && !catalogue.contains_key(*name));
    all.extend(older.map(|(name, model, room, usd)| sold(name, model, *room, *usd)));
    all.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(openb::read(&find(root, "openb_pod_list_gpuspec33.csv")?, &all, &openb::Selection::whole())?.demand)
}

/// Several drawn clusters as one.
fn crowd(clusters: u32, days: u32) -> Demand {
    let drawn = (0..clusters).map(|seed| synthetic::mixed(seed.into(), days, &sold_for_drawn()));
    let mut pods: Vec<Pod> = drawn.flat_map(|demand| demand.pods).collect();
    pods.sort_by(|a, b| a.arrives.total_cmp(&b.arrives));
    Demand { types: sold_for_drawn(), pods, seconds: f64::from(days) * 86_400.0 }
}

/// Stoker as it is compared with others: isolation, and windows that cost as much as a boot.
fn setup(demand: Demand) -> Result<Setup> {
    let models: std::collections::BTreeSet<&str> = demand.types.iter().map(|of| of.model.as_str()).collect();
    let raw: RawPolicy = serde_json::from_value(json!({
        "apiVersion": "stoker.dev/v1alpha1", "kind": "Policy", "clusterName": "bench",
        "defaults": { "unknownQuota": "allow", "bootDeadline": "14m" },
        "pools": [{
            "name": "gpu", "workload": "batch",
            "gpu": { "models": models },
            "where": { "clouds": ["aws"], "regions": ["us-east-1"] },
            "capacity": { "prefer": ["on-demand"] },
            "limits": { "maxNodes": 20_000 },
            "stabilization": { "scaleDown": "10m", "window": "equalCost", "minimumLife": "15m" },
            "isolation": { "maxCostRatio": 1.0 },
        }],
    }))?;
    let policy = Policy::try_from_raw(&raw).map_err(|faults| format!("{faults:?}"))?;
    let catalogue = types::catalogue(&Arc::new(policy), &demand.types)?;
    Ok(Setup::new(Arc::new(demand), catalogue, 0))
}

/// Time that this thread has had a processor; what else the machine does is not in it.
fn on_processor() -> Option<Duration> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    text.split(' ').next()?.parse().ok().map(Duration::from_nanos)
}

/// What a work comes to, and the seconds that it takes: on a processor where that is told, else by the clock.
fn timed<T>(work: impl FnOnce() -> T) -> (T, f64) {
    let (began, before) = (Instant::now(), on_processor());
    let made = work();
    let took = before.zip(on_processor()).map_or_else(|| began.elapsed(), |(before, after)| after.saturating_sub(before));
    (made, took.as_secs_f64())
}

/// A run beside its bar.
struct Run {
    name: &'static str,
    demand: Demand,
    bar: Option<f64>,
}

/// Plays a demand and says how long it took; answers its seconds over those of the bare replay.
fn play(Run { name, demand, bar }: Run) -> Result<f64> {
    let setup = setup(demand)?;
    let (bare, began) = (peers::Policy::autoscaler(), Instant::now());
    // A short one is played again until it can be timed.
    let (runs, bare_seconds) = timed(|| {
        let mut runs = 0_u32;
        while runs == 0 || began.elapsed() < BARE_FOR {
            peers::replay(&setup.demand, &bare, Boots::seeded(0))?;
            runs += 1;
        }
        Ok::<_, peers::UnknownType>(runs)
    });
    let bare_seconds = bare_seconds / f64::from(runs?);
    let (simulated, seconds) = timed(|| simulate(&setup));
    let outcome: Outcome = simulated?.outcome;
    let most = outcome.samples.iter().map(|sample| sample.nodes.values().sum::<u32>()).max().unwrap_or(0);
    println!(
        "{name}: {} pods in {:.1} days, at most {most} nodes, {} launches, {} passes, {} loops, {}",
        setup.demand.pods.len(),
        setup.demand.seconds / 86_400.0,
        outcome.fates.launches,
        outcome.passes,
        outcome.loops,
        outcome.total(),
    );
    println!("bench simulator: {name}, bare replay {bare_seconds:.4} s");
    let judged = bar.map(|bar| format!(" (bar ≤ {bar} s) {}", if seconds <= bar { "ok" } else { "MISSED" }));
    println!("bench simulator: {name} {seconds:.2} s{}", judged.unwrap_or_default());
    if outcome.violations.any() {
        return Err(format!("{name}: {:?}", outcome.violations).into());
    }
    Ok(seconds / bare_seconds)
}

/// What the reference needs for its trace: its own seconds, without reading it.
fn in_python(root: &Path) -> Result<String> {
    let code = find(root, "sim.py")?;
    let folder = code.parent().unwrap_or(root);
    let made = Command::new("python3").arg("-c").arg(REFERENCE).env("PYTHONPATH", folder).current_dir(root).output()?;
    let last = |text: &[u8]| String::from_utf8_lossy(text).lines().last().unwrap_or_default().to_owned();
    if made.status.success() { Ok(last(&made.stdout)) } else { Err(last(&made.stderr).into()) }
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().collect();
    let has = |argument: &str| arguments.iter().any(|given| given == argument);
    // Cargo asks benches for their tests, too.
    if has("--list") {
        return Ok(());
    }
    if has("--short") {
        let ratio = play(Run { name: "three days", demand: synthetic::mixed(1, 3, &sold_for_drawn()), bar: None })?;
        println!("ratio simulator over-replay {ratio:.3}");
        return Ok(());
    }
    let only = arguments.iter().skip_while(|given| *given != "--profile").nth(1);
    let wanted = |name: &str| only.is_none_or(|only| only == name);
    let root = reference();
    if wanted("month") {
        let demand = root.as_deref().map_or_else(|| Ok(synthetic::mixed(1, 34, &sold_for_drawn())), traced)?;
        let ratio = play(Run { name: "month", demand, bar: Some(MONTH_WITHIN) })?;
        println!("ratio simulator over-replay {ratio:.3}");
    }
    if wanted("tenth") {
        play(Run { name: "tenth of the crowd", demand: crowd(11, 5), bar: None })?;
    }
    if wanted("crowd") {
        play(Run { name: "crowd", demand: crowd(108, 5), bar: Some(CROWD_WITHIN) })?;
    }
    if let Some(root) = root.filter(|_| only.is_none()) {
        match in_python(&root) {
            Ok(seconds) => println!("bench simulator: month, the reference in Python {seconds} s"),
            Err(why) => println!("bench simulator: month, the reference in Python was not run: {why}"),
        }
    }
    Ok(())
}
