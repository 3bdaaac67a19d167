//! Which machines would be made differently today: with another image, or by a node class that has
//! changed since.

use serde::Serialize;
use stoker_core::base::ids::NodeClassName;
use stoker_core::facts::outdated::Outdated;
use stoker_core::market::offer::Arch;

use crate::answers::Machine;
use crate::config::NodeClass;
use crate::launch::NODE_CLASS_TAG;
use crate::region::{LookedUp, NoImage};

/// Digits of a digest in a tag.
const DIGITS: usize = 12;

/// It is not known what machines would be made with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CannotTell;

/// What a machine was made with, by its tag and its image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MadeWith {
    class: NodeClassName,
    digest: String,
    image: String,
    arch: Arch,
}

impl MadeWith {
    /// `None` where the machine does not say: releases before this one wrote no such tag.
    pub(crate) fn of(machine: &Machine) -> Option<Self> {
        let (class, digest) = machine.tag(NODE_CLASS_TAG)?.split_once('/')?;
        let arch = if machine.architecture == "arm64" { Arch::Arm64 } else { Arch::Amd64 };
        let image = machine.image_id.clone();
        let class = NodeClassName::new(class).ok()?;
        (!image.is_empty()).then(|| Self { class, digest: digest.to_owned(), image, arch })
    }

    /// How a machine would be made differently by what was looked up last; `None` where it would not.
    ///
    /// # Errors
    /// Where nobody can tell at the moment.
    pub(crate) fn outdated(&self, looked: Option<&LookedUp>) -> Result<Option<Outdated>, CannotTell> {
        let looked = looked.ok_or(CannotTell)?;
        let Some(class) = looked.class(&self.class) else { return Ok(None) };
        match looked.image(&self.class, self.arch) {
            Ok(now) if now != self.image => {
                return Ok(Some(Outdated::Image { runs: self.image.clone(), now: now.to_owned() }));
            }
            Err(NoImage { is_certain: false, .. }) => return Err(CannotTell),
            _ => {}
        }
        Ok((digest(class) != self.digest).then(|| Outdated::NodeClass { name: self.class.clone() }))
    }
}

/// The value of a machine's tag: its node class, and a digest of what that makes machines with.
///
/// Tags change no node. The image has an id of its own. What a class does not say leaves no mark, so that a new release with more to say
/// makes no machine outdated.
pub(crate) fn tag(name: &NodeClassName, class: &NodeClass) -> String {
    format!("{name}/{}", digest(class))
}

fn digest(class: &NodeClass) -> String {
    let mut hasher = blake3::Hasher::new();
    let mut feed = |key: &str, value: Option<String>| {
        if let Some(value) = value {
            hasher.update(key.as_bytes()).update(&[0]).update(value.as_bytes()).update(&[0]);
        }
    };
    feed("instanceProfile", Some(class.instance_profile.clone()));
    feed("family", word(&class.family));
    feed("diskGiB", Some(class.disk_gib.to_string()));
    feed("throughput", class.throughput.map(|mib| mib.to_string()));
    feed("iops", class.iops.map(|iops| iops.to_string()));
    feed("kmsKey", class.kms_key.clone());
    feed("localDisks", word(&class.local_disks));
    feed("efa", word(&class.efa));
    feed("placementGroup", class.placement_group.clone());
    feed("nodeNames", word(&class.node_names));
    feed("userData", class.user_data.clone());
    hasher.finalize().to_hex().chars().take(DIGITS).collect()
}

/// The word of a file for a value; `None` for the one that it need not say.
fn word<T: Serialize + Default + PartialEq>(value: &T) -> Option<String> {
    let text = (*value != T::default()).then(|| serde_json::to_value(value).ok());
    text.flatten().and_then(|text| text.as_str().map(str::to_owned))
}

#[cfg(test)]
mod tests;
