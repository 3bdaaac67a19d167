//! EC2 as a supplier of the service.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use aws_credential_types::provider::SharedCredentialsProvider;
use futures::FutureExt as _;
use futures::future::{BoxFuture, join_all};
use jiff::{SignedDuration, Timestamp};
use stoker_core::base::engine_clock::Wall;
use stoker_core::base::ids::{Cloud, ClusterName, InstanceType, LaunchKey, ProviderId, Region, SupplierName};
use stoker_core::facts::supply::{LaunchOutcome, MarketFacts, Observation, Refusal, RefusalKind, RefusalScope};
use stoker_core::market::price::PriceBook;
use stoker_core::policy::RawCommitment;
use stoker_service::clock::Clock;
use stoker_service::suppliers::{Launch, Supplier, SupplierError};
use tokio::sync::Notify;
use tokio::time::timeout;

use crate::config::{Config, RegionConfig};
use crate::machine;
use crate::region::{RegionSupplier, Shutdown};
use crate::wire::{Api, Keys, Transport, https};

/// How often the file is read again and facts are looked at, which are asked at paces of their own.
const MARKETS_EVERY: SignedDuration = SignedDuration::from_secs(30);

/// How long one region may take to list its machines: one that hangs must not make the others old.
const LISTED_WITHIN: Duration = Duration::from_secs(20);

/// How long one region may take to tell of its markets, which must not keep the others' from being known.
const TOLD_WITHIN: Duration = Duration::from_secs(25);

/// How calls get to AWS, and what they are signed with.
#[derive(Clone)]
pub struct Access {
    /// What carries calls.
    pub transport: Transport,
    /// Credentials; `None` for those that AWS's own tools would find.
    pub credentials: Option<SharedCredentialsProvider>,
    /// The time.
    pub clock: Clock,
}

impl Access {
    /// HTTPS, and the credentials that AWS's own tools would find.
    ///
    /// # Errors
    /// When the system has no certificates to trust.
    pub fn of_system(clock: Clock) -> Result<Self, String> {
        Ok(Self { transport: https()?, credentials: None, clock })
    }

    /// One region of an account, as calls are made to it.
    pub(crate) async fn api(&self, region: &Region, config: &RegionConfig) -> Api {
        let keys = match &self.credentials {
            Some(provider) => Keys::from(provider.clone()),
            None => Keys::found(region.as_str(), config.role.clone()).await,
        };
        Api::new(Arc::clone(&self.transport), keys, region.as_str(), config.endpoints.clone(), self.clock.clone())
    }
}

/// Amazon EC2, asked for one instance a launch.
pub struct Aws {
    name: SupplierName,
    cluster: ClusterName,
    access: Access,
    /// GPU types that the price tables know, by region.
    types: BTreeMap<Region, Vec<InstanceType>>,
    /// Read again as the policy is; `None` where the configuration stands.
    file: Option<PathBuf>,
    started_at: Timestamp,
    state: Mutex<State>,
    changed: Arc<Notify>,
}

/// The configuration with its regions.
#[derive(Clone)]
struct State {
    config: Arc<Config>,
    regions: BTreeMap<Region, Arc<RegionSupplier>>,
    /// What is wrong with the file as it is now; the last one that held stays.
    file_fault: Option<String>,
    /// The regions whose markets were asked last.
    told_of: Option<BTreeSet<Region>>,
}

impl Aws {
    /// The supplier of that name. The regions' notices are followed from now on.
    pub async fn start(
        name: SupplierName,
        cluster: ClusterName,
        (config, file): (Config, Option<PathBuf>),
        book: &PriceBook,
        access: Access,
    ) -> Self {
        let aws = Self { file, ..Self::at_rest(name, cluster, config, book, access).await };
        aws.follow_notices();
        aws
    }

    /// The same for one look at an account: no message is taken from a queue, and no file is read again.
    async fn at_rest(name: SupplierName, cluster: ClusterName, config: Config, book: &PriceBook, access: Access) -> Self {
        let state = State { config: Arc::new(config.clone()), regions: BTreeMap::new(), file_fault: None, told_of: None };
        let (state, types) = (Mutex::new(state), types_of(book));
        let started_at = access.clock.times().wall.0;
        let aws = Self { name, cluster, access, types, file: None, started_at, state, changed: Arc::default() };
        aws.take(config).await;
        aws
    }

    /// The same where nothing goes by names.
    async fn nameless(config: Config, book: &PriceBook, access: Access) -> Result<Self, String> {
        let name = SupplierName::new("aws").map_err(|error| error.to_string())?;
        let cluster = ClusterName::new("none").map_err(|error| error.to_string())?;
        Ok(Self::at_rest(name, cluster, config, book, access).await)
    }

