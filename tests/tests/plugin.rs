//! The plugin protocol, over a socket: the simulated supplier served behind it keeps every rule, and the service buys through it.
#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use http::StatusCode;
use jiff::Timestamp;
use stoker_core::base::engine_clock::Wall;
use stoker_core::base::ids::{ClusterName, LaunchKey, NodeGroupId, Region, SupplierName, ZoneName};
use stoker_core::facts::supply::{LaunchOutcome, LaunchRequest};
use stoker_core::market::offer::{CapacityType, Market, Place};
use stoker_fake_apiserver::{ApiServer, failure};
use stoker_plugin::PROTOCOL;
use stoker_plugin::check::{self, Verdict};
use stoker_plugin::client::Plugin;
use stoker_plugin::dial::connect;
use stoker_plugin::server::Served;
use stoker_proto::supplier as wire;
use stoker_proto::supplier::supplier_server::{self, SupplierServer};
use stoker_service::boot::Boot;
use stoker_service::certs;
use stoker_service::clock::Clock;
use stoker_service::kube::tokens::BootTokens;
use stoker_service::listener::DialFiles;
use stoker_service::serve::{State, start};
use stoker_service::suppliers::{Launch, Supplier};
use stoker_sim::world::WorldConfig;
use stoker_simulated::supplier::Simulated;
use stoker_tests::client::{Client, registered};
use stoker_tests::market;
use stoker_tests::policy::{Pool, policy};
use tempfile::TempDir;
use tokio::net::{TcpListener, UnixListener};
use tokio::task::JoinHandle;
use tokio::time::sleep;
use tokio_stream::wrappers::{TcpListenerStream, UnixListenerStream};
use tokio_util::sync::CancellationToken;
use tonic::transport::{Certificate, Identity, Server, ServerTlsConfig};
use tonic::{Request, Response, Status};

const GROUP: &str = "p.g6-xlarge.us-east-1a";

/// Longer than anything that is waited for here takes on a busy machine.
const LONG: Duration = Duration::from_mins(1);

fn cluster() -> ClusterName {
    ClusterName::new("test").unwrap()
}

fn simulated() -> Arc<Simulated> {
    let world = stoker_sim::world::WorldConfig { stop_seconds: 1, ..market::calm() };
    Arc::new(Simulated::in_memory(cluster(), world, &market::book(), Clock::system()).unwrap())
}

/// A plugin on a socket.
struct Listening {
    socket: PathBuf,
    stop: CancellationToken,
    task: JoinHandle<std::io::Result<()>>,
}

impl Listening {
    async fn on(dir: &Path, simulated: &Arc<Simulated>) -> Self {
        let (socket, stop) = (dir.join("plugin.sock"), CancellationToken::new());
        let supplier = Arc::clone(simulated) as Arc<dyn Supplier>;
        let served = Served::new(supplier, cluster(), Clock::system(), Served::scopes_of(&market::book()));
        let (path, until) = (socket.clone(), stop.clone());
        let task = tokio::spawn(async move { served.listen(&path, until.cancelled_owned()).await });
        until_true("a socket", async || socket.exists()).await;
        Self { socket, stop, task }
    }

    fn endpoint(&self) -> String {
        format!("unix://{}", self.socket.display())
    }

    async fn stop(self) {
        self.stop.cancel();
        // Connections that stand keep it; they are the test's own.
        self.task.abort();
        let _ = self.task.await;
        let _ = std::fs::remove_file(self.socket);
    }
}

async fn until_true(what: &str, is: impl AsyncFn() -> bool) {
    let begun = Instant::now();
    while !is().await {
        assert!(begun.elapsed() < LONG, "no {what}");
        sleep(Duration::from_millis(50)).await;
    }
}

