//! The generations of the wire: which fields each sends and reads.

use stoker_proto::ClientGeneration;

use crate::vectors::{Vectors, parse};

/// One line of the wire's history.
#[derive(Debug, Clone, Copy)]
#[expect(clippy::struct_excessive_bools, reason = "four independent facts, read as a table")]
pub(crate) struct Releases {
    /// For messages of failing tests.
    pub(crate) name: &'static str,
    /// Sends and reads legacy fields.
    pub(crate) legacy: bool,
    /// Sends and reads their successors.
    pub(crate) newer: bool,
    /// Has a provision time per group.
    pub(crate) provision: bool,
    /// Has the two switches of 1.33.
    pub(crate) switches: bool,
    /// What our server should take it for.
    pub(crate) told: ClientGeneration,
    hex: &'static str,
}

impl Releases {
    pub(crate) fn vectors(&self) -> Vectors {
        parse(self.hex)
    }
}

pub(crate) const RELEASES: [Releases; 5] = [
    Releases {
        name: "1.25.0 to 1.28.x",
        legacy: true,
        newer: false,
        provision: false,
        switches: false,
        told: ClientGeneration::V1_25,
        hex: include_str!("../vectors/requests-1.25.hex"),
    },
    Releases {
        name: "1.29.0 to 1.32.x",
        legacy: true,
        newer: false,
        provision: true,
        switches: false,
        told: ClientGeneration::V1_29,
        hex: include_str!("../vectors/requests-1.29.hex"),
    },
    Releases {
        name: "1.33.0 to 1.34.1",
        legacy: true,
        newer: false,
        provision: true,
        switches: true,
        told: ClientGeneration::V1_29,
        hex: include_str!("../vectors/requests-1.33.hex"),
    },
    Releases {
        name: "1.34.2 to 1.34.5",
        legacy: true,
        newer: true,
        provision: true,
        switches: true,
        told: ClientGeneration::V1_34_2,
        hex: include_str!("../vectors/requests-1.34.2.hex"),
    },
    Releases {
        name: "1.35.0 and later",
        legacy: false,
        newer: true,
        provision: true,
        switches: true,
        told: ClientGeneration::V1_35,
        hex: include_str!("../vectors/requests-1.35.hex"),
    },
];
