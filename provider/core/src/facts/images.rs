//! Container images: which of them a pool's GPU pods use, and whether a node has them.
//!
//! A pod whose image is on the node starts at once; pulling 20 GiB takes minutes. With `warmWhen:
//! imagesPulled` a node is warm only if it has every image that the pool's GPU pods used lately
//! ([`pulled`]).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use crate::base::fnv::fnv1a;

/// Of a pool's images those count that were used so shortly before the last use of any: long enough for jobs that take turns, short
/// enough that after a roll-out nobody waits for the image that it replaced. Counted back from the last use and not from now, so that
/// the pool is known on Monday by what ran on Friday.
pub const LATELY: SignedDuration = SignedDuration::from_hours(1);

/// Most images that count for a pool, the last used first: more than one pod's are seldom, and each is one more to wait for.
pub const MOST_IMAGES: usize = 16;

/// How exactly it is remembered when an image was last used. Finer would write to the journal in every pass.
const EXACTLY: SignedDuration = SignedDuration::from_mins(10);

/// So many images a kubelet lists unless it is told otherwise (`nodeStatusMaxImages`), the largest first. From there on a list may lack
/// something that is there.
pub const MOST_LISTED: usize = 50;

/// An image by its reference, as a hash: 5,000 nodes list 50 images of two names each, which are 40 MB of names and 4 MB of hashes.
///
/// References that mean the same are one: `nginx` is `docker.io/library/nginx:latest`, and beside a digest the tag means nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ImageId(u64);

impl ImageId {
    /// The image that a reference names.
    pub fn of(reference: &str) -> Self {
        let (name, digest) = match reference.split_once('@') {
            Some((name, digest)) => (name, Some(digest)),
            None => (reference, None),
        };
        // A colon after the last slash begins a tag; one before it, a port.
        let slash = name.rfind('/');
        let (name, tag) = match name.rfind(':').filter(|colon| slash.is_none_or(|slash| *colon > slash)) {
            Some(colon) => (&name[..colon], &name[colon + 1..]),
            None => (name, "latest"),
        };
        let first = name.split_once('/').map(|(first, _)| first);
        let in_registry = first.is_some_and(|first| first.contains(['.', ':']) || first == "localhost");
        let registry = match (in_registry, slash) {
            (true, _) => "",
            (false, Some(_)) => "docker.io/",
            (false, None) => "docker.io/library/",
        };
        let (mark, version) = digest.map_or((":", tag), |digest| ("@", digest));
        // As if they were one text.
        Self(fnv1a([registry, name, mark, version].into_iter().flat_map(str::bytes)))
    }
}

impl fmt::Display for ImageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl From<ImageId> for String {
    fn from(id: ImageId) -> Self {
        id.to_string()
    }
}

impl TryFrom<String> for ImageId {
    type Error = std::num::ParseIntError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        u64::from_str_radix(&text, 16).map(Self)
    }
}

/// What is known of the images of a node. Only images that GPU pods use are told apart.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeImages {
    /// Which of them it lists.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub has: BTreeSet<ImageId>,
    /// What the GPU pods on it use.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub runs: BTreeSet<ImageId>,
    /// How far its list goes.
    pub list: List,
}

/// How far a node's list of images goes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum List {
    /// There is none, or it is empty.
    #[default]
    Absent,
    /// It has less than [`MOST_LISTED`], so it has all.
    Whole,
    /// It may be cut.
    Cut,
}

impl List {
    /// That of so many images.
    pub const fn of(images: usize) -> Self {
        match images {
            0 => Self::Absent,
            1..MOST_LISTED => Self::Whole,
            _ => Self::Cut,
        }
    }
}

/// What is remembered of the images that a pool's GPU pods use.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PoolImages {
    last_used: BTreeMap<ImageId, Timestamp>,
}

impl PoolImages {
    /// Whether it would be worth remembering that these are in use.
    pub fn is_news(&self, used: &BTreeSet<ImageId>, now: Timestamp) -> bool {
        used.iter().any(|image| self.last_used.get(image).is_none_or(|at| now.duration_since(*at) >= EXACTLY))
    }

    /// Takes note that these are in use.
    pub fn take(&mut self, used: &BTreeSet<ImageId>, now: Timestamp) {
        self.last_used.extend(used.iter().map(|image| (*image, now)));
        self.forget();
    }

