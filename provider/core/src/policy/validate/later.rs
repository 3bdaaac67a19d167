//! Fields that the format has and this release does not act on. One that is set is refused, never ignored: a policy must not
//! promise what nobody keeps.

use super::Faults;
use crate::policy::{Evidence, Path, RawPool};

/// What is said of a field as a whole.
const NOT_YET: &str = "is not supported yet: take it out";

/// A field of a later release: where it stands, how to tell that it is set, what is said then.
type Later = (&'static [&'static str], fn(&RawPool) -> bool, &'static str);

const OF_A_POOL: [Later; 3] = [
    (&["evidence"], |pool| pool.evidence == Some(Evidence::Probe), "probe is not supported yet: write pods or none"),
    (&["heldAfter"], |pool| pool.held_after.is_some(), NOT_YET),
    (&["unhealthy"], |pool| pool.unhealthy.is_some(), NOT_YET),
];

pub(super) fn of_a_pool(faults: &mut Faults, path: &Path, pool: &RawPool) {
    for (keys, is_set, message) in &OF_A_POOL {
        if is_set(pool) {
            faults.add(&keys.iter().fold(path.clone(), |path, key| path.key(*key)), *message);
        }
    }
}
