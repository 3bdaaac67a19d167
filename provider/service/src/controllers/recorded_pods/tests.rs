use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::json;
use stoker_advice::rollup::{GpuPod, Owner, PodLabels};
use stoker_core::base::ids::ClusterName;
use stoker_core::facts::snapshot::{Cordon, Hold, NodeFacts};
use stoker_core::market::sharing::Slices;
use stoker_fake_apiserver as fake;
use stoker_journal::Journal;
use tempfile::tempdir;
use tokio::sync::Notify;

use super::*;
use crate::kube::pods::Requests;
use crate::kube::thin::Asks;
use crate::price_tables::PriceTables;
use crate::publish::view::GroupView;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + second).unwrap()
}

/// Such pods, each created at 0 and bound at 30.
fn pods(uids: &[&str]) -> GpuPods {
    let one = |uid: &&str| {
        let name: Arc<str> = format!("ml/{uid}").into();
        let owner = Owner::of("ml", "train", None, None);
        let labels = PodLabels::of([("team", "vision")]);
        let uid = Some(Arc::from(*uid));
        let pod = GpuPod { name: Arc::clone(&name), uid, owner, labels, units: Some(2), started_after: None };
        let requests = Requests { milli_cpu: 3_500, memory_bytes: (3 << 30) + 1, gpus: 2, ..Requests::default() };
        let asks = Asks {
            node: "n".into(),
            created: Some(at(0)),
            scheduled: Some(at(30)),
            requests: Some(requests),
            ..Asks::default()
        };
        (name, BoundGpuPod { pod, asks: Arc::new(asks) })
    };
    uids.iter().map(one).collect()
}

fn plain(uid: &str, pod: Pod<'_>) -> RecordedPod {
    let Pod::Gpu(BoundGpuPod { pod, asks }) = pod else { panic!("{uid} asks for no GPU") };
    RecordedPod {
        uid: uid.into(),
        name: Arc::clone(&pod.name),
        owner_kind: None,
        owner: pod.owner.clone(),
        labels: pod.labels.clone(),
        pool: None,
        models: Vec::new(),
        gpus: Some(2),
        slices: Slices::default(),
        milli_cpu: 3_500,
        memory_mib: 3_073,
        node: asks.node.clone(),
        created: at(0),
        bound: at(30),
        end: None,
    }
}

/// One look, and what it says written down. What came, and what ended.
async fn look(recorder: &mut Recorder, journal: &Journal, second: i64, pods: &GpuPods) -> (usize, Vec<PodEnd>) {
    let changes = recorder.look(at(second), &there(pods, &Guests::new()), plain);
    journal.pods().write((recorder.since.unwrap(), at(second)), &changes).await.unwrap();
    recorder.written(at(second), &changes);
    (changes.came.len(), changes.ended.into_values().collect())
}

