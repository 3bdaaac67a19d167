use serde_json::{Value, json};
use stoker_core::base::ids::{SupplierName, ZoneName};
use stoker_core::facts::supply::MarketFacts;
use stoker_core::policy::rules::karpenter::BesideKarpenter;
use stoker_fake_apiserver as fake;

use super::*;
use crate::feeds::Feeds;
use crate::policy_file;
use crate::publish::view::NotReady;

fn node(name: &str, provider_id: &str, labels: &Value, capacity: &Value) -> OtherRow {
    serde_json::from_value(json!({
        "metadata": { "name": name, "labels": labels },
        "spec": { "providerID": provider_id },
        "status": { "capacity": capacity },
    }))
    .unwrap()
}

/// What a node tells, as `cloud/region/zone/capacity type/type: GPUs, vCPUs`, each `?` where it is not told; `None` without GPUs.
fn told(provider_id: &str, labels: &Value, capacity: &Value) -> Option<String> {
    let book = stoker_pricing::embedded().unwrap();
    let machine = node("n", provider_id, labels, capacity).machine;
    if !has_gpus(&machine, &book) {
        return None;
    }
    let aws = Cloud::new("aws").unwrap();
    let names = [((aws, ZoneId::new("use1-az4").unwrap()), ZoneName::new("us-east-1a").unwrap())];
    let facts = MarketFacts { zone_names: names.into(), ..MarketFacts::default() };
    let kind = kind_of(&machine, &book, &BTreeMap::from([(SupplierName::new("karpenter").unwrap(), facts)]));
    let part = |part: Option<String>| part.unwrap_or_else(|| "?".to_owned());
    Some(format!(
        "{}/{}/{}/{}/{}: {}, {}",
        part(kind.cloud.as_ref().map(ToString::to_string)),
        part(kind.region.as_ref().map(ToString::to_string)),
        part(kind.zone.as_ref().map(ToString::to_string)),
        part(kind.capacity_type.as_ref().map(ToString::to_string)),
        part(kind.spec.as_ref().map(|spec| spec.instance_type.to_string())),
        kind.gpus,
        kind.vcpus,
    ))
}

fn at(instance_type: &str, region: &str, zone: &str, more: (&str, &str)) -> Value {
    let mut labels = json!({ INSTANCE_TYPE: instance_type, REGION: region, ZONE: zone });
    labels[more.0] = more.1.into();
    labels
}

#[test]
fn a_market_is_told_by_the_labels_of_every_cloud() {
    let g6 = |more| at("g6.xlarge", "us-east-1", "us-east-1a", more);
    let t4 = |more| at("Standard_NC4as_T4_v3", "eastus", "eastus-1", more);
    let g2 = |more| at("g2-standard-4", "us-central1", "us-central1-a", more);
    for (provider_id, labels, expected) in [
        ("aws:///us-east-1a/i-1", g6(("karpenter.sh/capacity-type", "spot")), "aws/us-east-1/use1-az4/spot/g6.xlarge: 1, 4"),
        (
            "aws:///us-east-1a/i-1",
            g6(("karpenter.sh/capacity-type", "reserved")),
            "aws/us-east-1/use1-az4/reserved/g6.xlarge: 1, 4",
        ),
        (
            "aws:///us-east-1a/i-1",
            g6(("eks.amazonaws.com/capacityType", "ON_DEMAND")),
            "aws/us-east-1/use1-az4/on-demand/g6.xlarge: 1, 4",
        ),
        // The zone's own label comes first; and a node group that nobody labelled may be anything.
        ("aws:///us-east-1a/i-1", g6((ZONE_ID, "use1-az6")), "aws/us-east-1/use1-az6/?/g6.xlarge: 1, 4"),
        (
            "gce://p/us-central1-a/n",
            g2(("cloud.google.com/gke-spot", "true")),
            "gcp/us-central1/us-central1-a/spot/g2-standard-4: 1, 4",
        ),
        ("gce://p/us-central1-a/n", g2(("x", "")), "gcp/us-central1/us-central1-a/on-demand/g2-standard-4: 1, 4"),
        (
            "azure:///s/1",
            t4(("kubernetes.azure.com/scalesetpriority", "spot")),
            "azure/eastus/?/spot/Standard_NC4as_T4_v3: 1, 4",
        ),
        // Without a provider id, by the only cloud with that type.
        ("", g2(("x", "")), "gcp/us-central1/us-central1-a/on-demand/g2-standard-4: 1, 4"),
    ] {
        assert_eq!(told(provider_id, &labels, &json!({})).as_deref(), Some(expected));
    }
}

