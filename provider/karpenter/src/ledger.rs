//! Which claims there are, and what became of those that are gone.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use kube::runtime::watcher::Event;
use stoker_core::base::ids::{LaunchKey, ProviderId};
use stoker_core::facts::supply::{Instance, LaunchOutcome, Refusal, RefusalKind, RefusalScope};
use stoker_core::market::quota_names::KnownQuota;
use tokio::time::Instant;

use crate::claim::{self, Claim};

/// How many claims may be there without a machine: while one is, Karpenter does nothing else.
pub(crate) const MOST_UNLAUNCHED: usize = 2;

/// How long a claim may be there without a machine.
pub(crate) const LAUNCHED_WITHIN: Duration = Duration::from_mins(1);

/// How long the Event of a claim that is gone is waited for.
const EVENT_WITHIN: Duration = Duration::from_secs(5);

/// How long a claim that is gone is remembered: as long as the API server keeps Events.
const REMEMBERED: Duration = Duration::from_hours(1);

/// Which claims there are, and what became of those that are gone.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    /// Whether all claims were listed.
    complete: bool,
    /// By name.
    claims: BTreeMap<String, Seen>,
    /// When the listing under way began, and the names in it.
    listing: Option<(Instant, BTreeSet<String>)>,
    /// By name.
    gone: BTreeMap<String, Seen>,
    /// What Events say of a lack of capacity, by the claim's uid.
    shortages: BTreeMap<String, (String, Instant)>,
}

/// A claim, since when it is known or gone, and its machine, where it is launched and can be read.
#[derive(Debug)]
struct Seen {
    claim: Claim,
    since: Instant,
    /// Whether Stoker deletes it because it was not launched in time.
    cut: bool,
    machine: Option<Result<Arc<Instance>, String>>,
}

impl Seen {
    fn new(mut claim: Claim, since: Instant, cut: bool) -> Self {
        // Larger than all the rest, and of no use here.
        claim.meta.managed_fields = None;
        let machine = claim.is_launched().then(|| claim.instance().map(Arc::new));
        Self { claim, since, cut, machine }
    }

    /// How the launch with that key stands, whose claim has this one's name.
    fn standing(&self, key: &LaunchKey) -> Standing {
        let (claim, name) = (&self.claim, self.claim.name());
        if claim.key().as_ref() != Some(key) {
            return Standing::Waits(format!("NodeClaim {name} is somebody else's: delete it"));
        }
        match &self.machine {
            Some(Ok(made)) => Standing::Settled(LaunchOutcome::Launched(Instance::clone(made))),
            Some(Err(why)) => Standing::Waits(format!("NodeClaim {name} cannot be read: {why}")),
            None => {
                let why = claim.why_not_launched().map(|why| format!(": {why}")).unwrap_or_default();
                Standing::Waits(format!("Karpenter has not launched NodeClaim {name} yet{why}"))
            }
        }
    }
}

/// How a launch stands.
#[derive(Debug)]
pub(crate) enum Standing {
    /// No claim of that name was ever seen.
    New,
    /// Nothing is known yet, and why.
    Waits(String),
    /// It could not be asked for, and why.
    Failed(String),
    /// It is settled.
    Settled(LaunchOutcome),
}

impl Ledger {
    /// Takes in what the watch of claims says.
    pub(crate) fn claim(&mut self, event: Event<Claim>, now: Instant) {
        match event {
            Event::InitApply(claim) | Event::Apply(claim) | Event::Delete(claim) if !claim.is_ours() => {}
            Event::Init => self.listing = Some((now, BTreeSet::new())),
            Event::InitApply(claim) => {
                if let Some((_, listed)) = &mut self.listing {
                    listed.insert(claim.name().to_owned());
                }
                self.put(claim, now);
            }
            Event::InitDone => {
                let (begun, listed) = self.listing.take().unwrap_or((now, BTreeSet::new()));
                // One that was created meanwhile may have missed the listing: the watch tells of it.
                let is_lost = |seen: &&Seen| seen.since < begun && !listed.contains(seen.claim.name());
                let lost: Vec<Claim> = self.claims.values().filter(is_lost).map(|seen| seen.claim.clone()).collect();
                for claim in lost {
                    self.lose(claim, now);
                }
                self.complete = true;
            }
            Event::Apply(claim) => self.put(claim, now),
            Event::Delete(claim) => self.lose(claim, now),
        }
        self.gone.retain(|_, gone| now.duration_since(gone.since) < REMEMBERED);
    }

