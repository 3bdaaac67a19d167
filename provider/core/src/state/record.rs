//! Instance records: one for each node wanted, from its order to its end.
//!
//! A group's target size is the count of its records, never a separate number. The autoscaler
//! cancels one missing node by three different calls, and a number would fall three times.

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use crate::base::ids::{LaunchKey, NodeGroupId, NodeName, OrderId, ProviderId, RecordId, SessionId};
use crate::base::units::UsdPerHour;
use crate::facts::supply::RefusalKind;
use crate::market::offer::Market;
use crate::state::node_verdict::Judged;

/// One node wanted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Its number; never used twice.
    pub id: RecordId,
    /// The group it belongs to.
    pub group: NodeGroupId,
    /// The order it came with; `None` for a machine found in the inventory without a record.
    pub order: Option<OrderId>,
    /// When it was ordered or found.
    pub ordered_at: Timestamp,
    /// The autoscaler's session that asked for it, and so counts on it while it boots; `None` where nobody did.
    pub credited_to: Option<SessionId>,
    /// Whether it was asked for to keep the pool's floor rather than for pods, or stood free while that wanted free nodes.
    pub floor: bool,
    /// Tries so far at supplying it.
    pub attempts: u32,
    /// What the autoscaler knows it by until there is a machine.
    pub placeholder: ProviderId,
    /// Whether GPU pods came to its node.
    pub pods: PodsSeen,
    /// What is concluded of its node; `None` while there is none, and where nothing can tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub judged: Option<Judged>,
    /// Where it stands.
    pub state: State,
}

/// A step in the life of a record's node: its [`State`] without what belongs to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Accepted; nothing is bought yet.
    Wanted,
    /// The supplier is asked.
    Launching,
    /// The machine has not joined the cluster.
    Booting,
    /// It has joined, and has not been Ready.
    Joined,
    /// It has been Ready.
    Started,
    /// It could not be had.
    Failed,
    /// It is no longer wanted.
    Cancelled,
    /// It is on its way out.
    Deleting,
}

impl Phase {
    /// Whether the machine has joined the cluster.
    pub const fn is_registered(self) -> bool {
        matches!(self, Self::Joined | Self::Started)
    }

    /// Whether the node is on its way: not yet Ready.
    pub const fn is_coming(self) -> bool {
        matches!(self, Self::Wanted | Self::Launching | Self::Booting | Self::Joined)
    }
}

/// Whether GPU pods came to a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum PodsSeen {
    /// None yet, and there is still time.
    NotYet,
    /// At least one.
    Seen,
    /// None in time: the node counts towards suspending its group.
    TooLate,
}

/// A machine bought: where, for how much, under which key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Purchase {
    /// The launch key.
    pub key: LaunchKey,
    /// Where and how.
    pub market: Market,
    /// The price when it was chosen, without commitments. Budgets count it less what commitments pay of it now.
    pub price: UsdPerHour,
    /// How long it may take to join the cluster: the policy's word when it was chosen, so that a reload ends no machine.
    pub boot_within: SignedDuration,
    /// What the policy calls the reservation that it is bought from; `None` where it is bought from none, or nobody knows from which.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reservation: Option<String>,
}

/// Where a record stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "is")]
pub enum State {
    /// Accepted; nothing is bought yet.
    Wanted,
    /// The supplier is asked. Written down before the call, so that a crash leaves no machine unaccounted for.
    Launching {
        /// What is being bought.
        purchase: Purchase,
        /// When it was first asked.
        since: Timestamp,
        /// Not to be asked again before; set when an answer was unclear.
        retry_at: Option<Timestamp>,
    },
    /// The machine exists and has not joined the cluster.
    Booting {
        /// What was bought.
        purchase: Purchase,
        /// The machine.
        instance: ProviderId,
        /// When it was made.
        launched_at: Timestamp,
    },
    /// The machine has joined the cluster.
    Registered {
        /// What was bought.
        purchase: Purchase,
        /// The machine.
        instance: ProviderId,
        /// When it was made.
        launched_at: Timestamp,
        /// Its Node; `None` without a Kubernetes feed.
        node: Option<NodeName>,
        /// When it joined.
        at: Timestamp,
        /// When its Node was first Ready; `None` while it is not.
        ready_at: Option<Timestamp>,
    },
    /// Could not be had. Counts in the target until the autoscaler has seen it and deleted it.
    Failed {
        /// Why, as a class.
        kind: RefusalKind,
        /// Why, in words.
        message: String,
        /// When.
        at: Timestamp,
        /// What was or may have been bought and did not join; `None` where every market said no, or the machine is gone.
        purchase: Option<Purchase>,
        /// The machine that did not join, if one is known.
        instance: Option<ProviderId>,
    },
    /// No longer wanted, but a launch may have happened. Does not count.
    Cancelled {
        /// What may have been bought.
        purchase: Purchase,
        /// When it was cancelled.
        since: Timestamp,
    },
    /// On its way out. Does not count.
    Deleting {
        /// What was bought.
        purchase: Purchase,
        /// The machine.
        instance: ProviderId,
        /// Since when.
        since: Timestamp,
        /// Whether it goes because it did not join the cluster in time.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        late: bool,
    },
}