#[test]
fn a_node_that_no_table_has_counts_by_what_it_says_itself() {
    let capacity = json!({ "cpu": "48", "nvidia.com/gpu": "4" });
    let of = |labels: Value| told("aws:///us-east-1b/i-1", &labels, &capacity);
    let unknown = |more| at("g99.12xlarge", "us-east-1", "us-east-1b", more);
    assert_eq!(
        of(unknown(("karpenter.k8s.aws/instance-gpu-name", "l40s"))).as_deref(),
        Some("aws/us-east-1/?/?/g99.12xlarge: 4, 48")
    );
    // No label tells which GPUs these are.
    assert_eq!(of(unknown(("x", ""))).as_deref(), Some("aws/us-east-1/?/?/?: 4, 48"));
    assert_eq!(told("", &json!({}), &capacity).as_deref(), Some("?/?/?/?/?: 4, 48"));
}

#[test]
fn a_node_without_gpus_does_not_count() {
    assert_eq!(
        told("aws:///us-east-1a/i-1", &at("m7i.xlarge", "us-east-1", "us-east-1a", ("x", "")), &json!({ "cpu": "4" })),
        None
    );
    assert!(told("", &json!({}), &json!({ "nvidia.com/mig-1g.10gb": "7" })).is_some());
    let g6 = at("g6.xlarge", "us-east-1", "us-east-1a", ("x", ""));
    assert!(told("aws:///us-east-1a/i-1", &g6, &json!({})).is_some(), "its driver does not run yet");
}

#[test]
fn nodes_are_counted_once_they_are_listed_and_as_they_change() {
    let book = stoker_pricing::embedded().unwrap();
    let facts = AllMarketFacts::new();
    let row = |name, capacity_type| {
        let labels = at("g6.xlarge", "us-east-1", "us-east-1a", ("karpenter.sh/capacity-type", capacity_type));
        node(name, "aws:///us-east-1a/i-1", &labels, &json!({}))
    };
    let counts = |nodes: &mut Gathered| nodes.told(&book, &facts).map(|told| told.nodes.values().copied().collect::<Vec<_>>());
    let mut nodes = Gathered { claims: Some(BTreeMap::new()), ..Gathered::default() };
    for event in [Event::Init, Event::InitApply(row("a", "spot")), Event::InitApply(row("b", "spot"))] {
        assert!(!nodes.apply(event, &book));
    }
    assert_eq!(counts(&mut nodes), None, "half a list says nothing");
    assert!(nodes.apply(Event::InitDone, &book));
    assert_eq!(counts(&mut nodes), Some(vec![2]));
    assert!(!nodes.apply(Event::Apply(row("a", "spot")), &book), "a heartbeat changes nothing");
    assert!(nodes.apply(Event::Apply(row("a", "on-demand")), &book));
    assert_eq!(counts(&mut nodes), Some(vec![1, 1]));
    assert!(nodes.apply(Event::Delete(row("b", "spot")), &book));
    assert_eq!(counts(&mut nodes), Some(vec![1]));
}

