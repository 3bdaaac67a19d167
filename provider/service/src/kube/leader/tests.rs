use jiff::{SignedDuration, Timestamp};
use serde_json::json;
use stoker_fake_apiserver::ApiServer;
use tokio::task::JoinHandle;

use super::*;
use crate::clock::VirtualClock;

const PATH: &str = "/apis/coordination.k8s.io/v1/namespaces/stoker/leases/stoker";

fn server() -> ApiServer {
    let server = ApiServer::new(Timestamp::now);
    server.serve_kind("leases");
    server
}

/// A replica whose clock is off by that much.
fn candidate(server: &ApiServer, off: SignedDuration) -> Candidate {
    let clock = if off.is_zero() { Clock::system() } else { Clock::Virtual(VirtualClock::new(Timestamp::now() + off)) };
    Candidate::new(server.client(), "stoker/stoker".parse().unwrap(), clock)
}

/// A replica that leads, and what keeps its Lease.
async fn leader(server: &ApiServer) -> (Leader, JoinHandle<Candidate>) {
    let mut candidate = candidate(server, SignedDuration::ZERO);
    let leader = candidate.wait().await;
    let kept = leader.clone();
    let keeping = tokio::spawn(async move {
        candidate.keep(&kept).await;
        candidate
    });
    (leader, keeping)
}

/// How long another replica waits until it leads.
async fn waited(server: &ApiServer, off: SignedDuration) -> Duration {
    let begun = Instant::now();
    candidate(server, off).wait().await;
    begun.elapsed()
}

#[tokio::test(start_paused = true)]
async fn another_leads_only_once_the_first_is_gone_for_the_whole_duration() {
    let server = server();
    let (first, keeping) = leader(&server).await;
    let mut other = candidate(&server, SignedDuration::ZERO);
    assert!(timeout(Duration::from_mins(5), other.wait()).await.is_err(), "the first renews it");
    assert!(first.leads());
    assert!(other.standing()().contains("leads, by Lease stoker/stoker"), "{}", other.standing()());
    // It crashes: from its last renewal on it holds for twelve seconds.
    keeping.abort();
    let begun = Instant::now();
    other.wait().await;
    let waited = begun.elapsed();
    assert!(waited > Duration::from_secs(9) && waited < Duration::from_secs(15), "{waited:?}");
    assert!(!first.leads(), "it acted no more before another did");
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_is_given_back_is_taken_at_once() {
    let server = server();
    let mut first = candidate(&server, SignedDuration::ZERO);
    first.wait().await;
    first.give_back().await;
    assert!(waited(&server, SignedDuration::ZERO).await < Duration::from_secs(2));
    // What another has by now is not given back.
    first.give_back().await;
    assert!(waited(&server, SignedDuration::ZERO).await > Duration::from_secs(9));
}

#[tokio::test(start_paused = true)]
async fn clocks_that_differ_make_no_difference() {
    for off in [SignedDuration::from_mins(5), -SignedDuration::from_mins(5)] {
        let server = server();
        let (_first, keeping) = leader(&server).await;
        sleep(Duration::from_secs(5)).await;
        keeping.abort();
        let waited = waited(&server, off).await;
        assert!(waited > Duration::from_secs(9) && waited < Duration::from_secs(15), "{off}: {waited:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_somebody_deletes_is_made_again_by_who_leads() {
    let server = server();
    let (first, _keeping) = leader(&server).await;
    server.remove(PATH).unwrap();
    sleep(Duration::from_secs(5)).await;
    assert!(first.leads() && server.get(PATH).is_some());
}

/// Another led meanwhile and stopped: what this replica knows is of before.
#[tokio::test(start_paused = true)]
async fn who_stood_still_does_not_lead_on_by_a_lease_that_is_free() {
    let server = server();
    let mut first = candidate(&server, SignedDuration::ZERO);
    let lead = first.wait().await;
    let mut other = candidate(&server, SignedDuration::ZERO);
    other.wait().await;
    other.give_back().await;
    first.keep(&lead).await;
    assert!(!lead.leads());
    assert!(waited(&server, SignedDuration::ZERO).await < Duration::from_secs(2), "it gave the Lease back");
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_somebody_gives_to_another_ends_the_lead() {
    let server = server();
    let (first, keeping) = leader(&server).await;
    server.edit(PATH, |lease| lease["spec"]["holderIdentity"] = json!("somebody"));
    first.lost().await;
    assert!(!first.leads());
    drop(keeping.await.unwrap());
    // Nobody renews it: it ends as any other.
    assert!(waited(&server, SignedDuration::ZERO).await < Duration::from_secs(15));
}

#[tokio::test(start_paused = true)]
async fn a_duration_that_somebody_edits_is_believed_within_bounds() {
    for (seconds, least, most) in [(0, 11, 15), (i32::MAX, 59, 63)] {
        let server = server();
        let (_first, keeping) = leader(&server).await;
        keeping.abort();
        server.edit(PATH, |lease| lease["spec"]["leaseDurationSeconds"] = json!(seconds));
        let waited = waited(&server, SignedDuration::ZERO).await.as_secs();
        assert!((least..=most).contains(&waited), "{seconds}: {waited} s");
    }
}

#[tokio::test(start_paused = true)]
async fn who_cannot_renew_acts_no_more_before_another_may() {
    let server = server();
    let (first, _keeping) = leader(&server).await;
    server.answer(|_, _| Some(stoker_fake_apiserver::failure(http::StatusCode::INTERNAL_SERVER_ERROR, "InternalError")));
    sleep(Duration::from_secs(7)).await;
    assert!(first.leads(), "a short fault changes nothing");
    sleep(Duration::from_secs(4)).await;
    assert!(!first.leads());
    first.lost().await;
}

#[test]
fn a_lease_is_named_by_namespace_and_name() {
    assert_eq!("stoker/lead".parse::<LeaseName>().unwrap().to_string(), "stoker/lead");
    for text in ["stoker", "/lead", "stoker/"] {
        assert!(text.parse::<LeaseName>().unwrap_err().contains("NAMESPACE/NAME"), "{text}");
    }
}
