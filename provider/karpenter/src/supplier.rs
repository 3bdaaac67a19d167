//! Karpenter as a supplier of the service.

use std::collections::BTreeSet;
use std::fmt;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::future::BoxFuture;
use futures::{FutureExt as _, StreamExt as _};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Event as KubeEvent;
use kube::api::{DeleteParams, DynamicObject, PostParams, Preconditions};
use kube::runtime::watcher::Event;
use kube::{Api, Client};
use stoker_core::base::engine_clock::Wall;
use stoker_core::base::ids::{ClusterName, LaunchKey, ProviderId, SupplierName, ZoneId, ZoneName};
use stoker_core::catalogue::template::CLUSTER_LABEL;
use stoker_core::facts::supply::{LaunchOutcome, MarketFacts, Observation, Refusal, RefusalKind, RefusalScope};
use stoker_core::policy::rules::supplier::SupplierKind;
use stoker_service::failpoints;
use stoker_service::kube::client::in_words;
use stoker_service::kube::feed::{WatchHealth, WatchedKind, config, follow};
use stoker_service::suppliers::{Launch, Supplier, SupplierError};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout_at};

use crate::carriers::{self, Carriers};
use crate::claim::{self, Claim};
use crate::ledger::{Ledger, Standing};

/// How long a launch waits for Karpenter before it answers that nothing is known yet. A cloud takes some seconds.
const ANSWERED_WITHIN: Duration = Duration::from_secs(25);

/// When to ask again for a launch of which nothing is known yet: the answer is at hand then, as claims are followed.
const RETRY_AFTER: SignedDuration = SignedDuration::from_secs(1);

/// How often carriers are looked at: two small requests.
const CARRIERS_EVERY: SignedDuration = SignedDuration::from_secs(10);

/// How often claims are looked at that are not launched.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// How long ago the API server may have been heard of for the claims to be a listing: a watch that stands gives a sign each half minute.
const STALE: Duration = Duration::from_secs(90);

/// The same for a claim to be deleted because it seems not to be launched.
const SEEN_WITHIN: Duration = Duration::from_secs(40);

/// The Event of a claim for which there is no capacity.
const NO_CAPACITY: &str = "InsufficientCapacityError";

/// What the API server says where RBAC gives no right to create one.
const NO_RIGHT: &str = "cannot create resource";

/// Karpenter, asked by `NodeClaims`.
pub struct Karpenter {
    name: SupplierName,
    cluster: ClusterName,
    shared: Arc<Shared>,
    client: Client,
    /// As last read; `None` until they were.
    carriers: Mutex<Option<Arc<Carriers>>>,
    /// Held from the look whether one more claim may be created until it is: claims under way are few.
    creating: tokio::sync::Mutex<()>,
    /// What follows the cluster, until somebody waits for its end. It ends with the supplier.
    tasks: Mutex<JoinSet<()>>,
}

/// What the watches and the calls share.
struct Shared {
    claims: Api<DynamicObject>,
    ledger: Mutex<Ledger>,
    changed: Notify,
    claims_watch: Arc<WatchHealth>,
    events_watch: Arc<WatchHealth>,
}

impl Shared {
    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Deletes a claim, and no other of its name; only in that version where one is named. One that is gone is fine.
    async fn delete(&self, claim: &Claim, version: Option<String>) -> kube::Result<()> {
        let only = Preconditions { uid: Some(claim.uid().to_owned()), resource_version: version };
        match self.claims.delete(claim.name(), &DeleteParams::default().preconditions(only)).await {
            Err(kube::Error::Api(status)) if status.code == 404 => {
                self.ledger().gone(claim, Instant::now());
                Ok(())
            }
            // Another took its name, or it has changed since: the watch tells.
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
            other => other.map(drop),
        }
    }

    /// Whether what is known of claims is of now.
    fn sees(&self) -> bool {
        self.claims_watch.broken().is_none() && self.claims_watch.age() <= SEEN_WITHIN
    }