    /// Drops what no longer counts.
    fn forget(&mut self) {
        let Some(last) = self.last_used.values().max().copied() else { return };
        self.last_used.retain(|_, at| last.duration_since(*at) <= LATELY);
        let over = self.last_used.len().saturating_sub(MOST_IMAGES);
        // Of images used at the same time the id decides.
        let mut oldest: Vec<_> = self.last_used.iter().map(|(image, at)| (*at, *image)).collect();
        oldest.sort_unstable();
        for (_, image) in oldest.into_iter().take(over) {
            self.last_used.remove(&image);
        }
    }

    /// The images that count.
    pub fn images(&self) -> impl Iterator<Item = ImageId> {
        self.last_used.keys().copied()
    }
}

/// Whether a node has the images of its pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pulled {
    /// Every one.
    All,
    /// So many are not there.
    Missing(usize),
    /// Nobody can tell.
    Unknown(NotTold),
}

/// Why nobody can tell whether a node has its pool's images.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotTold {
    /// No GPU pod of the pool was ever seen.
    NoPods,
    /// The node lists none.
    NoList,
    /// The node's list is as long as lists get, and lacks some.
    CutList,
}

impl Pulled {
    /// Whether the node counts as warm by its images. One that lacks some is on its way to being warm: it is waited for, and no other one
    /// bought in its place. Where nobody can tell, being Ready is enough, for waiting would never end.
    pub const fn is_enough(self) -> bool {
        match self {
            Self::All | Self::Unknown(NotTold::NoPods | NotTold::NoList | NotTold::CutList) => true,
            Self::Missing(_) => false,
        }
    }
}

impl fmt::Display for Pulled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("it has the images of its pool"),
            Self::Missing(1) => f.write_str("an image of its pool is not pulled yet"),
            Self::Missing(n) => write!(f, "{n} images of its pool are not pulled yet"),
            Self::Unknown(NotTold::NoPods) => f.write_str("no GPU pod of its pool has been seen, so it waits for no image"),
            Self::Unknown(NotTold::NoList) => f.write_str("it does not list its images, so it waits for none"),
            Self::Unknown(NotTold::CutList) => {
                write!(f, "it lists only its {MOST_LISTED} largest images, so it waits for none")
            }
        }
    }
}

