//! A plugin as a supplier of the service.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::{BoxFuture, join_all, try_join_all};
use jiff::{SignedDuration, Timestamp};
use stoker_core::base::engine_clock::Wall;
use stoker_core::base::ids::{
    Cloud, ClusterName, LaunchKey, NodeClassName, ProviderId, Region, SupplierName, ZoneId, ZoneName,
};
use stoker_core::facts::supply::{LaunchOutcome, LaunchRequest, Listing, MarketFacts, Observation};
use stoker_proto::supplier as wire;
use stoker_proto::supplier::supplier_client::SupplierClient;
use stoker_service::boot::Boot;
use stoker_service::listener::DialFiles;
use stoker_service::suppliers::{Launch, Pace, Supplier, SupplierError, Turns};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;
use tokio_stream::StreamExt as _;
use tonic::Status;
use tonic::transport::Channel;

use crate::dial::{BadEndpoint, connect};
use crate::{PROTOCOL, convert};

/// How long a scope may take to be listed: less than the service waits for all of them.
const LISTED_WITHIN: Duration = Duration::from_secs(20);

/// Calls of Launch and Terminate that a plugin is asked for at once at most, whatever it says.
const MOST_IN_FLIGHT: usize = 16;

/// Most machines in a call.
const MOST_IN_A_CALL: usize = 100;

/// How long a launch may wait for its turn: well below the minute after which the service takes a call for lost.
const TURN_WITHIN: Duration = Duration::from_secs(20);

/// Most machines of a listing: twenty times what one cluster has.
const MOST_LISTED: usize = 100_000;

/// A plugin, asked over its socket.
pub struct Plugin {
    name: SupplierName,
    cluster: ClusterName,
    client: SupplierClient<Channel>,
    /// What it said of itself first. One that comes back as another is not asked.
    known: Mutex<Option<Described>>,
    /// The last whole listing of each scope.
    listed: Mutex<BTreeMap<String, Listing>>,
    calls: Semaphore,
    turns: Turns,
    /// What its machines boot with; `None` where their images join by themselves.
    boot: Option<Boot>,
}

/// What a plugin says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Described {
    /// What it calls itself.
    pub name: String,
    /// The account that it acts in.
    pub account: String,
    /// What it lists by itself, and the regions that are in it.
    pub scopes: BTreeMap<String, BTreeSet<(Cloud, Region)>>,
    /// What it makes machines with.
    pub node_classes: BTreeSet<NodeClassName>,
    max_in_flight: usize,
    max_batch: usize,
    /// Calls of Launch and Terminate a second; `None` where it sets no limit.
    pub(crate) pace: Option<Pace>,
}

impl Described {
    /// Reads a plugin's answer.
    ///
    /// # Errors
    /// What is wrong with it, for people.
    fn read(answer: wire::DescribeResponse) -> Result<Self, String> {
        if answer.protocol != PROTOCOL {
            return Err(format!("it speaks protocol {}, and this release {PROTOCOL}: use releases that fit", answer.protocol));
        }
        Self::read_any_protocol(answer)
    }

    /// Reads a plugin's answer, whatever protocol it speaks: a check goes on with the other rules.
    ///
    /// # Errors
    /// What is wrong with it, for people.
    pub fn read_any_protocol(answer: wire::DescribeResponse) -> Result<Self, String> {
        if answer.account.is_empty() || answer.scopes.is_empty() {
            return Err("it names no account, or no scope".to_owned());
        }
        let mut scopes = BTreeMap::new();
        for wire::Scope { name, cloud, regions } in answer.scopes {
            let cloud = Cloud::new(cloud).map_err(|error| format!("scope {name:?}: {error}"))?;
            let region = |region: String| Region::new(region).map(|region| (cloud.clone(), region));
            let regions: Result<BTreeSet<_>, _> = regions.into_iter().map(region).collect();
            scopes.insert(name.clone(), regions.map_err(|error| format!("scope {name:?}: {error}"))?);
        }
        let classes: Result<BTreeSet<_>, _> = answer.node_classes.into_iter().map(NodeClassName::new).collect();
        let pace = Pace::per_second(answer.calls_per_second, answer.burst);
        if pace.is_none() && answer.calls_per_second != 0.0 {
            return Err(format!("it takes {} calls a second, which is no rate", answer.calls_per_second));
        }
        let bounded = |number: u32, most: usize| usize::try_from(number).unwrap_or(most).clamp(1, most);
        Ok(Self {
            name: answer.name,
            account: answer.account,
            scopes,
            node_classes: classes.map_err(|error| error.to_string())?,
            max_in_flight: bounded(answer.max_in_flight, MOST_IN_FLIGHT),
            max_batch: bounded(answer.max_batch, MOST_IN_A_CALL),
            pace,
        })
    }
}

