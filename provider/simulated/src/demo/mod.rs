//! A day of GPU pods in a few minutes: the provider on loopback with simulated markets, driven over real gRPC by the model of the
//! Cluster Autoscaler, on a virtual clock. It ends with a bill.

mod bill;
mod day;
mod fleet;
mod recording;
mod told;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context as _;
use indicatif::{ProgressBar, ProgressStyle};
use jiff::{SignedDuration, Timestamp};
use stoker_core::base::ids::NodeName;
use stoker_core::market::offer::CapacityType;
use stoker_core::market::price::PriceBook;
use stoker_core::policy::Policy;
use stoker_sim::model::{Generation, Settings};
use stoker_sim::workload::{PodEvent, Pools, Workload};
use stoker_sim::world::WorldConfig;
use tokio_util::sync::CancellationToken;

use crate::WorldOptions;
use bill::Bill;
use day::{Day, Played};
use stoker_service::clock::{Clock, VirtualClock};
use stoker_service::needs::needs;
use stoker_service::policy_file;
use stoker_service::price_tables::EXAMPLE;
use stoker_service::print::{count, say};
use stoker_service::serve::{Options, PolicySource};

/// The day that is played: fixed, so that the same seed shows the same prices and ages.
const MIDNIGHT: &str = "2026-11-02T00:00:00Z";

/// The day was played to its end, and a limit did not hold.
#[derive(Debug, thiserror::Error)]
#[error("a limit was broken:\n{}", .0.join("\n"))]
pub struct LimitsBroken(Vec<String>);

