//! `stoker karpenter`: what Stoker steers of a Karpenter, and how it is given back.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, Subcommand};
use jiff::SignedDuration;
use stoker_core::base::engine_clock::Times;
use stoker_core::base::text::length;
use stoker_core::catalogue::Catalogue;
use stoker_core::state::memory::Memory;
use stoker_journal::{Journal, JournalError};
use stoker_karpenter::companion::{self, Used};
use stoker_service::clock::Clock;
use stoker_service::feeds::foreign::nodes_now;
use stoker_service::kube::client::connect;
use stoker_service::kube::feed::KubeFeed;
use stoker_service::price_tables;
use stoker_service::print::paragraph;
use tokio::sync::Notify;
use tokio::time::timeout;

use super::args::{JournalArg, duration};
use super::exit::{CliError, Exit};
use super::out;

/// How long the cluster's pods may take to be listed.
const LISTED_WITHIN: Duration = Duration::from_secs(30);

/// Why a list is missing of which nothing else is known.
const NO_ANSWER: &str = "the API server has not told all of it within 30 s: see its rights, manifests/stoker/rbac.yaml";

/// Shows what Stoker would write on Karpenter's objects, or gives back what it wrote.
#[derive(Debug, Args)]
pub(super) struct KarpenterArgs {
    #[command(subcommand)]
    command: KarpenterCommand,
}

#[derive(Debug, Subcommand)]
enum KarpenterCommand {
    Diff(DiffArgs),
    Clean(CleanArgs),
}

/// Shows what the policy would have Stoker write on Karpenter's objects and Nodes now; nothing is changed.
///
/// It reads the policy, the cluster, and from the journal of the service what Stoker's own nodes have of the quotas.
#[derive(Debug, Args)]
struct DiffArgs {
    /// Policy file
    #[arg(long, env = "STOKER_POLICY", value_name = "FILE")]
    policy: PathBuf,
    /// Folder of price tables to use instead of the built-in ones
    #[arg(long, env = "STOKER_PRICES_DIR", value_name = "DIR")]
    prices_dir: Option<PathBuf>,
    /// Cluster to read [default: the cluster that this runs in]
    #[arg(long, env = "STOKER_KUBECONFIG", value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    #[command(flatten)]
    journal: JournalArg,
}

/// Gives back the limits, windows, weights, prices, floors, conditions and annotations that Stoker wrote; what others have changed since stays.
///
/// Take `karpenter` out of the policy first, or stop Stoker: it would write all of it again.
#[derive(Debug, Args)]
struct CleanArgs {
    /// Cluster to clean [default: the cluster that this runs in]
    #[arg(long, env = "STOKER_KUBECONFIG", value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Only where no Stoker has renewed its Lease for so long
    #[arg(long, value_name = "TIME", value_parser = duration)]
    if_lease_older_than: Option<SignedDuration>,
    /// Show what would be given back, and change nothing
    #[arg(long)]
    dry_run: bool,
}

/// Carries the command out.
pub(super) async fn run(args: &KarpenterArgs) -> Result<Exit, CliError> {
    match &args.command {
        KarpenterCommand::Diff(args) => diff(args).await,
        KarpenterCommand::Clean(args) => clean(args).await,
    }
}

