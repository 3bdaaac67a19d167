//! References of images, hashed while the JSON is read: no name is ever stored.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Visitor};
use stoker_core::facts::images::{ImageId, List};

/// The images that a node lists.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ListedImages {
    /// By all of their names, in order.
    pub(crate) ids: Box<[ImageId]>,
    /// How far the list goes.
    pub(crate) list: List,
}

impl ListedImages {
    pub(crate) fn of(images: &[RawImage]) -> Self {
        let names = images.iter().flat_map(|image| image.names.iter().flatten());
        let mut ids: Vec<_> = names.map(|reference| reference.0).collect();
        ids.sort_unstable();
        ids.dedup();
        Self { ids: ids.into(), list: List::of(images.len()) }
    }
}

/// An image as a node lists it, by its tags and its digest.
#[derive(serde::Deserialize)]
pub(crate) struct RawImage {
    names: Option<Vec<RawReference>>,
}

/// A reference of an image.
pub(crate) struct RawReference(pub(crate) ImageId);

impl<'de> Deserialize<'de> for RawReference {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Hashed;
        impl Visitor<'_> for Hashed {
            type Value = RawReference;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a reference of an image")
            }

            fn visit_str<E>(self, text: &str) -> Result<RawReference, E> {
                Ok(RawReference(ImageId::of(text)))
            }
        }
        deserializer.deserialize_str(Hashed)
    }
}
