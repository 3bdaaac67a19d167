use serde_json::{Value, json};
use stoker_core::base::ids::NodeName;
use stoker_core::facts::supply::InstanceState;

use super::*;

const KEY: &str = "prod/gpu.g6-xlarge.us-east-1a/0c4de2a1/12/1";

fn key() -> LaunchKey {
    LaunchKey::new(KEY).unwrap()
}

/// The claim of [`KEY`] with that uid and status.
fn claim(uid: &str, status: &Value) -> Claim {
    let market = json!({ "cloud": "aws", "region": "us-east-1", "zone": "use1-az1", "instance_type": "g6.xlarge",
        "capacity_type": "spot" });
    let claim = json!({
        "metadata": {
            "name": claim::name(&key()),
            "uid": uid,
            "creationTimestamp": "2026-11-25T12:00:00Z",
            "annotations": { "stoker.dev/launch-key": KEY, "stoker.dev/market": market.to_string() },
        },
        "status": status,
    });
    serde_json::from_value(claim).unwrap()
}

fn waiting(uid: &str) -> Claim {
    let unknown = json!({ "type": "Launched", "status": "Unknown", "reason": "LaunchFailed", "message": "quota is used up" });
    claim(uid, &json!({ "conditions": [unknown] }))
}

fn launched(uid: &str) -> Claim {
    let launched = json!({ "type": "Launched", "status": "True", "reason": "Launched" });
    claim(uid, &json!({ "providerID": "aws:///i-1", "conditions": [launched] }))
}

/// A ledger whose listing is complete and empty.
fn listed(now: Instant) -> Ledger {
    let mut ledger = Ledger::default();
    ledger.claim(Event::Init, now);
    ledger.claim(Event::InitDone, now);
    ledger
}

fn refusal(standing: Standing) -> Refusal {
    match standing {
        Standing::Settled(LaunchOutcome::Refused(refusal)) => refusal,
        other => panic!("{other:?}"),
    }
}

#[test]
fn nothing_is_created_before_all_claims_are_listed() {
    let now = Instant::now();
    let mut ledger = Ledger::default();
    assert!(matches!(ledger.standing(&key(), true, now), Standing::Waits(_)));
    assert!(ledger.machines().is_none());
    ledger.claim(Event::Init, now);
    ledger.claim(Event::InitDone, now);
    assert!(matches!(ledger.standing(&key(), true, now), Standing::New));
}

#[test]
fn a_claim_that_is_launched_is_a_machine() {
    let now = Instant::now();
    let mut ledger = listed(now);
    ledger.created(waiting("a"), now);
    assert!(matches!(ledger.standing(&key(), true, now), Standing::Waits(_)));
    ledger.claim(Event::Apply(launched("a")), now);
    let Standing::Settled(LaunchOutcome::Launched(made)) = ledger.standing(&key(), true, now) else { panic!("not launched") };
    assert_eq!((made.key, made.state), (key(), InstanceState::Pending));
    // Until its Node has registered, the machine goes by the name of its claim.
    assert_eq!(made.node_name, NodeName::new(claim::name(&key())).unwrap());
    assert_eq!(ledger.machines().unwrap().len(), 1);
}

#[test]
fn a_claim_that_is_gone_is_out_of_capacity_by_its_event_alone() {
    let now = Instant::now();
    for event_first in [true, false] {
        let mut ledger = listed(now);
        ledger.created(waiting("a"), now);
        let said = |ledger: &mut Ledger| ledger.shortage("a", "no g6.xlarge there".to_owned(), now);
        if event_first {
            said(&mut ledger);
        }
        ledger.claim(Event::Delete(waiting("a")), now);
        if !event_first {
            // The Event may come after.
            assert!(matches!(ledger.standing(&key(), true, now), Standing::Waits(_)));
            said(&mut ledger);
        }
        let refusal = refusal(ledger.standing(&key(), true, now));
        assert_eq!((refusal.kind, refusal.message.as_str()), (RefusalKind::OutOfCapacity, "no g6.xlarge there"));
    }
}

