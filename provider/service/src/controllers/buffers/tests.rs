use std::sync::{LazyLock, Mutex};

use http::{Method, StatusCode};
use jiff::Timestamp;
use serde_json::{Value, json};
use stoker_core::base::engine_clock::Times;
use stoker_core::base::units::UsdPerHour;
use stoker_core::plan::Accounts;
use stoker_core::policy::rules::warm_floor::{FloorStands, WarmFloor};
use stoker_fake_apiserver::{ApiServer, failure};

use super::object::covers;
use super::*;
use crate::price_tables::PriceTables;
use crate::publish::view::NotReady;

const BUFFERS: &str = "/apis/autoscaling.x-k8s.io/v1beta1/namespaces/default/capacitybuffers";
const TEMPLATES: &str = "/api/v1/namespaces/default/podtemplates";

/// A server of buffers and templates.
struct Server {
    api: ApiServer,
    /// What it answers for buffers, where it does not serve them.
    refuses: Arc<Mutex<Option<(StatusCode, &'static str)>>>,
}

impl Server {
    fn new() -> Self {
        let (api, refuses) = (ApiServer::new(Timestamp::now), Arc::<Mutex<Option<(StatusCode, &'static str)>>>::default());
        api.serve_kind("capacitybuffers");
        api.serve_kind("podtemplates");
        let said = Arc::clone(&refuses);
        api.answer(move |_, call| {
            if call.method == Method::PATCH {
                assert_eq!((call.param("fieldManager"), call.param("force")), (Some("stoker"), Some("true")));
            } else if call.method == Method::DELETE {
                assert!(call.body["preconditions"]["uid"].is_string(), "{}", call.body);
            }
            let said = said.lock().unwrap().filter(|_| call.path.contains("/capacitybuffers"));
            said.map(|(code, reason)| failure(code, reason))
        });
        Self { api, refuses }
    }

    fn refuse(&self, answer: Option<(StatusCode, &'static str)>) {
        *self.refuses.lock().unwrap() = answer;
    }

    fn keeper(&self) -> (Keeper, watch::Receiver<Option<bool>>) {
        let (served, told) = watch::channel(None);
        let objects = Objects::new(&self.api.client(), &cluster());
        (Keeper { objects, served, wait: 0, told: None, left_over: true }, told)
    }

    fn writes(&self) -> Vec<String> {
        let word = |method: &Method| if *method == Method::PATCH { "put" } else { "delete" };
        self.api.take_writes().iter().map(|call| format!("{} {}", word(&call.method), call.path)).collect()
    }

    fn object(&self, path: &str) -> Value {
        self.api.get(path).unwrap_or_default()
    }
}

fn cluster() -> ClusterName {
    ClusterName::new("test").unwrap()
}

fn pool() -> PoolName {
    PoolName::new("inference").unwrap()
}

/// Read once: the built-in tables are large.
static CATALOG: LazyLock<PriceTables> = LazyLock::new(|| PriceTables::load(None, None, Timestamp::UNIX_EPOCH).unwrap());

/// A view in which the built-in example's pool wants so many warm nodes, through buffers or not.
fn view(mechanism: Mechanism, wanted: u32, change: impl FnOnce(&mut stoker_core::policy::Pool)) -> View {
    let mut policy = CATALOG.policy(None).unwrap();
    let own = policy.pools.iter_mut().find(|own| own.name == pool()).unwrap();
    own.warm_floor = Some(WarmFloor { nodes: wanted, mechanism, ..WarmFloor::default() });
    change(own);
    let catalogue = Arc::new(CATALOG.catalogue(policy));
    let floor = FloorStands {
        pool: pool(),
        wanted,
        why: String::new(),
        warm: 0,
        coming: 0,
        usd_per_hour: UsdPerHour(0),
        unmet_since: None,
        blocked: None,
    };
    let accounts = Accounts { floors: vec![floor], ..Accounts::default() };
    crate::publish::view::Publisher::default().view(
        Times::at(Timestamp::UNIX_EPOCH),
        Ok(()),
        BTreeMap::new(),
        accounts,
        &catalogue,
        &Arc::default(),
    )
}

fn through_buffers(wanted: u32) -> View {
    view(Mechanism::CapacityBuffer, wanted, |_| ())
}

fn at(path: &str) -> String {
    format!("{path}/stoker-inference")
}

#[tokio::test]
async fn a_floor_becomes_a_pod_template_and_a_buffer_and_is_followed() {
    let server = Server::new();
    let (mut keeper, through) = server.keeper();
    keeper.look(&through_buffers(2)).await;
    assert_eq!(server.writes(), [format!("put {}", at(TEMPLATES)), format!("put {}", at(BUFFERS))]);
    assert_eq!(*through.borrow(), Some(true));
    let buffer = server.object(&at(BUFFERS));
    assert_eq!(
        buffer["spec"],
        json!({
            "provisioningStrategy": "buffer.x-k8s.io/active-capacity",
            "podTemplateRef": { "name": "stoker-inference" },
            "replicas": 2,
        })
    );
    assert_eq!(buffer["metadata"]["labels"]["app.kubernetes.io/managed-by"], "stoker");
    let pod = &server.object(&at(TEMPLATES))["template"]["spec"];
    assert_eq!(pod["nodeSelector"], json!({ "stoker.dev/pool": "inference" }));
    assert_eq!(
        pod["tolerations"][0],
        json!({ "key": "nvidia.com/gpu", "operator": "Equal", "value": "true", "effect": "NoSchedule" })
    );
    assert_eq!(pod["containers"][0]["resources"]["limits"], json!({ "nvidia.com/gpu": "1" }));

    // Nothing changed: nothing is written. Then the floor rises, and somebody takes it down by hand.
    keeper.look(&through_buffers(2)).await;
    assert_eq!(server.writes(), [""; 0]);
    keeper.look(&through_buffers(3)).await;
    assert_eq!(server.writes(), [format!("put {}", at(BUFFERS))]);
    server.api.edit(&at(BUFFERS), |buffer| buffer["spec"]["replicas"] = json!(0));
    keeper.look(&through_buffers(3)).await;
    assert_eq!(server.object(&at(BUFFERS))["spec"]["replicas"], 3);
}

#[tokio::test]
async fn what_no_pool_wants_any_more_is_taken_back_after_a_restart_too() {
    let server = Server::new();
    server.keeper().0.look(&through_buffers(2)).await;
    server.writes();
    let by_size = view(Mechanism::MinSize, 2, |_| ());
    let (mut keeper, _) = server.keeper();
    // Until the first pass nobody knows what is wanted.
    let starting = View { ready: Err(NotReady::Starting), ..view(Mechanism::MinSize, 2, |_| ()) };
    keeper.look(&starting).await;
    assert_eq!(server.writes(), [""; 0]);
    keeper.look(&by_size).await;
    assert_eq!(server.writes(), [format!("delete {}", at(BUFFERS)), format!("delete {}", at(TEMPLATES))]);
    keeper.look(&by_size).await;
    assert!(server.writes().is_empty() && !keeper.left_over);
}

#[tokio::test]
async fn a_floor_that_is_not_known_keeps_its_buffer_and_one_of_none_asks_for_none() {
    let server = Server::new();
    let (mut keeper, _) = server.keeper();
    keeper.look(&through_buffers(2)).await;
    server.writes();
    let mut unknown = through_buffers(2);
    unknown.accounts = Accounts::default();
    keeper.look(&unknown).await;
    assert_eq!(server.writes(), [""; 0]);
    keeper.look(&through_buffers(0)).await;
    assert_eq!(server.object(&at(BUFFERS))["spec"]["replicas"], 0);
}

#[tokio::test]
async fn without_the_api_or_the_right_to_it_floors_go_through_min_size_and_it_is_said_once() {
    for (code, reason, told) in [
        (StatusCode::NOT_FOUND, "NotFound", "does not serve capacitybuffers.autoscaling.x-k8s.io v1beta1"),
        (StatusCode::FORBIDDEN, "Forbidden", "manifests/buffers/rbac.yaml"),
    ] {
        let server = Server::new();
        let (mut keeper, through) = server.keeper();
        keeper.look(&through_buffers(1)).await;
        assert_eq!(*through.borrow(), Some(true));
        server.writes();
        server.refuse(Some((code, reason)));
        keeper.look(&through_buffers(2)).await;
        assert_eq!(*through.borrow(), Some(false));
        assert!(keeper.told.as_ref().is_some_and(|text| text.contains(told) && text.contains("minSize")), "{:?}", keeper.told);
        // It is asked for again after five minutes, and used as soon as it is there.
        server.refuse(None);
        let two = through_buffers(2);
        for _ in 0..ASK_AGAIN {
            keeper.look(&two).await;
            assert_eq!(server.writes(), [""; 0]);
        }
        keeper.look(&two).await;
        assert!(*through.borrow() == Some(true) && keeper.told.is_none());
        assert_eq!(server.object(&at(BUFFERS))["spec"]["replicas"], 2);
    }
    // A policy that asks for no buffers does without either.
    let server = Server::new();
    server.refuse(Some((StatusCode::NOT_FOUND, "NotFound")));
    let (mut keeper, _) = server.keeper();
    keeper.look(&view(Mechanism::MinSize, 2, |_| ())).await;
    assert!(!keeper.left_over && keeper.told.is_none());
}

async fn take_back_of(server: &Server, cluster: Option<ClusterName>, dry_run: bool) -> TakenBack {
    take_back(&server.api.client(), cluster.as_ref(), dry_run).await.unwrap()
}

#[tokio::test]
async fn objects_of_others_are_left_alone() {
    let server = Server::new();
    let theirs = server.api.put(&at(TEMPLATES), json!({ "metadata": {} }));
    let other = json!({ "metadata": { "labels": {
        "app.kubernetes.io/managed-by": "stoker", "stoker.dev/cluster": "other", "stoker.dev/pool": "x" } } });
    server.api.put(&format!("{BUFFERS}/stoker-x"), other);
    server.keeper().0.look(&through_buffers(2)).await;
    assert_eq!(server.writes(), [format!("put {}", at(BUFFERS))]);
    assert_eq!(server.object(&at(TEMPLATES)), theirs);
    server.writes();
    let of_ours = |dry_run| take_back_of(&server, Some(cluster()), dry_run);
    let one = TakenBack { buffers: 1, templates: 0 };
    assert_eq!(of_ours(true).await, one);
    assert_eq!(server.writes(), [""; 0], "only shown");
    assert_eq!(of_ours(false).await, one);
    assert_eq!(server.writes(), [format!("delete {}", at(BUFFERS))]);
    assert_eq!(take_back_of(&server, None, false).await, one, "that of the other cluster");
    assert_eq!(server.object(&at(TEMPLATES)), theirs);
    server.refuse(Some((StatusCode::NOT_FOUND, "NotFound")));
    assert_eq!(take_back_of(&server, None, false).await, TakenBack::default());
}

#[test]
fn pools_of_several_sizes_and_isolated_ones_ask_for_whole_nodes_of_any_shape() {
    let pod = |view: &View| Wanted::of(view, &pool()).unwrap().template(&cluster(), &pool())["template"]["spec"].clone();
    assert!(pod(&through_buffers(1)).get("affinity").is_none());
    let mixed = pod(&view(Mechanism::CapacityBuffer, 1, |pool| {
        pool.gpu_counts = [1, 4].into();
        pool.instance_types.clear();
        pool.isolation = Some(stoker_core::policy::Isolation { max_cost_ratio: stoker_core::base::units::Milli(1_000) });
    }));
    let apart = &mixed["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][0];
    assert_eq!(apart["labelSelector"]["matchLabels"], json!({ "stoker.dev/buffer": "inference" }));
    assert_eq!(mixed["containers"][0]["resources"]["limits"], json!({ "nvidia.com/gpu": "1" }));
    let tolerations = mixed["tolerations"].as_array().unwrap();
    assert!(
        tolerations.contains(&json!({ "key": "stoker.dev/shape", "operator": "Exists", "effect": "NoSchedule" })),
        "{tolerations:?}"
    );
}

#[test]
fn an_object_covers_what_is_wanted_whatever_else_it_says() {
    let has = json!({ "a": { "b": 1, "c": 2 }, "d": [{ "e": 1, "f": 2 }] });
    for (wanted, covered) in [
        (json!({}), true),
        (json!({ "a": { "b": 1 }, "d": [{ "e": 1 }] }), true),
        (json!({ "a": { "b": 2 } }), false),
        (json!({ "g": 1 }), false),
        (json!({ "d": [{ "e": 1 }, {}] }), false),
        (json!({ "d": {} }), false),
    ] {
        assert_eq!(covers(&has, &wanted), covered, "{wanted}");
    }
}
