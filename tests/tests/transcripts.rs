//! The model of the Cluster Autoscaler against what real ones did: `tests/transcripts` holds the calls that each release made in an
//! end-to-end scenario, and the model, between the same service and the same pods, has to make them too.
//!
//! Every loop of a transcript must be found among the model's, in the same order, call for call; and every loop in which the model
//! changes anything must be one of the transcript's. What is known to differ stands in [`KNOWN`], with its reason. An entry that nothing
//! needs any more fails the test as well.
//!
//! `STOKER_E2E_TRANSCRIPTS=DIR tests/e2e.sh SCENARIO...` with real autoscalers makes new ones.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking, and its helpers stand outside of it")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::Parser as _;
use jiff::SignedDuration;
use stoker_core::base::units::MiB;
use stoker_core::catalogue::template::Resources;
use stoker_core::market::sharing::Slices;
use stoker_service::price_tables;
use stoker_sim::model::{Generation, LoopReport, NodeView, SCALE_DOWN_DISABLED, Settings};
use stoker_tests::e2e::flags::Flags;
use stoker_tests::e2e::releases;
use stoker_tests::e2e::scenarios::ALL;
use stoker_tests::harness::Setup;
use stoker_tests::market;
use stoker_tests::rig::Rig;
use stoker_tests::transcript::{Kind, Paragraph, Seen, Transcript};
use tonic::Code;

/// Where the real one and the model differ.
struct Known {
    /// The releases that do.
    releases: &'static [&'static str],
    /// Steps of the real one.
    real: &'static [&'static str],
    /// What the model has in their place.
    model: &'static [&'static str],
    /// Why.
    why: &'static str,
}

const KNOWN: &[Known] = &[
    Known {
        releases: &["1.36.1", "1.34.5", "1.30.7"],
        real: &["GetAvailableGPUTypes"],
        model: &[],
        why: "asked once in a process; the answer only names metrics, and the model has none",
    },
    Known {
        releases: &["1.36.1"],
        real: &["NodeGroupGetOptions ×5"],
        model: &["NodeGroupGetOptions ×2"],
        why: "whether the group goes to nought at once is asked more often than for each of two removable nodes",
    },
    Known {
        releases: &["1.34.5", "1.30.7"],
        real: &["NodeGroupGetOptions ×7"],
        model: &["NodeGroupGetOptions ×4"],
        why: "the same, after the unneeded time of each",
    },
    Known {
        releases: &["1.36.1"],
        real: &["NodeGroupTemplateNodeInfo ×2"],
        model: &[],
        why: "asked for each node that went; the answer only names metrics",
    },
];

const RELEASES: [(&str, Generation); 3] =
    [("1.36.1", Generation::V1_36), ("1.34.5", Generation::V1_34), ("1.30.7", Generation::V1_30)];

fn here() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn transcript(release: &str, scenario: &str) -> Transcript {
    let file = here().join("transcripts").join(release).join(format!("{scenario}.txt"));
    let text = std::fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let transcript = Transcript::read(&text).unwrap_or_else(|line| panic!("{}: {line}", file.display()));
    assert_eq!((transcript.head["release"].as_str(), transcript.head["scenario"].as_str()), (release, scenario));
    transcript
}

/// As the end-to-end tests start an autoscaler of that release.
fn settings(generation: Generation) -> Settings {
    let deployment = std::fs::read_to_string(here().join("../manifests/cluster-autoscaler/deployment.yaml")).unwrap();
    let places = ["--kubeconfig=k", "--cloud-config=c", "--grpc-expander-url=e:1", "--grpc-expander-cert=ca"];
    let given = releases::flags(&deployment).into_iter().map(|(name, value)| format!("{name}={value}"));
    let words = ["model".to_owned()].into_iter().chain(places.map(str::to_owned)).chain(given);
    Flags::parse_from(words).settings().on(generation)
}

/// As the end-to-end tests start Stoker in that scenario.
fn setup(scenario: &str, dir: &Path) -> Setup {
    let files = ALL.iter().find(|known| known.name == scenario).unwrap().files;
    let book = price_tables::prices(None, jiff::Timestamp::MAX).unwrap();
    let world = dir.join("world.yaml");
    std::fs::write(&world, files.world()).unwrap();
    let mut setup = Setup::new(files.policy(Path::new("/")));
    setup.world = price_tables::world_config(Some(&world), &book, market::start()).unwrap();
    setup.book = Arc::new(book);
    setup
}

/// The node of the end-to-end cluster that is not Stoker's.
fn plain(rig: &Rig) -> NodeView {
    let amounts = Resources { milli_cpu: 4000, memory: MiB::from_gib(16), ephemeral: MiB::from_gib(100), pods: 110, gpus: 0 };
    NodeView {
        name: "plain".to_owned(),
        provider_id: "elsewhere://plain".to_owned(),
        labels: Arc::default(),
        annotations: Arc::default(),
        taints: Vec::new(),
        unschedulable: false,
        ready_since: Some(rig.now()),
        created_at: rig.now(),
        allocatable: amounts,
        capacity: amounts,
        slices: Slices::default(),
    }
}