    /// Follows the notices of every region of which none are followed yet.
    fn follow_notices(&self) {
        self.now().regions.values().for_each(RegionSupplier::follow_notices);
    }

    /// What an account tells of its markets now, and what it does not, without a supplier that runs. No message is taken from a queue.
    ///
    /// # Errors
    /// When nothing can be had; in words.
    pub async fn told(config: Config, book: &PriceBook, access: Access) -> Result<(MarketFacts, Vec<String>), String> {
        let aws = Self::nameless(config, book, access).await?;
        let wall = aws.access.clock.times().wall;
        let mut facts = aws.market_facts(wall).await.map_err(|error| error.message)?;
        // List prices come a few at a time.
        while aws.now().regions.values().any(|region| region.has_more_to_ask()) {
            facts = aws.market_facts(wall).await.map_err(|error| error.message)?;
        }
        Ok((facts, aws.faults()))
    }

    /// What an account has paid for beforehand, as the policy writes it, and what of it is to be looked at by people.
    ///
    /// # Errors
    /// When a region cannot be asked; in words.
    pub async fn commitments(
        config: Config,
        book: &PriceBook,
        access: Access,
    ) -> Result<(Vec<RawCommitment>, Vec<String>), String> {
        let aws = Self::nameless(config, book, access).await?;
        let State { config, regions, .. } = aws.now();
        let (mut all, mut notes) = (Vec::new(), Vec::new());
        for region in regions.values() {
            let (found, said) = region.commitments(&config).await.map_err(|why| format!("{}: {why}", region.name))?;
            // A plan may be for all regions, and each is asked.
            let is_new = |one: &RawCommitment| all.iter().all(|known: &RawCommitment| known.name != one.name);
            let found: Vec<RawCommitment> = found.into_iter().filter(is_new).collect();
            all.extend(found);
            notes.extend(said.into_iter().filter(|note| !notes.contains(note)).collect::<Vec<_>>());
        }
        Ok((all, notes))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Plain data that each holder leaves whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The configuration with its regions, as they are now.
    fn now(&self) -> State {
        self.state().clone()
    }

    fn error(&self, message: impl Into<String>) -> SupplierError {
        SupplierError { supplier: self.name.clone(), message: message.into() }
    }

    /// Takes a configuration. A region that says the same goes on. One that is left out makes no machine any more, and is listed as long as
    /// it has some: without it they would seem lost.
    async fn take(&self, config: Config) {
        let before = self.now();
        let mut regions = BTreeMap::new();
        for (name, wanted) in &config.regions {
            let region = match before.regions.get(name) {
                Some(region) if region.config == *wanted => Arc::clone(region),
                Some(region) => region.replaced(wanted.clone(), self.access.api(name, wanted).await),
                None => {
                    let api = self.access.api(name, wanted).await;
                    let types = self.types.get(name).cloned().unwrap_or_default();
                    let (cluster, changed) = (self.cluster.clone(), Arc::clone(&self.changed));
                    Arc::new(RegionSupplier::new(name.clone(), wanted.clone(), cluster, api, types, changed))
                }
            };
            regions.insert(name.clone(), region);
        }
        let left_out = before.regions.iter().filter(|(name, _)| !config.regions.contains_key(*name));
        for (name, region) in left_out.filter(|(_, region)| region.may_have_machines()) {
            tracing::warn!(supplier = %self.name, region = %name, "aws.yaml leaves the region out: listed until its machines end");
            regions.insert(name.clone(), Arc::clone(region));
        }
        let told_of = before.told_of;
        *self.state() = State { config: Arc::new(config), regions, file_fault: None, told_of };
    }

    /// Reads the file again. One that does not hold changes nothing.
    async fn reload(&self) {
        let Some(file) = &self.file else { return };
        match Config::read(file) {
            Ok(config) if config == *self.now().config => self.state().file_fault = None,
            Ok(config) => {
                tracing::info!(supplier = %self.name, file = %file.display(), "the file has changed and is taken");
                self.take(config).await;
                self.follow_notices();
            }
            Err(error) => {
                let fault = format!("{error}; the last one that held stays");
                if self.state().file_fault.replace(fault.clone()).is_none_or(|before| before != fault) {
                    tracing::warn!(supplier = %self.name, "{fault}");
                }
            }
        }
    }

    /// Ends machines, each in its region.
    async fn end(&self, ids: Vec<ProviderId>, shutdown: Shutdown) -> Vec<(ProviderId, Result<(), SupplierError>)> {
        let regions = self.now().regions;
        let (mut by_region, mut ended) = (BTreeMap::<Region, (Arc<RegionSupplier>, Vec<ProviderId>)>::new(), Vec::new());
        for id in ids {
            match Self::region_of(&regions, &id) {
                Some(region) => by_region.entry(region.name.clone()).or_insert_with(|| (region, Vec::new())).1.push(id),
                // No machine of EC2's is called so.
                None if machine::instance_id(&id).is_none() => ended.push((id, Ok(()))),
                None => ended.push((id, Err(self.error("aws.yaml has no region of that machine: add it again to end it")))),
            }
        }
        let ends = by_region.into_values().map(async |(region, ids)| region.terminate(&ids, shutdown).await);
        let answers = join_all(ends).await.into_iter().flatten();
        ended.extend(answers.map(|(id, answer)| (id, answer.map_err(|why| self.error(why)))));
        ended
    }

    /// The region of a machine: its id names the zone, whose name begins with the region's.
    fn region_of(regions: &BTreeMap<Region, Arc<RegionSupplier>>, id: &ProviderId) -> Option<Arc<RegionSupplier>> {
        let zone = machine::zone_name(id)?;
        let of_zone = regions.iter().filter(|(name, _)| zone.starts_with(name.as_str()));
        of_zone.max_by_key(|(name, _)| name.as_str().len()).map(|(_, region)| Arc::clone(region))
    }
}

/// GPU types that the price tables know on AWS, by region.
pub(crate) fn types_of(book: &PriceBook) -> BTreeMap<Region, Vec<InstanceType>> {
    let mut types: BTreeMap<Region, BTreeSet<InstanceType>> = BTreeMap::new();
    for (market, _) in book.entries().filter(|(market, _)| market.place.cloud.as_str() == "aws") {
        types.entry(market.place.region.clone()).or_default().insert(market.place.instance_type.clone());
    }
    // The operator may name the zones of a type whose zones no table tells.
    for ((_, region, instance_type), _) in book.unzoned().filter(|((cloud, ..), _)| cloud.as_str() == "aws") {
        types.entry(region.clone()).or_default().insert(instance_type.clone());
    }
    types.into_iter().map(|(region, types)| (region, types.into_iter().collect())).collect()
}

impl Supplier for Aws {
    fn name(&self) -> &SupplierName {
        &self.name
    }

