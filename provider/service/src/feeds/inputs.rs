//! What the engine decides on: policy, prices and market facts as a catalogue; suppliers' inventories and the cluster as a snapshot.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, PoisonError};

use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use jiff::Timestamp;
use stoker_core::base::engine_clock::{Times, Wall};
use stoker_core::base::ids::{Cloud, SupplierName, ZoneId};
use stoker_core::catalogue::Catalogue;
use stoker_core::catalogue::live::is_same;
use stoker_core::facts::foreign::Foreign;
use stoker_core::facts::snapshot::{ClusterFacts, Snapshot};
use stoker_core::facts::supply::{MarketFacts, Observation};
use stoker_core::market::offer::Place;
use stoker_core::market::price::PriceBook;
use stoker_core::policy::rules::demand::Demand;
use stoker_core::policy::{Policy, Pool};
use tokio::sync::{Mutex, watch};

use crate::act::Executor;
use crate::clock::Clock;
use crate::feeds::probes::SeenNodes;
use crate::kube::feed::ImagesOfNodes;
use crate::publish::view::NotReady;
use crate::suppliers::{CallKind, LimitedSupplier};

/// What each supplier knows of its markets.
pub type AllMarketFacts = BTreeMap<SupplierName, MarketFacts>;

/// Asks suppliers for their markets now and then.
pub struct MarketFeed {
    suppliers: Vec<LimitedSupplier>,
    facts: watch::Sender<Arc<AllMarketFacts>>,
    /// When each supplier was last asked and answered.
    answered: Mutex<BTreeMap<SupplierName, Timestamp>>,
    /// What was wrong with each when it was last looked.
    faults: std::sync::Mutex<BTreeMap<SupplierName, BTreeSet<String>>>,
}

impl MarketFeed {
    /// A feed that has asked nobody yet.
    pub fn new(suppliers: &[LimitedSupplier]) -> Arc<Self> {
        Arc::new(Self {
            suppliers: suppliers.to_vec(),
            facts: watch::Sender::default(),
            answered: Mutex::default(),
            faults: std::sync::Mutex::default(),
        })
    }

    /// The latest facts, followed.
    pub fn facts(&self) -> watch::Receiver<Arc<AllMarketFacts>> {
        self.facts.subscribe()
    }

    /// Asks every supplier at once, but for those that answered not long ago, each by its own measure. What a supplier said last stands while
    /// it does not answer: its quotes lapse by themselves.
    ///
    /// Returns whether any answer said something new.
    pub async fn refresh(&self, times: Times) -> bool {
        let mut answered = self.answered.lock().await;
        let due = |supplier: &&LimitedSupplier| {
            answered.get(supplier.name()).is_none_or(|at| times.now.duration_since(*at) >= supplier.markets_every())
        };
        let mut asked: FuturesUnordered<_> = self
            .suppliers
            .iter()
            .filter(due)
            .map(|supplier| async move { (supplier.name(), supplier.market_facts(times).await) })
            .collect();
        let (mut any, mut looked) = (false, Vec::new());
        while let Some((supplier, answer)) = asked.next().await {
            match answer {
                Ok(told) => {
                    answered.insert(supplier.clone(), times.now);
                    any |= self.take(supplier, told);
                }
                Err(error) => tracing::warn!(%error, "querying the markets failed; keeping the last answer"),
            }
            looked.push(supplier);
        }
        for supplier in self.suppliers.iter().filter(|supplier| looked.contains(&supplier.name())) {
            self.warn_of_faults(supplier);
        }
        any
    }

    /// Warns of each fault that a supplier did not have before. All that it has are listed by `stoker suppliers`.
    fn warn_of_faults(&self, supplier: &LimitedSupplier) {
        // The number of a request, which a cloud adds, is another each time.
        let of_fault = |fault: &String| fault.split(" (").next().unwrap_or(fault).to_owned();
        let now: BTreeMap<String, String> = supplier.faults().into_iter().map(|fault| (of_fault(&fault), fault)).collect();
        let keys = now.keys().cloned().collect();
        // Plain data that each holder leaves whole.
        let before = self.faults.lock().unwrap_or_else(PoisonError::into_inner).insert(supplier.name().clone(), keys);
        let before = before.unwrap_or_default();
        for (_, fault) in now.into_iter().filter(|(key, _)| !before.contains(key)) {
            tracing::warn!(supplier = %supplier.name(), "{fault}");
        }
    }

