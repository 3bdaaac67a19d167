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

/// Where probes come from.
const ADDRESS: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));

/// A token that says this of itself.
fn saying(claims: &Value) -> String {
    format!("e30.{}.sig", base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(claims.to_string()))
}

/// What a probe's token says of itself.
fn claims(life: i64, id: &str) -> Value {
    json!({
        "aud": [AUDIENCE], "sub": USER, "exp": jiff::Timestamp::now().as_second() + life, "jti": id,
        "kubernetes.io": { "namespace": "stoker-probe", "node": { "name": "node-a" }, "pod": { "name": "stoker-probe-x" } },
    })
}

/// A probe's token that ends so many seconds from now, and is another one with each `id`.
pub(crate) fn token(life: i64, id: &str) -> String {
    saying(&claims(life, id))
}

#[tokio::test(start_paused = true)]
async fn a_review_counts_for_a_minute_and_never_longer_than_the_token() {
    let (reviewer, asked) = reviewer(Some(good()));
    let (long, short) = (token(3600, ""), token(30, ""));
    for token in [&long, &short, &long, &short] {
        assert_eq!(reviewer.node_of(token, ADDRESS).await.as_deref(), Ok("node-a"));
    }
    assert_eq!(asked.load(Ordering::Relaxed), 2);
    tokio::time::advance(Duration::from_secs(31)).await;
    reviewer.node_of(&long, ADDRESS).await.unwrap();
    assert_eq!(asked.load(Ordering::Relaxed), 2);
    reviewer.node_of(&short, ADDRESS).await.unwrap();
    assert_eq!(asked.load(Ordering::Relaxed), 3);
    tokio::time::advance(Duration::from_secs(30)).await;
    reviewer.node_of(&long, ADDRESS).await.unwrap();
    assert_eq!(asked.load(Ordering::Relaxed), 4);
}

#[tokio::test]
async fn only_a_token_of_the_probes_account_bound_to_a_node_proves_one() {
    let with = |path: &str, value: Value| {
        let mut status = good();
        *status.pointer_mut(path).unwrap() = value;
        status
    };
    let refused = async |status: Value| reviewer(Some(status)).0.node_of(&token(60, ""), ADDRESS).await.unwrap_err();
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
}

#[tokio::test]
async fn a_token_that_is_bad_by_its_own_word_is_not_shown_to_the_api_server() {
    let (reviewer, asked) = reviewer(Some(good()));
    let with = |path: &str, value: Value| {
        let mut claims = claims(60, "");
        *claims.pointer_mut(path).unwrap() = value;
        saying(&claims)
    };
    let refused = async |token: &str| reviewer.node_of(token, ADDRESS).await.unwrap_err();
    for bad in ["", "x", "a.b.c", "e30.e30.sig", &token(60, &"x".repeat(LONGEST))] {
        assert!(matches!(refused(bad).await, TokenRefused::NotAuthentic(_)), "{bad}");
    }
    assert!(matches!(refused(&with("/aud", json!(["https://kubernetes"]))).await, TokenRefused::NotAuthentic(_)));
    assert!(matches!(refused(&token(-61, "")).await, TokenRefused::NotAuthentic(_)));
    let other = "system:serviceaccount:default:\nstoker-probe";
    let told = refused(&with("/sub", json!(other))).await;
    assert!(matches!(&told, TokenRefused::NotAProbe { user, .. } if user == other));
    assert!(!told.to_string().contains('\n'));
    for node in [json!(null), json!({}), json!({ "node": { "name": "" } })] {
        assert!(reviewer.node_of(&with("/kubernetes.io", node), ADDRESS).await.is_err());
    }
    assert_eq!(asked.load(Ordering::Relaxed), 0);
    // What the kubelet makes for one audience, written as a text, and a clock that is a little
    // ahead of the API server's.
    reviewer.node_of(&with("/aud", json!(AUDIENCE)), ADDRESS).await.unwrap();
    reviewer.node_of(&token(-30, ""), ADDRESS).await.unwrap();
    assert_eq!(asked.load(Ordering::Relaxed), 2);
}

#[tokio::test(start_paused = true)]
async fn a_token_that_the_api_server_does_not_vouch_for_is_refused_for_10_s_without_asking_again() {
    let (reviewer, asked) = reviewer(Some(json!({ "authenticated": false })));
    let bad = token(60, "");
    for _ in 0..100 {
        assert!(matches!(reviewer.node_of(&bad, ADDRESS).await, Err(TokenRefused::NotAuthentic(_))));
    }
    assert_eq!(asked.load(Ordering::Relaxed), 1);
    tokio::time::advance(Duration::from_secs(11)).await;
    drop(reviewer.node_of(&bad, ADDRESS).await);
    assert_eq!(asked.load(Ordering::Relaxed), 2);
}

#[tokio::test(start_paused = true)]
async fn invented_tokens_of_one_address_keep_no_honest_probe_waiting() {
    let most = Arc::new(AtomicUsize::new(0));
    let now = Arc::new(AtomicUsize::new(0));
    let asked = Arc::new(AtomicUsize::new(0));
    let (count, under_way, peak) = (Arc::clone(&asked), Arc::clone(&now), Arc::clone(&most));
    let client = fake::client(move |call: fake::Call| {
        count.fetch_add(1, Ordering::Relaxed);
        peak.fetch_max(under_way.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
        let under_way = Arc::clone(&under_way);
        async move {
            tokio::time::sleep(Duration::from_millis(500)).await;
            under_way.fetch_sub(1, Ordering::Relaxed);
            let honest = call.body["spec"]["token"] == token_of_honest().as_str();
            let mut answer = json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "metadata": {} });
            (answer["spec"], answer["status"]) = (call.body["spec"].clone(), if honest { good() } else { json!({}) });
            Response::new(Answer::from(answer.to_string()))
        }
    });
    let reviewer = Arc::new(Reviewer::new(&client, ServiceAccount::default(), REVIEW_AGAIN));
    for n in 0..500 {
        let reviewer = Arc::clone(&reviewer);
        tokio::spawn(async move { reviewer.node_of(&token(60, &n.to_string()), ADDRESS).await });
    }
    tokio::time::sleep(Duration::from_millis(100)).await;
    let begun = Instant::now();
    let honest = IpAddr::from([10, 0, 0, 2]);
    assert_eq!(reviewer.node_of(&token_of_honest(), honest).await.as_deref(), Ok("node-a"));
    assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
    assert_eq!(most.load(Ordering::Relaxed), 3, "two of the address that invents, and the honest one");
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert!(asked.load(Ordering::Relaxed) <= 12, "{} reviews", asked.load(Ordering::Relaxed));
}

/// The same at any time of a test.
fn token_of_honest() -> String {
    let mut honest = claims(0, "honest");
    honest["exp"] = json!(4_000_000_000_i64);
    saying(&honest)
}

#[tokio::test]
async fn an_api_server_that_is_away_is_not_a_bad_token_and_is_asked_again() {
    let (reviewer, asked) = reviewer(None);
    for _ in 0..2 {
        assert!(matches!(reviewer.node_of(&token(60, ""), ADDRESS).await, Err(TokenRefused::Unavailable(_))));
    }
    assert_eq!(asked.load(Ordering::Relaxed), 2);
}

/// How many of so many probes are let in how long after a restart of ours, each with a token and an
/// address of its own, as they come back: jittered over 4 s, and after a refusal over twice as
/// long, up to 30 s.
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
                let (token, address) = (token(3600, &probe.to_string()), IpAddr::V4((0x0a00_0000 + probe).into()));
                if reviewer.node_of(&token, address).await.is_ok() {
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