#[test]
fn a_claim_that_is_gone_without_an_event_is_no_lack_of_capacity() {
    let now = Instant::now();
    let mut ledger = listed(now);
    ledger.created(waiting("a"), now);
    // Of another claim that had the same name.
    ledger.shortage("b", "no g6.xlarge there".to_owned(), now);
    ledger.claim(Event::Delete(waiting("a")), now);
    let refusal = refusal(ledger.standing(&key(), true, now + EVENT_WITHIN));
    assert_eq!(refusal.kind, RefusalKind::Config);
}

#[test]
fn a_claim_that_is_not_launched_within_a_minute_is_cut_and_says_why() {
    let now = Instant::now();
    let mut ledger = listed(now);
    ledger.created(waiting("a"), now);
    assert!(ledger.overdue(now + LAUNCHED_WITHIN - Duration::from_secs(1)).is_empty());
    let late = now + LAUNCHED_WITHIN;
    let overdue: Vec<String> = ledger.overdue(late).iter().map(|claim| claim.uid().to_owned()).collect();
    assert_eq!(overdue, ["a"]);
    ledger.cut(&claim::name(&key()));
    ledger.claim(Event::Delete(waiting("a")), late);
    let refusal = refusal(ledger.standing(&key(), true, late));
    assert_eq!(refusal.kind, RefusalKind::QuotaExceeded);
    assert!(refusal.message.contains("quota is used up"), "{}", refusal.message);
}

#[test]
fn few_claims_are_there_without_a_machine() {
    let now = Instant::now();
    let mut ledger = listed(now);
    assert!(ledger.has_room());
    for n in 0..MOST_UNLAUNCHED {
        let mut one = waiting(&format!("uid-{n}"));
        one.meta.name = Some(format!("stoker-{n:020}"));
        ledger.created(one, now);
    }
    assert!(!ledger.has_room());
    let mut one = launched("uid-0");
    one.meta.name = Some(format!("stoker-{:020}", 0));
    ledger.claim(Event::Apply(one), now);
    assert!(ledger.has_room());
}

#[test]
fn a_machine_that_is_gone_is_not_made_again_under_its_key() {
    let now = Instant::now();
    let mut ledger = listed(now);
    ledger.claim(Event::Apply(launched("a")), now);
    // A listing after a gap no longer has it.
    let later = now + Duration::from_secs(1);
    ledger.claim(Event::Init, later);
    ledger.claim(Event::InitDone, later);
    assert!(ledger.machines().unwrap().is_empty());
    let refusal = refusal(ledger.standing(&key(), true, now));
    assert!(refusal.message.contains("its machine has ended"), "{}", refusal.message);
}

#[test]
fn what_the_watch_said_last_is_not_undone_by_a_late_answer() {
    let now = Instant::now();
    let mut ledger = listed(now);
    ledger.claim(Event::Apply(launched("a")), now);
    ledger.created(waiting("a"), now);
    assert!(ledger.has_room());
    assert_eq!(ledger.machines().unwrap().len(), 1);
    ledger.claim(Event::Delete(launched("a")), now);
    ledger.created(waiting("a"), now);
    assert!(ledger.machines().unwrap().is_empty() && ledger.has_room());
}

#[test]
fn claims_of_others_with_the_clusters_label_are_left_alone() {
    let now = Instant::now();
    let mut ledger = listed(now);
    // As Karpenter names claims of a NodePool `stoker-gpu` whose template bears the label.
    for name in ["stoker-gpu-x7k2p", "stoker-0123456789", "default-0123456789abcdef0123"] {
        let mut other = waiting(name);
        other.meta.name = Some(name.to_owned());
        ledger.claim(Event::Apply(other), now);
    }
    assert!(ledger.has_room() && ledger.overdue(now + LAUNCHED_WITHIN).is_empty());
    // One of Stoker's that somebody spoilt still is a machine: the inventory is not whole.
    let mut spoilt = launched("a");
    spoilt.meta.annotations = None;
    ledger.claim(Event::Apply(spoilt), now);
    assert!(matches!(ledger.standing(&key(), true, now), Standing::Waits(_)));
    assert_eq!((ledger.machines().unwrap().len(), ledger.unreadable().len()), (0, 1));
}

