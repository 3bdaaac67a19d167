use futures::FutureExt as _;
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
    candidate_who(server, off, false)
}

/// The same, which can write to the journal or not.
fn candidate_who(server: &ApiServer, off: SignedDuration, writes: bool) -> Candidate {
    let clock = if off.is_zero() { Clock::system() } else { Clock::Virtual(VirtualClock::new(Timestamp::now() + off)) };
    let try_write = move || async move { writes }.boxed();
    Candidate::new(server.client(), "stoker/stoker".parse().unwrap(), clock, Box::new(try_write))
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

#[tokio::test(start_paused = true)]
async fn a_leader_that_cannot_write_is_relieved_by_a_replica_that_can() {
    let server = server();
    let (first, keeping) = leader(&server).await;
    let mut blind = candidate_who(&server, SignedDuration::ZERO, false);
    let mut sound = candidate_who(&server, SignedDuration::ZERO, true);
    let minutes = Duration::from_mins(2);
    // A short fault is nobody's affair.
    first.note_write(false);
    assert!(timeout(Duration::from_secs(8), sound.wait()).await.is_err());
    first.note_write(true);
    assert!(timeout(minutes, sound.wait()).await.is_err());
    // The database is away from everybody: the leader goes on answering reads.
    first.note_write(false);
    assert!(timeout(minutes, blind.wait()).await.is_err());
    assert!(first.leads());
    let second = timeout(Duration::from_secs(5), sound.wait()).await.unwrap();
    first.lost().await;
    drop(keeping.await.unwrap());
    // The next leader begins anew.
    assert!(second.leads() && server.get(PATH).unwrap()["metadata"]["annotations"][UNWRITTEN].is_null());
}

#[tokio::test(start_paused = true)]
async fn who_does_not_lead_any_more_changes_nothing_in_the_cluster() {
    let server = server();
    let leader = Leader::from(Instant::now());
    let guarded = Api::<Lease>::namespaced(leader.guard(server.client()), "stoker");
    let lease = Lease { metadata: ObjectMeta { name: Some("stoker".to_owned()), ..ObjectMeta::default() }, spec: None };
    guarded.create(&PostParams::default(), &lease).await.unwrap();
    sleep(ACTS_FOR).await;
    let refused = guarded.delete("stoker", &kube::api::DeleteParams::default()).await.unwrap_err();
    assert!(in_words(&refused).contains("does not lead any more"), "{}", in_words(&refused));
    assert!(guarded.get("stoker").await.is_ok(), "it may still read");
}

#[test]
fn a_lease_is_named_by_namespace_and_name() {
    assert_eq!("stoker/lead".parse::<LeaseName>().unwrap().to_string(), "stoker/lead");
    for text in ["stoker", "/lead", "stoker/"] {
        assert!(text.parse::<LeaseName>().unwrap_err().contains("NAMESPACE/NAME"), "{text}");
    }
}