    /// Takes in what a supplier said; whether it is new.
    fn take(&self, supplier: &SupplierName, told: MarketFacts) -> bool {
        self.facts.send_if_modified(|last| {
            let changed = last.get(supplier) != Some(&told);
            if changed {
                Arc::make_mut(last).insert(supplier.clone(), told);
            }
            changed
        })
    }
}

/// What changes seldom: the policy, the prices, what suppliers know of their markets. The catalogue is derived afresh when one of them does.
pub struct Inputs {
    policy: watch::Receiver<Arc<Policy>>,
    prices: Arc<PriceBook>,
    market_facts: watch::Receiver<Arc<AllMarketFacts>>,
    used_facts: Arc<AllMarketFacts>,
}

impl Inputs {
    /// Inputs that follow a policy and market facts.
    pub fn new(
        policy: watch::Receiver<Arc<Policy>>,
        prices: Arc<PriceBook>,
        market_facts: watch::Receiver<Arc<AllMarketFacts>>,
    ) -> Self {
        Self { policy, prices, market_facts, used_facts: Arc::default() }
    }

    /// The catalogue as of now.
    pub fn catalogue(&mut self) -> Arc<Catalogue> {
        let policy = Arc::clone(&self.policy.borrow_and_update());
        let facts = Arc::clone(&self.market_facts.borrow_and_update());
        let catalogue = Catalogue::derive(&policy, &self.prices, &facts);
        self.used_facts = Arc::new(used(&facts, &catalogue));
        Arc::new(catalogue)
    }

    /// The catalogue, if policy or market facts changed since it was last derived.
    pub fn changed(&mut self) -> Option<Arc<Catalogue>> {
        // A closed channel means that its owner stopped: what it last said stands.
        let changed = self.policy.has_changed().unwrap_or(false) || self.market_facts.has_changed().unwrap_or(false);
        changed.then(|| self.catalogue())
    }

    /// Whether every supplier has told of its markets, but for those that may be absent: without, the catalogue would lack all of its groups.
    ///
    /// # Errors
    /// Names one that has not.
    pub fn ready(&self, feeds: &Feeds, may_be_absent: impl Fn(&SupplierName) -> bool) -> Result<(), NotReady> {
        let facts = self.market_facts.borrow();
        let names = feeds.suppliers.iter().map(|feed| feed.supplier.name());
        let silent = names.into_iter().find(|name| !facts.contains_key(*name) && !may_be_absent(name));
        silent.map_or(Ok(()), |name| Err(NotReady::Markets(name.to_string())))
    }

    /// The price book.
    pub const fn prices(&self) -> &Arc<PriceBook> {
        &self.prices
    }

    /// The market facts that the current catalogue rests on.
    pub const fn market_facts(&self) -> &Arc<AllMarketFacts> {
        &self.used_facts
    }
}

/// The part of the facts that the catalogue's groups rest on: what has to be kept to derive them again.
fn used(facts: &AllMarketFacts, catalogue: &Catalogue) -> AllMarketFacts {
    let places: BTreeSet<&Place> = catalogue.groups.values().map(|group| &group.place).collect();
    let zones: BTreeSet<(&Cloud, &ZoneId)> = places.iter().map(|place| (&place.cloud, &place.zone)).collect();
    let of = |told: &MarketFacts| MarketFacts {
        clouds: told.clouds.clone(),
        regions: told.regions.clone(),
        node_classes: told.node_classes.clone(),
        labels_capacity_type: told.labels_capacity_type,
        zone_names: told
            .zone_names
            .iter()
            .filter(|((cloud, zone), _)| zones.contains(&(cloud, zone)))
            .map(|(key, name)| (key.clone(), name.clone()))
            .collect(),
        quotes: told
            .quotes
            .iter()
            .filter(|(market, _)| places.contains(&market.place))
            .map(|(market, quote)| (market.clone(), quote.clone()))
            .collect(),
        quotas: told
            .quotas
            .iter()
            .filter(|(key, _)| catalogue.policy.quotas.iter().any(|quota| is_same(quota, key)))
            .map(|(key, fact)| (key.clone(), fact.clone()))
            .collect(),
        offered: told
            .offered
            .iter()
            .map(|(region, offered)| {
                let kept = offered.iter().filter(|place| places.contains(place)).cloned().collect();
                (region.clone(), kept)
            })
            .collect(),
        // One that keeps a type out of the groups counts as well.
        machines: told.machines.clone(),
        // No decision looks at them.
        reservations: BTreeMap::new(),
    };
    facts.iter().map(|(supplier, told)| (supplier.clone(), of(told))).collect()
}

