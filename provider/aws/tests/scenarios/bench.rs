//! A supplier and its peer in one process, by one clock that stands still while everybody works.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use aws_credential_types::Credentials;
use aws_credential_types::provider::future::ProvideCredentials as Provided;
use aws_credential_types::provider::{ProvideCredentials, SharedCredentialsProvider};
use futures::FutureExt as _;
use jiff::{SignedDuration, Timestamp};
use stoker_aws::check::{Finding, OfPolicy};
use stoker_aws::config::Config;
use stoker_aws::{Access, Aws, NoAnswer, Transport};
use stoker_core::base::engine_clock::Wall;
use stoker_core::base::ids::{
    Cloud, ClusterName, InstanceType, LaunchKey, NodeClassName, NodeGroupId, ProviderId, Region, SupplierName, ZoneId, ZoneName,
};
use stoker_core::base::kinds::{Taint, TaintEffect};
use stoker_core::catalogue::template::Reserves;
use stoker_core::facts::supply::{Instance, InstanceState, LaunchOutcome, LaunchRequest, MarketFacts, Observation, Refusal};
use stoker_core::market::offer::{CapacityType, InstanceSpec, Market, Place};
use stoker_core::market::price::PriceBook;
use stoker_core::policy::RawCommitment;
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

/// The price tables: they take a while to read.
pub(crate) static BOOK: LazyLock<PriceBook> = LazyLock::new(|| stoker_pricing::embedded().unwrap());

/// The same file with a line more for each region.
pub(crate) fn file_with(region: &str) -> String {
    FILE.replace("nodeClasses:", &format!("  {region}\nnodeClasses:"))
}

/// The same file with another region.
pub(crate) fn file_of_two_regions() -> String {
    file_with(
        "\n- name: us-west-2\n  subnets: { tags: { stoker.dev/discovery: prod } }\n  securityGroups: { tags: { stoker.dev/discovery: prod } }",
    )
}

/// The credentials of the moment: the access key that counts now.
#[derive(Debug, Clone)]
struct Rotated(Arc<Mutex<String>>);

impl ProvideCredentials for Rotated {
    fn provide_credentials<'a>(&'a self) -> Provided<'a>
    where
        Self: 'a,
    {
        let key = self.0.lock().unwrap().clone();
        Provided::ready(Ok(Credentials::new(key, "secret", None, None, "test")))
    }
}

/// A supplier and its peer. When it goes, no token may have made two machines or been used in two zones: scenario 6.
pub(crate) struct Bench {
    pub(crate) peer: Peer,
    pub(crate) aws: Arc<Aws>,
    transport: Transport,
    clock: Clock,
    file: String,
    path: Option<PathBuf>,
    key: Rotated,
    /// By how many seconds the peer's clock is ahead of the supplier's.
    ahead: Arc<AtomicI64>,
    canned: Arc<Mutex<BTreeMap<String, String>>>,
}

impl Bench {
    /// Both, from now on. The time must be paused.
    pub(crate) async fn new() -> Self {
        Self::with_file(FILE).await
    }

    /// The same with a file of the test's own.
    pub(crate) async fn with_file(file: &str) -> Self {
        Self::with(file, None).await
    }

    /// The same with that file, which is read again from where it lies.
    pub(crate) async fn with_file_at(path: &Path) -> Self {
        Self::with(&std::fs::read_to_string(path).unwrap(), Some(path.to_owned())).await
    }

    async fn with(file: &str, path: Option<PathBuf>) -> Self {
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
        let ahead = Arc::new(AtomicI64::new(0));
        let by = Arc::clone(&ahead);
        let theirs = move || moment() + SignedDuration::from_secs(by.load(Ordering::SeqCst));
        let peer = Peer::with_clock(ACCOUNT, Arc::new(theirs));
        let canned = Arc::new(Mutex::new(BTreeMap::new()));
        let (key, clock) = (Rotated(Arc::new(Mutex::new(ACCESS_KEY.to_owned()))), Clock::Virtual(moved));
        let transport = in_process(peer.clone(), Arc::clone(&canned));
        let aws = supplier(file, path.clone(), &transport, &clock, &key).await;
        Self { peer, aws, transport, clock, file: file.to_owned(), path, key, ahead, canned }
    }

    /// The supplier begins anew, as after a crash: it has forgotten all.
    pub(crate) async fn restart(&mut self) {
        self.restart_with(&self.file.clone()).await;
    }

    /// The same with another file.
    pub(crate) async fn restart_with(&mut self, file: &str) {
        self.aws = supplier(file, self.path.clone(), &self.transport, &self.clock, &self.key).await;
        file.clone_into(&mut self.file);
    }

    /// The credentials are replaced by others: of that access key.
    pub(crate) fn rotate(&self, access_key: &str) {
        access_key.clone_into(&mut self.key.0.lock().unwrap());
    }

    /// Sets the peer's clock ahead of the supplier's.
    pub(crate) fn set_ahead(&self, seconds: i64) {
        self.ahead.store(seconds, Ordering::SeqCst);
    }

    /// From now on that action of the query protocol is answered with this text.
    pub(crate) fn answer_with(&self, action: &str, text: &str) {
        self.canned.lock().unwrap().insert(format!("Action={action}&"), text.to_owned());
    }

    /// The cloud's side.
    pub(crate) fn world<T>(&self, change: impl FnOnce(&mut World) -> T) -> T {
        change(&mut self.peer.world())
    }

    /// How many calls of that action there were.
    pub(crate) fn count(&self, action: &str) -> usize {
        self.world(|world| world.count(action))
    }

