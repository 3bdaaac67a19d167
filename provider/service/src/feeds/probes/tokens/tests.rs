use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::body::Body as Answer;
use base64::Engine as _;
use http::{Response, StatusCode};
use serde_json::{Value, json};
use stoker_fake_apiserver as fake;

use super::*;

const USER: &str = "system:serviceaccount:stoker-probe:stoker-probe";

/// What the API server says of a good token.
fn good() -> Value {
    json!({
        "authenticated": true,
        "audiences": [AUDIENCE],
        "user": { "username": USER, "extra": { NODE_NAME: ["node-a"] } },
    })
}

/// A reviewer whose API server says that, and how often it was asked.
fn reviewer(status: Option<Value>) -> (Reviewer, Arc<AtomicUsize>) {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let client = fake::client(move |call: fake::Call| {
        count.fetch_add(1, Ordering::Relaxed);
        let status = status.clone();
        async move {
            assert_eq!(call.path, "/apis/authentication.k8s.io/v1/tokenreviews");
            assert_eq!(call.body["spec"]["audiences"], json!([AUDIENCE]));
            let Some(status) = status else {
                let mut away = Response::new(Answer::from("{}"));
                *away.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
                return away;
            };
            let review = json!({
                "apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "metadata": {}, "spec": call.body["spec"],
                "status": status,
            });
            Response::new(Answer::from(review.to_string()))
        }
    });
    (Reviewer::new(&client, ServiceAccount::default(), REVIEW_AGAIN), asked)
}

/// A token that ends so many seconds from now.
fn token(life: i64) -> String {
    let claims = json!({ "exp": jiff::Timestamp::now().as_second() + life, "iss": "test" }).to_string();
    format!("e30.{}.sig", base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(claims))
}

#[tokio::test(start_paused = true)]
async fn a_review_counts_for_a_minute_and_never_longer_than_the_token() {
    let (reviewer, asked) = reviewer(Some(good()));
    let (long, short) = (token(3600), token(30));
    for token in [&long, &short, &long, &short] {
        assert_eq!(reviewer.node_of(token).await.as_deref(), Ok("node-a"));
    }
    assert_eq!(asked.load(Ordering::Relaxed), 2);
    tokio::time::advance(Duration::from_secs(31)).await;
    reviewer.node_of(&long).await.unwrap();
    assert_eq!(asked.load(Ordering::Relaxed), 2);
    reviewer.node_of(&short).await.unwrap();
    assert_eq!(asked.load(Ordering::Relaxed), 3);
    tokio::time::advance(Duration::from_secs(30)).await;
    reviewer.node_of(&long).await.unwrap();
    assert_eq!(asked.load(Ordering::Relaxed), 4);
}

#[tokio::test]
async fn only_a_token_of_the_probes_account_bound_to_a_node_proves_one() {
    let with = |path: &str, value: Value| {
        let mut status = good();
        *status.pointer_mut(path).unwrap() = value;
        status
    };
    let refused = async |status: Value| reviewer(Some(status)).0.node_of("t").await.unwrap_err();
    assert!(matches!(refused(with("/authenticated", json!(false))).await, TokenRefused::NotAuthentic(_)));
    // A token for the API server itself.
    assert!(matches!(
        refused(with("/audiences", json!(["https://kubernetes.default.svc"]))).await,
        TokenRefused::NotAuthentic(_)
    ));
    let other = "system:serviceaccount:default:stoker-probe";
    assert!(
        matches!(refused(with("/user/username", json!(other))).await, TokenRefused::NotAProbe { user, .. } if user == other)
    );
    for extra in [json!({}), json!({ NODE_NAME: [] }), json!({ NODE_NAME: ["a", "b"] }), json!({ NODE_NAME: [""] })] {
        assert_eq!(refused(with("/user/extra", extra)).await, TokenRefused::NoNode);
    }
    assert!(matches!(refused(json!({})).await, TokenRefused::NotAuthentic(_)));
    let (reviewer, asked) = reviewer(Some(good()));
    assert!(matches!(reviewer.node_of(&"x".repeat(LONGEST + 1)).await, Err(TokenRefused::NotAuthentic(_))));
    assert_eq!(asked.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn an_api_server_that_is_away_is_not_a_bad_token_and_is_asked_again() {
    let (reviewer, asked) = reviewer(None);
    for _ in 0..2 {
        assert!(matches!(reviewer.node_of("t").await, Err(TokenRefused::Unavailable(_))));
    }
    assert_eq!(asked.load(Ordering::Relaxed), 2);
}

/// How many of so many probes are let in how long after a restart of ours, each with a token of its own, as they come back: jittered over
/// 4 s, and after a refusal over twice as long, up to 30 s.
async fn all_back(probes: u32, review: Duration) -> Vec<Duration> {
    let client = fake::client(move |call: fake::Call| async move {
        tokio::time::sleep(review).await;
        let kind = json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "metadata": {} });
        let mut answer = kind;
        (answer["spec"], answer["status"]) = (call.body["spec"].clone(), good());
        Response::new(Answer::from(answer.to_string()))
    });
    let reviewer = Arc::new(Reviewer::new(&client, ServiceAccount::default(), REVIEW_AGAIN));
    let begun = Instant::now();
    let mut tasks = tokio::task::JoinSet::new();
    for probe in 0..probes {
        let reviewer = Arc::clone(&reviewer);
        tasks.spawn(async move {
            let mut longest = 4;
            for tried in 0_u32.. {
                // Even, and another part in each try.
                let drawn = blake3::hash(&[probe.to_le_bytes(), tried.to_le_bytes()].concat()).as_bytes()[0];
                tokio::time::sleep(Duration::from_secs(longest) * u32::from(drawn) / 256).await;
                if reviewer.node_of(&probe.to_string()).await.is_ok() {
                    break;
                }
                longest = (longest * 2).min(30);
            }
            begun.elapsed()
        });
    }
    let mut back = tasks.join_all().await;
    back.sort_unstable();
    back
}

#[tokio::test(start_paused = true)]
async fn probes_that_all_come_back_at_once_are_let_in_as_fast_as_the_api_server_reviews() {
    // 16 at once that take 160 ms each are 100 a second: 1,500 take 15 s at least, and 5,000 of a server that is three times as fast.
    let back = all_back(1_500, Duration::from_millis(160)).await;
    let within = |seconds: u64| back.iter().filter(|took| **took <= Duration::from_secs(seconds)).count();
    println!("let in within 10, 15, 20, 30, 45, 60 s: {:?}", [10, 15, 20, 30, 45, 60].map(within));
    // While there are enough that wait, no place is idle and no review begun in vain.
    assert!(within(9) >= 800, "{}", within(9));
    assert_eq!(within(45), 1_500, "the last after {:?}", back.last());
}

#[test]
fn a_service_account_has_a_namespace_and_a_name() {
    assert_eq!("gpu/probe".parse::<ServiceAccount>().unwrap().user(), "system:serviceaccount:gpu:probe");
    for bad in ["", "probe", "gpu/", "/probe", "a/b/c", "a/b c"] {
        assert!(bad.parse::<ServiceAccount>().is_err(), "{bad}");
    }
}