    fn max_in_flight(&self) -> usize {
        // Each region keeps its own pace.
        4
    }

    fn markets_every(&self) -> SignedDuration {
        MARKETS_EVERY
    }

    fn faults(&self) -> Vec<String> {
        let State { regions, file_fault, .. } = self.now();
        file_fault.into_iter().chain(regions.values().flat_map(|region| region.faults())).collect()
    }

    fn changed(&self) -> Option<&Notify> {
        Some(&self.changed)
    }

    fn launch(&self, _: Timestamp, batch: Vec<Launch>) -> BoxFuture<'_, Vec<(LaunchKey, LaunchOutcome)>> {
        async move {
            let State { config, regions, .. } = self.now();
            let mut by_region: BTreeMap<Region, Vec<Launch>> = BTreeMap::new();
            for launch in batch {
                by_region.entry(launch.request.market.place.region.clone()).or_default().push(launch);
            }
            let launches = by_region.into_iter().map(async |(name, launches)| {
                let region = regions.get(&name);
                if let Some(region) = region.filter(|_| config.regions.contains_key(&name)) {
                    return region.launch(&config, launches).await;
                }
                let answers = launches.into_iter().map(|launch| {
                    let why = format!("aws.yaml has no region {name}");
                    // An earlier try may have made a machine: of this process where the region is still listed, or of the one before.
                    let may_be_there = launch.first_asked < self.started_at
                        || region.is_some_and(|region| region.is_doubtful(&launch.request.key));
                    let refusal =
                        || Refusal { scope: RefusalScope::Region, ..Refusal::of_market(RefusalKind::Config, why.clone()) };
                    let outcome = if may_be_there { LaunchOutcome::unclear(why) } else { LaunchOutcome::Refused(refusal()) };
                    (launch.request.key, outcome)
                });
                answers.collect()
            });
            join_all(launches).await.into_iter().flatten().collect()
        }
        .boxed()
    }