    /// Deletes claims that are not launched in time, for ever.
    async fn cut_overdue(self: Arc<Self>, supplier: SupplierName) {
        loop {
            sleep(LOOK_EVERY).await;
            // One that seems to wait may be a node at work, where the watch does not stand.
            let overdue = if self.sees() { self.ledger().overdue(Instant::now()) } else { Vec::new() };
            for claim in overdue {
                let name = claim.name();
                tracing::warn!(%supplier, claim = name, "not launched in time: deleted, as Karpenter does nothing else meanwhile");
                self.ledger().cut(name);
                // Of the version that was seen: Karpenter may just have launched it.
                if let Err(error) = self.delete(&claim, claim.version()).await {
                    tracing::warn!(%supplier, claim = name, error = in_words(&error), "deleting the claim failed; retrying");
                }
            }
        }
    }
}

impl Karpenter {
    /// The supplier of that name, which makes nodes for that cluster, and follows its claims from now on.
    pub fn start(name: SupplierName, cluster: ClusterName, client: &Client) -> Self {
        let shared = Arc::new(Shared {
            claims: claim::of_kind(client, "karpenter.sh", "v1", "NodeClaim"),
            ledger: Mutex::default(),
            changed: Notify::new(),
            claims_watch: Arc::new(WatchHealth::new(WatchedKind::NodeClaims)),
            events_watch: Arc::new(WatchHealth::new(WatchedKind::Events)),
        });
        let labels = format!("{CLUSTER_LABEL}={cluster}");
        let claims = follow::<Claim>(client, config().labels(&labels), Arc::clone(&shared.claims_watch));
        let fields = format!("involvedObject.kind=NodeClaim,reason={NO_CAPACITY}");
        let events = follow::<KubeEvent>(client, config().fields(&fields), Arc::clone(&shared.events_watch));
        let mut tasks = JoinSet::new();
        tasks.spawn(Arc::clone(&shared).cut_overdue(name.clone()));
        let of_claims = Arc::clone(&shared);
        tasks.spawn(async move {
            let mut claims = pin!(claims);
            while let Some(event) = claims.next().await {
                of_claims.ledger().claim(event, Instant::now());
                of_claims.changed.notify_waiters();
            }
        });
        let of_events = Arc::clone(&shared);
        tasks.spawn(async move {
            let mut events = pin!(events);
            while let Some(event) = events.next().await {
                if let Event::Apply(event) | Event::InitApply(event) = event {
                    let uid = event.involved_object.uid.unwrap_or_default();
                    of_events.ledger().shortage(&uid, event.message.unwrap_or_default(), Instant::now());
                    of_events.changed.notify_waiters();
                }
            }
        });
        let (client, carriers, creating) = (client.clone(), Mutex::default(), tokio::sync::Mutex::default());
        Self { name, cluster, shared, client, carriers, creating, tasks: Mutex::new(tasks) }
    }

    /// Waits until a part of it ends, as none does but by a panic: it then no longer follows the cluster.
    pub async fn ended(&self) {
        let mut tasks = std::mem::take(&mut *self.tasks.lock().unwrap_or_else(PoisonError::into_inner));
        tasks.join_next().await;
    }

    fn error(&self, message: impl Into<String>) -> SupplierError {
        SupplierError { supplier: self.name.clone(), message: message.into() }
    }

    fn carriers(&self) -> MutexGuard<'_, Option<Arc<Carriers>>> {
        self.carriers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads the carriers again.
    async fn read_carriers(&self) -> Result<Arc<Carriers>, SupplierError> {
        let read = carriers::read(&self.client).await.map_err(|error| self.error(with_cure(&error)))?;
        let carriers = Arc::new(read);
        let before = self.carriers().replace(Arc::clone(&carriers));
        let known = |fault: &String| before.as_ref().is_some_and(|before| before.faults.contains(fault));
        for fault in carriers.faults.iter().filter(|fault| !known(fault)) {
            tracing::warn!(supplier = %self.name, "no node is made by {fault}");
        }
        Ok(carriers)
    }

    /// Whether Events are followed.
    fn hears(&self) -> bool {
        self.shared.events_watch.broken().is_none()
    }