    /// The id that EC2 gave the machine of a launch.
    pub(crate) fn id_of(&self, launch: &Launch) -> String {
        let key = launch.request.key.as_str();
        let is_its = |tags: &BTreeMap<String, String>| tags.get("stoker.dev/launch-key").is_some_and(|of| of == key);
        self.world(|world| world.machines.values().find(|machine| is_its(&machine.tags)).unwrap().id.clone())
    }

    /// The time.
    pub(crate) fn now(&self) -> Timestamp {
        self.clock.times().wall.0
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
        self.facts_or_error().await.unwrap()
    }

    /// The same, where it may fail.
    pub(crate) async fn facts_or_error(&self) -> Result<MarketFacts, SupplierError> {
        self.aws.market_facts(Wall(self.now())).await
    }

    /// What the account has paid for beforehand, and what is said of it.
    pub(crate) async fn commitments(&self) -> (Vec<RawCommitment>, Vec<String>) {
        let access = access(&self.transport, &self.clock, &self.key);
        Box::pin(Aws::commitments(Config::parse("aws.yaml", &self.file).unwrap(), &BOOK, access)).await.unwrap()
    }

    /// What `stoker aws check` finds.
    pub(crate) async fn check(&self) -> Vec<Finding> {
        self.check_pools(None).await
    }

    /// The same of the pools of a policy.
    pub(crate) async fn check_pools(&self, of_policy: Option<&OfPolicy>) -> Vec<Finding> {
        let config = Config::parse("aws.yaml", &self.file).unwrap();
        let access = access(&self.transport, &self.clock, &self.key);
        stoker_aws::check::check(&config, &ClusterName::new("prod").unwrap(), &BOOK, &access, of_policy).await.unwrap()
    }

    /// All that the supplier says is wrong, one a line.
    pub(crate) fn faults(&self) -> String {
        self.aws.faults().join("\n")
    }

    /// A launch for a machine of that type, first asked for now.
    pub(crate) fn order(&self, record: u64, instance_type: &str, zone: &str, bought: CapacityType) -> Launch {
        let place = Place {
            cloud: Cloud::new("aws").unwrap(),
            region: Region::new(if zone.starts_with("usw2") { "us-west-2" } else { "us-east-1" }).unwrap(),
            zone: ZoneId::new(zone).unwrap(),
            instance_type: InstanceType::new(instance_type).unwrap(),
        };
        let name = match zone {
            "use1-az1" => "us-east-1a",
            "use1-az2" => "us-east-1b",
            "usw2-az1" => "us-west-2a",
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

    /// So many of these.
    pub(crate) fn many(&self, records: std::ops::RangeInclusive<u64>) -> Vec<Launch> {
        records.map(|record| self.usual(record)).collect()
    }

    /// The state of that machine in the listing; `None` where it is not listed.
    pub(crate) async fn listed(&self, id: &ProviderId) -> Option<InstanceState> {
        self.list().await.unwrap().instances.get(id).map(|made| made.state)
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        let (made, asked) = self.world(|world| {
            let mut asked: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
            for call in world.calls.iter().filter(|call| call.action == "RunInstances") {
                let (token, subnet) = (&call.params["ClientToken"], &call.params["NetworkInterface.1.SubnetId"]);
                // A second subnet of a zone is called by its name too.
                asked.entry(token.clone()).or_default().insert(subnet.trim_end_matches("-too").to_owned());
            }
            (world.machines_by_token(), asked)
        });
        for (token, zones) in made {
            assert!(zones.len() == 1 && zones.values().all(|made| *made == 1), "{token} made {zones:?}");
        }
        for (token, subnets) in asked {
            assert_eq!(subnets.len(), 1, "{token} was used in zones of {subnets:?}");
        }
    }
}

/// Carries calls to the peer in the same process, but for those that have a canned answer.
fn in_process(peer: Peer, canned: Arc<Mutex<BTreeMap<String, String>>>) -> Transport {
    Arc::new(move |request, within| {
        let peer = peer.clone();
        let body = String::from_utf8_lossy(request.body()).into_owned();
        let is_its = |(action, _): &(&String, &String)| body.contains(action.as_str());
        let canned = canned.lock().unwrap().iter().find(is_its).map(|(_, text)| text.clone());
        async move {
            if let Some(text) = canned {
                return Ok(http::Response::new(text.into_bytes()));
            }
            let cut = || NoAnswer { sent: true, why: "the connection was cut".to_owned() };
            match tokio::time::timeout(within, peer.answer(request)).await {
                Ok(answer) => answer.ok_or_else(cut),
                Err(_) => Err(NoAnswer { sent: true, why: "no answer in time".to_owned() }),
            }
        }
        .boxed()
    })
}

fn access(transport: &Transport, clock: &Clock, key: &Rotated) -> Access {
    let credentials = Some(SharedCredentialsProvider::new(key.clone()));
    Access { transport: Arc::clone(transport), credentials, clock: clock.clone() }
}

async fn supplier(file: &str, path: Option<PathBuf>, transport: &Transport, clock: &Clock, key: &Rotated) -> Arc<Aws> {
    let config = Config::parse("aws.yaml", file).unwrap();
    let access = access(transport, clock, key);
    let (name, cluster) = (SupplierName::new("aws").unwrap(), ClusterName::new("prod").unwrap());
    Arc::new(Aws::start(name, cluster, (config, path), &BOOK, access).await)
}

/// What the price tables say of a type.
fn spec(instance_type: &str) -> InstanceSpec {
    let is_it = |spec: &&Arc<InstanceSpec>| spec.cloud.as_str() == "aws" && spec.instance_type.as_str() == instance_type;
    let spec = BOOK.specs().find(is_it).unwrap_or_else(|| panic!("the tables have no {instance_type}"));
    InstanceSpec::clone(spec)
}