impl Plugin {
    /// The plugin at `endpoint`, as a supplier of that name.
    ///
    /// # Errors
    /// As of [`connect`]. Whether a plugin is there shows when it is first asked.
    pub fn new(
        name: SupplierName,
        cluster: ClusterName,
        (endpoint, files): (&str, Option<DialFiles>),
        boot: Option<Boot>,
    ) -> Result<Self, BadEndpoint> {
        let client = connect(endpoint, files)?;
        Ok(Self {
            name,
            cluster,
            client,
            known: Mutex::default(),
            listed: Mutex::default(),
            calls: Semaphore::new(MOST_IN_FLIGHT),
            turns: Turns::default(),
            boot,
        })
    }

    fn error(&self, message: impl Into<String>) -> SupplierError {
        SupplierError { supplier: self.name.clone(), message: message.into() }
    }

    fn failed(&self, call: &str, status: &Status) -> SupplierError {
        self.error(format!("{call} failed: {}: {}", status.code(), status.message()))
    }

    /// What the plugin says of itself, now.
    async fn described(&self) -> Result<Described, SupplierError> {
        let asked = wire::DescribeRequest { stoker_version: env!("CARGO_PKG_VERSION").to_owned(), protocol: PROTOCOL };
        let answer = self.client.clone().describe(asked).await.map_err(|status| self.failed("Describe", &status))?.into_inner();
        let described = Described::read(answer).map_err(|why| self.error(why))?;
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        match known.as_ref().filter(|known| known.account != described.account) {
            // It would see none of the machines that were made, and all would seem lost.
            Some(known) => {
                let (now, before) = (&described.account, &known.account);
                Err(self.error(format!("it acts in account {now:?} and was in {before:?}: restart Stoker if that is meant")))
            }
            None => Ok(known.insert(described).clone()),
        }
    }

    /// What each machine boots with; where that cannot be told, why.
    async fn boot_data(&self, launch: &Launch) -> Result<Vec<u8>, String> {
        match &self.boot {
            Some(boot) => boot.data(launch).await.map(String::into_bytes),
            None => Ok(Vec::new()),
        }
    }

    async fn launch_alike(&self, launches: &[Launch]) -> Vec<(LaunchKey, LaunchOutcome)> {
        let unclear = |why: &str| launches.iter().map(|one| (one.request.key.clone(), LaunchOutcome::unclear(why))).collect();
        let data = match try_join_all(launches.iter().map(|launch| self.boot_data(launch))).await {
            Ok(data) => data,
            Err(why) => return unclear(&why),
        };
        let Some(asked) = convert::to_launch(self.cluster.as_str(), launches, data) else { return Vec::new() };
        let answer = match self.client.clone().launch(asked).await {
            Ok(answer) => answer.into_inner(),
            Err(status) => return unclear(&self.failed("Launch", &status).message),
        };
        let mut outcomes: BTreeMap<String, wire::Outcome> =
            answer.outcomes.into_iter().map(|outcome| (outcome.key.clone(), outcome)).collect();
        let outcome = |Launch { request: LaunchRequest { key, .. }, .. }: &Launch| {
            (key.clone(), convert::outcome(outcomes.remove(key.as_str()).and_then(|outcome| outcome.is)))
        };
        launches.iter().map(outcome).collect()
    }

    async fn terminate_some(&self, ids: &[ProviderId]) -> Vec<(ProviderId, Result<(), SupplierError>)> {
        let asked = wire::TerminateRequest {
            cluster: self.cluster.to_string(),
            provider_ids: ids.iter().map(ToString::to_string).collect(),
        };
        let answer = match self.client.clone().terminate(asked).await {
            Ok(answer) => answer.into_inner(),
            Err(status) => {
                let error = self.failed("Terminate", &status);
                return ids.iter().map(|id| (id.clone(), Err(error.clone()))).collect();
            }
        };
        let errors: BTreeMap<String, String> = answer.ended.into_iter().map(|one| (one.provider_id, one.error)).collect();
        let result = |id: &ProviderId| match errors.get(id.as_str()) {
            Some(error) if error.is_empty() => Ok(()),
            Some(error) => Err(self.error(error.as_str())),
            None => Err(self.error("its answer does not mention this machine")),
        };
        ids.iter().map(|id| (id.clone(), result(id))).collect()
    }

