//! What outlives the process: each machine ever made, with its whole fate.

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use stoker_core::base::ids::{ClusterName, LaunchKey, NodeName, ProviderId};
use stoker_core::facts::supply::{EndedWhy, Instance, InstanceState};
use stoker_core::market::offer::Market;

/// A machine that was made, and what becomes of it: all that has to be stored.
///
/// The fate is settled when the machine is made, so a row is written twice at most: then, and when it is told to end. A row is never
/// deleted: its key is used for ever.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StoredInstance {
    /// The key it was launched with.
    pub key: LaunchKey,
    /// The cluster it was launched for.
    pub cluster: ClusterName,
    /// What it is called.
    pub provider_id: ProviderId,
    /// The name of its Node.
    pub node_name: NodeName,
    /// Where and how it was bought.
    pub market: Market,
    /// When it was made.
    pub launched_at: Timestamp,
    /// When it has booted; `None` where it never does.
    pub ready_at: Option<Timestamp>,
    /// How the cloud takes it back, unless it ends before; `None` where it never does.
    pub reclaim: Option<Window>,
    /// From when it was told to end until it is gone; `None` while nobody said so.
    pub stopping: Option<Window>,
}

/// From a word to its deed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Window {
    /// When it is said.
    pub said_at: Timestamp,
    /// When the machine is gone.
    pub gone_at: Timestamp,
}

impl StoredInstance {
    /// When it is gone, by whichever word comes to its deed first; `None` where nothing ends it.
    pub fn gone_at(&self) -> Option<Timestamp> {
        self.ended().map(|(at, _)| at)
    }

    /// What it is doing at `now`; `None` once it is gone.
    pub fn state_at(&self, now: Timestamp) -> Option<InstanceState> {
        let said = |window: Option<Window>| window.filter(|window| window.said_at <= now);
        if self.gone_at().is_some_and(|at| at <= now) {
            None
        } else if said(self.stopping).is_some() {
            Some(InstanceState::Stopping)
        } else if let Some(reclaim) = said(self.reclaim) {
            Some(InstanceState::Reclaiming { at: reclaim.gone_at })
        } else if self.ready_at.is_some_and(|at| at <= now) {
            Some(InstanceState::Running)
        } else {
            Some(InstanceState::Pending)
        }
    }

    /// The first moment after `now` at which [`state_at`](Self::state_at) may differ.
    pub(super) fn next_change(&self, now: Timestamp) -> Option<Timestamp> {
        let notice = self.reclaim.map(|window| window.said_at);
        [self.ready_at, notice, self.gone_at()].into_iter().flatten().filter(|at| *at > now).min()
    }

    /// The same, with all that was and will be later by so much.
    #[must_use]
    pub fn moved(mut self, by: SignedDuration) -> Self {
        let moved = |at: &mut Timestamp| *at = at.saturating_add(by).unwrap_or(*at);
        moved(&mut self.launched_at);
        self.ready_at.iter_mut().for_each(moved);
        for window in self.reclaim.iter_mut().chain(&mut self.stopping) {
            [&mut window.said_at, &mut window.gone_at].into_iter().for_each(moved);
        }
        self
    }

    /// The latest moment that had come when this row was written.
    pub fn written_at(&self) -> Timestamp {
        self.stopping.map_or(self.launched_at, |window| window.said_at.max(self.launched_at))
    }

    /// When it ends and why, as far as that is settled.
    pub(super) fn ended(&self) -> Option<(Timestamp, EndedWhy)> {
        let ended = self.stopping.map(|window| (window.gone_at, EndedWhy::Deleted));
        let taken = self.reclaim.map(|window| (window.gone_at, EndedWhy::Reclaimed));
        ended.into_iter().chain(taken).min()
    }

    /// The machine as its supplier shows it.
    pub(super) fn shown(&self, state: InstanceState) -> Instance {
        Instance {
            key: self.key.clone(),
            provider_id: self.provider_id.clone(),
            node_name: self.node_name.clone(),
            market: self.market.clone(),
            launched_at: self.launched_at,
            state,
        }
    }
}

/// `seconds` after `at`, or the end of time.
pub(super) fn after(at: Timestamp, seconds: i64) -> Timestamp {
    at.checked_add(SignedDuration::from_secs(seconds)).unwrap_or(if seconds < 0 { Timestamp::MIN } else { Timestamp::MAX })
}