/// What changes all the time. Each feed is latest-only: a pass sees the newest, and nothing queues.
pub struct Feeds {
    suppliers: Vec<SupplierFeed>,
    cluster: Option<ClusterFeed>,
    seen: Option<watch::Receiver<Arc<SeenNodes>>>,
    demand: Option<watch::Receiver<Arc<Demand>>>,
    images: Option<watch::Receiver<Arc<ImagesOfNodes>>>,
    /// By which it is known whether a pool asks for images.
    images_by: Option<watch::Receiver<Arc<Policy>>>,
    buffers: Option<watch::Receiver<Option<bool>>>,
    foreign: watch::Receiver<Option<Arc<Foreign>>>,
    /// By which it is known whether nodes that are not Stoker's count.
    foreign_by: Option<watch::Receiver<Arc<Policy>>>,
}

/// The cluster's facts, and whether they can be trusted.
pub struct ClusterFeed {
    /// The newest facts; `None` until all were seen once.
    pub facts: watch::Receiver<Option<Arc<ClusterFacts>>>,
    /// Whether the feed hears of changes.
    pub healthy: Box<dyn Fn() -> bool + Send + Sync>,
}

/// The newest inventory of a supplier; `None` before its first complete answer.
pub type Latest = watch::Sender<Option<Arc<Observation>>>;

/// One supplier's inventory.
struct SupplierFeed {
    supplier: LimitedSupplier,
    latest: Latest,
}

impl SupplierFeed {
    /// A feed that has not heard from its supplier yet.
    fn new(supplier: LimitedSupplier) -> Self {
        Self { supplier, latest: watch::Sender::new(None) }
    }
}

impl Feeds {
    /// Feeds from these suppliers, and from the cluster where there is one.
    pub fn new(suppliers: &[LimitedSupplier], cluster: Option<ClusterFeed>) -> Self {
        let suppliers = suppliers.iter().cloned().map(SupplierFeed::new).collect();
        Self {
            suppliers,
            cluster,
            seen: None,
            demand: None,
            images: None,
            images_by: None,
            buffers: None,
            foreign: watch::Sender::new(None).subscribe(),
            foreign_by: None,
        }
    }

    /// With what has been seen of the nodes' GPUs. A pass waits for none of it: what nobody has read yet is absent.
    #[must_use]
    pub fn with_seen(mut self, seen: watch::Receiver<Arc<SeenNodes>>) -> Self {
        self.seen = Some(seen);
        self
    }

    /// With what demand signals say. A pass never waits for it: a signal that is not known is a value of its own.
    #[must_use]
    pub fn with_demand(mut self, demand: watch::Receiver<Arc<Demand>>) -> Self {
        self.demand = Some(demand);
        self
    }

    /// With what is known of the nodes' images, as long as a pool of the policy asks for that: it would be journalled for nothing.
    #[must_use]
    pub fn with_images(mut self, images: watch::Receiver<Arc<ImagesOfNodes>>, policy: watch::Receiver<Arc<Policy>>) -> Self {
        self.images = Some(images);
        self.images_by = Some(policy);
        self
    }

    /// With whether floors can go through `CapacityBuffer` objects.
    #[must_use]
    pub fn with_buffers(mut self, served: watch::Receiver<Option<bool>>) -> Self {
        self.buffers = Some(served);
        self
    }

    /// With the nodes that are not Stoker's, `None` until they are known: as long as the policy counts them, no pass is made before.
    #[must_use]
    pub fn with_foreign(
        mut self,
        foreign: watch::Receiver<Option<Arc<Foreign>>>,
        policy: watch::Receiver<Arc<Policy>>,
    ) -> Self {
        self.foreign = foreign;
        self.foreign_by = Some(policy);
        self
    }

    /// For each supplier, what its polling task needs: whom to ask and where to leave the answer.
    pub fn pollers(&self) -> Vec<(LimitedSupplier, Latest)> {
        self.suppliers.iter().map(|feed| (feed.supplier.clone(), feed.latest.clone())).collect()
    }

    /// Asks every supplier once.
    pub async fn poll(&self, now: Timestamp) {
        for feed in &self.suppliers {
            ask(&feed.supplier, &feed.latest, now).await;
        }
    }