#[test]
fn a_machine_counts_from_its_launch_until_its_node_counts() {
    let book = stoker_pricing::embedded().unwrap();
    let facts = AllMarketFacts::new();
    let labels = at("g6.xlarge", "us-east-1", "us-east-1a", ("karpenter.sh/capacity-type", "spot"));
    let claim = |provider_id: &str| -> ClaimRow {
        serde_json::from_value(json!({
            "metadata": { "name": "claim", "labels": labels },
            "status": { "providerID": provider_id, "capacity": { "cpu": "4", "nvidia.com/gpu": "1" } },
        }))
        .unwrap()
    };
    let mut nodes = Gathered { nodes: Some(Machines::new()), ..Gathered::default() };
    assert_eq!(nodes.told(&book, &facts), None, "claims are not listed");
    nodes.apply_claim(Event::InitDone, &book);
    let count = |nodes: &mut Gathered| nodes.told(&book, &facts).unwrap().nodes.values().sum::<u32>();
    assert!(!nodes.apply_claim(Event::Apply(claim("")), &book), "nothing is launched yet");
    assert_eq!(count(&mut nodes), 0);
    assert!(nodes.apply_claim(Event::Apply(claim("aws:///us-east-1a/i-1")), &book));
    assert_eq!(count(&mut nodes), 1);
    nodes.apply(Event::Apply(node("n", "aws:///us-east-1a/i-1", &labels, &json!({}))), &book);
    assert_eq!(count(&mut nodes), 1);
    nodes.apply_claim(Event::Delete(claim("aws:///us-east-1a/i-1")), &book);
    assert_eq!(count(&mut nodes), 1);
}

#[tokio::test(start_paused = true)]
async fn no_pass_is_made_while_nodes_that_count_are_not_known() {
    let text = "\
apiVersion: stoker.dev/v1alpha1
kind: Policy
clusterName: demo
pools:
- { name: a, workload: dev, gpu: { models: [L4] }, where: { clouds: [aws], regions: [us-east-1] }, limits: { maxNodes: 4 } }
quotas: [{ name: L-DB2E81BA, cloud: aws, region: us-east-1, limit: 64 }]
karpenter: { countNodes: true }
";
    let counting = policy_file::parse("policy.yaml", text, None).unwrap();
    let not_counting = Policy { karpenter: BesideKarpenter::default(), ..counting.clone() };
    let client = fake::client(|call| async move {
        if call.path.ends_with("/nodeclaims") {
            return fake::failure(http::StatusCode::NOT_FOUND, "NotFound");
        }
        assert_eq!(call.param("labelSelector"), Some("stoker.dev/cluster!=demo"));
        if call.is_watch() {
            return fake::watch(vec![]);
        }
        let labels = at("g6.xlarge", "us-east-1", "us-east-1a", ("karpenter.sh/capacity-type", "spot"));
        let metadata = json!({ "name": "theirs", "resourceVersion": "7", "labels": labels });
        fake::page(&[json!({ "metadata": metadata, "spec": { "providerID": "aws:///us-east-1a/i-1" } })], None)
    });
    let (policy, followed) = watch::channel(Arc::new(counting.clone()));
    let (_facts, facts) = watch::channel(Arc::default());
    let (_promised, promised) = watch::channel(None);
    let known = watch::Sender::new(None);
    let mut told = known.subscribe();
    let feeds = Feeds::new(&[], None).with_foreign(told.clone(), followed.clone());
    assert_eq!(feeds.ready(|_| false), Err(NotReady::Foreign));
    let book = Arc::new(stoker_pricing::embedded().unwrap());
    let feed = ForeignFeed { client, book, policy: followed, facts, promised, known, wake: Arc::default() };
    let task = tokio::spawn(feed.run());
    let nodes = told.wait_for(Option::is_some).await.unwrap().as_ref().map(|told| told.nodes.values().sum::<u32>());
    assert_eq!((nodes, feeds.ready(|_| false)), (Some(1), Ok(())));
    // Once they do not count, nobody follows them; and when they do again, they are listed anew.
    policy.send_replace(Arc::new(not_counting));
    told.wait_for(Option::is_none).await.unwrap();
    assert_eq!(feeds.ready(|_| false), Ok(()));
    policy.send_replace(Arc::new(counting));
    told.wait_for(Option::is_some).await.unwrap();
    task.abort();
}
