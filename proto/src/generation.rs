//! Which releases of the Cluster Autoscaler speak alike, and how to tell which one is calling.

use crate::externalgrpc::NodeGroupAutoscalingOptions;

/// Autoscaler releases that put the same fields on the wire, named after the first of them; later ones are greater.
///
/// 1.33.0 to 1.34.1 belong to [`ClientGeneration::V1_29`]: they add two switches to the options, which are absent from
/// the wire while they are off, so nothing tells them apart and nothing has to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ClientGeneration {
    /// 1.25.0 to 1.28.x: legacy fields, without a provision time.
    V1_25,
    /// 1.29.0 to 1.34.1: legacy fields.
    V1_29,
    /// 1.34.2 to 1.34.5: legacy fields and their successors.
    V1_34_2,
    /// 1.35.0 and later: no legacy field left.
    V1_35,
}

impl ClientGeneration {
    /// All generations, oldest first.
    pub const ALL: [Self; 4] = [Self::V1_25, Self::V1_29, Self::V1_34_2, Self::V1_35];

    /// Tells the generation from the defaults that come with `NodeGroupGetOptions`, by which durations are present.
    ///
    /// `None`: no duration is present, which no release sends.
    pub fn from_defaults(defaults: &NodeGroupAutoscalingOptions) -> Option<Self> {
        let older = defaults.scale_down_unneeded_time.is_some() || defaults.scale_down_unready_time.is_some();
        let provision = defaults.max_node_provision_time.is_some();
        let newer = defaults.scale_down_unneeded_duration.is_some()
            || defaults.scale_down_unready_duration.is_some()
            || defaults.max_node_provision_duration.is_some();
        match (older || provision, provision, newer) {
            (true, _, true) => Some(Self::V1_34_2),
            (false, _, true) => Some(Self::V1_35),
            (true, true, false) => Some(Self::V1_29),
            (true, false, false) => Some(Self::V1_25),
            (false, _, false) => None,
        }
    }

    /// Whether `Unimplemented` means "not supported" to this client, in the four calls that may say so. To the others it
    /// is an error like any.
    pub fn maps_unimplemented(self) -> bool {
        self >= Self::V1_29
    }

    /// Whether options of a group, when all are filled, do what they say and nothing else.
    ///
    /// Earlier clients take the provision time as zero or ignore it; later ones take the start-up time, which the wire
    /// lacks, as zero and count every booting node as unready.
    pub fn takes_group_options(self) -> bool {
        matches!(self, Self::V1_29 | Self::V1_34_2)
    }

    /// The releases, for logs and status.
    pub fn releases(self) -> &'static str {
        match self {
            Self::V1_25 => "1.25-1.28",
            Self::V1_29 => "1.29-1.34.1",
            Self::V1_34_2 => "1.34.2-1.34.5",
            Self::V1_35 => "1.35+",
        }
    }
}