/// Whether a node has every image that its pool's GPU pods used lately. `node` is `None` where nothing is known of its images, `pool` where
/// no GPU pod of the pool was seen.
pub fn pulled(node: Option<&NodeImages>, pool: Option<&PoolImages>) -> Pulled {
    let Some(pool) = pool.filter(|pool| !pool.last_used.is_empty()) else { return Pulled::Unknown(NotTold::NoPods) };
    let Some(node) = node.filter(|node| node.list != List::Absent) else { return Pulled::Unknown(NotTold::NoList) };
    match (pool.images().filter(|image| !node.has.contains(image)).count(), node.list) {
        (0, _) => Pulled::All,
        (_, List::Cut) => Pulled::Unknown(NotTold::CutList),
        (missing, List::Whole | List::Absent) => Pulled::Missing(missing),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(minutes: i64) -> Timestamp {
        Timestamp::UNIX_EPOCH + SignedDuration::from_mins(minutes)
    }

    fn ids(names: &[&str]) -> BTreeSet<ImageId> {
        names.iter().map(|name| ImageId::of(name)).collect()
    }

    fn pool(uses: &[(&str, i64)]) -> PoolImages {
        let mut pool = PoolImages::default();
        for (name, minute) in uses {
            pool.take(&ids(&[name]), at(*minute));
        }
        pool
    }

    fn node(names: &[&str], list: List) -> NodeImages {
        NodeImages { has: ids(names), runs: BTreeSet::new(), list }
    }

    #[test]
    fn references_that_mean_the_same_are_one_image() {
        for (a, b) in [
            ("nginx", "docker.io/library/nginx:latest"),
            ("nginx:1.25", "docker.io/library/nginx:1.25"),
            ("nvidia/cuda:12.8", "docker.io/nvidia/cuda:12.8"),
            ("localhost/x", "localhost/x:latest"),
            ("reg:5000/x", "reg:5000/x:latest"),
            ("nginx:1.25@sha256:00", "docker.io/library/nginx@sha256:00"),
        ] {
            assert_eq!(ImageId::of(a), ImageId::of(b), "{a}");
        }
        for (a, b) in [
            ("nginx:1.25", "nginx:1.26"),
            ("nginx", "nvcr.io/nginx"),
            ("a/b", "a.b"),
            ("nginx@sha256:00", "nginx@sha256:01"),
            ("reg:5000/x", "reg/x:5000"),
            ("", "nginx"),
        ] {
            assert_ne!(ImageId::of(a), ImageId::of(b), "{a} {b}");
        }
        // Written down, so it must not change: FNV-1a of `docker.io/library/a:latest`.
        let written = serde_json::to_string(&ImageId::of("a")).unwrap();
        assert_eq!(written.len(), 18);
        assert_eq!(serde_json::from_str::<ImageId>(&written).unwrap(), ImageId::of("a"));
        assert!(serde_json::from_str::<ImageId>("\"not hex\"").is_err());
    }

    #[test]
    fn a_node_is_warm_once_it_has_every_image_of_its_pool() {
        let pool = pool(&[("train:1", 0), ("sidecar", 0)]);
        let told = |names, list| pulled(Some(&node(names, list)), Some(&pool));
        assert_eq!(told(&["train:1", "sidecar", "other"], List::Whole), Pulled::All);
        assert_eq!(told(&["train:1"], List::Whole), Pulled::Missing(1));
        assert!(!told(&[], List::Whole).is_enough());
    }

    /// Each of these would otherwise be waited for without end.
    #[test]
    fn where_nobody_can_tell_a_ready_node_is_warm() {
        let pool = pool(&[("train:1", 0)]);
        let cut = pulled(Some(&node(&["pause"], List::Cut)), Some(&pool));
        assert_eq!(cut, Pulled::Unknown(NotTold::CutList));
        assert_eq!(pulled(Some(&node(&["train:1"], List::Cut)), Some(&pool)), Pulled::All);
        let silent = pulled(Some(&node(&[], List::Absent)), Some(&pool));
        assert_eq!(silent, Pulled::Unknown(NotTold::NoList));
        assert_eq!(pulled(None, Some(&pool)), silent);
        let unused = pulled(Some(&node(&[], List::Whole)), None);
        assert_eq!(unused, Pulled::Unknown(NotTold::NoPods));
        assert_eq!(pulled(None, Some(&PoolImages::default())), unused);
        assert!([cut, silent, unused].into_iter().all(Pulled::is_enough));
        assert_eq!([0, 1, 49, 50, 80].map(List::of), [List::Absent, List::Whole, List::Whole, List::Cut, List::Cut]);
    }

    #[test]
    fn after_a_roll_out_the_old_image_is_waited_for_an_hour_and_a_weekend_forgets_nothing() {
        let mut pool = pool(&[("train:1", 0), ("train:2", 10), ("train:2", 60)]);
        assert_eq!(pool.images().collect::<BTreeSet<_>>(), ids(&["train:1", "train:2"]), "an hour is not over");
        pool.take(&ids(&["train:2"]), at(70));
        assert_eq!(pool.images().collect::<BTreeSet<_>>(), ids(&["train:2"]));
        // Nothing runs for two days; the first pod on Monday brings its own.
        assert_eq!(pool.images().count(), 1);
        pool.take(&ids(&["notebook"]), at(70 + 2 * 24 * 60));
        assert_eq!(pool.images().collect::<BTreeSet<_>>(), ids(&["notebook"]));
    }

    #[test]
    fn uses_are_remembered_to_ten_minutes_and_of_many_images_the_last() {
        let mut pool = pool(&[("a", 0)]);
        assert!(!pool.is_news(&ids(&["a"]), at(9)) && !pool.is_news(&BTreeSet::new(), at(99)));
        assert!(pool.is_news(&ids(&["a"]), at(10)) && pool.is_news(&ids(&["a", "b"]), at(1)));
        for n in 0..20 {
            pool.take(&ids(&[&format!("job:{n}")]), at(20 + n));
        }
        // Of 21 the last 16: jobs 4 to 19.
        let kept: BTreeSet<_> = (4..20).map(|n| ImageId::of(&format!("job:{n}"))).collect();
        assert_eq!(pool.images().collect::<BTreeSet<_>>(), kept);
    }
}
