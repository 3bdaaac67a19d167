//! Interruptions: how much time a cloud leaves when it takes a machine back.

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use crate::base::ids::Cloud;
use crate::market::offer::{CapacityType, Market};

/// What is kept free between the last pod's end and the machine's: the kubelet reports that its pods are gone, and a save that ends late
/// is not cut off.
pub const SPARE: SignedDuration = SignedDuration::from_secs(10);

/// The least time from a cloud's notice to a spot machine's end. AWS: two minutes (EC2 User Guide, Spot Instance interruption notices).
/// Google: 30 s (Compute Engine API, preemption notice). Azure: 30 s (Scheduled Events, `Preempt`). Read 2026-11. Of another cloud
/// nothing better is known than the shortest of these.
pub fn notice(cloud: &Cloud) -> SignedDuration {
    match cloud.as_str() {
        "aws" => SignedDuration::from_mins(2),
        _ => SignedDuration::from_secs(30),
    }
}

/// The most time from the word that a machine is taken back to its end. A clock of Stoker's that is behind makes any end look far away.
///
/// A spot machine has its cloud's notice. Others are told of by Google 2 min before (Compute Engine API, preemption notice of standard machines), and
/// by Azure up to 15 min before (Scheduled Events, `Terminate`). Read 2026-11.
pub fn longest_notice(market: &Market) -> SignedDuration {
    match (market.place.cloud.as_str(), market.capacity_type) {
        (_, CapacityType::Spot) => notice(&market.place.cloud),
        ("azure", _) => SignedDuration::from_mins(15),
        _ => SignedDuration::from_mins(2),
    }
}

/// The time that pods have after a notice of that length: zero where it is shorter than [`SPARE`].
pub fn usable(notice: SignedDuration) -> SignedDuration {
    notice.saturating_sub(SPARE).max(SignedDuration::ZERO)
}

/// By when pods must be gone from a machine that ends then.
pub fn gone_by(end: Timestamp) -> Timestamp {
    end.saturating_sub(SPARE).unwrap_or(Timestamp::MIN)
}

/// Who told that a machine is taken back, and so can take that back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NoticeSource {
    /// The supplier's inventory.
    Supplier,
    /// The probe on the machine.
    Probe,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_have_the_notice_less_what_is_kept_free() {
        let left = |cloud: &str| usable(notice(&Cloud::new(cloud).unwrap())).as_secs();
        assert_eq!(["aws", "gcp", "azure", "other"].map(left), [110, 20, 20, 20]);
        assert_eq!(usable(SignedDuration::from_secs(5)), SignedDuration::ZERO);
        let end: Timestamp = "2026-11-01T00:02:00Z".parse().unwrap();
        assert_eq!(gone_by(end).to_string(), "2026-11-01T00:01:50Z");
    }
}