/// What the demo is asked for.
#[derive(Debug, Clone)]
pub struct DemoOptions {
    /// What all chance is drawn from.
    pub seed: u64,
    /// Hours played, at most a day.
    pub hours: u32,
    /// The policy's name and text.
    pub policy: (String, String),
    /// How the simulated world behaves.
    pub world: WorldConfig,
    /// The prices.
    pub book: Arc<PriceBook>,
    /// The files that these come from, by their flags: the commands that go on from here need them too.
    pub files: Vec<(&'static str, PathBuf)>,
    /// Where the journal is left, for `stoker explain` and `stoker simulate`.
    pub state_dir: PathBuf,
}

/// Plays the day and prints what happens and what it cost.
///
/// # Errors
/// When the service cannot be started, its autoscaler fails, nobody reads on, or `stop` comes first.
pub async fn run(options: DemoOptions, stop: impl Future<Output = ()>) -> anyhow::Result<()> {
    let start: Timestamp = MIDNIGHT.parse().context("the demo's day")?;
    let policy = policy_file::parse(&options.policy.0, &options.policy.1, Some(&options.book))?;
    let pods: Arc<[PodEvent]> = pods(&options, &policy).into();
    anyhow::ensure!(
        !pods.is_empty(),
        "no pod that arrives in the first {} fits the policy's pools: play more hours, or call one of its pools inference, \
         training, dev or batch",
        count(u64::from(options.hours), "hour")
    );
    say(&format!(
        "A day of {}, seed {}: stoker on loopback, simulated markets, a model of the Cluster Autoscaler over real gRPC.\n\n",
        count(pods.len() as u64, "GPU pod"),
        options.seed
    ))?;
    say(&not_played(&policy))?;
    let bar = ProgressBar::new(u64::from(options.hours) * 60);
    bar.set_style(ProgressStyle::with_template("{bar:40} {msg}").unwrap_or_else(|_| ProgressStyle::default_bar()));
    let length = SignedDuration::from_hours(i64::from(options.hours));
    let state_dir = options.state_dir.clone();
    // The same day as the autoscaler's defaults would have it: its own expander and timers, on-demand only, since nobody tells it
    // which capacity to buy.
    let defaults_dir = state_dir.join("autoscaler-defaults");
    let options = Arc::new(options);
    let (stopping, over) = (CancellationToken::new(), CancellationToken::new());
    let day = |policy: Policy, settings, state_dir, bar| {
        apart(Script {
            options: Arc::clone(&options),
            start,
            length,
            pods: Arc::clone(&pods),
            policy,
            settings,
            state_dir,
            bar,
            stop: stopping.clone(),
        })
    };
    let ours = day(policy.clone(), Settings::recommended(), state_dir.clone(), Some(bar.clone()));
    let theirs = day(on_demand_only(policy.clone()), Settings::new(Generation::V1_36), defaults_dir.clone(), None);
    // Both are waited for: a thread that still plays would hold the process, and write into its directory.
    let days = async {
        let days = tokio::join!(ours, theirs);
        over.cancel();
        days
    };
    let told = async {
        if over.run_until_cancelled(stop).await.is_some() {
            stopping.cancel();
        }
    };
    let ((ours, theirs), ()) = tokio::join!(days, told);
    bar.finish_and_clear();
    let _ = std::fs::remove_dir_all(defaults_dir);
    let (Some(ours), Some(theirs)) = (ours?, theirs?) else { anyhow::bail!("interrupted") };
    let fleet = fleet::static_on_demand(&policy, &options.book, &pods, length);
    say(&format!("\n{}\n", Bill { ours: &ours, theirs: &theirs, fleet, policy: &policy, length }))?;
    say(&whats_next(ours.a_node.as_ref(), (&options.policy.0, &policy), &options.files, &state_dir))?;
    anyhow::ensure!(ours.broken.is_empty(), LimitsBroken(ours.broken));
    Ok(())
}

/// What of the policy plays no part in the day, which has no cluster, no probes and no Prometheus.
fn not_played(policy: &Policy) -> String {
    let mut text = String::new();
    for need in needs(policy) {
        // Into a string: it cannot fail.
        let _ = writeln!(text, "not played: {need}");
    }
    if !text.is_empty() {
        text.push('\n');
    }
    text
}

/// Commands that go on from here, each as a shell takes it.
fn whats_next(
    node: Option<&NodeName>,
    (file, policy): (&str, &Policy),
    files: &[(&'static str, PathBuf)],
    state_dir: &Path,
) -> String {
    let of_policy = if file == EXAMPLE { String::new() } else { format!(" --policy {}", quoted(Path::new(file))) };
    let of_files: Vec<String> = files.iter().map(|(flag, path)| format!(" {flag} {}", quoted(path))).collect();
    let of_files = of_files.concat();
    let mut text = "\nWhere to look next:\n".to_owned();
    let mut line = |command: String, what: &str| {
        // Into a string: it cannot fail.
        let _ = writeln!(text, "  {command:<48}  # {what}");
    };
    if let Some(node) = node {
        line(format!("stoker explain {node} --state-dir {}", quoted(state_dir)), "why that node was bought");
    }
    let journal = quoted(state_dir);
    line(format!("stoker simulate --journal {journal}{of_policy}{of_files}"), "the same pods under any policy: --policy FILE");
    if let Some(pool) = policy.pools.first() {
        line(
            format!("stoker plan --pool {}{of_policy}{of_files} --count 3", pool.name),
            "what would be bought now, and why not the rest",
        );
        if let Some(model) = pool.models.first() {
            line(format!("stoker offers --gpu {model}{of_files}"), "every offer of a GPU model by price");
        }
    }
    text
}

/// A path as a shell reads it back.
fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+:@".contains(c);
    if !text.is_empty() && text.chars().all(plain) { text } else { format!("'{}'", text.replace('\'', r"'\''")) }
}

/// The pods of the day that some pool of the policy would take.
fn pods(options: &DemoOptions, policy: &Policy) -> Vec<PodEvent> {
    let named = |name: &str| policy.pools.iter().any(|pool| pool.name.as_str() == name);
    let short = if named("batch") { "batch" } else { "dev" };
    let pools = Pools { batch: short.to_owned(), ..Pools::default() };
    let end = SignedDuration::from_hours(i64::from(options.hours));
    let mut pods = Workload::day(options.seed, &pools);
    pods.retain(|event| event.at < end && event.pod.node_selector.values().all(|pool| named(pool)));
    pods
}

fn on_demand_only(mut policy: Policy) -> Policy {
    for pool in &mut policy.pools {
        pool.prefer = vec![CapacityType::OnDemand];
    }
    policy
}

/// One day to be played.
struct Script {
    options: Arc<DemoOptions>,
    start: Timestamp,
    length: SignedDuration,
    pods: Arc<[PodEvent]>,
    policy: Policy,
    settings: Settings,
    state_dir: PathBuf,
    bar: Option<ProgressBar>,
    /// Ends every day before its time.
    stop: CancellationToken,
}

/// Plays a day on a thread of its own. Its calls come one after the other, and to hand each from one thread to another and back would
/// take longer than the call.
async fn apart(script: Script) -> anyhow::Result<Option<Played>> {
    let stop = script.stop.clone();
    let play = move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(play(script))
    };
    let played = tokio::task::spawn_blocking(play).await?;
    if played.is_err() {
        // Without one of the days there is no bill.
        stop.cancel();
    }
    played
}

/// Plays a day; `None` where it was stopped.
async fn play(script: Script) -> anyhow::Result<Option<Played>> {
    let Script { options, start, length, pods, policy, settings, state_dir, bar, stop } = script;
    let clock = VirtualClock::new(start);
    let mut world = options.world.clone();
    world.seed = options.seed;
    let (at, source) = (Clock::Virtual(Arc::clone(&clock)), PolicySource::Value(Box::new(policy.clone())));
    let retention = SignedDuration::from_hours(24 * 30);
    let serve = Options { retention, ..Options::loopback(at, Arc::clone(&options.book), source, state_dir) };
    let running = crate::start(serve, WorldOptions { config: world, file: None }).await?;
    let mut day = Day::begin(running, clock, settings, policy.clone(), start).await?;
    let whole = day.play(&pods, length, bar.as_ref(), &stop).await?;
    let played = day.end().await?;
    Ok(whole.then_some(played))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_day_has_not_is_named() {
        let read = |text: &str| policy_file::parse("policy.yaml", text, None).unwrap();
        assert_eq!(not_played(&read(policy_file::example())), "");
        let floor = policy_file::example().replacen("\n  limits:", "\n  warmFloor: { nodes: 1 }\n  limits:", 1);
        assert!(not_played(&read(&floor)).starts_with("not played: warmFloor of pool inference: "));
    }
}