    /// Brings a launch on; the outcome, once there is one.
    async fn advance(&self, launch: &Launch) -> Standing {
        let key = &launch.request.key;
        let standing = self.shared.ledger().standing(key, self.hears(), Instant::now());
        if !matches!(standing, Standing::New) {
            return standing;
        }
        let _alone = self.creating.lock().await;
        {
            let ledger = self.shared.ledger();
            match ledger.standing(key, self.hears(), Instant::now()) {
                Standing::New if !ledger.has_room() => {
                    return Standing::Waits("other NodeClaims are launched first".to_owned());
                }
                Standing::New => {}
                other => return other,
            }
        }
        self.create(launch).await
    }

    /// Creates the claim of a launch that has none.
    async fn create(&self, launch: &Launch) -> Standing {
        let refused = |kind, scope, message| {
            Standing::Settled(LaunchOutcome::Refused(Refusal { kind, scope, message, retry_after: None }))
        };
        let object = match self.object(launch) {
            Ok(object) => object,
            Err(why) => return refused(RefusalKind::Config, RefusalScope::Market, why),
        };
        let created = self.shared.claims.create(&PostParams::default(), &object).await;
        failpoints::point(failpoints::CLAIM_CREATED);
        match created {
            Ok(created) => {
                self.shared.ledger().created(Claim::created(created), Instant::now());
                Standing::Waits("the NodeClaim is created".to_owned())
            }
            // From an earlier try. The watch tells what it is.
            Err(kube::Error::Api(status)) if status.code == 409 => Standing::Waits("the NodeClaim is there already".to_owned()),
            Err(kube::Error::Api(status)) if status.code == 403 && !status.message.contains(NO_RIGHT) => {
                // A policy or a webhook of the cluster's: what it says of this claim need not hold for others.
                refused(RefusalKind::Permission, RefusalScope::Market, format!("creating a NodeClaim: {}", status.message))
            }
            Err(kube::Error::Api(status)) if status.code == 403 => {
                refused(RefusalKind::Permission, RefusalScope::Account, with_cure(&kube::Error::Api(status)))
            }
            Err(kube::Error::Api(status)) if matches!(status.code, 400 | 422) => {
                refused(RefusalKind::Config, RefusalScope::Market, format!("creating a NodeClaim: {}", status.message))
            }
            Err(error) => Standing::Failed(with_cure(&error)),
        }
    }

    /// The claim of a launch.
    fn object(&self, launch: &Launch) -> Result<DynamicObject, String> {
        let carriers = self.carriers().clone().unwrap_or_default();
        let carrier = carriers.of(launch.node_class.as_ref())?;
        carrier.allows(&claim::pinned(launch))?;
        carrier.reaches(&launch.request.market.place.zone)?;
        let object = claim::object(&self.cluster, launch, carrier);
        serde_json::from_value(object).map_err(|error| error.to_string())
    }
}

impl Supplier for Karpenter {
    fn name(&self) -> &SupplierName {
        &self.name
    }

    fn max_in_flight(&self) -> usize {
        4
    }

    fn faults(&self) -> Vec<String> {
        let carriers = self.carriers().as_ref().map(|carriers| carriers.faults.clone()).unwrap_or_default();
        let watches = [&self.shared.claims_watch, &self.shared.events_watch].into_iter().filter_map(|watch| watch.broken());
        let unreadable = self.shared.ledger().unreadable();
        carriers.into_iter().chain(watches.map(|broken| broken.to_string())).chain(unreadable).collect()
    }

    /// A carrier that comes, or is mended, makes groups.
    fn markets_every(&self) -> SignedDuration {
        CARRIERS_EVERY
    }

