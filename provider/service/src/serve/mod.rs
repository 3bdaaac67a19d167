//! Puts the parts together, in five steps: state, feeds, engine, listeners, controllers. Stops them in order.

mod controllers;
mod error;
mod feeds;
mod journal;
mod listeners;
mod options;
mod probes;
mod prometheus;
mod running;
mod side;
mod standby;
mod state;

use std::sync::Arc;

use jiff::SignedDuration;
use prometheus_client::registry::Registry;
use tokio::sync::Notify;

pub use error::ServeError;
pub use options::{KubeOptions, ListenerOptions, Options, PolicySource, ProbeListenerOptions};
pub use running::{Running, Tasks};
pub use standby::Lead;
pub use state::State;

use crate::act::{Executor, Permit};
use crate::engine::{self, Engine};
use crate::publish::Listener;
use crate::publish::telemetry::{Metrics, StateDisk};
use crate::suppliers::{LimitedSupplier, Supplier};
use listeners::Addresses;
use state::Setup;
use stoker_journal::{Journal, Restored};

/// What every step adds to.
struct Parts {
    registry: Registry,
    metrics: Metrics,
    /// Wakes the engine.
    wake: Arc<Notify>,
    /// What takes calls in; it stops first.
    calls: Tasks,
    /// All else.
    inner: Tasks,
}

/// Starts the service on a state that was opened, with these suppliers.
///
/// # Errors
/// Says what is missing or wrong; then nothing runs.
pub async fn start(state: State, suppliers: &[Arc<dyn Supplier>]) -> Result<Running, ServeError> {
    let State { mut setup, permit, journal, restored, away, lead } = state;
    // From here on nobody waits for a supplier without a limit.
    let suppliers: Vec<LimitedSupplier> = suppliers.iter().cloned().map(LimitedSupplier::new).collect();
    let suppliers = suppliers.as_slice();
    let mut registry = Registry::default();
    let metrics = Metrics::register_by(&mut registry, setup.options.clock.clone());
    metrics.policy_taken(setup.options.clock.now());
    let disk = StateDisk(setup.options.state_dir.clone());
    registry.sub_registry_with_prefix("stoker").register_collector(Box::new(disk));
    let mut parts =
        Parts { registry, metrics, wake: Arc::clone(&setup.wake), calls: Tasks::default(), inner: Tasks::default() };
    // Bound before anything runs, so that a port that is taken changes nothing.
    let listeners = listeners::bind(&setup, &parts.metrics).await?;
    let records = restored.memory.records.values();
    let machines = records.clone().filter(|record| record.instance().is_some()).count();
    tracing::info!(records = records.len(), machines, next = %restored.next_decision, "resumed from the journal");
    let (sources, feeds) =
        feeds::start(&mut setup, &restored.memory, suppliers, listeners.probes.is_some(), &mut parts).await?;
    if setup.options.opencost_metrics {
        let pods = feeds.cluster.as_ref().map(|cluster| cluster.feed.gpu_pods());
        parts.metrics.opencost(&mut parts.registry, pods);
    }
    let (readings_writer, pods, days, reader) = (journal.readings(), journal.pods(), journal.days(), journal.reader());
    if !setup.options.clock.is_moved_by_hand() {
        let check = journal::check(reader.clone(), Arc::clone(&feeds.observer), setup.options.clock.clone());
        parts.inner.run("the check of the journal", check);
    }
    let engine = engine(&setup, (permit, journal, restored, away), sources, &feeds, suppliers, &mut parts);
    let Addresses { provider, expander, probes, http, console } = listeners.addresses;
    listeners.serve(&setup, &feeds, &engine, reader.clone(), &mut parts);
    let of_journal = controllers::OfJournal { readings: readings_writer, pods: pods.clone(), days, reader: reader.clone() };
    controllers::start(&setup, &feeds, of_journal, &engine, &mut parts);
    let Parts { calls, inner, metrics, .. } = parts;
    let feeds::Started { readings, streams, cluster, .. } = feeds;
    let kube = cluster.map(|cluster| (cluster.feed, cluster.act));
    let (handle, client) = (engine, setup.client);
    Ok(Running {
        handle,
        provider,
        expander,
        probes,
        http,
        console,
        readings,
        streams,
        client,
        kube,
        metrics,
        pods,
        journal: reader,
        calls,
        inner,
        lead,
    })
}

/// The third step: the engine begins to make passes.
fn engine(
    setup: &Setup,
    (permit, journal, restored, away): (Arc<Permit>, Journal, Restored, SignedDuration),
    sources: feeds::Sources,
    feeds: &feeds::Started,
    suppliers: &[LimitedSupplier],
    parts: &mut Parts,
) -> engine::EngineHandle {
    let feeds::Sources { feeds: facts, inputs, markets, policy } = sources;
    let clock = setup.options.clock.clone();
    let act = feeds.cluster.as_ref().map(|cluster| Arc::clone(&cluster.act));
    let engine = Engine::new(engine::Parts {
        executor: Executor::new(clock.clone(), suppliers, act, Arc::clone(&parts.wake)),
        clock,
        journal,
        restored,
        away,
        permit,
        inputs,
        markets,
        feeds: facts,
        wake: Arc::clone(&parts.wake),
        retention: setup.options.retention,
        listener: Arc::clone(&feeds.observer) as Arc<dyn Listener>,
    });
    let handle = engine.handle();
    let stopped = parts.inner.stop.clone();
    parts.inner.set.spawn(async move {
        // Kept so that the engine sees the last policy even where no file is followed.
        let _policy = policy;
        engine.run(stopped).await;
        "the engine"
    });
    handle
}
