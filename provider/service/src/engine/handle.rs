//! How the rest of the program talks to the engine: reads from the published view, orders by message.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwap;
use stoker_core::base::ids::{NodeGroupId, OrderId, RecordId};
use stoker_core::base::sabotage;
use stoker_core::decide::orders::NodeRef;
use tokio::sync::{mpsc, oneshot};

use crate::publish::CallRefused;
use crate::publish::view::View;

/// A message to the engine.
#[derive(Debug)]
pub(crate) enum Command {
    Increase { group: NodeGroupId, delta: i32, reply: oneshot::Sender<Result<OrderId, CallRefused>> },
    Decrease { group: NodeGroupId, delta: i32, reply: oneshot::Sender<Result<Vec<RecordId>, CallRefused>> },
    Delete { group: NodeGroupId, nodes: Vec<NodeRef>, reply: oneshot::Sender<Result<Vec<RecordId>, CallRefused>> },
    Session { reply: oneshot::Sender<Result<(), CallRefused>> },
    Settle { reply: oneshot::Sender<()> },
}

/// A way to the engine. Cheap to clone.
#[derive(Debug, Clone)]
pub struct EngineHandle {
    pub(crate) commands: mpsc::Sender<Command>,
    pub(crate) view: Arc<ArcSwap<View>>,
    /// The groups listed at the last Refresh: the set changes only there.
    pub(crate) listing: Arc<ArcSwap<Vec<NodeGroupId>>>,
    /// The connection of the last Refresh; `u64::MAX` before the first.
    pub(crate) connection: Arc<AtomicU64>,
}

impl EngineHandle {
    /// The latest view.
    pub fn view(&self) -> arc_swap::Guard<Arc<View>> {
        self.view.load()
    }

    /// The groups listed at the last Refresh, in id order.
    pub fn listing(&self) -> arc_swap::Guard<Arc<Vec<NodeGroupId>>> {
        self.listing.load()
    }

    /// Takes the current set of groups as the listing. A connection that has not called before begins a session: it may be a
    /// restarted autoscaler, which remembers nothing of what is booting.
    ///
    /// # Errors
    /// When the view is not whole. The autoscaler then ends its loop with nothing changed.
    pub async fn refresh(&self, connection: u64) -> Result<(), CallRefused> {
        if sabotage::on("refresh-half-view") && self.view().ready.is_err() {
            return Ok(());
        }
        self.view().ready.clone()?;
        let known = self.connection.load(Ordering::Acquire);
        if known != connection && !(sabotage::on("session-per-process") && known != u64::MAX) {
            let (reply, done) = oneshot::channel();
            self.send(Command::Session { reply }).await?;
            done.await.map_err(|_| CallRefused::Stopped)??;
            self.connection.store(connection, Ordering::Release);
        }
        let view = self.view();
        view.ready.clone()?;
        self.listing.store(Arc::new(view.listed().map(|group| group.group.id.clone()).collect()));
        Ok(())
    }

    /// Orders `delta` more nodes. Returns when the order is durable and its target published; supply follows.
    ///
    /// # Errors
    /// Says why; then nothing changed.
    pub async fn increase(&self, group: NodeGroupId, delta: i32) -> Result<OrderId, CallRefused> {
        let (reply, done) = oneshot::channel();
        self.send(Command::Increase { group, delta, reply }).await?;
        done.await.map_err(|_| CallRefused::Stopped)?
    }

    /// Cancels at most `-delta` records that have no machine.
    ///
    /// # Errors
    /// Only for a delta that is not below nought, or when the view is not whole.
    pub async fn decrease(&self, group: NodeGroupId, delta: i32) -> Result<Vec<RecordId>, CallRefused> {
        let (reply, done) = oneshot::channel();
        self.send(Command::Decrease { group, delta, reply }).await?;
        done.await.map_err(|_| CallRefused::Stopped)?
    }

    /// Deletes nodes: all or none.
    ///
    /// # Errors
    /// Names the node that must not go, and why.
    pub async fn delete(&self, group: NodeGroupId, nodes: Vec<NodeRef>) -> Result<Vec<RecordId>, CallRefused> {
        let (reply, done) = oneshot::channel();
        self.send(Command::Delete { group, nodes, reply }).await?;
        done.await.map_err(|_| CallRefused::Stopped)?
    }

    /// Asks the suppliers and makes passes until nothing is under way and nothing changes. For a virtual clock: in real time there is
    /// always something under way.
    pub async fn settle(&self) {
        let (reply, done) = oneshot::channel();
        if self.send(Command::Settle { reply }).await.is_ok() {
            let _ = done.await;
        }
    }

    async fn send(&self, command: Command) -> Result<(), CallRefused> {
        self.commands.send(command).await.map_err(|_| CallRefused::Stopped)
    }
}