    fn launch(&self, _: Timestamp, batch: Vec<Launch>) -> BoxFuture<'_, Vec<(LaunchKey, LaunchOutcome)>> {
        async move {
            let known = self.carriers().is_some();
            if !known && let Err(error) = self.read_carriers().await {
                let unclear = |launch: Launch| (launch.request.key, LaunchOutcome::unclear(error.message.clone()));
                return batch.into_iter().map(unclear).collect();
            }
            let until = Instant::now() + ANSWERED_WITHIN;
            let mut outcomes = Vec::with_capacity(batch.len());
            let mut waiting = batch;
            while !waiting.is_empty() {
                // Before the look, so that no change after it is missed.
                let changed = self.shared.changed.notified();
                let late = Instant::now() >= until;
                let mut still = Vec::new();
                for launch in waiting {
                    match self.advance(&launch).await {
                        Standing::Settled(outcome) => outcomes.push((launch.request.key, outcome)),
                        Standing::Failed(message) => outcomes.push((launch.request.key, LaunchOutcome::unclear(message))),
                        Standing::Waits(message) if late => {
                            let retry_after = Some(RETRY_AFTER);
                            outcomes.push((launch.request.key, LaunchOutcome::Unclear { message, retry_after }));
                        }
                        Standing::Waits(_) | Standing::New => still.push(launch),
                    }
                }
                waiting = still;
                if !waiting.is_empty() {
                    let next = until.min(Instant::now() + LOOK_EVERY);
                    let _ = timeout_at(next, changed).await;
                }
            }
            outcomes
        }
        .boxed()
    }

    fn observe(&self, now: Timestamp) -> BoxFuture<'_, Result<Observation, SupplierError>> {
        async move {
            let watch = &self.shared.claims_watch;
            if let Some(broken) = watch.broken() {
                return Err(self.error(broken.to_string()));
            }
            if watch.age() > STALE {
                return Err(self.error(format!("the API server was last heard of {} s ago", watch.age().as_secs())));
            }
            let (machines, complete) = {
                let ledger = self.shared.ledger();
                (ledger.machines(), ledger.unreadable().is_empty())
            };
            let machines = machines.ok_or_else(|| self.error("the NodeClaims are not listed yet"))?;
            let instances = machines.into_iter().map(|made| (made.provider_id.clone(), made)).collect();
            // The watch may have been silent for a while.
            let age = SignedDuration::try_from(watch.age()).unwrap_or(SignedDuration::MAX);
            let as_of = now.saturating_sub(age).unwrap_or(now);
            Ok(Observation { complete, ..Observation::complete(as_of, instances) })
        }
        .boxed()
    }

    fn terminate(&self, _: Timestamp, ids: Vec<ProviderId>) -> BoxFuture<'_, Vec<(ProviderId, Result<(), SupplierError>)>> {
        async move {
            let mut ended = Vec::with_capacity(ids.len());
            for id in ids {
                let found = self.shared.ledger().claim_of(&id);
                let result = match found {
                    Ok(Some(claim)) => self.shared.delete(&claim, None).await.map_err(|error| self.error(with_cure(&error))),
                    Ok(None) => Ok(()),
                    Err(why) => Err(self.error(why)),
                };
                ended.push((id, result));
            }
            ended
        }
        .boxed()
    }

    fn market_facts(&self, _: Wall) -> BoxFuture<'_, Result<MarketFacts, SupplierError>> {
        async move {
            let carriers = self.read_carriers().await?;
            let mut facts = MarketFacts {
                node_classes: Some(carriers.fit.keys().cloned().collect()),
                labels_capacity_type: SupplierKind::Karpenter.labels_capacity_type(),
                ..MarketFacts::default()
            };
            // Where one of a cloud's carriers does not say its regions, they may be all.
            let mut regions = Some(BTreeSet::new());
            for carrier in carriers.fit.values() {
                let cloud = &carrier.cloud;
                facts.clouds.insert(cloud.clone());
                let named = |(id, name): (&ZoneId, &ZoneName)| ((cloud.clone(), id.clone()), name.clone());
                facts.zone_names.extend(carrier.zone_names.iter().map(named));
                regions = regions.zip(carrier.regions()).map(|(mut all, of_carrier)| {
                    all.extend(of_carrier.into_iter().map(|region| (cloud.clone(), region)));
                    all
                });
            }
            facts.regions = regions;
            Ok(facts)
        }
        .boxed()
    }
}

impl fmt::Debug for Karpenter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Karpenter").field(&self.name).finish()
    }
}

/// What went wrong, and what to do where that is known.
fn with_cure(error: &kube::Error) -> String {
    let words = in_words(error);
    match error {
        kube::Error::Api(status) if status.code == 403 => format!("{words}: apply manifests/karpenter again"),
        kube::Error::Api(status) if status.code == 404 => {
            format!("{words}: this cluster has no NodePools of karpenter.sh/v1; install Karpenter 1.0 or later")
        }
        _ => words,
    }
}