    /// Takes in that a claim was created. The watch tells of it a moment later.
    pub(crate) fn created(&mut self, claim: Claim, now: Instant) {
        // One that is gone already stays so.
        let known = self.gone.get(claim.name()).is_some_and(|gone| gone.claim.uid() == claim.uid());
        if !known && !self.claims.contains_key(claim.name()) {
            self.put(claim, now);
        }
    }

    fn put(&mut self, claim: Claim, now: Instant) {
        let before = self.claims.get(claim.name()).filter(|seen| seen.claim.uid() == claim.uid());
        let (since, cut) = before.map_or((now, false), |seen| (seen.since, seen.cut));
        self.claims.insert(claim.name().to_owned(), Seen::new(claim, since, cut));
    }

    fn lose(&mut self, claim: Claim, now: Instant) {
        let cut = self.claims.remove(claim.name()).is_some_and(|seen| seen.cut && seen.claim.uid() == claim.uid());
        self.gone.insert(claim.name().to_owned(), Seen::new(claim, now, cut));
    }

    /// Takes in an Event that tells of a lack of capacity for the claim with that uid.
    pub(crate) fn shortage(&mut self, uid: &str, message: String, now: Instant) {
        self.shortages.retain(|_, (_, at)| now.duration_since(*at) < REMEMBERED);
        self.shortages.insert(uid.to_owned(), (message, now));
    }

    /// Takes in that the claim of that name is being deleted because it was not launched in time.
    pub(crate) fn cut(&mut self, name: &str) {
        if let Some(seen) = self.claims.get_mut(name) {
            seen.cut = true;
        }
    }

    /// Takes in that a claim is gone. The watch need not say so of one that came and went during a listing.
    pub(crate) fn gone(&mut self, claim: &Claim, now: Instant) {
        if let Some(seen) = self.claims.get(claim.name()).filter(|seen| seen.claim.uid() == claim.uid()) {
            self.lose(seen.claim.clone(), now);
        }
    }

    /// The claims without a machine that were there for too long.
    pub(crate) fn overdue(&self, now: Instant) -> Vec<Claim> {
        let overdue = |seen: &&Seen| {
            seen.machine.is_none() && !seen.claim.is_deleting() && now.duration_since(seen.since) >= LAUNCHED_WITHIN
        };
        self.claims.values().filter(overdue).map(|seen| seen.claim.clone()).collect()
    }

    /// Whether one more claim may be there without a machine.
    pub(crate) fn has_room(&self) -> bool {
        self.claims.values().filter(|seen| seen.machine.is_none()).count() < MOST_UNLAUNCHED
    }

    /// How the launch with that key stands; `hears` says whether Events are followed.
    pub(crate) fn standing(&self, key: &LaunchKey, hears: bool, now: Instant) -> Standing {
        let name = claim::name(key);
        if let Some(seen) = self.claims.get(&name) {
            return seen.standing(key);
        }
        if let Some(gone) = self.gone.get(&name) {
            return self.end_of(gone, hears, now);
        }
        if self.complete {
            Standing::New
        } else {
            Standing::Waits("the NodeClaims of the cluster are not listed yet".to_owned())
        }
    }