/// What is left to chance end to end.
#[derive(Debug, Clone, Copy)]
#[expect(clippy::struct_excessive_bools, reason = "each is left to chance by itself")]
struct Chance {
    /// Whether the first loop knows of the node that is not Stoker's.
    node: bool,
    /// Whether the first loop knows of the pods.
    pods: bool,
    /// How many nodes join before a loop, at most.
    joins: usize,
    /// How long a node takes to be Ready, in seconds.
    driver: i64,
    /// Whether Stoker's mark is on a busy node before the next loop.
    held: bool,
    /// Whether the pods go before the next loop.
    soon: bool,
}

/// How nodes and pods may come and go, but for the first loop: `joins`, `driver`, `held` and `soon` of [`Chance`].
const CHANCES: [(usize, i64, bool, bool); 8] = [
    (1, 0, true, true),
    (usize::MAX, 0, false, false),
    (1, 0, false, true),
    (1, 0, true, false),
    (usize::MAX, 0, false, true),
    (1, 0, false, false),
    (1, 2, false, true),
    (1, 2, true, true),
];

/// The model in that scenario: pods come, and where they are to go, they do as soon as all are bound.
async fn play(scenario: &str, generation: Generation, pods: &[&str], go: bool, chance: Chance) -> Transcript {
    let dir = tempfile::tempdir().unwrap();
    let mut rig = Rig::start(setup(scenario, dir.path()), settings(generation)).await;
    (rig.joins, rig.driver) = (chance.joins, SignedDuration::from_secs(chance.driver));
    let mut calls = Vec::new();
    let (mut gone, mut quiet) = (!go, 0);
    for turn in 0.. {
        if turn == u64::from(!chance.node) {
            let plain = plain(&rig);
            rig.autoscaler.cluster_mut().add_node(plain);
        }
        if turn == u64::from(!chance.pods) {
            rig.want("small", pods);
        }
        rig.arrive().await;
        if chance.held {
            mark(&mut rig);
        }
        if turn > 0 && chance.soon && !gone && rig.running_pods() == pods.len() {
            gone = true;
            end(&mut rig, pods);
        }
        let report = rig.run_once().await;
        if turn > 0 && !gone && rig.running_pods() == pods.len() {
            gone = true;
            end(&mut rig, pods);
        }
        quiet = if report.actions.is_empty() { quiet + 1 } else { 0 };
        calls.extend(seen(turn, &report));
        // Longer than any wait on the way.
        if quiet > if go { 8 } else { 6 } {
            break;
        }
        rig.wait();
    }
    Transcript::of(BTreeMap::new(), &calls)
}

fn end(rig: &mut Rig, pods: &[&str]) {
    for pod in pods {
        rig.autoscaler.cluster_mut().finish_pod(&format!("default/{pod}"));
    }
    mark(rig);
}

/// The mark on the busy nodes, and on no other: what Stoker does in a cluster that it follows.
fn mark(rig: &mut Rig) {
    let cluster = rig.autoscaler.cluster_mut();
    let busy: BTreeSet<String> = cluster.all_pods().filter_map(|pod| pod.node.clone()).collect();
    let nodes: Vec<String> = cluster.all_nodes().map(|node| node.name.clone()).collect();
    for node in nodes {
        cluster.annotate(&node, SCALE_DOWN_DISABLED, busy.contains(&node).then_some("true"));
    }
}

fn seen(turn: u64, report: &LoopReport) -> impl Iterator<Item = Seen> {
    report.calls.iter().map(move |record| {
        let text = record.call.to_string();
        Seen {
            // Apart, so that what comes before a loop is told from the loop before.
            at: Duration::from_secs(10 * turn),
            method: record.call.method().to_owned(),
            argument: text.split_once(' ').map(|(_, argument)| argument.to_owned()).unwrap_or_default(),
            code: record.error.as_ref().map_or(Code::Ok, |error| Code::from(error.code)),
        }
    })
}

/// Steps of the one, and what the other has in their place.
type Difference = (Vec<String>, Vec<String>);

