use std::sync::Mutex;

use http::Method;
use serde_json::json;
use stoker_fake_apiserver as fake;

use super::*;
use crate::price_tables::PriceTables;
use crate::publish::view::GroupView;

/// The groups of the built-in example: pools inference, training and dev.
pub(super) fn view() -> View {
    let now = "2026-11-01T00:00:00Z".parse().unwrap();
    let price_tables = PriceTables::load(None, None, now).unwrap();
    let catalogue = Arc::new(price_tables.catalogue(price_tables.policy(None).unwrap()));
    let mut view = View::starting(now, Arc::clone(&catalogue));
    for group in catalogue.groups.values() {
        view.groups.insert(group.id.clone(), Arc::new(GroupView::empty(group)));
    }
    view
}

/// What is said of pods by a server that does not answer about the pods whose names begin with `slow`.
fn server() -> (Client, Arc<Mutex<Vec<String>>>) {
    let answered: Arc<Mutex<Vec<String>>> = Arc::default();
    let seen = Arc::clone(&answered);
    let client = fake::client(move |call| {
        let about = match call.method {
            Method::PATCH => call.path.rsplit('/').next().unwrap_or_default().to_owned(),
            _ => call.body["regarding"]["name"].as_str().unwrap_or_default().to_owned(),
        };
        let seen = Arc::clone(&seen);
        async move {
            if about.starts_with("slow") {
                std::future::pending::<()>().await;
            }
            let mut answered = seen.lock().unwrap();
            answered.push(about);
            fake::object(&call.body)
        }
    });
    (client, answered)
}

/// A state that knows these pods, which select what no group has.
fn state(client: &Client, pods: &[String]) -> State {
    let mut state = State::new(client.clone(), Arc::new(KubeAct::new(client, "default")));
    for name in pods {
        let spec = json!({ "nodeSelector": { "stoker.dev/pool": "inferense" } });
        let pod: PendingRow =
            serde_json::from_value(json!({ "metadata": { "namespace": "ml", "name": name, "uid": name }, "spec": spec }))
                .unwrap();
        state.waiting.known.insert(pod.key(), pod);
    }
    state
}

fn look_at_all(state: &mut State, view: &View) -> Vec<Calls> {
    let pods: Vec<String> = state.waiting.known.keys().cloned().collect();
    pods.iter().filter_map(|pod| state.look_at(pod, view, view.wall.0)).collect()
}

/// Pods whose calls are answered: with the others fewer than the Events that go out in a burst.
const SOUND: usize = 30;

#[tokio::test(start_paused = true)]
async fn a_call_about_a_pod_that_hangs_keeps_no_other_pod_waiting_and_is_given_up() {
    let (client, answered) = server();
    let names: Vec<String> =
        (0..AT_ONCE - 1).map(|n| format!("slow-{n}")).chain((0..SOUND).map(|n| format!("z-{n}"))).collect();
    let (mut state, view) = (state(&client, &names), readied());
    let calls = look_at_all(&mut state, &view);
    assert_eq!(calls.len(), names.len());
    assert!(look_at_all(&mut state, &view).is_empty(), "no pod has two calls at a time");
    let all: tokio::task::JoinSet<Done> = calls.into_iter().collect();
    let mut tries = 0..50;
    while answered.lock().unwrap().len() < SOUND {
        assert!(tries.next().is_some(), "within half of the time that a call may take: {:?}", answered.lock().unwrap());
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let ended = tokio::time::timeout(DEADLINE, all.join_all()).await.unwrap();
    for done in ended {
        state.ended(done);
    }
    assert!(state.under_way.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_change_of_a_pod_that_hangs_is_given_up_after_ten_seconds() {
    let (client, _) = server();
    let change = Change {
        api: Api::namespaced(client, "ml"),
        name: "slow".to_owned(),
        namespace: "ml".to_owned(),
        patch: json!({}),
        shapes: Vec::new(),
    };
    let limit = DEADLINE + Duration::from_secs(1);
    assert_eq!(tokio::time::timeout(limit, change.make("ml/slow")).await, Ok(None));
}

#[tokio::test]
async fn what_was_said_is_forgotten_with_its_pod_however_much_was_said_before() {
    let (client, answered) = server();
    let view = readied();
    let mut state = state(&client, &[]);
    for round in 0..3 {
        let names: Vec<String> = (0..10_000).map(|n| format!("p-{round}-{n}")).collect();
        state.waiting.known = self::state(&client, &names).waiting.known;
        state.log_once("ml", format!("round {round}"));
        state.forget();
        assert_eq!(look_at_all(&mut state, &view).len(), 10_000, "in round {round}");
        state.under_way.clear();
        assert!(look_at_all(&mut state, &view).is_empty(), "each is told once");
        assert_eq!(state.told.len(), 10_000);
    }
    state.waiting.known.clear();
    state.forget();
    assert!(state.told.is_empty() && state.logged.is_empty());
    assert!(answered.lock().unwrap().is_empty(), "calls are made by whoever waits for them");
}

/// The same, whole.
fn readied() -> View {
    View { ready: Ok(()), ..view() }
}
