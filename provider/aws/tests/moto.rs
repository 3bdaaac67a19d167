//! The supplier against moto, an emulator that others wrote: that calls and answers have the form that AWS's own tools agree on.
//!
//! `tests/aws-moto.sh` starts moto and runs this; it is not asked about tokens, states, prices or reservations, of which it knows nothing.
#![expect(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::collections::BTreeSet;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use stoker_aws::check::check;
use stoker_aws::config::Config;
use stoker_aws::{Access, Aws};
use stoker_core::base::engine_clock::Wall;
use stoker_core::base::ids::{
    Cloud, ClusterName, InstanceType, LaunchKey, NodeClassName, NodeGroupId, ProviderId, Region, SupplierName, ZoneName,
};
use stoker_core::facts::supply::{InstanceState, LaunchOutcome, LaunchRequest, Observation};
use stoker_core::market::offer::{CapacityType, InstanceSpec, Market, Place};
use stoker_fake_ec2::SERVICES;
use stoker_service::clock::Clock;
use stoker_service::suppliers::{Launch, Supplier as _};
use tokio::time::sleep;

/// Machines: more than the two calls at once, and of both kinds.
const MACHINES: u64 = 6;

fn file(url: &str) -> String {
    let endpoints = SERVICES.map(|service| format!("{service}: {url}")).join(", ");
    // Moto has no cluster of EKS that says the same twice.
    format!(
        "
apiVersion: stoker.dev/v1alpha1
kind: AwsSupplier
cluster:
  name: prod
  endpoint: https://10.0.0.1:6443
  certificateAuthority: Y2E=
  serviceCidr: 10.100.0.0/16
  version: '1.33'
regions:
- name: us-east-1
  subnets: {{ tags: {{ stoker.dev/discovery: prod }} }}
  securityGroups: {{ tags: {{ stoker.dev/discovery: prod }} }}
  interruptionQueue: stoker-moto
  endpoints: {{ {endpoints} }}
nodeClasses:
  gpu: {{ instanceProfile: stoker-node, image: {{ ssm: /stoker/image }} }}
"
    )
}

fn launch(record: u64, place: &Place, zone_name: &ZoneName, bought: CapacityType, spec: &Arc<InstanceSpec>) -> Launch {
    let request = LaunchRequest {
        key: LaunchKey::new(format!("prod/training.g/0c4de2a1/{record}/1")).unwrap(),
        group: NodeGroupId::new("training.g").unwrap(),
        market: Market { place: place.clone(), capacity_type: bought },
        zone_name: zone_name.clone(),
        reservation: None,
    };
    let node_class = Some(NodeClassName::new("gpu").unwrap());
    Launch { first_asked: Timestamp::now(), node_class, spec: Some(Arc::clone(spec)), ..request.into() }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "tests/aws-moto.sh starts moto"]
async fn machines_are_made_listed_told_of_and_ended() {
    let url = std::env::var("STOKER_MOTO_URL").unwrap();
    let (config, book) = (Config::parse("aws.yaml", &file(&url)).unwrap(), stoker_pricing::embedded().unwrap());
    let access = Access::of_system(Clock::system()).unwrap();
    let (name, cluster) = (SupplierName::new("aws").unwrap(), ClusterName::new("prod").unwrap());

    // What moto does not have fails, and is told of; the rest is as the file says.
    let found = check(&config, &cluster, &book, &access, None).await.unwrap();
    let fails: BTreeSet<&str> = found.iter().filter(|one| one.told.is_err()).map(|one| one.what.as_str()).collect();
    assert!(fails.is_subset(&["reservations", "quotas", "list prices", "paid beforehand"].into()), "{found:#?}");
    assert!(found.iter().any(|one| one.what.starts_with("launch gpu") && one.told.is_ok()), "{found:#?}");

    let aws = Aws::start(name, cluster, (config, None), &book, access).await;
    let facts = aws.market_facts(Wall(Timestamp::now())).await.unwrap();
    let region = (Cloud::new("aws").unwrap(), Region::new("us-east-1").unwrap());
    let g6 = InstanceType::new("g6.xlarge").unwrap();
    let sold: Vec<&Place> = facts.offered[&region].iter().filter(|place| place.instance_type == g6).collect();
    assert!(sold.len() > 1, "moto sells g6.xlarge in zones {sold:?}");
    let place = sold[0];
    let zone_name = &facts.zone_names[&(place.cloud.clone(), place.zone.clone())];
    let spec = book.spec(&place.cloud, &g6).unwrap();

    let bought = |record: u64| if record.is_multiple_of(2) { CapacityType::Spot } else { CapacityType::OnDemand };
    let batch: Vec<Launch> = (0..MACHINES).map(|record| launch(record, place, zone_name, bought(record), spec)).collect();
    let outcomes = aws.launch(Timestamp::now(), batch.clone()).await;
    let made: BTreeSet<ProviderId> = outcomes
        .iter()
        .map(|(key, outcome)| match outcome {
            LaunchOutcome::Launched(made) => made.provider_id.clone(),
            other => panic!("{key}: {other:?}"),
        })
        .collect();
    assert_eq!(made.len(), batch.len());
    let listed = listing(&aws, |listed| listed.instances.values().all(|one| one.state == InstanceState::Running)).await;
    assert_eq!(listed.instances.keys().cloned().collect::<BTreeSet<_>>(), made);
    for (record, launch) in (0..).zip(&batch) {
        let of_key: Vec<_> = listed.instances.values().filter(|one| one.key == launch.request.key).collect();
        assert_eq!(of_key.iter().map(|one| &one.market).collect::<Vec<_>>(), [&launch.request.market], "record {record}");
    }

    // A notice by the way that it takes on AWS.
    let taken = made.iter().next().unwrap();
    let id = taken.as_str().rsplit('/').next().unwrap();
    let told = Command::new("python3").arg(std::env::var("STOKER_MOTO_NOTICE").unwrap()).arg(id).status().unwrap();
    assert!(told.success());
    let is_taken = |listed: &Observation| matches!(listed.instances[taken].state, InstanceState::Reclaiming { .. });
    listing(&aws, is_taken).await;

    let ended = aws.terminate(Timestamp::now(), made.iter().cloned().collect()).await;
    assert!(ended.iter().all(|(_, end)| end.is_ok()), "{ended:?}");
    listing(&aws, |listed| listed.instances.is_empty()).await;
}

/// The listing, once it is so.
async fn listing(aws: &Aws, is_so: impl Fn(&Observation) -> bool) -> Observation {
    let mut last = None;
    for _ in 0..100 {
        let listed = aws.observe(Timestamp::now()).await.unwrap();
        if is_so(&listed) {
            return listed;
        }
        last = Some(listed);
        sleep(Duration::from_millis(300)).await;
    }
    panic!("not within 30 s: {last:#?}")
}
