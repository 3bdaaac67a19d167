//! The service in the test's own process: its real doors on loopback ports, a simulated world, and a clock that the test moves.
//!
//! A harness fails by panicking, where the test stands.
#![expect(
    clippy::expect_used,
    clippy::panic,
    clippy::missing_panics_doc,
    reason = "a harness that cannot be set up is a failed test"
)]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use stoker_core::facts::supply::{Instance, LaunchOutcome, LaunchRequest};
use stoker_core::market::price::PriceBook;
use stoker_service::clock::{Clock, VirtualClock};
use stoker_service::serve::{KubeOptions, Options, ServeError};
use stoker_service::suppliers::Supplier as _;
use stoker_sim::world::WorldConfig;
use stoker_simulated::{Simulation, StartError, WorldOptions, start};
use tempfile::TempDir;

use crate::client::Client;
use crate::market;

/// Steps in which time goes by: suppliers are asked at each, so no inventory ever gets old.
const STEP: SignedDuration = SignedDuration::from_secs(20);

/// What a service is started with.
#[derive(Debug, Clone)]
pub struct Setup {
    /// The policy.
    pub policy: String,
    /// The world.
    pub world: WorldConfig,
    /// The prices.
    pub book: Arc<PriceBook>,
    /// The kubeconfig of a cluster to follow.
    pub kubeconfig: Option<PathBuf>,
    /// Whether the clock is the machine's.
    pub real_time: bool,
}

impl Setup {
    /// That policy in a calm world, on a clock that stands.
    pub fn new(policy: String) -> Self {
        Self { policy, world: market::calm(), book: market::book(), kubeconfig: None, real_time: false }
    }

    /// With a change to the world.
    #[must_use]
    pub fn world(mut self, change: impl FnOnce(&mut WorldConfig)) -> Self {
        change(&mut self.world);
        self
    }

    /// Following that cluster.
    #[must_use]
    pub fn cluster(mut self, kubeconfig: &Path) -> Self {
        self.kubeconfig = Some(kubeconfig.to_owned());
        self
    }

    /// On the machine's clock.
    #[must_use]
    pub const fn in_real_time(mut self) -> Self {
        self.real_time = true;
        self
    }

    /// Starts it in a directory of its own, and settles.
    pub async fn start(self) -> Service {
        let clock = VirtualClock::new(market::start());
        self.start_on(clock).await
    }

    /// The same on that clock.
    pub async fn start_on(self, clock: Arc<VirtualClock>) -> Service {
        logs();
        let dir = TempDir::new().expect("a directory for the state");
        let running = self.run(&clock, dir.path()).await.expect("the service starts");
        let client = connect(&running).await;
        let service = Service { running: Some(running), client, clock, setup: self, dir };
        service.settle().await;
        service
    }

    /// Tries to start it, to no end.
    ///
    /// # Errors
    /// Why it did not.
    pub async fn try_start(&self) -> Result<(), StartError> {
        let dir = TempDir::new().expect("a directory for the state");
        self.run(&VirtualClock::new(market::start()), dir.path()).await.map(drop)
    }

    async fn run(&self, clock: &Arc<VirtualClock>, dir: &Path) -> Result<Simulation, StartError> {
        let options = Options {
            clock: if self.real_time { Clock::system() } else { Clock::Virtual(Arc::clone(clock)) },
            book: Arc::clone(&self.book),
            kube: self.kubeconfig.clone().map_or(KubeOptions::None, KubeOptions::Kubeconfig),
            ..market::options(self.policy.clone(), dir)
        };
        start(options, WorldOptions { config: self.world.clone(), file: Some(dir.join("world.jsonl")) }).await
    }
}

/// A running service with one client.
pub struct Service {
    running: Option<Simulation>,
    client: Client,
    clock: Arc<VirtualClock>,
    /// What it was started with; a restart takes what stands here then.
    pub setup: Setup,
    dir: TempDir,
}