async fn diff(args: &DiffArgs) -> Result<Exit, CliError> {
    let now = Clock::system().now();
    let book = Arc::new(price_tables::prices(args.prices_dir.as_deref(), now)?);
    let policy = Arc::new(price_tables::policy(Some(&args.policy), &book)?);
    if policy.karpenter.steer.is_empty() {
        return Err(CliError::Usage(
            "the policy steers nothing: add karpenter: { steer: [limits, protect], dryRun: true }".to_owned(),
        ));
    }
    let client = connect(args.kubeconfig.as_deref()).await.map_err(CliError::other)?;
    let (mut memory, note) = match Journal::open_read_only(args.journal.place()?).await {
        Ok(journal) => (journal.memory().await?, String::new()),
        Err(missing @ JournalError::Missing { .. }) => {
            let note =
                format!("{missing} by --state-dir or --journal. Until then it is shown as if Stoker had no nodes of its own.");
            (Memory::default(), paragraph("note:", &note))
        }
        Err(error) => return Err(error.into()),
    };
    let foreign = timeout(LISTED_WITHIN, nodes_now(&client, Arc::clone(&book), &policy)).await.ok().flatten();
    let foreign = foreign.ok_or_else(|| failed("the GPU nodes that others bought could not be listed", NO_ANSWER))?;
    memory.foreign = Some(foreign);
    let catalogue = Catalogue::derive(&policy, &book, &BTreeMap::default());
    let used = Used::of(&memory, &catalogue, Times::at(now)).unwrap_or_default();
    let (feed, follow) = KubeFeed::start(&client, &policy.cluster, Arc::new(Notify::new()));
    let mut occupied = feed.occupied();
    let listed = async { occupied.wait_for(Option::is_some).await.ok().and_then(|known| known.clone()) };
    let listed = async {
        tokio::select! { listed = listed => listed, () = follow => None }
    };
    let Ok(Some(occupied)) = timeout(LISTED_WITHIN, listed).await else {
        let why = feed.broken().map_or_else(|| NO_ANSWER.to_owned(), |broken| broken.to_string());
        return Err(failed("the cluster's nodes and pods could not be listed", why));
    };
    let lines = companion::diff(&client, (&policy, &book), &used, &occupied).await;
    let lines = lines.map_err(|why| failed("Karpenter's objects could not be read", why))?;
    let text = if lines.is_empty() { "Nothing would be written.".to_owned() } else { lines.join("\n") };
    out::write(&format!("{text}\n{note}"))?;
    Ok(Exit::Done)
}

/// How long ago a Lease was renewed of a Stoker that may still run.
const RENEWED: SignedDuration = SignedDuration::from_secs(30);

async fn clean(args: &CleanArgs) -> Result<Exit, CliError> {
    let client = connect(args.kubeconfig.as_deref()).await.map_err(CliError::other)?;
    if let Some(age) = args.if_lease_older_than {
        let since = companion::unattended_for(&client, Clock::system().now()).await;
        let since = since.map_err(|why| failed("the Lease could not be read", why))?;
        let why = match since {
            Some(since) if since >= age => None,
            Some(since) => Some(format!("a Stoker renewed its Lease {} ago", length(since))),
            None => Some(format!(
                "namespace {} has no Lease of Stoker's; run it there, or without --if-lease-older-than where no Stoker runs",
                client.default_namespace()
            )),
        };
        if let Some(why) = why {
            out::write(&format!("Nothing was done: {why}.\n"))?;
            return Ok(Exit::Done);
        }
    }
    let rows = companion::clean(&client, args.dry_run).await;
    let done = if args.dry_run { "would be given back" } else { "given back" };
    let line = |row: &companion::Cleaned| match &row.fault {
        None => format!("{}: {} {done}\n", row.object, row.what),
        Some(why) => paragraph("error:", &format!("{}: {} not given back: {why}", row.object, row.what)),
    };
    let mut text: String = rows.iter().map(line).collect();
    let held = companion::unattended_for(&client, Clock::system().now()).await.ok().flatten();
    if let Some(since) = held.filter(|since| *since < RENEWED && !text.is_empty()) {
        let since = length(since);
        text += &paragraph("note:", &format!("a Stoker renewed its Lease {since} ago; if it still runs, it writes this again"));
    }
    out::write(if text.is_empty() { "Nothing bears a mark of Stoker's.\n" } else { &text })?;
    Ok(if rows.iter().all(|row| row.fault.is_none()) { Exit::Done } else { Exit::Failed })
}

fn failed(doing: &str, why: impl Into<String>) -> CliError {
    CliError::Failed { doing: doing.to_owned(), source: why.into().into() }
}
