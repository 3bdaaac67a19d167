//! A supplier and its peer in one process, by one clock that stands still while everybody works.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use aws_credential_types::Credentials;
use aws_credential_types::provider::SharedCredentialsProvider;
use futures::FutureExt as _;
use jiff::{SignedDuration, Timestamp};
use stoker_aws::config::Config;
use stoker_aws::{Access, Aws, NoAnswer, Transport};
use stoker_core::base::engine_clock::Wall;
use stoker_core::base::ids::{
    Cloud, ClusterName, InstanceType, LaunchKey, NodeClassName, NodeGroupId, ProviderId, Region, SupplierName, ZoneId, ZoneName,
};
use stoker_core::base::kinds::{Taint, TaintEffect};
use stoker_core::catalogue::template::Reserves;
use stoker_core::facts::supply::{Instance, LaunchOutcome, LaunchRequest, MarketFacts, Observation, Refusal};
use stoker_core::market::offer::{CapacityType, InstanceSpec, Market, Place};
use stoker_fake_ec2::{ACCESS_KEY, Peer, World};
use stoker_service::clock::{Clock, VirtualClock};
use stoker_service::suppliers::{Launch, Supplier as _, SupplierError};
use tokio::time::{Instant, sleep};

/// The account of the peer.
pub(crate) const ACCOUNT: &str = "111111111111";

/// A file that names what the peer has.
pub(crate) const FILE: &str = "
apiVersion: stoker.dev/v1alpha1
kind: AwsSupplier
cluster: { name: prod }
regions:
- name: us-east-1
  subnets: { tags: { stoker.dev/discovery: prod } }
  securityGroups: { tags: { stoker.dev/discovery: prod } }
nodeClasses:
  gpu: { instanceProfile: stoker-node }
";

/// A supplier and its peer.
pub(crate) struct Bench {
    pub(crate) peer: Peer,
    pub(crate) aws: Aws,
    transport: Transport,
    clock: Clock,
    file: String,
}

impl Bench {
    /// Both, from now on. The time must be paused.
    pub(crate) async fn new() -> Self {
        Self::with_file(FILE).await
    }

    /// The same with a file of the test's own.
    pub(crate) async fn with_file(file: &str) -> Self {
        let start: Timestamp = "2026-11-02T12:00:00Z".parse().unwrap();
        let begun = Instant::now();
        let moment = move || start + SignedDuration::try_from(begun.elapsed()).unwrap();
        let moved = VirtualClock::new(start);
        let hand = Arc::clone(&moved);
        tokio::spawn(async move {
            loop {
                sleep(Duration::from_millis(500)).await;
                hand.advance_to(moment());
            }
        });
        let peer = Peer::with_clock(ACCOUNT, Arc::new(moment));
        let asked = peer.clone();
        let transport: Transport = Arc::new(move |request, within| {
            let peer = asked.clone();
            async move {
                let cut = || NoAnswer { sent: true, why: "the connection was cut".to_owned() };
                match tokio::time::timeout(within, peer.answer(request)).await {
                    Ok(answer) => answer.ok_or_else(cut),
                    Err(_) => Err(NoAnswer { sent: true, why: "no answer in time".to_owned() }),
                }
            }
            .boxed()
        });
        let clock = Clock::Virtual(moved);
        let aws = supplier(file, &transport, &clock, ACCESS_KEY).await;
        Self { peer, aws, transport, clock, file: file.to_owned() }
    }

    /// The supplier begins anew, as after a crash: it has forgotten all.
    pub(crate) async fn restart(&mut self) {
        self.restart_with(&self.file.clone(), ACCESS_KEY).await;
    }

    /// The same with another file, or other credentials.
    pub(crate) async fn restart_with(&mut self, file: &str, access_key: &str) {
        self.aws = supplier(file, &self.transport, &self.clock, access_key).await;
        file.clone_into(&mut self.file);
    }

    /// The cloud's side.
    pub(crate) fn world<T>(&self, change: impl FnOnce(&mut World) -> T) -> T {
        change(&mut self.peer.world())
    }

    /// The time.
    pub(crate) fn now(&self) -> Timestamp {
        self.peer.now()
    }

    /// Asks for these machines.
    pub(crate) async fn launch_all(&self, batch: &[Launch]) -> BTreeMap<LaunchKey, LaunchOutcome> {
        self.aws.launch(self.now(), batch.to_vec()).await.into_iter().collect()
    }

    /// Asks for a machine.
    pub(crate) async fn launch(&self, launch: &Launch) -> LaunchOutcome {
        let mut all = self.launch_all(std::slice::from_ref(launch)).await;
        all.remove(&launch.request.key).unwrap()
    }