/// The places where the steps of two loops differ: those of the first, and those of the second in their place.
fn differences(real: &[String], model: &[String]) -> Vec<Difference> {
    // The longest common part, from the ends.
    let mut common = vec![vec![0_usize; model.len() + 1]; real.len() + 1];
    for (r, left) in real.iter().enumerate().rev() {
        for (m, right) in model.iter().enumerate().rev() {
            common[r][m] = if left == right { common[r + 1][m + 1] + 1 } else { common[r + 1][m].max(common[r][m + 1]) };
        }
    }
    let (mut r, mut m) = (0, 0);
    let mut found = Vec::new();
    let mut open: Option<Difference> = None;
    while r < real.len() || m < model.len() {
        if r < real.len() && m < model.len() && real[r] == model[m] {
            found.extend(open.take());
            (r, m) = (r + 1, m + 1);
        } else if m == model.len() || (r < real.len() && common[r + 1][m] >= common[r][m + 1]) {
            open.get_or_insert_default().0.push(real[r].clone());
            r += 1;
        } else {
            open.get_or_insert_default().1.push(model[m].clone());
            m += 1;
        }
    }
    found.extend(open);
    found
}

/// The differences that are not known, and the places in [`KNOWN`] of those that are.
fn unknown(release: &str, real: &Paragraph, model: &Paragraph) -> (Vec<Difference>, BTreeSet<usize>) {
    let mut used = BTreeSet::new();
    let mut left = differences(&real.steps, &model.steps);
    left.retain(|(real, model)| {
        let known = |known: &Known| known.releases.contains(&release) && known.real == real && known.model == model;
        let at = KNOWN.iter().position(known);
        used.extend(at);
        at.is_none()
    });
    (left, used)
}

/// Looks for every paragraph of the real one among the model's, in order. Answers what is missing, and what of [`KNOWN`] it took.
fn follow(release: &str, real: &Transcript, model: &Transcript) -> (Vec<String>, BTreeSet<usize>) {
    let (mut missing, mut used, mut matched) = (Vec::new(), BTreeSet::new(), BTreeSet::new());
    let mut from = 0;
    for paragraph in real.paragraphs.iter().filter(|p| p.kind != Kind::End) {
        let candidates = model.paragraphs.iter().enumerate().skip(from).filter(|(_, p)| p.kind == paragraph.kind);
        let compared = candidates.map(|(place, p)| (place, unknown(release, paragraph, p)));
        let nearest = compared.min_by_key(|(_, (left, _))| left.iter().map(|(r, m)| r.len() + m.len()).sum::<usize>());
        match nearest {
            None => missing.push(format!("{paragraph}\nis not among the model's")),
            Some((place, (left, known))) if left.is_empty() => {
                used.extend(known);
                matched.insert(place);
                // Two loops of the real one may differ in nothing but what is known.
                from = place;
            }
            Some((place, (left, _))) => {
                let model = &model.paragraphs[place];
                missing.push(format!("{paragraph}\nis not among the model's; the nearest differs in {left:?}:\n{model}"));
            }
        }
    }
    let changes = |p: &Paragraph| p.steps.iter().any(|s| s.contains("IncreaseSize") || s.contains("DeleteNodes"));
    let alone = model.paragraphs.iter().enumerate().filter(|(place, p)| changes(p) && !matched.contains(place));
    missing.extend(alone.map(|(_, paragraph)| format!("only the model has {paragraph}")));
    (missing, used)
}

/// Plays a scenario for each release until chance agrees with what was recorded. Answers what is missing at best, and what of
/// [`KNOWN`] it took.
async fn compare(scenario: &str, pods: &[&str], go: bool) -> (Vec<String>, BTreeSet<usize>) {
    let (mut missing, mut used) = (Vec::new(), BTreeSet::new());
    for (release, generation) in RELEASES {
        let real = transcript(release, scenario);
        let first = real.paragraphs.iter().find(|p| p.kind == Kind::Loop).unwrap();
        let calls = |method| first.steps.iter().any(|step| step.contains(method));
        let (node, pods_known) = (calls("NodeGroupForNode"), calls("IncreaseSize"));
        let mut best: Option<(Vec<String>, BTreeSet<usize>)> = None;
        for (joins, driver, held, soon) in CHANCES {
            let chance = Chance { node, pods: pods_known, joins, driver, held, soon };
            let followed = follow(release, &real, &play(scenario, generation, pods, go, chance).await);
            if best.as_ref().is_none_or(|best| followed.0.len() < best.0.len()) {
                best = Some(followed);
            }
            if best.as_ref().is_some_and(|best| best.0.is_empty()) {
                break;
            }
        }
        let (lacking, known) = best.unwrap_or_default();
        missing.extend(lacking.into_iter().map(|what| format!("{release}, {scenario}: {what}")));
        used.extend(known);
    }
    (missing, used)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_model_calls_what_real_autoscalers_called() {
    let (mut missing, mut used) = compare("gpu-pods-come-and-go", &["a", "b"], true).await;
    let more = compare("no-stock", &["a"], false).await;
    missing.extend(more.0);
    used.extend(more.1);
    assert!(missing.is_empty(), "{}", missing.join("\n\n"));
    for (at, known) in KNOWN.iter().enumerate() {
        assert!(used.contains(&at), "no longer seen: {:?} for {:?} ({})", known.real, known.model, known.why);
    }
}