/// On another machine it is called with certificates, which both sides show, and which are read anew for each connection.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plugin_elsewhere_is_called_with_certificates_that_both_sides_show() {
    let (good, other) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    for dir in [&good, &other] {
        certs::write_tryout(dir.path(), &[], "stoker").unwrap();
    }
    let read = |name: &str| std::fs::read(good.path().join(name)).unwrap();
    let tls = ServerTlsConfig::new()
        .identity(Identity::from_pem(read("server.crt"), read("server.key")))
        .client_ca_root(Certificate::from_pem(read("ca.crt")));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("https://localhost:{}", listener.local_addr().unwrap().port());
    let served = Served::new(simulated(), cluster(), Clock::system(), Served::scopes_of(&market::book()));
    let listening = Server::builder().tls_config(tls).unwrap().add_service(SupplierServer::new(served));
    let task = tokio::spawn(listening.serve_with_incoming(TcpListenerStream::new(listener)));

    let files = |authority: &TempDir, own: &TempDir| DialFiles {
        ca: authority.path().join("ca.crt"),
        cert: own.path().join("client.crt"),
        key: own.path().join("client.key"),
    };
    let described = async |files: DialFiles| {
        let mut client = connect(&endpoint, Some(files)).unwrap();
        client.describe(wire::DescribeRequest { stoker_version: String::new(), protocol: PROTOCOL }).await
    };
    assert_eq!(described(files(&good, &good)).await.unwrap().into_inner().name, "simulated");
    assert!(described(files(&other, &good)).await.is_err(), "its server is signed by somebody else");
    assert!(described(files(&good, &other)).await.is_err(), "our certificate is signed by somebody else");
    // A renewal needs no restart.
    let renewed = TempDir::new().unwrap();
    let copy = |from: &TempDir| {
        for name in ["ca.crt", "client.crt", "client.key"] {
            std::fs::copy(from.path().join(name), renewed.path().join(name)).unwrap();
        }
    };
    copy(&other);
    let mut client = connect(&endpoint, Some(files(&renewed, &renewed))).unwrap();
    let ask = || wire::DescribeRequest { stoker_version: String::new(), protocol: PROTOCOL };
    assert!(client.describe(ask()).await.is_err());
    copy(&good);
    until_true("the renewed certificates", async || client.clone().describe(ask()).await.is_ok()).await;
    // Every fault of the files is named at once.
    let none = DialFiles { ca: "/no/ca".into(), cert: "/no/crt".into(), key: good.path().join("client.crt") };
    let told = connect(&endpoint, Some(none)).unwrap_err().to_string();
    for part in ["/no/ca", "/no/crt", "no private key found"] {
        assert!(told.contains(part), "{part}: {told}");
    }
    assert!(connect(&endpoint, None).is_err() && connect("unix:///a", Some(files(&good, &good))).is_err());
    task.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_simulated_supplier_behind_the_protocol_keeps_every_rule() {
    let (dir, simulated) = (TempDir::new().unwrap(), simulated());
    let plugin = Listening::on(dir.path(), &simulated).await;
    let book = market::book();
    let sold =
        |capacity| book.entries().map(|(market, _)| market).find(|market| market.capacity_type == capacity).unwrap().clone();
    let plan = check::Plan { cluster: "test".to_owned(), market: sold(CapacityType::OnDemand), gone_within: LONG };
    for (rule, verdict) in check::run(connect(&plugin.endpoint(), None).unwrap(), plan).await.rules {
        assert_eq!(verdict, Verdict::Kept, "{}", rule.as_str());
    }
    assert!(simulated.machines(Timestamp::now()).len() <= 1, "what it made it ended; the last may be stopping");
    plugin.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_come_and_go_through_a_plugin_that_is_away_for_a_while() {
    let (dir, simulated) = (TempDir::new().unwrap(), simulated());
    let plugin = Listening::on(dir.path(), &simulated).await;
    let suppliers = format!("suppliers: [{{ name: mine, kind: plugin, endpoint: \"{}\" }}]\n", plugin.endpoint());
    let text = policy(&[Pool::new("p")]) + &suppliers;
    let options = market::options(text, dir.path());
    let mine = Plugin::new(SupplierName::new("mine").unwrap(), cluster(), (&plugin.endpoint(), None), None).unwrap();
    let running = start(Box::pin(State::open(options)).await.unwrap(), &[Arc::new(mine) as Arc<dyn Supplier>]).await.unwrap();
    let client = Client::connect(running.provider, running.expander).await.unwrap();
    until_true("ready service", async || client.refresh().await.is_ok()).await;
    client.increase(GROUP, 2).await.unwrap();
    let machines = async || -> Vec<String> {
        let nodes = client.nodes(GROUP).await.unwrap_or_default();
        nodes.into_iter().map(|node| node.id).filter(|id| id.starts_with("sim://")).collect()
    };
    until_true("machines of the plugin's", async || machines().await.len() == 2).await;
    // Its groups are closed while it is away, and nothing is lost.
    let (ids, socket_dir) = (machines().await, dir.path().to_owned());
    plugin.stop().await;
    sleep(Duration::from_secs(5)).await;
    assert_eq!(client.target(GROUP).await.unwrap(), 2);
    assert_eq!(machines().await, ids);
    let plugin = Listening::on(&socket_dir, &simulated).await;
    client.increase(GROUP, 1).await.unwrap();
    until_true("third machine", async || machines().await.len() == 3).await;
    assert_eq!(simulated.machines(Timestamp::now()).len(), 3, "nothing was bought twice");
    client.delete(GROUP, vec![registered(&ids[0], &ids[0])]).await.unwrap();
    until_true("end of one", async || simulated.machines(Timestamp::now()).len() == 2).await;
    running.stop().await;
    plugin.stop().await;
}

/// A plugin some of whose scopes cannot be listed, and that keeps what it was asked to launch.
struct Patchy {
    served: Served,
    down: Arc<Mutex<BTreeSet<&'static str>>>,
    asked: Arc<Mutex<Vec<wire::LaunchRequest>>>,
    /// Calls of Launch and Terminate that it takes a second, where it sets a limit.
    calls_per_second: Option<f64>,
    /// When each was made.
    called: Arc<Mutex<Vec<Instant>>>,
    /// What it says is wrong with each of its machines.
    impaired: &'static str,
}

impl Patchy {
    fn of(served: Served) -> Self {
        let (down, asked, called) = (Arc::default(), Arc::default(), Arc::default());
        Self { served, down, asked, calls_per_second: None, called, impaired: "" }
    }

    /// Serves it on a socket, whose endpoint is told.
    fn listen(self, dir: &TempDir) -> (String, JoinHandle<Result<(), tonic::transport::Error>>) {
        let socket = dir.path().join("plugin.sock");
        let incoming = UnixListenerStream::new(UnixListener::bind(&socket).unwrap());
        let service = supplier_server::SupplierServer::new(self);
        let task = tokio::spawn(Server::builder().add_service(service).serve_with_incoming(incoming));
        (format!("unix://{}", socket.display()), task)
    }
}

#[tonic::async_trait]
impl supplier_server::Supplier for Patchy {
    type ListStream = <Served as supplier_server::Supplier>::ListStream;
    type NoticesStream = <Served as supplier_server::Supplier>::NoticesStream;

    async fn describe(&self, asked: Request<wire::DescribeRequest>) -> Result<Response<wire::DescribeResponse>, Status> {
        let mut described = self.served.describe(asked).await?;
        described.get_mut().calls_per_second = self.calls_per_second.unwrap_or_default();
        Ok(described)
    }

    async fn launch(&self, asked: Request<wire::LaunchRequest>) -> Result<Response<wire::LaunchResponse>, Status> {
        self.asked.lock().unwrap().push(asked.get_ref().clone());
        self.called.lock().unwrap().push(Instant::now());
        self.served.launch(asked).await
    }

    async fn list(&self, asked: Request<wire::ListRequest>) -> Result<Response<Self::ListStream>, Status> {
        if self.down.lock().unwrap().contains(asked.get_ref().scope.as_str()) {
            return Err(Status::unavailable("the region is down"));
        }
        let impaired = self.impaired;
        let ails = move |page: Result<wire::ListResponse, Status>| {
            page.map(|mut page| {
                page.instances.iter_mut().for_each(|made| impaired.clone_into(&mut made.impaired));
                page
            })
        };
        let pages = self.served.list(asked).await?.into_inner();
        Ok(Response::new(Box::pin(futures::StreamExt::map(pages, ails))))
    }

    async fn terminate(&self, asked: Request<wire::TerminateRequest>) -> Result<Response<wire::TerminateResponse>, Status> {
        self.called.lock().unwrap().push(Instant::now());
        self.served.terminate(asked).await
    }

    async fn markets(&self, asked: Request<wire::MarketsRequest>) -> Result<Response<wire::MarketsResponse>, Status> {
        self.served.markets(asked).await
    }

    async fn notices(&self, asked: Request<wire::NoticesRequest>) -> Result<Response<Self::NoticesStream>, Status> {
        self.served.notices(asked).await
    }
}

/// A launch of an on-demand machine.
fn on_demand_launch() -> LaunchRequest {
    let book = market::book();
    let on_demand = |market: &&Market| market.capacity_type == CapacityType::OnDemand;
    let market = book.entries().map(|(market, _)| market).find(on_demand).unwrap().clone();
    let (zone_name, key) = (ZoneName::from(&market.place.zone), LaunchKey::new("test/g/0c4de2a1/1/1").unwrap());
    LaunchRequest { key, group: NodeGroupId::new("g").unwrap(), market, zone_name, reservation: None }
}

#[tokio::test]
async fn a_machine_boots_with_a_token_of_its_own_also_when_its_launch_is_asked_again() {
    let (dir, asked) = (TempDir::new().unwrap(), Arc::<Mutex<Vec<wire::LaunchRequest>>>::default());
    let scopes = Served::scopes_of(&market::book());
    let served = Served::new(simulated(), cluster(), Clock::system(), scopes);
    let (endpoint, task) = Patchy { asked: Arc::clone(&asked), ..Patchy::of(served) }.listen(&dir);
    let api = ApiServer::new(Timestamp::now);
    api.serve_kind("secrets");
    let tokens = BootTokens::open(&api.client(), cluster(), dir.path(), Clock::system()).unwrap();
    let template = dir.path().join("boot.yaml");
    std::fs::write(&template, "join @STOKER_TOKEN@ @STOKER_LABELS@ @STOKER_PROVIDER_ID@").unwrap();
    let boot = Boot::read(&template, Some(Arc::new(tokens))).unwrap();
    let plugin = Plugin::new(SupplierName::new("mine").unwrap(), cluster(), (&endpoint, None), Some(boot)).unwrap();
    let launch = Launch { labels: [("a".to_owned(), "b".to_owned())].into(), ..on_demand_launch().into() };
    // Without a token there is no machine.
    api.answer(|_, _| Some(failure(StatusCode::FORBIDDEN, "no")));
    let outcomes = plugin.launch(Timestamp::now(), vec![launch.clone()]).await;
    assert!(matches!(&outcomes[0].1, LaunchOutcome::Unclear { message, .. } if message.contains("no bootstrap token")));
    assert!(asked.lock().unwrap().is_empty());
    api.answer(|_, _| None);
    for _ in 0..2 {
        let outcomes = plugin.launch(Timestamp::now(), vec![launch.clone()]).await;
        assert!(matches!(outcomes[0].1, LaunchOutcome::Launched(_)), "{outcomes:?}");
    }
    let data = asked.lock().unwrap().iter().map(|asked| asked.machines[0].boot_data.clone()).collect::<Vec<_>>();
    let secret = &api.all("secrets")[0]["stringData"];
    let token = format!("{}.{}", secret["token-id"].as_str().unwrap(), secret["token-secret"].as_str().unwrap());
    assert_eq!(data, vec![format!("join {token} a=b @STOKER_PROVIDER_ID@"); 2]);
    task.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plugin_is_called_no_faster_than_it_says_and_loses_no_launch() {
    const APART: Duration = Duration::from_millis(50);
    let (dir, called) = (TempDir::new().unwrap(), Arc::<Mutex<Vec<Instant>>>::default());
    let served = Served::new(simulated(), cluster(), Clock::system(), Served::scopes_of(&market::book()));
    let paced = Patchy { calls_per_second: Some(20.0), called: Arc::clone(&called), ..Patchy::of(served) };
    let (endpoint, task) = paced.listen(&dir);
    // A call may be held up on its way; of all of them the last is not early.
    let no_faster = |calls: std::ops::RangeInclusive<usize>| {
        let called = std::mem::take(&mut *called.lock().unwrap());
        assert!(calls.contains(&called.len()), "{}", called.len());
        let least = APART * u32::try_from(called.len() - 1).unwrap();
        assert!(called.last().unwrap().duration_since(called[0]) + APART >= least, "{} calls too fast", called.len());
    };
    let plugin = Plugin::new(SupplierName::new("mine").unwrap(), cluster(), (&endpoint, None), None).unwrap();
    let launches = (0..10).map(|n| {
        let key = LaunchKey::new(format!("test/g/0c4de2a1/{n}/1")).unwrap();
        plugin.launch(Timestamp::now(), vec![LaunchRequest { key, ..on_demand_launch() }.into()])
    });
    for (_, outcome) in futures::future::join_all(launches).await.concat() {
        assert!(matches!(outcome, LaunchOutcome::Launched(_)), "{outcome:?}");
    }
    no_faster(10..=10);
    let plan = check::Plan { cluster: "test".to_owned(), market: on_demand_launch().market, gone_within: LONG };
    for (rule, verdict) in check::run(connect(&endpoint, None).unwrap(), plan).await.rules {
        assert_eq!(verdict, Verdict::Kept, "{}", rule.as_str());
    }
    no_faster(10..=100);
    task.abort();
}

#[tokio::test]
async fn quotas_and_reservations_are_told_through_a_plugin() {
    let dir = TempDir::new().unwrap();
    let world: WorldConfig = serde_json::from_value(serde_json::json!({
        "quotas": [
            { "name": "L-DB2E81BA", "cloud": "aws", "region": "us-east-1", "limit": 0, "used": 0 },
            { "name": "L-3819A6DF", "cloud": "aws", "region": "us-east-1", "limit": 64 },
        ],
        "reservations": [{ "id": "cr-0a1b", "cloud": "aws", "region": "us-east-1", "zone": "use1-az1",
            "instanceType": "g6.xlarge", "total": 2 }],
    }))
    .unwrap();
    let simulated = Arc::new(Simulated::in_memory(cluster(), world, &market::book(), Clock::system()).unwrap());
    let known = async || simulated.market_facts(Wall(Timestamp::now())).await.unwrap();
    let plugin = Listening::on(dir.path(), &simulated).await;
    let supplier = SupplierName::new("mine").unwrap();
    let asked = Plugin::new(supplier, cluster(), (&plugin.endpoint(), None), None).unwrap();
    let (before, told) = (known().await, asked.market_facts(Wall(Timestamp::now())).await.unwrap());
    assert_eq!((told.quotas.len(), told.reservations.len()), (2, 1));
    // Facts are looked up every five minutes, between two answers too.
    let after = known().await;
    assert!([before, after].iter().any(|known| known.quotas == told.quotas && known.reservations == told.reservations));
    plugin.stop().await;
}

#[tokio::test]
async fn a_scope_that_is_down_makes_no_other_old() {
    let (dir, simulated, down) = (TempDir::new().unwrap(), simulated(), Arc::new(Mutex::new(BTreeSet::from(["west"]))));
    let scope = |name: &str, region: &str| {
        let (name, region) = (name.to_owned(), region.to_owned());
        wire::Scope { name, cloud: "aws".to_owned(), regions: vec![region] }
    };
    let scopes = vec![scope("east", "us-east-1"), scope("west", "us-west-2")];
    let served = Served::new(Arc::clone(&simulated) as Arc<dyn Supplier>, cluster(), Clock::system(), scopes);
    let (endpoint, task) = Patchy { down: Arc::clone(&down), ..Patchy::of(served) }.listen(&dir);
    let plugin = Plugin::new(SupplierName::new("mine").unwrap(), cluster(), (&endpoint, None), None).unwrap();
    let asked = on_demand_launch();
    let here = &asked.market.place;
    plugin.launch(Timestamp::now(), vec![asked.clone().into()]).await;

    let elsewhere = Place { region: Region::new("us-west-2").unwrap(), ..here.clone() };
    // Never listed: whatever is there is not known.
    let seen = plugin.observe(Timestamp::now()).await.unwrap();
    assert_eq!((seen.complete, seen.instances.len()), (true, 1));
    assert_eq!((seen.as_of_in(here), seen.as_of_in(&elsewhere)), (seen.as_of(), Timestamp::UNIX_EPOCH));
    // Both are listed.
    down.lock().unwrap().clear();
    let both = plugin.observe(Timestamp::now()).await.unwrap();
    assert!(both.as_of_in(&elsewhere) >= seen.as_of());
    // The one with the machine is down: it keeps what it had, and grows old.
    down.lock().unwrap().insert("east");
    sleep(Duration::from_millis(20)).await;
    let later = plugin.observe(Timestamp::now()).await.unwrap();
    assert_eq!(later.instances, both.instances);
    assert!(later.as_of_in(here) < later.as_of() && later.as_of_in(&elsewhere) == later.as_of(), "{later:?}");
    // A plugin that begins anew without a scope says nothing of its regions, whatever they have.
    let fewer =
        Served::new(Arc::clone(&simulated) as Arc<dyn Supplier>, cluster(), Clock::system(), vec![scope("west", "us-west-2")]);
    let other = TempDir::new().unwrap();
    let (endpoint, without) = Patchy::of(fewer).listen(&other);
    let anew = Plugin::new(SupplierName::new("mine").unwrap(), cluster(), (&endpoint, None), None).unwrap();
    let seen = anew.observe(Timestamp::now()).await.unwrap();
    assert_eq!((seen.covered.region(here), seen.covered.region(&elsewhere)), (None, Some(seen.as_of())));
    without.abort();
    // None is listed: that is no listing.
    down.lock().unwrap().insert("west");
    let error = plugin.observe(Timestamp::now()).await.unwrap_err();
    assert!(error.message.contains("the region is down"), "{error}");
    task.abort();
}

#[tokio::test]
async fn what_a_plugin_says_is_wrong_with_a_machine_is_told_in_its_words() {
    for (impaired, told) in [(" its host has lost power\n", Some("its host has lost power")), ("", None)] {
        let dir = TempDir::new().unwrap();
        let served = Served::new(simulated(), cluster(), Clock::system(), Served::scopes_of(&market::book()));
        let (endpoint, task) = Patchy { impaired, ..Patchy::of(served) }.listen(&dir);
        let plugin = Plugin::new(SupplierName::new("mine").unwrap(), cluster(), (&endpoint, None), None).unwrap();
        plugin.launch(Timestamp::now(), vec![on_demand_launch().into()]).await;
        let seen = plugin.observe(Timestamp::now()).await.unwrap();
        assert_eq!(seen.impaired.values().map(String::as_str).next(), told);
        assert_eq!((seen.instances.len(), seen.unsure.len()), (1, 0));
        task.abort();
    }
}
