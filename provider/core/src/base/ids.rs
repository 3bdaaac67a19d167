//! Identifiers: one newtype per kind, so that no function takes two bare strings.
//!
//! Each is a non-empty string of at most [`MAX_ID_LEN`] bytes without control characters. Input
//! from outside is checked once, here. From then on an id is safe to log, to label and to store.
//!
//! The process keeps one copy of each text, so ids are compared and hashed by their address: a
//! pass compares tens of thousands. The order is that of the texts.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::shared::SharedText;

/// Longest id accepted, in bytes. Kubernetes names end at 253; provider ids and launch keys are longer but stay far below.
pub const MAX_ID_LEN: usize = 512;

/// Why a string is not an id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IdError {
    /// The string is empty.
    #[error("{kind} is empty")]
    Empty {
        /// Which kind of id.
        kind: &'static str,
    },
    /// The string is longer than [`MAX_ID_LEN`].
    #[error("{kind} has {len} bytes, more than {MAX_ID_LEN}")]
    TooLong {
        /// Which kind of id.
        kind: &'static str,
        /// Its length in bytes.
        len: usize,
    },
    /// The string has a control character.
    #[error("{kind} has a control character at byte {at}")]
    Control {
        /// Which kind of id.
        kind: &'static str,
        /// Where the character stands.
        at: usize,
    },
}

fn check(kind: &'static str, text: &str) -> Result<(), IdError> {
    if text.is_empty() {
        return Err(IdError::Empty { kind });
    }
    if text.len() > MAX_ID_LEN {
        return Err(IdError::TooLong { kind, len: text.len() });
    }
    if let Some(at) = text.find(char::is_control) {
        return Err(IdError::Control { kind, at });
    }
    Ok(())
}

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $kind:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(SharedText);

        impl $name {
            /// Checks `text` and makes it an id.
            pub fn new(text: impl AsRef<str>) -> Result<Self, IdError> {
                let text = text.as_ref();
                check($kind, text)?;
                Ok(Self(SharedText::new(text)))
            }

            /// The id as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }

            /// What `map` has under the id that reads `text`.
            pub fn find<'m, V>(map: &'m BTreeMap<Self, V>, text: &str) -> Option<&'m V> {
                map.get(&Self::new(text).ok()?)
            }
        }

        impl TryFrom<String> for $name {
            type Error = IdError;
            fn try_from(text: String) -> Result<Self, IdError> {
                Self::new(text)
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> String {
                id.0.into()
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(&self.0)
            }
        }
    };
}

id!(/// The cluster that Stoker serves; part of every launch key, so that two clusters in one account never touch each other's nodes.
    ClusterName, "cluster name");
id!(/// A pool of the policy.
    PoolName, "pool name");
id!(/// A demand signal of a pool, e.g. `queueDepth`.
    SignalName, "signal name");
id!(/// A node group: pool × shape, e.g. `inference.g6-xlarge.us-east-1a`. Stable across restarts.
    NodeGroupId, "node group id");
id!(/// A cloud, e.g. `aws`, `gcp`, `azure`, `lambda`.
    Cloud, "cloud");
id!(/// A region of a cloud, e.g. `us-east-1`.
    Region, "region");
id!(/// A zone as the price tables know it. On AWS this is the zone *id* (`use1-az6`), the same place in every account.
    ZoneId, "zone id");
id!(/// A zone as nodes are labelled. On AWS this is the zone *name* (`us-east-1a`), which each account maps to ids in its own way.
    ZoneName, "zone name");
id!(/// An instance type, e.g. `g6.xlarge`.
    InstanceType, "instance type");
id!(/// A GPU model as in `gpu-specs.csv`, e.g. `L4`, `A100`.
    GpuModel, "GPU model");
id!(/// One GPU or MIG instance, as its driver names it for life: `GPU-…` or `MIG-…`.
    GpuUuid, "GPU UUID");
id!(/// What a machine is called by its maker; equals the Node's `spec.providerID` byte for byte.
    ProviderId, "provider id");
id!(/// The name of a Kubernetes Node.
    NodeName, "node name");
id!(/// A key that makes a launch idempotent: `cluster/group/incarnation/ordinal/attempt`.
    LaunchKey, "launch key");
id!(/// Which journal it is: eight random hexadecimal digits, new with each new or restored journal.
    Incarnation, "journal incarnation");
id!(/// A supplier of nodes, e.g. `simulated`.
    SupplierName, "supplier name");
id!(/// What a supplier makes a machine with besides its type, such as an image with its network; its supplier knows it by this name.
    NodeClassName, "node class");

impl From<&ZoneId> for ZoneName {
    /// A zone that an account has no name for is called by its id.
    fn from(id: &ZoneId) -> Self {
        Self(id.0.clone())
    }
}

impl From<&NodeGroupId> for NodeName {
    /// The template node of a group is called like the group.
    fn from(id: &NodeGroupId) -> Self {
        Self(id.0.clone())
    }
}

macro_rules! number {
    ($(#[$doc:meta])* $name:ident, $prefix:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub u64);

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, concat!($prefix, "{}"), self.0)
            }
        }

        impl std::str::FromStr for $name {
            type Err = std::num::ParseIntError;
            fn from_str(text: &str) -> Result<Self, Self::Err> {
                text.strip_prefix($prefix).unwrap_or(text).parse().map(Self)
            }
        }
    };
}

number!(/// An instance record: one wanted node, from its order to its end. Never used twice.
    RecordId, "r");
number!(/// An accepted order.
    OrderId, "o");
number!(/// One decision in the journal.
    DecisionId, "d");
number!(/// One session of the autoscaler: a connection over which it has called Refresh.
    SessionId, "s");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_refuse_what_cannot_be_a_name() {
        assert_eq!(PoolName::new(""), Err(IdError::Empty { kind: "pool name" }));
        assert_eq!(PoolName::new("a\nb"), Err(IdError::Control { kind: "pool name", at: 1 }));
        assert!(matches!(ProviderId::new("x".repeat(1 << 20)), Err(IdError::TooLong { len: 1_048_576, .. })));
    }

    #[test]
    fn numbers_read_what_they_print() {
        assert_eq!("d42".parse::<DecisionId>(), Ok(DecisionId(42)));
        assert_eq!("42".parse::<DecisionId>(), Ok(DecisionId(42)));
        assert!("x42".parse::<DecisionId>().is_err());
    }
}