    fn observe(&self, now: Timestamp) -> BoxFuture<'_, Result<Observation, SupplierError>> {
        async move {
            let cloud = Cloud::new("aws").map_err(|error| self.error(error.to_string()))?;
            let State { config, regions, .. } = self.now();
            let lists = regions.iter().map(async |(name, region)| {
                let late = |_| Err(format!("no listing within {} s", LISTED_WITHIN.as_secs()));
                let list = timeout(LISTED_WITHIN, region.list(now));
                let (answer, look) = futures::join!(list, region.last_look(&config));
                (name, region, answer.unwrap_or_else(late), look)
            });
            let (mut parts, mut first_error, mut was_listed) = (Vec::new(), None, false);
            for (name, region, answer, look) in join_all(lists).await {
                let mut listing = match answer {
                    Ok(listing) => Some(listing),
                    Err(why) => {
                        tracing::debug!(supplier = %self.name, region = %name, why, "not listed; keeping what it had");
                        first_error.get_or_insert(format!("{name}: {why}"));
                        region.last_listing()
                    }
                };
                if let Some(listing) = &mut listing {
                    listing.outdated = region.outdated(look.as_deref());
                }
                was_listed |= listing.is_some();
                parts.push(([(cloud.clone(), name.clone())], listing));
            }
            if !was_listed {
                return Err(self.error(first_error.unwrap_or_else(|| "aws.yaml has no region".to_owned())));
            }
            Ok(Observation::of_parts(parts))
        }
        .boxed()
    }

    fn terminate(&self, _: Timestamp, ids: Vec<ProviderId>) -> BoxFuture<'_, Vec<(ProviderId, Result<(), SupplierError>)>> {
        self.end(ids, Shutdown::InOrder).boxed()
    }

    fn terminate_late(
        &self,
        _: Timestamp,
        ids: Vec<ProviderId>,
    ) -> BoxFuture<'_, Vec<(ProviderId, Result<(), SupplierError>)>> {
        self.end(ids, Shutdown::Skipped).boxed()
    }

    fn console(&self, id: ProviderId) -> BoxFuture<'_, Result<Option<String>, SupplierError>> {
        async move {
            let Some(region) = Self::region_of(&self.now().regions, &id) else { return Ok(None) };
            region.console(&id).await.map_err(|failure| self.error(failure.to_string()))
        }
        .boxed()
    }

    fn market_facts(&self, _: Wall) -> BoxFuture<'_, Result<MarketFacts, SupplierError>> {
        async move {
            self.reload().await;
            let State { config, regions, .. } = self.now();
            let cloud = Cloud::new("aws").map_err(|error| self.error(error.to_string()))?;
            let mut facts = MarketFacts {
                clouds: [cloud.clone()].into(),
                regions: Some(config.regions.keys().map(|name| (cloud.clone(), name.clone())).collect()),
                node_classes: Some(config.classes.keys().cloned().collect()),
                labels_capacity_type: true,
                ..MarketFacts::default()
            };
            let made_in = regions.values().filter(|region| config.regions.contains_key(&region.name));
            let mut first_error = None;
            let told = join_all(made_in.map(async |region| {
                let late = |_| Err(format!("no answer within {} s", TOLD_WITHIN.as_secs()));
                (region, timeout(TOLD_WITHIN, region.told(&config)).await.unwrap_or_else(late))
            }))
            .await;
            let mut answered = false;
            for (region, told) in told {
                match told {
                    Ok(told) => {
                        answered = true;
                        facts.zone_names.extend(told.zone_names.into_iter().map(|(zone, name)| ((cloud.clone(), zone), name)));
                        facts.quotes.extend(told.quotes);
                        facts.quotas.extend(told.quotas);
                        facts.reservations.extend(told.reservations);
                        let of_cloud = |(name, fact)| ((cloud.clone(), name), fact);
                        facts.machines.extend(told.machines.into_iter().map(of_cloud));
                        if let Some(offered) = told.offered {
                            facts.offered.insert((cloud.clone(), region.name.clone()), offered);
                        }
                    }
                    Err(why) => drop(first_error.get_or_insert(format!("{}: {why}", region.name))),
                }
            }
            let made_in: BTreeSet<Region> = config.regions.keys().cloned().collect();
            let is_as_before = self.state().told_of.replace(made_in.clone()).is_none_or(|before| before == made_in);
            match first_error {
                // What was answered last stands, unless it is of regions that the file leaves out by now.
                Some(why) if !answered && is_as_before => Err(self.error(why)),
                _ => Ok(facts),
            }
        }
        .boxed()
    }
}

impl fmt::Debug for Aws {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Aws").field(&self.name).finish()
    }
}