#[tokio::test]
async fn a_pod_is_written_when_it_comes_and_when_it_is_gone() {
    let dir = tempdir().unwrap();
    let (journal, _) = Journal::open(dir.path()).await.unwrap();
    let mut recorder = Recorder::new(journal.reader().running_pods().await.unwrap());
    assert_eq!(look(&mut recorder, &journal, 60, &pods(&["a", "b"])).await, (2, vec![]));
    assert_eq!(look(&mut recorder, &journal, 65, &pods(&["a", "b", "c"])).await, (1, vec![]));
    let seen = |second| PodEnd { at: at(second), is_seen: true };
    assert_eq!(look(&mut recorder, &journal, 70, &pods(&["b", "c"])).await, (0, vec![seen(70)]));
    // The cluster was not seen for ten minutes: nobody knows when that one ended.
    let unseen = |second| PodEnd { at: at(second), is_seen: false };
    assert_eq!(look(&mut recorder, &journal, 670, &pods(&["c"])).await, (0, vec![unseen(670)]));
    // A restart, and another leader: what is gone by then is told apart, what runs is not written twice.
    assert_eq!(look(&mut recorder, &journal, 675, &pods(&["c", "d"])).await, (1, vec![]));
    let mut recorder = Recorder::new(journal.reader().running_pods().await.unwrap());
    assert_eq!(look(&mut recorder, &journal, 700, &pods(&["d", "e"])).await, (1, vec![unseen(700)]));
    assert_eq!(look(&mut recorder, &journal, 705, &pods(&["d", "e"])).await, (0, vec![]));
    // One that asks for no GPU comes and goes as the others do.
    let meta = ObjectMeta { uid: Some("g".to_owned()), ..ObjectMeta::default() };
    let guests = Guests::from([("web/front".to_owned(), Guest { node: NodeName::new("n").unwrap(), meta })]);
    let of_guest = |uid: &str, pod: Pod<'_>| match pod {
        Pod::Guest(name, guest) => row_of_guest(uid, (name, guest), None, at(710)),
        Pod::Gpu(_) => panic!("{uid} was written before"),
    };
    let changes = recorder.look(at(710), &there(&pods(&["d", "e"]), &guests), of_guest);
    assert_eq!((changes.came.len(), &*changes.came[0].uid), (1, "g"));
    journal.pods().write((at(710), at(710)), &changes).await.unwrap();
    recorder.written(at(710), &changes);
    assert_eq!(look(&mut recorder, &journal, 715, &pods(&["d", "e"])).await, (0, vec![seen(715)]));
    let mut ends = Vec::new();
    let each = |pod: RecordedPod| ends.push((pod.uid.to_string(), pod.end));
    journal.reader().each_pod(at(0), at(1_000), each).await.unwrap();
    let all = [
        ("a", Some(seen(70))),
        ("b", Some(unseen(670))),
        ("c", Some(unseen(700))),
        ("d", None),
        ("e", None),
        ("g", Some(seen(715))),
    ];
    assert_eq!(ends, all.map(|(uid, end)| (uid.to_owned(), end)));
    // What was not seen for ten minutes is no gap, half an hour is one.
    look(&mut recorder, &journal, 2_600, &pods(&["d", "e"])).await;
    look(&mut recorder, &journal, 2_605, &pods(&["d", "e", "f"])).await;
    let second = |second: i64| at(second).as_second();
    let known = [(second(60), second(715)), (second(2_600), second(2_605))];
    assert_eq!(journal.reader().pods_known().await.unwrap().0, known);
}

/// A journal that could not be written has it all once it can, with the ends as they were seen.
#[test]
fn what_was_not_written_is_kept_until_it_is_and_no_more_than_that() {
    let mut recorder = Recorder::new(BTreeSet::new());
    let changes = recorder.look(at(0), &there(&pods(&["a", "b"]), &Guests::new()), plain);
    recorder.written(at(0), &changes);
    assert!(!recorder.is_due(at(299)) && recorder.is_due(at(300)));
    let end = PodEnd { at: at(5), is_seen: true };
    assert_eq!(recorder.look(at(5), &there(&pods(&["b"]), &Guests::new()), plain).ended, [("a".into(), end)].into());
    let later = recorder.look(at(10), &there(&pods(&["b", "c"]), &Guests::new()), plain);
    assert_eq!((later.came.len(), &later.ended), (1, &[("a".into(), end)].into()));
    recorder.written(at(10), &later);
    // A whole cluster at once goes out in parts.
    let many: Vec<String> = (0..=2 * MOST_PODS).map(|n| format!("p{n}")).collect();
    let many = pods(&many.iter().map(String::as_str).collect::<Vec<_>>());
    let mut parts = Vec::new();
    loop {
        let changes = recorder.look(at(15), &there(&many, &Guests::new()), plain);
        if changes.came.is_empty() {
            break;
        }
        parts.push(changes.came.len());
        recorder.written(at(15), &changes);
    }
    assert_eq!(parts, [MOST_PODS, MOST_PODS, 1]);
    assert!(recorder.running.len() == many.len() && recorder.gone.is_empty());
}

