//! The supplier for EC2 held against the rules that every supplier keeps, by the check of plugins.
#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::sync::Arc;
use std::time::Duration;

use aws_credential_types::Credentials;
use aws_credential_types::provider::SharedCredentialsProvider;
use stoker_aws::config::Config;
use stoker_aws::{Access, Aws};
use stoker_core::base::ids::{Cloud, ClusterName, InstanceType, Region, SupplierName, ZoneId};
use stoker_core::market::offer::{CapacityType, Market, Place};
use stoker_fake_ec2::{ACCESS_KEY, Peer, aws_yaml};
use stoker_plugin::check::{self, Plan, Rule, Verdict};
use stoker_plugin::dial::connect;
use stoker_plugin::server::Served;
use stoker_proto::supplier::Scope;
use stoker_service::clock::Clock;
use tokio_util::task::AbortOnDropHandle;

/// The supplier of a peer's account.
async fn supplier(url: &str, cluster: &ClusterName) -> Aws {
    let access = Access {
        transport: stoker_aws::https().unwrap(),
        credentials: Some(SharedCredentialsProvider::new(Credentials::new(ACCESS_KEY, "secret", None, None, "test"))),
        clock: Clock::system(),
    };
    let (config, book) = (Config::parse("aws.yaml", &aws_yaml(url)).unwrap(), stoker_pricing::embedded().unwrap());
    Aws::start(SupplierName::new("aws").unwrap(), cluster.clone(), (config, None), &book, access).await
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_of_ec2_keep_the_rules_of_every_supplier() {
    let (peer, cluster) = (Peer::new("111111111111"), ClusterName::new("check").unwrap());
    {
        let mut world = peer.world();
        (world.boot, world.shutting_down) = (Duration::from_secs(1), Duration::from_secs(1));
    }
    let cloud = peer.listen().await;
    let aws = supplier(cloud.url(), &cluster).await;
    let scope = Scope { name: "here".to_owned(), cloud: "aws".to_owned(), regions: vec!["us-east-1".to_owned()] };
    let served = Served::new(Arc::new(aws), cluster.clone(), Clock::system(), vec![scope]);
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("aws.sock");
    let path = socket.clone();
    let _serving = AbortOnDropHandle::new(tokio::spawn(async move { served.listen(&path, std::future::pending()).await }));
    while !socket.exists() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let place = Place {
        cloud: Cloud::new("aws").unwrap(),
        region: Region::new("us-east-1").unwrap(),
        zone: ZoneId::new("use1-az1").unwrap(),
        instance_type: InstanceType::new("g6.xlarge").unwrap(),
    };
    let market = Market { place, capacity_type: CapacityType::OnDemand };
    let plan = Plan { cluster: cluster.to_string(), market, gone_within: Duration::from_mins(1) };
    let verdicts = check::run(connect(&format!("unix://{}", socket.display()), None).unwrap(), plan).await.rules;
    // Nobody takes these back.
    let kept = |(rule, verdict): &&(Rule, Verdict)| *verdict == Verdict::Kept || *rule == Rule::Notice;
    let broken: Vec<_> = verdicts.iter().filter(|one| !kept(one)).collect();
    assert!(broken.is_empty(), "{broken:?}");
    for (token, zones) in peer.world().machines_by_token() {
        assert!(zones.len() == 1 && zones.values().all(|made| *made == 1), "{token} made {zones:?}");
    }
}
