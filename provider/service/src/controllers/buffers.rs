//! Warm floors as `CapacityBuffer` objects: for each pool that wants it so, a `PodTemplate` that takes one node, and a buffer of as many as the
//! floor wants. The autoscaler keeps room for them as if pods waited, buys what is missing, and refills what pods take.
//!
//! # Guarantees
//! Only objects that bear our marks (the labels `stoker.dev/cluster` with this cluster and `app.kubernetes.io/managed-by: stoker`) are changed
//! or deleted. A pass over all of them repairs whatever was missed; done twice it changes nothing the second time.

mod api;
mod object;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use stoker_core::base::ids::{ClusterName, PoolName};
use stoker_core::policy::rules::warm_floor::Mechanism;
use tokio::sync::watch;
use tokio::time::interval;
use tracing::{info, warn};

use crate::engine::EngineHandle;
use crate::publish::view::View;
pub use api::BuffersError;
use api::{Kind, Objects};
use object::Wanted;
pub use object::{apart, buffer, covers, kinds, pod_template, room};

/// How often the objects are looked at: floors change in minutes, and the autoscaler's loop is no faster.
const EVERY: Duration = Duration::from_secs(10);

/// After how many looks an API that is not served is asked for again: somebody may install it.
const ASK_AGAIN: u32 = 30;

/// Keeps the buffers as the floors want them, for ever. `served` tells whether the API is there, as long as a pool asks for it; floors that
/// cannot go through it go through `minSize`.
pub async fn run(client: Client, engine: EngineHandle, cluster: ClusterName, served: watch::Sender<Option<bool>>) {
    let mut keeper = Keeper { objects: Objects::new(&client, &cluster), served, wait: 0, told: None, left_over: true };
    let mut tick = interval(EVERY);
    loop {
        tick.tick().await;
        let view = Arc::clone(&engine.view());
        keeper.look(&view).await;
    }
}

/// What was taken back.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TakenBack {
    /// Buffers.
    pub buffers: usize,
    /// Their pod templates.
    pub templates: usize,
}

/// Deletes every buffer that Stoker made, and its pod template, in all namespaces: of one cluster or of any. With `dry_run` they are only
/// counted.
///
/// # Errors
/// When the API server does not answer, or does not allow it. What was deleted by then stays so; it may be repeated.
pub async fn take_back(client: &Client, cluster: Option<&ClusterName>, dry_run: bool) -> Result<TakenBack, BuffersError> {
    let nothing = |_: &str| false;
    let buffers = match Kind::buffers().delete(client, None, cluster, nothing, dry_run).await {
        // Where the API is not served, none of it can be there.
        Err(error) if error.is_absent() => 0,
        deleted => deleted?,
    };
    Ok(TakenBack { buffers, templates: Kind::templates().delete(client, None, cluster, nothing, dry_run).await? })
}

struct Keeper {
    objects: Objects,
    served: watch::Sender<Option<bool>>,
    /// Looks left until an API that is not served is asked for again.
    wait: u32,
    /// What was said last, so that it is said once.
    told: Option<String>,
    /// Whether there may be objects of ours that no pool wants: of the process before this one, or of a policy that was changed.
    left_over: bool,
}

impl Keeper {
    async fn look(&mut self, view: &View) {
        // Before the first pass nobody knows what is wanted, and nothing must be taken back for that.
        if view.ready.is_err() {
            return;
        }
        let asking = asking(view);
        if asking.is_empty() && !self.left_over || self.wait > 0 {
            self.wait = self.wait.saturating_sub(1);
            return;
        }
        match self.keep(view, &asking).await {
            Ok(()) => {
                if !asking.is_empty() && self.served.send_replace(Some(true)) != Some(true) {
                    info!("floors use CapacityBuffer objects");
                }
                self.left_over = !asking.is_empty();
                self.told = None;
            }
            Err(error) => self.failed(&error, !asking.is_empty()),
        }
    }

    async fn keep(&self, view: &View, asking: &[PoolName]) -> Result<(), BuffersError> {
        let wanted: BTreeMap<_, _> = asking.iter().filter_map(|pool| Some((pool.clone(), Wanted::of(view, pool)?))).collect();
        self.objects.probe().await?;
        self.objects.apply(&wanted).await?;
        // A pool that asks and whose floor is not known in this pass keeps what it has.
        self.objects.keep_only(&asking.iter().cloned().collect()).await
    }

    fn failed(&mut self, error: &BuffersError, asked: bool) {
        if !asked {
            // Where no pool asks for buffers, neither the API nor the right to it need be there.
            self.left_over = !error.is_absent() && !error.is_forbidden();
            return;
        }
        if error.is_absent() || error.is_forbidden() {
            self.wait = ASK_AGAIN;
            self.served.send_replace(Some(false));
        }
        let text = error.told();
        if self.told.as_ref() != Some(&text) {
            warn!(%error, "{}", text);
            self.told = Some(text);
        }
    }
}

/// The pools whose floor goes through buffers.
fn asking(view: &View) -> Vec<PoolName> {
    let pools = view.catalogue.policy.pools.iter();
    let through = |floor: &stoker_core::policy::rules::warm_floor::WarmFloor| floor.mechanism == Mechanism::CapacityBuffer;
    pools.filter(|pool| pool.warm_floor.as_ref().is_some_and(through)).map(|pool| pool.name.clone()).collect()
}

#[cfg(test)]
mod tests;
