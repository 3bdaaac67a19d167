//! A replica that waits to lead: it answers its side port, says who leads, and is not ready.

use std::sync::{Arc, Mutex, PoisonError};

use futures::FutureExt as _;
use kube::Client;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use serde_json::json;
use stoker_journal::Journal;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::{Options, ServeError};
use crate::api::side::{Condition, Health, SideState, serve};
use crate::kube::leader::{Candidate, Leader, LeaseName};
use crate::listener::{Listener, Security};
use crate::publish::picture::Picture;
use crate::publish::telemetry::LEADER;

/// The lead among several replicas, which is kept until it is given back or lost. A clone is the same one.
#[derive(Clone)]
pub struct Lead {
    leader: Leader,
    /// Renews the Lease, and gives it back once it is told to stop.
    keeping: Arc<Mutex<Option<JoinHandle<()>>>>,
    stop: CancellationToken,
}

/// Waits until this replica leads. `won` is filled at once then, for whoever gives up waiting for the rest.
pub(super) async fn wait(
    client: Client,
    lease: LeaseName,
    options: &Options,
    won: &mut Option<Lead>,
) -> Result<Lead, ServeError> {
    let place = options.place();
    let try_write = move || {
        let place = place.clone();
        async move { Journal::try_write(&place).await.is_ok() }.boxed()
    };
    let mut candidate = Candidate::new(client, lease, options.clock.clone(), Box::new(try_write));
    let listener = Listener::bind(options.http, Security::Plaintext).await;
    let listener = listener.map_err(|source| ServeError::Listen { addr: options.http, door: "the side port", source })?;
    let side = tokio::spawn(serve(listener, answers(candidate.standing()), CancellationToken::new()));
    let leader = candidate.wait().await;
    let stop = CancellationToken::new();
    let keeping = {
        let (leader, stop) = (leader.clone(), stop.clone());
        tokio::spawn(async move {
            if stop.run_until_cancelled(candidate.keep(&leader)).await.is_none() {
                candidate.give_back().await;
            }
        })
    };
    let lead = Lead { leader, keeping: Arc::new(Mutex::new(Some(keeping))), stop };
    *won = Some(lead.clone());
    // The service itself answers there from now on.
    side.abort();
    drop(side.await);
    Ok(lead)
}

impl Lead {
    pub(super) fn leader(&self) -> Leader {
        self.leader.clone()
    }

    /// Waits until this replica does not lead any more.
    pub(super) async fn lost(&self) {
        self.leader.lost().await;
    }

    /// Gives the Lease back, so that another replica leads at once. Nothing is done any more from here on.
    pub async fn give_back(&self) {
        self.leader.resign();
        self.stop.cancel();
        let keeping = self.keeping.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(keeping) = keeping {
            // It never panics, and a Lease that is not given back ends by itself.
            drop(keeping.await);
        }
    }
}

/// What the side port says meanwhile.
fn answers(standing: impl Fn() -> String + Send + Sync + 'static) -> SideState {
    let mut registry = Registry::with_prefix("stoker");
    registry.register("leader", LEADER, Gauge::<i64>::default());
    let standing = Arc::new(standing);
    let for_view = Arc::clone(&standing);
    SideState {
        registry: Arc::new(registry),
        debug: false,
        healthy: Box::new(|| Health::Alive),
        ready: Arc::new(move || vec![Condition::not_ready("leader", format!("a standby: {}", standing()))]),
        view: Box::new(move || json!({ "standby": for_view() })),
        picture: Arc::new(Picture::default),
        signals: Box::new(|| async { json!({}) }.boxed()),
        console: None,
    }
}