impl Service {
    /// The running service.
    pub const fn running(&self) -> &Simulation {
        self.running.as_ref().expect("it runs")
    }

    /// Where it keeps its state.
    pub fn state_dir(&self) -> PathBuf {
        self.dir.path().join("state")
    }

    /// The client.
    pub const fn client(&self) -> &Client {
        &self.client
    }

    /// Another client on a connection of its own, as a restarted autoscaler has.
    pub async fn another_client(&self) -> Client {
        connect(self.running()).await
    }

    /// The time.
    pub fn now(&self) -> Timestamp {
        if self.setup.real_time { Timestamp::now() } else { Clock::Virtual(Arc::clone(&self.clock)).now() }
    }

    /// Lets the service finish all that there is to do at this moment. On a clock that stands only.
    pub async fn settle(&self) {
        if !self.setup.real_time {
            self.running().handle.settle().await;
        }
    }

    /// Moves the clock to that moment and settles.
    pub async fn at(&self, moment: Timestamp) {
        self.clock.advance_to(moment);
        self.settle().await;
    }

    /// Lets so much time go by, step by step.
    pub async fn pass(&self, time: SignedDuration) {
        let end = self.now() + time;
        while self.now() < end {
            self.at((self.now() + STEP).min(end)).await;
        }
    }

    /// The machines that exist, on their way out or not.
    pub fn machines(&self) -> Vec<Arc<Instance>> {
        self.running().simulated.machines(self.now()).into_iter().map(|(machine, _)| machine).collect()
    }

    /// The ids of the machines that exist.
    pub fn machine_ids(&self) -> Vec<String> {
        let mut ids: Vec<String> = self.machines().iter().map(|machine| machine.provider_id.to_string()).collect();
        ids.sort();
        ids
    }

    /// Machines of a group that exist.
    pub fn machines_of(&self, group: &str) -> usize {
        let mark = format!("/{group}/");
        self.machines().iter().filter(|machine| machine.key.as_str().contains(&mark)).count()
    }

    /// Asks the supplier for a machine behind the service's back.
    pub async fn launch_aside(&self, request: LaunchRequest) -> LaunchOutcome {
        let outcomes = self.running().simulated.launch(self.now(), vec![request.into()]).await;
        outcomes.into_iter().next().expect("an outcome for the one request").1
    }

    /// Ends the service without warning: nothing that is under way is waited for. Its connections end with it.
    pub async fn kill(&mut self) {
        drop(self.running.take());
        let ended = async {
            while self.client.refresh().await.is_ok() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(10), ended).await.expect("its connections end");
    }

    /// Starts it again on what it left behind; the client connects anew.
    pub async fn revive(&mut self) {
        let mut tries = 0;
        let running = loop {
            match self.setup.run(&self.clock, self.dir.path()).await {
                Ok(running) => break running,
                Err(StartError::Serve(ServeError::StateLock(_))) if tries < 200 => {
                    tokio::time::sleep(Duration::from_millis(10)).await
                }
                Err(error) => panic!("the service does not start again: {error}"),
            }
            tries += 1;
        };
        self.client = connect(&running).await;
        self.running = Some(running);
        self.settle().await;
    }

    /// Waits, in real time, until `holds` gives something.
    pub async fn eventually<T, F: Future<Output = Option<T>>>(&self, what: &str, holds: impl Fn() -> F) -> T {
        let poll = async {
            loop {
                self.settle().await;
                if let Some(found) = holds().await {
                    return found;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        let found = tokio::time::timeout(Duration::from_secs(15), poll).await;
        found.ok().ok_or(what).expect("it happens within 15 s")
    }
}

async fn connect(running: &Simulation) -> Client {
    Client::connect(running.provider, running.expander).await.expect("the doors are open")
}

/// Shows the service's logs where `RUST_LOG` asks for them.
fn logs() {
    let filter = tracing_subscriber::EnvFilter::from_default_env();
    let _ = tracing_subscriber::fmt().with_env_filter(filter).with_test_writer().try_init();
}
