//! Outdated nodes: those that would be made differently today, or have lived longer than their pool allows.

use std::fmt;

use jiff::SignedDuration;
use serde::{Deserialize, Serialize};

use crate::base::ids::NodeClassName;
use crate::base::text::length;

/// Why a node is outdated: how it differs from one that would be made today, or its age.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "is")]
pub enum Outdated {
    /// It boots another image: a new release of it, or one for the cluster's new Kubernetes version.
    Image {
        /// The image that it runs.
        runs: String,
        /// The image that its node class names now.
        now: String,
    },
    /// Its node class was changed: user data, disks, network or the like.
    NodeClass {
        /// The node class.
        name: NodeClassName,
    },
    /// Its pool's labels, taints, sharing or node class were changed.
    Template,
    /// It is older than its pool's `outdated.maxNodeLife`.
    Expired {
        /// That age, from the order of its machine.
        life: SignedDuration,
    },
}

impl Outdated {
    /// The kind, as a label of metrics.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Image { .. } => "image",
            Self::NodeClass { .. } => "node-class",
            Self::Template => "template",
            Self::Expired { .. } => "expired",
        }
    }
}

impl fmt::Display for Outdated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Image { runs, now } => write!(f, "it runs image {runs}, and new nodes run {now}"),
            Self::NodeClass { name } => write!(f, "node class {name} was changed after it was launched"),
            Self::Template => {
                f.write_str("its pool's labels, taints, sharing or node class were changed after it was launched")
            }
            Self::Expired { life } => write!(f, "it is older than outdated.maxNodeLife {}", length(*life)),
        }
    }
}