    /// What became of a claim that is gone.
    fn end_of(&self, Seen { claim, since, cut, machine }: &Seen, hears: bool, now: Instant) -> Standing {
        let name = claim.name();
        let refused = |kind, message: String| {
            // GCP's and Azure's answers name the quota, AWS's do not.
            let quota = if kind == RefusalKind::QuotaExceeded { KnownQuota::named_in(&message) } else { None };
            let scope = match (quota, claim.reservation()) {
                (Some(quota), _) => RefusalScope::Quota(quota.name.to_owned()),
                // Another of the same place may have room.
                (None, Some(name)) if kind == RefusalKind::OutOfCapacity => RefusalScope::Reservation(name.to_owned()),
                (None, _) => RefusalScope::Market,
            };
            Standing::Settled(LaunchOutcome::Refused(Refusal { kind, scope, message, retry_after: None }))
        };
        if machine.is_some() {
            return refused(RefusalKind::Config, format!("NodeClaim {name} was launched, and its machine has ended"));
        }
        if let Some((message, _)) = self.shortages.get(claim.uid()) {
            // AWS's provider reports a used-up quota so.
            let kind = match kind_of(message) {
                quota @ RefusalKind::QuotaExceeded => quota,
                _ => RefusalKind::OutOfCapacity,
            };
            return refused(kind, message.clone());
        }
        if *cut {
            let why = claim.why_not_launched().unwrap_or_else(|| "Karpenter gives no reason".to_owned());
            let message =
                format!("NodeClaim {name} was not launched within {} s and is deleted: {why}", LAUNCHED_WITHIN.as_secs());
            return refused(kind_of(&why), message);
        }
        if now.duration_since(*since) < EVENT_WITHIN {
            return Standing::Waits(format!("NodeClaim {name} is gone, and its Event may still come"));
        }
        if !hears {
            let message = format!(
                "NodeClaim {name} was deleted before it was launched, and Events cannot be read: see `stoker suppliers`"
            );
            return refused(RefusalKind::OutOfCapacity, message);
        }
        let message = format!(
            "NodeClaim {name} was deleted before it was launched, and no Event says why: see whether its NodeClass is Ready, and who \
             deletes NodeClaims"
        );
        refused(RefusalKind::Config, message)
    }

    /// The machines that can be read; `None` until all claims were listed.
    pub(crate) fn machines(&self) -> Option<Vec<Arc<Instance>>> {
        let made = self.claims.values().filter_map(|seen| seen.machine.as_ref()?.as_ref().ok());
        self.complete.then(|| made.cloned().collect())
    }

    /// What is wrong with the claims whose machine cannot be read.
    pub(crate) fn unreadable(&self) -> Vec<String> {
        let why = |seen: &Seen| {
            let why = seen.machine.as_ref()?.as_ref().err()?;
            Some(format!("NodeClaim {}: {why}", seen.claim.name()))
        };
        self.claims.values().filter_map(why).collect()
    }

    /// The claim of a machine; `None` where there is none. It is not known while not all claims were listed.
    pub(crate) fn claim_of(&self, machine: &ProviderId) -> Result<Option<Claim>, &'static str> {
        let is = |seen: &&Seen| seen.machine.is_some() && seen.claim.provider_id() == machine.as_str();
        let found = self.claims.values().find(is).map(|seen| seen.claim.clone());
        if found.is_none() && !self.complete {
            return Err("the NodeClaims of the cluster are not listed yet");
        }
        Ok(found)
    }
}

/// The class of what a provider says of a launch that failed.
fn kind_of(why: &str) -> RefusalKind {
    let why = why.to_lowercase();
    let says = |words: &[&str]| words.iter().any(|word| why.contains(word));
    if says(&["quota", "limitexceeded", "maxspotinstancecount"]) {
        RefusalKind::QuotaExceeded
    } else if says(&["unauthorized", "forbidden", "accessdenied", "permission"]) {
        RefusalKind::Permission
    } else {
        RefusalKind::Config
    }
}

#[cfg(test)]
mod tests;