    /// Waits for a call's turn: at the plugin's pace, and with so many of all permits that no more than its `max_in_flight` run at once.
    async fn permit(&self, described: &Described) -> Option<SemaphorePermit<'_>> {
        let permits = MOST_IN_FLIGHT.div_ceil(described.max_in_flight);
        // Never closed.
        let permit = self.calls.acquire_many(u32::try_from(permits).unwrap_or(1)).await.ok();
        self.turns.wait(described.pace).await;
        permit
    }

    /// The machines of a scope, all of them.
    async fn list(&self, scope: &str) -> Result<Listing, SupplierError> {
        let asked = wire::ListRequest { cluster: self.cluster.to_string(), scope: scope.to_owned() };
        let failed = |status: Status| self.failed("List", &status);
        let mut pages = self.client.clone().list(asked).await.map_err(failed)?.into_inner();
        let (mut instances, mut ended, mut impaired) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        while let Some(page) = pages.next().await {
            let page = page.map_err(failed)?;
            for machine in page.instances {
                let (shown, ails) = (machine.provider_id.clone(), convert::ails(&machine));
                // Something is there of which nobody knows what: without it that is not the whole list.
                let made = convert::instance(machine).map_err(|why| self.error(format!("machine {shown:?}: {why}")))?;
                impaired.extend(ails.map(|why| (made.provider_id.clone(), why)));
                instances.insert(made.provider_id.clone(), Arc::new(made));
                if instances.len() > MOST_LISTED {
                    return Err(self.error(format!("it lists more than {MOST_LISTED} machines in {scope:?}")));
                }
            }
            ended.extend(page.gone.iter().filter_map(convert::gone));
            if page.last && !page.complete {
                return Err(self.error(format!("the listing of {scope:?} is not complete")));
            }
            if page.last {
                let as_of = page.as_of.and_then(|at| Timestamp::new(at.seconds, at.nanos).ok());
                let as_of = as_of.ok_or_else(|| self.error("the last page of List has no as_of"))?;
                return Ok(Listing { as_of, instances, ended, impaired: Some(impaired), ..Listing::default() });
            }
        }
        Err(self.error(format!("the listing of {scope:?} broke off before its last page")))
    }
}

impl Supplier for Plugin {
    fn name(&self) -> &SupplierName {
        &self.name
    }

    fn max_in_flight(&self) -> usize {
        MOST_IN_FLIGHT
    }

