//! Fields that the format has and this release does not act on. One that is set is refused, never ignored: a policy must not
//! promise what nobody keeps.

use super::Faults;
use crate::policy::{Evidence, Path, RawPolicy, RawPool};

/// What is said of a field as a whole.
const NOT_YET: &str = "is not supported yet: take it out";

/// A field of a later release: where it stands, how to tell that it is set, what is said then.
type Later<T> = (&'static [&'static str], fn(&T) -> bool, &'static str);

const OF_THE_FILE: [Later<RawPolicy>; 1] = [(&["defaults", "dataRegion"], |file| file.defaults.data_region.is_some(), NOT_YET)];

const OF_A_POOL: [Later<RawPool>; 5] = [
    (&["where", "datasetGiB"], |pool| pool.place.dataset_gib.is_some(), NOT_YET),
    (&["where", "maxDistance"], |pool| pool.place.max_distance.is_some(), NOT_YET),
    (&["evidence"], |pool| pool.evidence == Some(Evidence::Probe), "probe is not supported yet: write pods or none"),
    (&["warmFloor"], |pool| pool.warm_floor.is_some(), NOT_YET),
    (&["stabilization"], |pool| pool.stabilization.is_some(), NOT_YET),
];

pub(super) fn of_the_file(faults: &mut Faults, path: &Path, file: &RawPolicy) {
    refuse(faults, path, &OF_THE_FILE, file);
}

pub(super) fn of_a_pool(faults: &mut Faults, path: &Path, pool: &RawPool) {
    refuse(faults, path, &OF_A_POOL, pool);
}

fn refuse<T>(faults: &mut Faults, path: &Path, fields: &[Later<T>], of: &T) {
    for (keys, is_set, message) in fields {
        if is_set(of) {
            faults.add(&keys.iter().fold(path.clone(), |path, key| path.key(*key)), *message);
        }
    }
}
