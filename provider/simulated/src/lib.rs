//! The simulated cloud: its supplier, the Nodes of its machines, and the demo that plays a day on it.

pub mod ca_client;
pub mod demo;
mod kubelets;
pub mod registrar;
pub mod supplier;

use std::ops::Deref;
use std::path::PathBuf;
use std::sync::Arc;

use stoker_sim::world::WorldConfig;

use stoker_service::serve::{Options, Running, ServeError, State};
use stoker_service::suppliers::Supplier;
use supplier::{Simulated, WorldError};

/// The simulated world of a service.
#[derive(Debug, Clone, Default)]
pub struct WorldOptions {
    /// How it behaves.
    pub config: WorldConfig,
    /// Where its machines are kept; in memory when absent.
    pub file: Option<PathBuf>,
}

/// Why a service with the simulated supplier could not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The service cannot start.
    #[error(transparent)]
    Serve(#[from] ServeError),
    /// The simulated world cannot be opened.
    #[error(transparent)]
    World(#[from] WorldError),
    /// It runs inside a real cluster, and the supplier is simulated.
    #[error(
        "this runs inside a Kubernetes cluster and the supplier is simulated: its nodes do not exist. Give \
         --simulated-in-cluster if you want that (a rehearsal), or run Stoker outside the cluster"
    )]
    SimulatedInCluster,
}

/// A running service whose supplier is the simulated one.
pub struct Simulation {
    running: Running,
    /// The supplier.
    pub simulated: Arc<Simulated>,
}

/// Starts a service with the simulated supplier, and the Nodes of its machines where there is a cluster.
///
/// # Errors
/// Says what is missing or wrong; then nothing runs.
pub async fn start(options: Options, world: WorldOptions) -> Result<Simulation, StartError> {
    let state = Box::pin(State::open(options)).await?;
    Box::pin(start_beside(state, world, Vec::new())).await
}

/// The same on a state that was opened, beside other suppliers.
///
/// # Errors
/// As [`start`].
pub async fn start_beside(state: State, world: WorldOptions, others: Vec<Arc<dyn Supplier>>) -> Result<Simulation, StartError> {
    let (cluster, clock, book) = (state.cluster().clone(), state.options().clock.clone(), Arc::clone(&state.options().book));
    let simulated = Arc::new(match &world.file {
        Some(path) => Simulated::durable(cluster.clone(), world.config, &book, clock.clone(), path)?,
        None => Simulated::in_memory(cluster.clone(), world.config, &book, clock.clone())?,
    });
    let suppliers: Vec<_> = std::iter::once(Arc::clone(&simulated) as Arc<dyn Supplier>).chain(others).collect();
    let mut running = Box::pin(stoker_service::serve::start(state, &suppliers)).await?;
    if let Some(client) = running.client.clone() {
        kubelets::spawn(&mut running, &client, cluster, Arc::clone(&simulated), clock);
    }
    Ok(Simulation { running, simulated })
}

impl Simulation {
    /// The service alone: its simulated supplier goes on with it.
    pub fn into_running(self) -> Running {
        self.running
    }

    /// [`Running::run_until`].
    pub async fn run_until(self, until: impl Future<Output = ()>) -> bool {
        self.running.run_until(until).await
    }

    /// [`Running::stop`].
    pub async fn stop(self) {
        self.running.stop().await;
    }
}

impl Deref for Simulation {
    type Target = Running;

    fn deref(&self) -> &Running {
        &self.running
    }
}