    /// Whether everything that a pass needs has been seen whole at least once. A supplier that may be absent is not waited for, unless all are
    /// silent: nothing is bought from one that has not listed its machines.
    ///
    /// # Errors
    /// Names what has not.
    pub fn ready(&self, may_be_absent: impl Fn(&SupplierName) -> bool) -> Result<(), NotReady> {
        let is_silent = |feed: &&SupplierFeed| feed.latest.borrow().is_none();
        let all_are = self.suppliers.iter().all(|feed| is_silent(&feed));
        let mut silent = self.suppliers.iter().filter(is_silent).map(|feed| feed.supplier.name());
        if let Some(name) = silent.find(|name| all_are || !may_be_absent(name)) {
            return Err(NotReady::Supplier(name.to_string()));
        }
        match &self.cluster {
            Some(cluster) if cluster.facts.borrow().is_none() => Err(NotReady::Kubernetes),
            // What decides on deletion fails closed.
            Some(cluster) if !(cluster.healthy)() => Err(NotReady::KubernetesBroken),
            _ if self.counts_foreign() && self.foreign.borrow().is_none() => Err(NotReady::Foreign),
            _ => Ok(()),
        }
    }

    /// The cluster's facts, where there is a Kubernetes feed.
    pub fn cluster(&self) -> Option<Arc<ClusterFacts>> {
        self.cluster.as_ref().and_then(|cluster| cluster.facts.borrow().clone())
    }

    /// Whether the policy counts nodes that are not Stoker's.
    fn counts_foreign(&self) -> bool {
        self.foreign_by.as_ref().is_some_and(|policy| policy.borrow().karpenter.counts_nodes())
    }

    fn images(&self) -> ImagesOfNodes {
        let asked = |policy: &watch::Receiver<Arc<Policy>>| policy.borrow().pools.iter().any(Pool::waits_for_images);
        let images = self.images.as_ref().filter(|_| self.images_by.as_ref().is_some_and(asked));
        images.map(|images| ImagesOfNodes::clone(&images.borrow())).unwrap_or_default()
    }

    /// The facts as of now. What is under way is read before the inventories: a launch that ends in between is then in the inventory
    /// or among the outcomes of the next pass, never lost between the two.
    ///
    /// With the decision time: read last, so that nothing that a feed noted lies in the future.
    pub fn snapshot(&self, executor: &Executor, clock: &Clock) -> (Snapshot, Timestamp) {
        let under_way = executor.under_way();
        let facts = Snapshot {
            // Set below.
            wall: Wall::default(),
            suppliers: self.suppliers.iter().map(|feed| (feed.supplier.name().clone(), feed.latest.borrow().clone())).collect(),
            cluster: self.cluster(),
            outcomes: under_way.outcomes,
            launching: under_way.launching,
            terminating: under_way.terminating,
            drains: under_way.drains,
            seen: self.seen.as_ref().map(|seen| SeenNodes::clone(&seen.borrow())).unwrap_or_default(),
            images: self.images(),
            // Without a keeper there are none.
            buffers: self.buffers.as_ref().map_or(Some(false), |served| *served.borrow()),
            demand: self.demand.as_ref().map(|demand| Demand::clone(&demand.borrow())).unwrap_or_default(),
            foreign: self.foreign.borrow().clone().filter(|_| self.counts_foreign()),
        };
        let Times { now, wall } = clock.times();
        (Snapshot { wall, ..facts }, now)
    }
}

/// Asks a supplier once. The first answer that counts is a complete one; later an incomplete one is passed on as such, and it says
/// nothing about what it leaves out.
///
/// Returns whether the inventory changed.
pub async fn ask(supplier: &LimitedSupplier, latest: &Latest, now: Timestamp) -> bool {
    match supplier.observe(now).await {
        Ok(seen) => latest.send_if_modified(|latest| {
            let seen = seen.happened_by(now);
            let changed = match latest.as_deref() {
                None if !seen.complete => return false,
                None => true,
                // Asked before the last one and answered after it.
                Some(last) if last.as_of() > seen.as_of() => return false,
                Some(last) => last.complete != seen.complete || last.instances != seen.instances,
            };
            // An incomplete listing must not make what is known look unseen: the last complete one stays, and ages.
            if seen.complete {
                *latest = Some(Arc::new(seen));
            }
            changed
        }),
        Err(error) => {
            let is_first = supplier
                .calls()
                .get(&CallKind::List)
                .and_then(|went| went.failed.as_ref())
                .is_none_or(|failed| failed.since == now);
            if is_first {
                tracing::warn!(supplier = %supplier.name(), %error, "listing the inventory fails; keeping the last one");
            } else {
                tracing::debug!(supplier = %supplier.name(), %error, "listing the inventory still fails");
            }
            false
        }
    }
}

#[cfg(test)]
mod tests;
