//! The one table from what went wrong to what is said on the wire.

use stoker_core::base::ids::NodeGroupId;
use stoker_core::base::text::quoted;
use stoker_core::decide::orders::{DeleteRefused, OrderRefused};
use stoker_core::market::price::Unpriced;
use tonic::{Code, Status};

use crate::api::confirm::NotQuiet;
use crate::publish::CallRefused;
use crate::publish::view::NotReady;

/// Longest message of a status, in bytes. It travels in a header, percent-encoded, and some clients accept 16 KiB of headers.
const MAX_MESSAGE: usize = 1024;

/// Why a call is answered with an error. Nothing changed.
#[derive(Debug, thiserror::Error)]
pub(super) enum Refused {
    /// The engine says no, or knows no such group.
    #[error(transparent)]
    Call(#[from] CallRefused),
    /// A probe says no, or says nothing.
    #[error(transparent)]
    NotQuiet(#[from] NotQuiet),
    /// A field of the request makes no sense.
    #[error("{field} {fault}")]
    Field {
        /// Which.
        field: &'static str,
        /// What is wrong with it.
        fault: String,
        /// What would be right.
        cure: &'static str,
    },
    /// The node to be priced is of no group.
    #[error("node {} belongs to no group that Stoker knows", quoted(.0))]
    NotOurs(String),
    /// No offer of the group has a price.
    #[error("{group}: {why}")]
    Unpriced {
        /// The group.
        group: NodeGroupId,
        /// Why its preferred offer has none.
        why: Unpriced,
    },
    /// No group has a price.
    #[error("no node group has a price, so pods have none")]
    NoPrices,
    /// The group has no template, and an answer without one would end the autoscaler's process.
    #[error("{0} has no template")]
    NoTemplate(NodeGroupId),
    /// No Refresh has been made, so no set of groups has been shown.
    #[error("no groups are listed before the first Refresh")]
    NotListed,
}

impl From<NotReady> for Refused {
    fn from(why: NotReady) -> Self {
        Self::Call(why.into())
    }
}

impl From<OrderRefused> for Refused {
    fn from(why: OrderRefused) -> Self {
        Self::Call(why.into())
    }
}

impl Refused {
    /// What is said of it in answer to `call`: the place, the fault and the cure.
    pub(super) fn status(&self, call: &'static str) -> Status {
        let (code, cure) = self.verdict();
        let mut message = format!("{call}: {self}");
        if !cure.is_empty() {
            message.push_str("; ");
            message.push_str(cure);
        }
        Status::new(code, clip(message, MAX_MESSAGE))
    }

    /// The code, and the cure where the text has none yet.
    const fn verdict(&self) -> (Code, &'static str) {
        match self {
            Self::Call(CallRefused::Order(why)) => match why {
                OrderRefused::UnknownGroup(_) => (Code::NotFound, ""),
                OrderRefused::BadDelta(..) => (Code::InvalidArgument, ""),
                OrderRefused::Closed { .. } => {
                    (Code::FailedPrecondition, "its maxSize stays at its target until it may: Refresh and ask another group")
                }
                OrderRefused::NoRoom { .. } => {
                    (Code::ResourceExhausted, "Refresh, and ask for no more than maxSize less the target")
                }
            },
            Self::Call(CallRefused::Delete(why)) => match why {
                DeleteRefused::Busy { .. } => {
                    (Code::FailedPrecondition, "drain it or wait until they have ended; nothing of this call was deleted")
                }
                DeleteRefused::Guarded { .. } => {
                    (Code::FailedPrecondition, "wait until its GPUs are confirmed idle; nothing of this call was deleted")
                }
                DeleteRefused::Cautious { .. } => {
                    (Code::FailedPrecondition, "ask again then; nothing of this call was deleted")
                }
                DeleteRefused::WrongGroup { .. } => {
                    (Code::InvalidArgument, "name the group that NodeGroupForNode returns; nothing of this call was deleted")
                }
            },
            Self::Call(CallRefused::NotReady(why)) => match why {
                NotReady::Starting => (Code::Unavailable, "ask again in a few seconds"),
                NotReady::Supplier(_) => {
                    (Code::Unavailable, "check that it can be reached and that its credentials may list machines")
                }
                NotReady::Kubernetes => {
                    (Code::Unavailable, "check that the API server can be reached and that nodes and pods may be watched")
                }
                NotReady::KubernetesBroken => {
                    (Code::Unavailable, "check /readyz and Stoker's rights to list and watch nodes and pods")
                }
                NotReady::Markets(_) => {
                    (Code::Unavailable, "check that it can be reached and that its credentials may read zones and prices")
                }
                NotReady::Foreign => (
                    Code::Unavailable,
                    "check that `stoker serve` watches a cluster whose API server answers, or take karpenter out of the policy",
                ),
                // The journal says itself what to do.
                NotReady::Journal(_) => (Code::Unavailable, ""),
            },
            Self::Call(CallRefused::Stopped) => (Code::Unavailable, "ask again: the next process takes over"),
            Self::NotQuiet(NotQuiet::Busy { .. }) => {
                (Code::FailedPrecondition, "wait until its work has ended; nothing of this call was deleted")
            }
            Self::NotQuiet(NotQuiet::Unknown { .. }) => (
                Code::FailedPrecondition,
                "check that its probe runs and answers (the probe's log says why not); nothing of this call was deleted",
            ),
            Self::Field { cure, .. } => (Code::InvalidArgument, cure),
            Self::NotOurs(_) => (Code::NotFound, "label it stoker.dev/group=<group id>"),
            Self::Unpriced { .. } => (Code::FailedPrecondition, "give its market a price under prices: in the policy"),
            Self::NoPrices => (Code::FailedPrecondition, "give markets a price under prices: in the policy"),
            Self::NoTemplate(_) => (Code::Internal, "report this as a bug"),
            Self::NotListed => (Code::Unavailable, "call Refresh first"),
        }
    }
}

/// `text`, cut to at most `most` bytes where a character ends.
pub(super) fn clip(mut text: String, most: usize) -> String {
    const MARK: &str = "…";
    if text.len() > most {
        text.truncate(text.floor_char_boundary(most.saturating_sub(MARK.len())));
        text.push_str(MARK);
    }
    text
}
