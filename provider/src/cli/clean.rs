//! `stoker clean`: takes back what Stoker has written on a cluster's Nodes, and the capacity buffers that it made.

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use futures::{StreamExt as _, stream};
use serde::Serialize;
use stoker_core::base::ids::{ClusterName, NodeName};
use stoker_core::base::text::with_causes;

use super::args::{OutputArg, StateDirArg};
use super::exit::{CliError, Exit};
use super::out;
use stoker_journal::state_lock::StateLock;
use stoker_service::clock::Clock;
use stoker_service::controllers::buffers::{self, BuffersError, TakenBack};
use stoker_service::kube::act::{KubeAct, Outcome, Trace};
use stoker_service::kube::client::connect;
use stoker_service::print::{count, paragraph, table};

/// Nodes that are cleaned at once.
const AT_ONCE: usize = 8;

/// Removes what Stoker has written in the cluster: its scale-down-disabled annotations, its verdicts and its cordons on Nodes, and its
/// capacity buffers.
///
/// For uninstalling Stoker, or after its state is lost. What users have set themselves is not touched; machines and Nodes stay. A running
/// Stoker would write all of it again, so stop it first; if one runs on the same state directory, nothing is done.
#[derive(Debug, Args)]
pub(super) struct CleanArgs {
    /// Cluster to clean [default: the cluster that this runs in]
    #[arg(long, env = "STOKER_KUBECONFIG", value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Only what belongs to the Stoker whose policy has this clusterName
    #[arg(long, value_name = "NAME", value_parser = |name: &str| ClusterName::new(name))]
    cluster: Option<ClusterName>,
    /// Show what would be removed, and change nothing
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    state: StateDirArg,
    #[command(flatten)]
    output: OutputArg,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct CleanReport {
    dry_run: bool,
    /// The Nodes that bore something, by name.
    nodes: Vec<CleanRow>,
    /// What was made for warm floors, in all namespaces.
    buffers: CleanBuffers,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct CleanRow {
    node: NodeName,
    /// What it bore.
    bore: Vec<Trace>,
    /// Whether it bears nothing any more.
    clean: bool,
    /// Why not; `None` where it is, or was not to be.
    fault: Option<String>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct CleanBuffers {
    /// Capacity buffers that were deleted, or would be; unknown where there is a fault.
    capacity_buffers: Option<usize>,
    /// Their pod templates, likewise.
    pod_templates: Option<usize>,
    /// Why not all were deleted or could be seen.
    fault: Option<String>,
}

/// Carries the command out.
pub(super) async fn run(args: &CleanArgs) -> Result<Exit, CliError> {
    // Held to the end: no Stoker begins on that directory meanwhile.
    let _lock = if args.dry_run { None } else { stopped(&args.state)? };
    let client = connect(args.kubeconfig.as_deref()).await.map_err(CliError::other)?;
    let act = Arc::new(KubeAct::new(&client, "default"));
    let found = act.traces(args.cluster.as_ref()).await.map_err(|source| CliError::Failed {
        doing: "the cluster's Nodes could not be listed".into(),
        source: source.into(),
    })?;
    let nodes = clean(&act, found, args.dry_run).await;
    let buffers = CleanBuffers::of(buffers::take_back(&client, args.cluster.as_ref(), args.dry_run).await);
    let report = CleanReport { dry_run: args.dry_run, nodes, buffers };
    out::print(args.output.format, &report, CleanReport::table)?;
    Ok(report.exit())
}

/// That no Stoker runs on the state directory, as far as that can be told here: in a pod it has its own.
fn stopped(state: &StateDirArg) -> Result<Option<StateLock>, CliError> {
    // Without a directory nothing runs on it, and none is made.
    let Ok(dir) = state.resolve() else { return Ok(None) };
    if !dir.is_dir() {
        return Ok(None);
    }
    StateLock::take(&dir).map(Some).map_err(|source| CliError::Failed {
        doing: "a running Stoker would write all of it again; stop it first, or look at what there is with --dry-run".into(),
        source: source.into(),
    })
}

async fn clean(act: &Arc<KubeAct>, found: Vec<(NodeName, Vec<Trace>)>, dry_run: bool) -> Vec<CleanRow> {
    let one = |(node, bore): (NodeName, Vec<Trace>)| {
        let act = Arc::clone(act);
        async move {
            if dry_run {
                return CleanRow { node, bore, clean: false, fault: None };
            }
            match act.take_back(&node, Clock::system().now()).await {
                Ok(Outcome::Done | Outcome::Already | Outcome::Gone | Outcome::Reopened | Outcome::NotOurs) => {
                    CleanRow { node, bore, clean: true, fault: None }
                }
                Err(error) => CleanRow { node, bore, clean: false, fault: Some(with_causes(&error)) },
            }
        }
    };
    let mut rows: Vec<CleanRow> = stream::iter(found).map(one).buffer_unordered(AT_ONCE).collect().await;
    rows.sort_by(|a, b| a.node.cmp(&b.node));
    rows
}

impl CleanBuffers {
    fn of(taken: Result<TakenBack, BuffersError>) -> Self {
        match taken {
            Ok(TakenBack { buffers, templates }) => {
                Self { capacity_buffers: Some(buffers), pod_templates: Some(templates), fault: None }
            }
            Err(error) => Self { capacity_buffers: None, pod_templates: None, fault: Some(with_causes(&error)) },
        }
    }

    /// One line; `None` where there was nothing and no fault.
    fn line(&self, dry_run: bool) -> Option<String> {
        if let Some(fault) = &self.fault {
            return Some(paragraph("note:", &format!("{fault}; some of Stoker's CapacityBuffers may remain")));
        }
        let number = |of: Option<usize>, what| count(of.unwrap_or_default(), what);
        let (buffers, templates) = (self.capacity_buffers, self.pod_templates);
        let none = buffers.unwrap_or_default() == 0 && templates.unwrap_or_default() == 0;
        let done = if dry_run { "would be deleted" } else { "deleted" };
        (!none).then(|| format!("{} and {} {done}.\n", number(buffers, "CapacityBuffer"), number(templates, "PodTemplate")))
    }
}

impl CleanReport {
    fn exit(&self) -> Exit {
        let failed = self.buffers.fault.is_some() || self.nodes.iter().any(|row| row.fault.is_some());
        if failed { Exit::Failed } else { Exit::Done }
    }

    fn table(&self) -> String {
        let (mut text, buffers) = (self.of_nodes(), self.buffers.line(self.dry_run));
        let nothing = self.nodes.is_empty() && buffers.is_none();
        text.push_str(&buffers.unwrap_or_default());
        if !nothing {
            text.push_str(&paragraph("note:", "a Stoker that still runs on this cluster writes all of it again"));
        }
        text
    }

    fn of_nodes(&self) -> String {
        if self.nodes.is_empty() {
            return "No Node has an annotation, condition or cordon of Stoker's.\n".to_owned();
        }
        let rows = self.nodes.iter().map(|row| {
            let bore = row.bore.iter().map(|trace| trace.as_str()).collect::<Vec<_>>().join(", ");
            let done = match (&row.fault, row.clean) {
                (Some(fault), _) => fault.clone(),
                (None, true) => "removed".to_owned(),
                (None, false) => "would be removed".to_owned(),
            };
            vec![row.node.to_string(), bore, done]
        });
        let mut text = table(&["NODE", "BEARS", "DONE"], &[], rows.collect());
        let failed = self.nodes.iter().filter(|row| row.fault.is_some()).count();
        if failed > 0 {
            let nodes = count(failed, "Node");
            text.push_str(&paragraph("note:", &format!("{nodes} could not be cleaned; run the same command again")));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &str, clean: bool, fault: Option<&str>) -> CleanRow {
        let node = NodeName::new(name).unwrap();
        CleanRow { node, bore: vec![Trace::Hold, Trace::Verdict], clean, fault: fault.map(ToOwned::to_owned) }
    }

    #[test]
    fn each_node_is_told_with_what_it_bore_and_what_came_of_it() {
        let shown =
            |nodes, dry_run| CleanReport { dry_run, nodes, buffers: CleanBuffers::of(Ok(TakenBack::default())) }.table();
        assert_eq!(shown(Vec::new(), false), "No Node has an annotation, condition or cordon of Stoker's.\n");
        let text = shown(vec![row("a", true, None), row("b", false, Some("no rights"))], false);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[1].split_whitespace().collect::<Vec<_>>(), ["a", "hold,", "verdict", "removed"]);
        assert_eq!(lines[2].split_whitespace().collect::<Vec<_>>(), ["b", "hold,", "verdict", "no", "rights"]);
        assert!(lines[3].starts_with("note:  1 Node could not be cleaned"), "{text}");
        assert!(shown(vec![row("a", false, None)], true).contains("would be removed"));
    }

    #[test]
    fn buffers_are_told_with_their_number_and_one_that_may_be_left_fails() {
        let report = |taken, dry_run| CleanReport { dry_run, nodes: Vec::new(), buffers: CleanBuffers::of(taken) };
        let two = TakenBack { buffers: 1, templates: 2 };
        assert!(report(Ok(two), false).table().contains("\n1 CapacityBuffer and 2 PodTemplates deleted.\n"));
        assert!(report(Ok(two), true).table().contains("\n1 CapacityBuffer and 2 PodTemplates would be deleted.\n"));
        assert_eq!(report(Ok(two), false).exit(), Exit::Done);
        let left = report(Err(BuffersError::TimedOut { verb: "list", what: "CapacityBuffers" }), false);
        let text = left.table().replace("\n       ", " ");
        assert!(
            text.contains("cannot list CapacityBuffers: no answer within 10s; some of Stoker's CapacityBuffers may remain"),
            "{text}"
        );
        assert_eq!(left.exit(), Exit::Failed);
        let json = serde_json::to_value(&left).unwrap();
        assert!(json["buffers"]["capacityBuffers"].is_null() && json["buffers"]["fault"].is_string(), "{json}");
    }

    #[tokio::test]
    async fn a_state_directory_on_which_a_stoker_runs_is_refused_and_none_is_made() {
        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            clean: CleanArgs,
        }
        let parsed = |dir: &std::path::Path| {
            let dir = dir.to_str().unwrap();
            <Line as clap::Parser>::parse_from(["clean", "--kubeconfig", "/nowhere/config", "--state-dir", dir]).clean
        };
        let state = tempfile::tempdir().unwrap();
        let absent = state.path().join("absent");
        let failed = run(&parsed(&absent)).await.unwrap_err();
        assert!(failed.to_string().contains("/nowhere/config") && !absent.exists(), "{failed}");
        let lock = StateLock::take(state.path()).unwrap();
        let refused = run(&parsed(state.path())).await.unwrap_err();
        assert!(refused.to_string().contains("stop it first"), "{refused}");
        assert_eq!(refused.exit(), Exit::Failed);
        let dry = CleanArgs { dry_run: true, ..parsed(state.path()) };
        assert!(run(&dry).await.unwrap_err().to_string().contains("/nowhere/config"));
        drop(lock);
        assert!(run(&parsed(state.path())).await.unwrap_err().to_string().contains("/nowhere/config"));
    }
}
