//! `stoker init`: a first policy, drafted from what a cluster has.

use std::path::PathBuf;

use clap::Args;
use stoker_core::base::ids::ClusterName;
use stoker_service::clock::Clock;
use stoker_service::init::{self, Drafted, InitError, Source};
use stoker_service::kube::client::connect;
use stoker_service::price_tables;
use stoker_service::print::{count, paragraph};

use super::exit::{CliError, Exit, NotFound};
use super::out;

/// Drafts a policy from a running cluster and prints it: pools, models, zones, limits and taints, with comments that say which of the
/// cluster's GPU pods could run where. Nothing in the cluster is changed.
///
/// It needs the right to list nodes and pods in the whole cluster; --from-karpenter lists nodepools too, and on AWS ec2nodeclasses.
#[derive(Debug, Args)]
pub(super) struct InitArgs {
    #[command(flatten)]
    source: SourceArg,
    /// Cluster to read [default: the cluster that this runs in]
    #[arg(long, env = "STOKER_KUBECONFIG", value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// The policy's clusterName: it marks every machine, and no two clusters of one account may share it
    #[arg(long, value_name = "NAME", default_value = "my-cluster", value_parser = |name: &str| ClusterName::new(name))]
    cluster: ClusterName,
    /// Folder of price tables whose names the policy may use [default: the built-in ones]
    #[arg(long, env = "STOKER_PRICES_DIR", value_name = "DIR")]
    prices_dir: Option<PathBuf>,
}

/// What the policy is drafted from.
#[derive(Debug, Clone, Copy, Args)]
#[group(required = true, multiple = false)]
struct SourceArg {
    #[arg(long, help = "A pool for each NodePool of Karpenter that makes GPU nodes")]
    from_karpenter: bool,
    /// A pool for the GPU nodes that are of one node group, GPU model and taint
    #[arg(long)]
    from_nodes: bool,
    /// A pool for the GPU pods that choose nodes alike
    #[arg(long)]
    from_pods: bool,
}

impl SourceArg {
    const fn source(self) -> Source {
        match self {
            Self { from_karpenter: true, .. } => Source::Karpenter,
            Self { from_nodes: true, .. } => Source::Nodes,
            Self { .. } => Source::Pods,
        }
    }
}

/// Carries the command out.
pub(super) async fn run(args: &InitArgs) -> Result<Exit, CliError> {
    let source = args.source.source();
    let now = Clock::system().now();
    let prices = price_tables::prices(args.prices_dir.as_deref(), now)?;
    let client = connect(args.kubeconfig.as_deref()).await.map_err(CliError::other)?;
    let cluster = init::read(&client, source).await.map_err(CliError::other)?;
    let drafted = init::draft(source, &args.cluster, &cluster, &prices, now).map_err(failure)?;
    out::write(&drafted.text)?;
    eprint!("{}", summary(&drafted));
    Ok(Exit::Done)
}

fn failure(error: InitError) -> CliError {
    match error {
        InitError::Nothing { what, ref left_out, cure } => {
            let lines = std::iter::once(cure).chain(left_out.iter().map(String::as_str)).collect::<Vec<_>>();
            let place = "this cluster".to_owned();
            CliError::NotFound(NotFound { what, name: String::new(), place, cure: Some(lines.join("\n  ")) })
        }
        InitError::Name(_) => CliError::Usage(error.to_string()),
        other => CliError::other(other),
    }
}

/// What is printed to standard error, as the policy is all of the output.
fn summary(Drafted { pools, pods, nowhere, .. }: &Drafted) -> String {
    let end = match nowhere {
        0 => String::new(),
        some => format!("; {some} could run in no pool: the end of the policy says why"),
    };
    paragraph("note:", &format!("{} for {}{end}", count(*pools, "pool"), count(*pods, "GPU pod")))
}