#[test]
fn a_row_says_what_was_asked_for_and_whose_node_it_got() {
    let price_tables = PriceTables::load(None, None, at(0)).unwrap();
    let catalogue = Arc::new(price_tables.catalogue(price_tables.policy(None).unwrap()));
    let group = Arc::clone(catalogue.groups.values().find(|group| group.pool.as_str() == "inference").unwrap());
    let mut view = View::starting(at(0), catalogue);
    view.groups.insert(group.id.clone(), Arc::new(GroupView::empty(&group)));
    let name = NodeName::new("n").unwrap();
    let node = NodeFacts {
        name: name.clone(),
        provider_id: None,
        group: Some(group.id.clone()),
        created_at: at(0),
        ready_since: Some(at(0)),
        gpu_pods: BTreeSet::new(),
        scale_down_disabled: Hold::None,
        cordon: Cordon::None,
        allocatable: None,
        shown: None,
    };
    let cluster = ClusterFacts { nodes: [(name, Arc::new(node))].into() };
    let uid = "a";
    let row = |change: &dyn Fn(&mut BoundGpuPod)| {
        let mut bound = pods(&["a"]).into_values().next().unwrap();
        change(&mut bound);
        row_of(uid, Pod::Gpu(&bound), at(60), (&cluster, &view, &price_tables.prices))
    };
    let plain = RecordedPod { pool: Some("inference".into()), ..plain(uid, Pod::Gpu(&pods(&["a"])["ml/a"])) };
    assert_eq!(row(&|_| ()), plain);
    let asks = |change: &dyn Fn(&mut Asks)| row(&|bound| change(Arc::make_mut(&mut bound.asks)));
    assert_eq!(asks(&|asks| asks.pool = Some("dev".into())).pool.as_deref(), Some("dev"), "what it asks for comes first");
    assert_eq!(asks(&|asks| asks.node = "theirs".into()).pool, None);
    let models = asks(&|asks| asks.gpus = vec!["NVIDIA-L4".into(), "a10g".into(), "L4".into(), "unknown".into()]).models;
    assert_eq!(models, ["A10G", "L4"]);
    // A clock that is behind the API server's makes no pod run before it was created.
    let early = asks(&|asks| (asks.created, asks.scheduled) = (Some(at(90)), None));
    assert_eq!((early.created, early.bound), (at(60), at(60)));
    assert_eq!(row(&|bound| bound.pod.units = None).gpus, None, "a resource claim");
    let unread = asks(&|asks| asks.requests = None);
    assert_eq!((unread.gpus, unread.milli_cpu), (None, 0));
    let guest = Guest { node: NodeName::new("n").unwrap(), meta: ObjectMeta::default() };
    let row = row_of("g", Pod::Guest("web/front-0", &guest), at(60), (&cluster, &view, &price_tables.prices));
    assert!(row.is_without_gpu() && !plain.is_without_gpu() && !unread.is_without_gpu());
    assert_eq!((&*row.name, &*row.owner.namespace, row.node.as_str(), row.bound), ("web/front-0", "web", "n", at(60)));
    assert_eq!(row.pool.as_deref(), Some("inference"));
}

/// From the API server to the journal. A recorder that is told to stop looks once more.
#[tokio::test]
async fn what_the_api_server_lists_is_in_the_journal() {
    let client = fake::client(|call| async move {
        let pod = json!({
            "metadata": { "namespace": "ml", "name": "p", "uid": "u", "creationTimestamp": "2026-11-01T00:00:00Z" },
            "spec": { "nodeName": "n", "nodeSelector": { "stoker.dev/pool": "dev", "stoker.dev/gpu": "L4" },
                      "containers": [{ "resources": { "requests": { "cpu": "2", "nvidia.com/gpu": "1" } } }] },
            "status": { "phase": "Running" },
        });
        match (call.is_watch(), call.path == "/api/v1/pods") {
            (true, _) => fake::watch(vec![]),
            (false, true) => fake::page(&[pod], None),
            (false, false) => fake::page(&[], None),
        }
    });
    let (feed, following) = KubeFeed::start(&client, &ClusterName::new("test").unwrap(), Arc::new(Notify::new()));
    let following = tokio::spawn(following);
    feed.facts().wait_for(Option::is_some).await.unwrap();
    let price_tables = PriceTables::load(None, None, at(0)).unwrap();
    let view = Arc::new(View::starting(at(0), Arc::new(price_tables.catalogue(price_tables.policy(None).unwrap()))));
    let dir = tempdir().unwrap();
    let (journal, _) = Journal::open(dir.path()).await.unwrap();
    let view = Box::new(move || Arc::clone(&view));
    let followed = Followed { clock: Clock::system(), view, feed, book: price_tables.prices };
    let stop = CancellationToken::new();
    stop.cancel();
    run(followed, journal.reader(), journal.pods(), stop).await;
    let mut rows = Vec::new();
    journal.reader().each_pod(Timestamp::MIN, Timestamp::MAX, |pod| rows.push(pod)).await.unwrap();
    let [row] = rows.as_slice() else { panic!("{rows:?}") };
    assert_eq!((&*row.name, &*row.uid, row.node.as_str(), row.pool.as_deref()), ("ml/p", "u", "n", Some("dev")));
    assert_eq!((row.models.as_slice(), row.gpus, row.milli_cpu, row.end), (&["L4".to_owned()][..], Some(1), 2_000, None));
    assert!(!journal.reader().pods_known().await.unwrap().0.is_empty());
    following.abort();
}
