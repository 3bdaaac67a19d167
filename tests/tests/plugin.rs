//! The plugin protocol, over a socket: the simulated supplier served behind it keeps every rule, and the service buys through it.
#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use stoker_core::base::ids::{ClusterName, SupplierName};
use stoker_core::market::offer::CapacityType;
use stoker_plugin::check::{self, Verdict};
use stoker_plugin::client::{Plugin, connect};
use stoker_plugin::server::Served;
use stoker_service::clock::Clock;
use stoker_service::serve::{State, start};
use stoker_service::suppliers::Supplier;
use stoker_simulated::supplier::Simulated;
use stoker_tests::client::{Client, registered};
use stoker_tests::market;
use stoker_tests::policy::{Pool, policy};
use tempfile::TempDir;
use tokio::task::JoinHandle;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_simulated_supplier_behind_the_protocol_keeps_every_rule() {
    let (dir, simulated) = (TempDir::new().unwrap(), simulated());
    let plugin = Listening::on(dir.path(), &simulated).await;
    let book = market::book();
    let sold =
        |capacity| book.entries().map(|(market, _)| market).find(|market| market.capacity_type == capacity).unwrap().clone();
    let plan = check::Plan { cluster: "test".to_owned(), market: sold(CapacityType::OnDemand), gone_within: LONG };
    for (rule, verdict) in check::run(connect(&plugin.endpoint()).unwrap(), plan).await {
        assert_eq!(verdict, Verdict::Kept, "{}", rule.as_str());
    }
    assert!(simulated.machines(jiff::Timestamp::now()).len() <= 1, "what it made it ended; the last may be stopping");
    plugin.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_come_and_go_through_a_plugin_that_is_away_for_a_while() {
    let (dir, simulated) = (TempDir::new().unwrap(), simulated());
    let plugin = Listening::on(dir.path(), &simulated).await;
    let suppliers = format!("suppliers: [{{ name: mine, kind: plugin, endpoint: \"{}\" }}]\n", plugin.endpoint());
    let text = policy(&[Pool::new("p")]) + &suppliers;
    let options = market::options(text, dir.path());
    let mine = Plugin::new(SupplierName::new("mine").unwrap(), cluster(), &plugin.endpoint()).unwrap();
    let running = start(State::open(options).await.unwrap(), &[Arc::new(mine) as Arc<dyn Supplier>]).await.unwrap();
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
    assert_eq!(simulated.machines(jiff::Timestamp::now()).len(), 3, "nothing was bought twice");
    client.delete(GROUP, vec![registered(&ids[0], &ids[0])]).await.unwrap();
    until_true("end of one", async || simulated.machines(jiff::Timestamp::now()).len() == 2).await;
    running.stop().await;
    plugin.stop().await;
}