#[test]
fn a_used_up_quota_is_told_from_a_lack_of_capacity() {
    let now = Instant::now();
    let mut ledger = listed(now);
    ledger.created(waiting("a"), now);
    ledger.shortage("a", "MaxSpotInstanceCountExceeded: Max spot instance count exceeded".to_owned(), now);
    ledger.claim(Event::Delete(waiting("a")), now);
    assert_eq!(refusal(ledger.standing(&key(), true, now)).kind, RefusalKind::QuotaExceeded);
}

#[test]
fn without_events_a_claim_that_is_gone_is_taken_for_a_lack_of_capacity() {
    let now = Instant::now();
    let mut ledger = listed(now);
    ledger.created(waiting("a"), now);
    ledger.claim(Event::Delete(waiting("a")), now);
    let refusal = refusal(ledger.standing(&key(), false, now + EVENT_WITHIN));
    assert_eq!(refusal.kind, RefusalKind::OutOfCapacity);
}

#[test]
fn a_claim_that_the_server_no_longer_has_takes_no_place() {
    let now = Instant::now();
    let mut ledger = listed(now);
    ledger.created(waiting("a"), now);
    ledger.gone(&waiting("b"), now);
    assert_eq!(ledger.overdue(now + LAUNCHED_WITHIN).len(), 1, "another had that uid");
    ledger.gone(&waiting("a"), now);
    assert!(ledger.overdue(now + LAUNCHED_WITHIN).is_empty());
}

#[test]
fn a_claim_that_is_created_during_a_listing_is_not_lost() {
    let now = Instant::now();
    let mut ledger = listed(now);
    let later = now + Duration::from_secs(1);
    ledger.claim(Event::Init, later);
    ledger.created(waiting("a"), later);
    ledger.claim(Event::InitDone, later);
    assert!(matches!(ledger.standing(&key(), true, later + EVENT_WITHIN), Standing::Waits(_)));
}

#[test]
fn an_answer_that_names_a_used_up_quota_is_a_refusal_of_that_quota() {
    let now = Instant::now();
    for (answer, scope) in [
        ("Quota 'NVIDIA_L4_GPUS' exceeded. Limit: 1.0 in region us-central1", Some("NVIDIA_L4_GPUS")),
        ("Quota 'PREEMPTIBLE_NVIDIA_L4_GPUS' exceeded", Some("PREEMPTIBLE_NVIDIA_L4_GPUS")),
        ("exceeding approved standardNCADSA100v4Family Cores quota", Some("StandardNCADSA100v4Family")),
        ("exceeding approved standardXYFamily Cores quota", None),
        ("VcpuLimitExceeded: You have requested more vCPU capacity than your current vCPU limit of 0 allows", None),
    ] {
        let mut ledger = listed(now);
        ledger.created(waiting("a"), now);
        ledger.shortage("a", answer.to_owned(), now);
        ledger.claim(Event::Delete(waiting("a")), now);
        let refusal = refusal(ledger.standing(&key(), true, now));
        let scope = scope.map_or(RefusalScope::Market, |name| RefusalScope::Quota(name.to_owned()));
        assert_eq!((refusal.kind, refusal.scope), (RefusalKind::QuotaExceeded, scope), "{answer}");
    }
}

#[test]
fn a_reservation_without_room_is_refused_alone() {
    let now = Instant::now();
    let claim = || {
        let mut claim = serde_json::to_value(waiting("a").meta).unwrap();
        claim = json!({ "metadata": claim, "spec": { "requirements": [
            { "key": "karpenter.sh/capacity-type", "operator": "In", "values": ["reserved"] },
            { "key": "karpenter.k8s.aws/capacity-reservation-id", "operator": "In", "values": ["cr-0a1b"] },
        ] } });
        serde_json::from_value::<Claim>(claim).unwrap()
    };
    let mut ledger = listed(now);
    ledger.created(claim(), now);
    ledger.shortage("a", "no instance type has room".to_owned(), now);
    ledger.claim(Event::Delete(claim()), now);
    let refusal = refusal(ledger.standing(&key(), true, now));
    let scope = RefusalScope::Reservation("cr-0a1b".to_owned());
    assert_eq!((refusal.kind, refusal.scope), (RefusalKind::OutOfCapacity, scope));
}
