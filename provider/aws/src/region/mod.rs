//! One account in one region: asked, listed and failing by itself.

mod check;
mod commitments;
mod facts;
mod health;
mod launching;
mod listing;
mod lookup;
mod notices;
mod quotas;
mod trials;
mod types;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use stoker_core::base::ids::{ClusterName, InstanceType, LaunchKey, ProviderId, Region, ZoneId};
use stoker_core::facts::supply::Instance;
use stoker_service::suppliers::Turns;
use tokio::sync::{Notify, Semaphore};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::config::RegionConfig;
use crate::wire::Api;
pub use commitments::MISSING;
use facts::Facts;
use listing::Listed;
pub(crate) use listing::Shutdown;
pub(crate) use lookup::{LookedUp, NoImage};
use notices::Reclaim;

/// Launches at once.
const LAUNCHES_AT_ONCE: usize = 4;

/// How long EC2 may take to show a machine that it made.
const SHOWN_WITHIN: Duration = Duration::from_mins(5);

/// One account in one region.
pub(crate) struct RegionSupplier {
    pub(crate) name: Region,
    pub(crate) config: RegionConfig,
    cluster: ClusterName,
    api: Api,
    /// GPU types that the price tables know here: what prices are asked for.
    types: Vec<InstanceType>,
    started_at: Timestamp,
    launches: Semaphore,
    turns: Turns,
    known: Arc<Mutex<Known>>,
    /// Wakes whoever lists machines.
    changed: Arc<Notify>,
    /// Follows notices, and ends with the region.
    tasks: Mutex<JoinSet<()>>,
}

/// Whose credentials are used.
#[derive(Debug, Clone)]
struct Caller {
    /// The account, the same ever since the start.
    account: String,
    /// The newest access key of which that is known.
    key: String,
}

/// What is known of it.
#[derive(Default)]
struct Known {
    /// Whose credentials were used so far.
    caller: Option<Caller>,
    /// What was looked up last.
    looked_up: Option<Arc<LookedUp>>,
    /// When newer images were asked for.
    newer_asked_at: Option<Instant>,
    /// Images that are newer than those that nodes boot, once they were told of.
    newer_images: BTreeSet<String>,
    /// Why the last look failed.
    look_failed: Option<String>,
    listing: Option<Listed>,
    /// Machines made or found of late: a listing may not have them yet.
    made: BTreeMap<ProviderId, (Arc<Instance>, Instant)>,
    /// Launches of which EC2 may know more than is known here: when it was asked and did not answer, the last time last.
    doubtful: BTreeMap<LaunchKey, Vec<Instant>>,
    /// The reservation that a launch was asked from, so that a retry asks the same.
    reservations: BTreeMap<LaunchKey, String>,
    /// When machines will be taken back, by their ids in EC2.
    reclaims: BTreeMap<String, Reclaim>,
    /// Something changed: the next listing is asked, and not remembered.
    stale_since: Option<Instant>,
    /// Launches are made slower until then, as EC2 said that they are too many.
    slow_until: Option<Instant>,
    facts: Facts,
    /// What keeps notices from being followed.
    notices_failed: Option<String>,
}

impl Known {
    /// The id of the zone of that name, where it was looked up.
    fn zone_id(&self, name: &str) -> Option<ZoneId> {
        self.looked_up.as_ref()?.zone_id(name)
    }
}

impl RegionSupplier {
    pub(crate) fn new(
        name: Region,
        config: RegionConfig,
        cluster: ClusterName,
        api: Api,
        types: Vec<InstanceType>,
        changed: Arc<Notify>,
    ) -> Self {
        let started_at = api.now();
        Self {
            name,
            config,
            cluster,
            api,
            types,
            started_at,
            launches: Semaphore::new(LAUNCHES_AT_ONCE),
            turns: Turns::default(),
            known: Arc::default(),
            changed,
            tasks: Mutex::default(),
        }
    }

    /// The same region by another part of the file: it knows what this one knows, whose notices it follows in its place. What was looked
    /// up by the old part is looked up anew.
    pub(crate) fn replaced(&self, config: RegionConfig, api: Api) -> Arc<Self> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner).abort_all();
        self.doubt_look(None);
        let (name, cluster, changed) = (self.name.clone(), self.cluster.clone(), Arc::clone(&self.changed));
        let anew = Self::new(name, config, cluster, api, self.types.clone(), changed);
        Arc::new(Self { started_at: self.started_at, known: Arc::clone(&self.known), ..anew })
    }

    /// Follows notices from now on, as long as it is there; once, however often it is told to.
    pub(crate) fn follow_notices(self: &Arc<Self>) {
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        if tasks.is_empty() {
            tasks.spawn(notices::follow(Arc::downgrade(self)));
        }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        // Plain data that each holder leaves whole.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What keeps it from making all that it might, each with its cure.
    pub(crate) fn faults(&self) -> Vec<String> {
        let known = self.known();
        let of_listing = known.listing.iter().flat_map(Listed::faults);
        let of_look = known.looked_up.iter().flat_map(|looked| looked.all_faults());
        let failed = [&known.look_failed, &known.notices_failed].into_iter().flatten().cloned();
        let mut faults: Vec<String> = failed.chain(of_look).chain(known.facts.faults()).chain(of_listing).collect();
        faults.extend(self.api.clock_fault());
        faults.into_iter().map(|fault| format!("{}: {fault}", self.name)).collect()
    }
}