    /// A machine that must be had.
    pub(crate) async fn made(&self, launch: &Launch) -> Instance {
        match self.launch(launch).await {
            LaunchOutcome::Launched(made) => made,
            other => panic!("not launched: {other:?}"),
        }
    }

    /// A machine that must be refused.
    pub(crate) async fn refused(&self, launch: &Launch) -> Refusal {
        match self.launch(launch).await {
            LaunchOutcome::Refused(refusal) => refusal,
            other => panic!("not refused: {other:?}"),
        }
    }

    /// A launch of which nothing must be known.
    pub(crate) async fn unclear(&self, launch: &Launch) -> String {
        match self.launch(launch).await {
            LaunchOutcome::Unclear { message, .. } => message,
            other => panic!("not unclear: {other:?}"),
        }
    }

    /// The machines.
    pub(crate) async fn list(&self) -> Result<Observation, SupplierError> {
        self.aws.observe(self.now()).await
    }

    /// Ends machines.
    pub(crate) async fn end(&self, ids: &[ProviderId]) -> BTreeMap<ProviderId, Result<(), SupplierError>> {
        self.aws.terminate(self.now(), ids.to_vec()).await.into_iter().collect()
    }

    /// What is told of markets.
    pub(crate) async fn facts(&self) -> MarketFacts {
        self.aws.market_facts(Wall(self.now())).await.unwrap()
    }

    /// A launch for a machine of that type, first asked for now.
    pub(crate) fn order(&self, record: u64, instance_type: &str, zone: &str, bought: CapacityType) -> Launch {
        let place = Place {
            cloud: Cloud::new("aws").unwrap(),
            region: Region::new("us-east-1").unwrap(),
            zone: ZoneId::new(zone).unwrap(),
            instance_type: InstanceType::new(instance_type).unwrap(),
        };
        let name = match zone {
            "use1-az1" => "us-east-1a",
            "use1-az2" => "us-east-1b",
            _ => "us-east-1c",
        };
        let group = format!("training.{}.{name}", instance_type.replace('.', "-"));
        let request = LaunchRequest {
            key: LaunchKey::new(format!("prod/{group}/0c4de2a1/{record}/1")).unwrap(),
            group: NodeGroupId::new(&group).unwrap(),
            market: Market { place, capacity_type: bought },
            zone_name: ZoneName::new(name).unwrap(),
            reservation: None,
        };
        let labels = [
            ("stoker.dev/cluster", "prod"),
            ("stoker.dev/pool", "training"),
            ("stoker.dev/group", group.as_str()),
            ("stoker.dev/gpu", "L4"),
            ("topology.kubernetes.io/zone", name),
        ];
        let taint = Taint { key: "nvidia.com/gpu".to_owned(), value: "true".to_owned(), effect: TaintEffect::NoSchedule };
        Launch {
            first_asked: self.now(),
            node_class: Some(NodeClassName::new("gpu").unwrap()),
            labels: labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into(),
            taints: vec![taint],
            gpus: 1,
            pods: 58,
            kept: Reserves { milli_cpu: 80, memory: stoker_core::base::units::MiB(893) },
            spec: Some(Arc::new(spec(instance_type))),
            ..request.into()
        }
    }

    /// A launch of a g6.xlarge in the first zone on demand.
    pub(crate) fn usual(&self, record: u64) -> Launch {
        self.order(record, "g6.xlarge", "use1-az1", CapacityType::OnDemand)
    }
}

async fn supplier(file: &str, transport: &Transport, clock: &Clock, access_key: &str) -> Aws {
    let config = Config::parse("aws.yaml", file).unwrap();
    let credentials = Credentials::new(access_key, "secret", None, None, "test");
    let access = Access {
        transport: Arc::clone(transport),
        credentials: Some(SharedCredentialsProvider::new(credentials)),
        clock: clock.clone(),
    };
    let book = stoker_pricing::embedded().unwrap();
    let (name, cluster) = (SupplierName::new("aws").unwrap(), ClusterName::new("prod").unwrap());
    Aws::start(name, cluster, (config, None), &book, access).await
}

/// What the price tables say of a type.
fn spec(instance_type: &str) -> InstanceSpec {
    let book = stoker_pricing::embedded().unwrap();
    let is_it = |spec: &&Arc<InstanceSpec>| spec.cloud.as_str() == "aws" && spec.instance_type.as_str() == instance_type;
    let spec = book.specs().find(is_it).unwrap_or_else(|| panic!("the tables have no {instance_type}"));
    InstanceSpec::clone(spec)
}