/// How long capacity that the autoscaler may not count on is taken to be on its way at most: the autoscaler's own start-up time limit of
/// 15 min, past which it takes such a node for broken itself, and one boot.
pub const UNCREDITED_AT_MOST: SignedDuration = SignedDuration::from_mins(20);

impl Record {
    /// Whether it is on its way and the autoscaler, in the session that it has now, may not count on it: another session asked for it, or
    /// nobody did.
    pub fn is_uncredited(&self, session: Option<SessionId>, now: Timestamp) -> bool {
        let credited = self.credited_to.is_some() && self.credited_to == session;
        let until = self.ordered_at.saturating_add(UNCREDITED_AT_MOST).unwrap_or(Timestamp::MAX);
        self.is_coming() && !credited && now < until
    }

    /// Whether it counts in the group's target size: what is wanted, being bought, there, or failed and not yet seen to have failed.
    pub const fn counts(&self) -> bool {
        match self.state {
            State::Wanted
            | State::Launching { .. }
            | State::Booting { .. }
            | State::Registered { .. }
            | State::Failed { .. } => true,
            State::Cancelled { .. } | State::Deleting { .. } => false,
        }
    }

    /// Whether its machine may be there: it counts, and its supplier has not told that it is gone.
    pub const fn may_run(&self) -> bool {
        self.counts() && !matches!(self.state, State::Failed { purchase: None, .. })
    }

    /// The machine, where there is one.
    pub const fn instance(&self) -> Option<&ProviderId> {
        match &self.state {
            State::Booting { instance, .. } | State::Registered { instance, .. } | State::Deleting { instance, .. } => {
                Some(instance)
            }
            State::Failed { instance, .. } => instance.as_ref(),
            State::Wanted | State::Launching { .. } | State::Cancelled { .. } => None,
        }
    }

    /// What was or may have been bought, where that is still a cost or a claim on quota.
    pub const fn purchase(&self) -> Option<&Purchase> {
        match &self.state {
            State::Launching { purchase, .. }
            | State::Booting { purchase, .. }
            | State::Registered { purchase, .. }
            | State::Cancelled { purchase, .. }
            | State::Deleting { purchase, .. } => Some(purchase),
            State::Failed { purchase, .. } => purchase.as_ref(),
            State::Wanted => None,
        }
    }

    /// The id that the autoscaler is shown: the machine's once there is one, the placeholder before. A failed record keeps the
    /// id under which it was last shown.
    pub const fn shown_id(&self) -> &ProviderId {
        match &self.state {
            State::Booting { instance, .. }
            | State::Registered { instance, .. }
            | State::Deleting { instance, .. }
            | State::Failed { instance: Some(instance), .. } => instance,
            State::Wanted | State::Launching { .. } | State::Failed { .. } | State::Cancelled { .. } => &self.placeholder,
        }
    }

    /// Where it stands.
    pub const fn phase(&self) -> Phase {
        match &self.state {
            State::Wanted => Phase::Wanted,
            State::Launching { .. } => Phase::Launching,
            State::Booting { .. } => Phase::Booting,
            State::Registered { ready_at: None, .. } => Phase::Joined,
            State::Registered { ready_at: Some(_), .. } => Phase::Started,
            State::Failed { .. } => Phase::Failed,
            State::Cancelled { .. } => Phase::Cancelled,
            State::Deleting { .. } => Phase::Deleting,
        }
    }

    /// Whether it is on its way: not yet a Ready node.
    pub const fn is_coming(&self) -> bool {
        self.phase().is_coming()
    }
}