    fn launch(&self, _: Timestamp, batch: Vec<Launch>) -> BoxFuture<'_, Vec<(LaunchKey, LaunchOutcome)>> {
        async move {
            let described = match self.described().await {
                Ok(described) => described,
                Err(error) => {
                    return batch
                        .into_iter()
                        .map(|one| (one.request.key, LaunchOutcome::unclear(error.message.clone())))
                        .collect();
                }
            };
            let mut alike: BTreeMap<_, Vec<Launch>> = BTreeMap::new();
            for launch in batch {
                let LaunchRequest { market, group, reservation, .. } = &launch.request;
                let what = (market.clone(), group.clone(), reservation.clone());
                alike.entry(what).or_default().push(launch);
            }
            let mut outcomes = Vec::new();
            for launches in alike.values().flat_map(|launches| launches.chunks(described.max_batch)) {
                // What was answered must not wait for what comes late: its key is asked again.
                let wait = self.turns.until_next(described.pace);
                if wait > TURN_WITHIN {
                    let retry_after = SignedDuration::try_from(wait).ok();
                    let message = "more launches wait than the plugin takes calls a second".to_owned();
                    let outcome = LaunchOutcome::Unclear { message, retry_after };
                    outcomes.extend(launches.iter().map(|launch| (launch.request.key.clone(), outcome.clone())));
                    continue;
                }
                let _permit = self.permit(&described).await;
                outcomes.extend(self.launch_alike(launches).await);
            }
            outcomes
        }
        .boxed()
    }

    fn observe(&self, _: Timestamp) -> BoxFuture<'_, Result<Observation, SupplierError>> {
        async move {
            let described = self.described().await?;
            // All at once, each with a time of its own: one that hangs must not make the others old.
            let lists = described.scopes.iter().map(|(scope, regions)| async move {
                let late = |_| Err(self.error(format!("no listing of {scope:?} within {} s", LISTED_WITHIN.as_secs())));
                (scope, regions, timeout(LISTED_WITHIN, self.list(scope)).await.unwrap_or_else(late))
            });
            let (mut parts, mut first_error, mut was_listed) = (Vec::new(), None, false);
            for (scope, regions, answer) in join_all(lists).await {
                let mut listed = self.listed.lock().unwrap_or_else(PoisonError::into_inner);
                match answer {
                    Ok(listing) => {
                        was_listed = true;
                        listed.insert(scope.clone(), listing);
                    }
                    Err(error) => {
                        tracing::warn!(supplier = %self.name, scope, %error, "a scope is not listed; keeping what it had");
                        first_error.get_or_insert(error);
                    }
                }
                parts.push((regions.iter().cloned(), listed.get(scope).cloned()));
            }
            if !was_listed {
                return Err(first_error.unwrap_or_else(|| self.error("it has no scope")));
            }
            Ok(Observation::of_parts(parts))
        }
        .boxed()
    }

    fn terminate(&self, _: Timestamp, ids: Vec<ProviderId>) -> BoxFuture<'_, Vec<(ProviderId, Result<(), SupplierError>)>> {
        async move {
            // In another account nothing of ours is, and ending that would be fine.
            let described = match self.described().await {
                Ok(described) => described,
                Err(error) => return ids.into_iter().map(|id| (id, Err(error.clone()))).collect(),
            };
            let mut ended = Vec::new();
            for some in ids.chunks(described.max_batch) {
                let _permit = self.permit(&described).await;
                ended.extend(self.terminate_some(some).await);
            }
            ended
        }
        .boxed()
    }

    fn market_facts(&self, _: Wall) -> BoxFuture<'_, Result<MarketFacts, SupplierError>> {
        async move {
            let described = self.described().await?;
            let answer = self.client.clone().markets(wire::MarketsRequest {}).await;
            let answer = answer.map_err(|status| self.failed("Markets", &status))?.into_inner();
            let regions: BTreeSet<(Cloud, Region)> = described.scopes.into_values().flatten().collect();
            let mut facts = MarketFacts {
                clouds: regions.iter().map(|(cloud, _)| cloud.clone()).collect(),
                regions: Some(regions),
                node_classes: Some(described.node_classes),
                ..MarketFacts::default()
            };
            for wire::ZoneName { cloud, zone_id, name } in answer.zone_names {
                let (Ok(cloud), Ok(zone), Ok(name)) = (Cloud::new(cloud), ZoneId::new(zone_id), ZoneName::new(name)) else {
                    return Err(self.error("Markets names a zone that is no name"));
                };
                facts.zone_names.insert((cloud, zone), name);
            }
            for price in &answer.quotes {
                match convert::quote(price) {
                    Ok((market, quote)) => {
                        facts.quotes.insert(market, quote);
                    }
                    Err(why) => tracing::warn!(supplier = %self.name, ?price, %why, "a price cannot be read and is left out"),
                }
            }
            for told in answer.quotas {
                let shown = told.name.clone();
                match convert::quota(told) {
                    Ok((key, fact)) => {
                        facts.quotas.insert(key, fact);
                    }
                    Err(why) => tracing::warn!(supplier = %self.name, quota = shown, %why, "a quota cannot be read and is left out"),
                }
            }
            for told in answer.reservations {
                let shown = told.id.clone();
                match convert::reservation(told) {
                    Ok((id, fact)) => {
                        facts.reservations.insert(id, fact);
                    }
                    Err(why) => {
                        tracing::warn!(supplier = %self.name, reservation = shown, %why, "a reservation cannot be read and is left out");
                    }
                }
            }
            Ok(facts)
        }
        .boxed()
    }
}

impl fmt::Debug for Plugin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Plugin").field(&self.name).finish()
    }
}
