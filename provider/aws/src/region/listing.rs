//! The listing of a region, and the end of machines.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use futures::future::join_all;
use jiff::Timestamp;
use stoker_core::base::ids::{LaunchKey, ProviderId, ZoneId};
use stoker_core::catalogue::template::CLUSTER_LABEL;
use stoker_core::facts::outdated::Outdated;
use stoker_core::facts::supply::{Instance, InstanceState, Listing};
use tokio::time::Instant;

use super::{LookedUp, RegionSupplier, SHOWN_WITHIN};
use crate::answers::{Console, Done, Machine, Machines};
use crate::machine;
use crate::outdated::MadeWith;
use crate::wire::{Class, Failure, Form, Service};

/// Machines of a page: the most that EC2 gives.
const PAGE: usize = 1000;

/// Most machines of a listing: beyond that something is wrong with the pages.
const MOST: usize = 50_000;

/// How old a listing may be that is answered from memory: while machines come and go, and else.
const BUSY: Duration = Duration::from_secs(3);
const QUIET: Duration = Duration::from_secs(20);

/// Machines ended by a call.
const END_AT_ONCE: usize = 100;

/// The machines of a region.
#[derive(Debug, Clone)]
pub(crate) struct Listed {
    asked_at: Instant,
    pub(crate) machines: Listing,
    /// What machines were made with, where they say.
    made_with: BTreeMap<ProviderId, MadeWith>,
    /// Machines that bear the cluster's tag and cannot be read.
    unreadable: Vec<String>,
    /// Machines that are stopped, which ours never are on purpose.
    stopped: Vec<String>,
    /// Zones that did not answer, by name, where the region as a whole did not either.
    silent: BTreeSet<String>,
}

/// How a machine's operating system goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shutdown {
    /// It stops what runs first, which the kubelet may take minutes for.
    InOrder,
    /// At once: of a machine that never joined.
    Skipped,
}

impl Listed {
    fn nothing(as_of: Timestamp) -> Self {
        Self {
            asked_at: Instant::now(),
            machines: Listing { as_of, ..Listing::default() },
            made_with: BTreeMap::new(),
            unreadable: Vec::new(),
            stopped: Vec::new(),
            silent: BTreeSet::new(),
        }
    }

    /// Takes what a zone has now in place of what it had.
    fn take_zone(&mut self, zone: &ZoneId, name: &str, listed: Self) {
        self.machines.instances.retain(|_, made| made.market.place.zone != *zone);
        self.machines.instances.extend(listed.machines.instances);
        self.machines.ended.extend(listed.machines.ended);
        self.machines.zones.insert(zone.clone(), listed.machines.as_of);
        self.made_with.retain(|id, _| self.machines.instances.contains_key(id));
        self.made_with.extend(listed.made_with);
        self.unreadable.extend(listed.unreadable);
        self.stopped.extend(listed.stopped);
        self.silent.remove(name);
    }

    /// What is wrong with it.
    pub(crate) fn faults(&self) -> impl Iterator<Item = String> {
        let silent = self.silent.iter().map(|zone| {
            format!("EC2 does not list the machines of {zone}: nothing is bought there, or taken for lost, until it does")
        });
        silent.chain(self.unreadable.iter().cloned())
    }

    fn is_busy(&self) -> bool {
        let moves = |made: &Arc<Instance>| matches!(made.state, InstanceState::Pending | InstanceState::Stopping);
        self.machines.instances.values().any(moves)
    }
}

impl RegionSupplier {
    /// Its machines, of a few seconds ago at most.
    ///
    /// # Errors
    /// Why they cannot be listed; what was listed before stays.
    pub(crate) async fn list(&self, now: Timestamp) -> Result<Listing, String> {
        let remembered = {
            let known = self.known();
            known.listing.clone().filter(|listing| {
                let is_busy = listing.is_busy() || !known.made.is_empty();
                let is_stale = known.stale_since.is_some_and(|since| since >= listing.asked_at);
                let age = listing.asked_at.elapsed();
                age < if is_busy || is_stale { BUSY } else { QUIET }
            })
        };
        let listing = if let Some(listing) = remembered {
            listing
        } else {
            let listing = self.ask_for_all(now).await.map_err(|failure| failure.to_string())?;
            self.known().listing = Some(listing.clone());
            self.end_stopped(&listing.stopped).await;
            listing
        };
        Ok(self.with_what_is_known(listing.machines))
    }

    /// Whether EC2 was asked for that launch of late and did not answer.
    pub(crate) fn is_doubtful(&self, key: &LaunchKey) -> bool {
        self.known().is_doubtful(key)
    }

    /// Its machines that would be made differently by what was looked up; `None` where nothing was.
    pub(crate) fn outdated(&self, looked: Option<&LookedUp>) -> BTreeMap<ProviderId, Option<Outdated>> {
        let known = self.known();
        let made_with = known.listing.iter().flat_map(|listing| &listing.made_with);
        let told = made_with.map(|(id, made_with)| (id, made_with.outdated(looked)));
        told.filter(|(_, told)| *told != Ok(None)).map(|(id, told)| (id.clone(), told.ok().flatten())).collect()
    }

    /// Whether it may have machines: unless a listing shows none, and no launch is open.
    pub(crate) fn may_have_machines(&self) -> bool {
        let is_empty = self.last_listing().is_some_and(|listing| listing.instances.is_empty());
        !is_empty || !self.known().doubtful.is_empty()
    }

    /// What was listed last, with what is known beside it; `None` while nothing was.
    pub(crate) fn last_listing(&self) -> Option<Listing> {
        let listing = self.known().listing.as_ref()?.machines.clone();
        Some(self.with_what_is_known(listing))
    }

    /// Adds machines that the listing does not have yet, and moments at which machines will be taken back.
    fn with_what_is_known(&self, mut listing: Listing) -> Listing {
        let now = self.api.now();
        let mut known = self.known();
        known.made.retain(|id, (_, at)| at.elapsed() < SHOWN_WITHIN && !listing.instances.contains_key(id));
        for (id, (made, _)) in &known.made {
            listing.instances.insert(id.clone(), Arc::clone(made));
        }
        let health = known.facts.health().filter(|health| health.is_known(now));
        for (id, made) in &mut listing.instances {
            let Some(id) = machine::instance_id(id) else { continue };
            let announced = [known.reclaims.get(id).copied(), health.and_then(|health| health.maintenance(id, now))];
            let reclaim =
                announced.into_iter().flatten().filter(|reclaim| reclaim.from <= now).min_by_key(|reclaim| reclaim.at);
            if let Some(reclaim) = reclaim.filter(|_| matches!(made.state, InstanceState::Pending | InstanceState::Running)) {
                *made = Arc::new(Instance { state: InstanceState::Reclaiming { at: reclaim.at }, ..Instance::clone(made) });
            }
        }
        listing.impaired = health.map(|health| {
            let ails = |id: &ProviderId| Some((id.clone(), health.impaired(machine::instance_id(id)?, now)?));
            listing.instances.keys().filter_map(ails).collect()
        });
        listing
    }

    /// Every machine of the region. With a zone that is down EC2 fails the question for the region: then each zone is asked by itself.
    async fn ask_for_all(&self, now: Timestamp) -> Result<Listed, Failure> {
        let listing = match self.ask_in(None, now).await {
            Err(failure @ Failure::Said(_)) if failure.class() == Class::Transient => self.ask_by_zone(now, failure).await?,
            answer => answer?,
        };
        // Other credentials see nothing of ours, and all would seem lost.
        self.account().await?;
        Ok(listing)
    }

    /// The machines of the zones that answer, and those that the rest of the region had when it was listed last.
    async fn ask_by_zone(&self, now: Timestamp, failure: Failure) -> Result<Listed, Failure> {
        let before = self.known().listing.clone();
        let zones = self.zones(before.as_ref());
        let mut all = before.unwrap_or_else(|| Listed::nothing(Timestamp::UNIX_EPOCH));
        all.asked_at = Instant::now();
        (all.unreadable, all.stopped, all.silent) = (Vec::new(), Vec::new(), zones.keys().cloned().collect());
        let answers = zones.into_iter().map(async |(name, zone)| {
            let answer = self.ask_in(Some(&name), now).await;
            (name, zone, answer)
        });
        let mut has_answer = false;
        for (name, zone, answer) in join_all(answers).await {
            match answer {
                Ok(listed) => {
                    has_answer = true;
                    all.take_zone(&zone, &name, listed);
                }
                Err(why) => tracing::debug!(region = %self.name, name, %why, "the zone is not listed; keeping what it had"),
            }
        }
        if has_answer { Ok(all) } else { Err(failure) }
    }

    /// The zones in which it may have machines: their names, and their ids.
    fn zones(&self, listing: Option<&Listed>) -> BTreeMap<String, ZoneId> {
        let known = self.known();
        let made = known.made.values().map(|(made, _)| made);
        let listed = listing.into_iter().flat_map(|listing| listing.machines.instances.values());
        let of_machines = made.chain(listed).filter_map(|made| {
            let name = machine::zone_name(&made.provider_id)?;
            Some((name.to_owned(), made.market.place.zone.clone()))
        });
        known.looked_up.iter().flat_map(|looked| looked.zones()).chain(of_machines).collect()
    }

    /// Asks for every page, in a zone or in all: one that fails fails them all, so that no machine seems to be missing.
    async fn ask_in(&self, zone: Option<&str>, now: Timestamp) -> Result<Listed, Failure> {
        let states = ["pending", "running", "shutting-down", "stopping", "stopped", "terminated"];
        let mut all = Form::ec2("DescribeInstances")
            .filter(&format!("tag:{CLUSTER_LABEL}"), [self.cluster.as_str()])
            .filter("instance-state-name", states)
            .with("MaxResults", PAGE.to_string());
        if let Some(zone) = zone {
            all = all.filter("availability-zone", [zone]);
        }
        let zone_id = |name: &str| self.known().zone_id(name);
        let mut listing = Listed::nothing(now);
        let (mut page, mut seen) = (all.clone(), BTreeSet::new());
        loop {
            let Machines { reservation_set, next_token } = self.api.ask(Service::Ec2, &page).await?;
            for machine in reservation_set.into_iter().flat_map(|run| run.instances_set) {
                let placement = &machine.placement;
                if placement.availability_zone_id.is_none() && zone_id(&placement.availability_zone).is_none() {
                    // Left out it would seem lost. The zones are looked up by the next question for markets.
                    let why = format!("the zone {} of {} is not known yet", placement.availability_zone, machine.instance_id);
                    return Err(Failure::NoAnswer { action: "DescribeInstances", why });
                }
                self.list_one(&mut listing, &machine, zone_id);
            }
            let Some(next) = next_token else { return Ok(listing) };
            if listing.machines.instances.len() + listing.machines.ended.len() > MOST || !seen.insert(next.clone()) {
                let why = format!("the listing has more than {MOST} machines, or goes round in circles");
                return Err(Failure::NoAnswer { action: "DescribeInstances", why });
            }
            page = all.clone().with("NextToken", next);
        }
    }

    fn list_one(&self, listing: &mut Listed, machine: &Machine, zone_id: impl Fn(&str) -> Option<ZoneId>) {
        let id = &machine.instance_id;
        if machine::is_gone(machine) {
            let Ok(provider_id) = machine::provider_id(machine) else { return };
            // It may have ended before any listing had it.
            self.known().made.remove(&provider_id);
            if let Some(why) = machine::why_ended(machine) {
                listing.machines.ended.insert(provider_id, why);
            }
            return;
        }
        match machine::instance(machine, &self.name, zone_id) {
            Ok(instance) => {
                if machine.instance_state.name == "stopped" {
                    listing.stopped.push(id.clone());
                }
                if let Some(made_with) = MadeWith::of(machine) {
                    listing.made_with.insert(instance.provider_id.clone(), made_with);
                }
                listing.machines.instances.insert(instance.provider_id.clone(), Arc::new(instance));
            }
            // Told of, and never ended.
            Err(why) => listing.unreadable.push(why),
        }
    }

    /// A machine that is stopped costs its disks for ever, and its Node does not come back by itself.
    async fn end_stopped(&self, ids: &[String]) {
        if let Err(failure) = self.end_some(ids, Shutdown::InOrder).await
            && !ids.is_empty()
        {
            tracing::warn!(region = %self.name, %failure, "ending machines that somebody stopped failed; retrying");
        }
    }

    /// Ends machines, and no other's: those that bear this cluster's tag.
    pub(crate) async fn terminate(&self, ids: &[ProviderId], shutdown: Shutdown) -> Vec<(ProviderId, Result<(), String>)> {
        let (mut ours, mut ended) = (Vec::new(), Vec::new());
        for id in ids {
            match (self.is_listed(id), machine::instance_id(id)) {
                (Ok(true), Some(instance)) => ours.push((id.clone(), instance.to_owned())),
                (Ok(_), _) => ended.push((id.clone(), Ok(()))),
                (Err(why), _) => ended.push((id.clone(), Err(why))),
            }
        }
        for some in ours.chunks(END_AT_ONCE) {
            let names: Vec<String> = some.iter().map(|(_, instance)| instance.clone()).collect();
            match self.end_some(&names, shutdown).await {
                // One that is unknown fails the call for all, and one that is protected those of its zone.
                Err(failure) if failure.class() == Class::Final && some.len() > 1 => {
                    for (id, instance) in some {
                        let one = self.end_some(std::slice::from_ref(instance), shutdown).await;
                        ended.push((id.clone(), self.end_of(id, one)));
                    }
                }
                // What ails all of them is no better asked one by one.
                answer => ended.extend(some.iter().map(|(id, _)| (id.clone(), self.end_of(id, answer.clone())))),
            }
        }
        self.known().stale_since = Some(Instant::now());
        ended
    }

    /// What the answer to the end of one machine means.
    fn end_of(&self, id: &ProviderId, answer: Result<(), Failure>) -> Result<(), String> {
        let Err(failure) = answer else { return Ok(()) };
        let is_young = self.known().made.contains_key(id);
        match failure.code() {
            // EC2 may not know yet what it has just made.
            Some("InvalidInstanceID.NotFound") if !is_young => Ok(()),
            Some("InvalidInstanceID.Malformed") => {
                tracing::warn!(machine = %id, %failure, "EC2 knows no such machine: taken to be gone");
                Ok(())
            }
            Some("OperationNotPermitted") => {
                Err(format!("{failure}: somebody protected the machine against its end; take that off, or end it by hand"))
            }
            _ => Err(failure.to_string()),
        }
    }

    /// Whether the machine is one of this cluster's that has not ended.
    fn is_listed(&self, id: &ProviderId) -> Result<bool, String> {
        let known = self.known();
        if known.made.contains_key(id) {
            return Ok(true);
        }
        let listing = known.listing.as_ref().ok_or("the machines of its region are not listed yet")?;
        let is_listed = listing.machines.instances.contains_key(id);
        let zone = machine::zone_name(id).unwrap_or_default();
        // Of a zone that was never looked into nothing is known either.
        let is_known =
            listing.silent.is_empty() || known.zone_id(zone).is_some_and(|zone| listing.machines.zones.contains_key(&zone));
        if is_listed || is_known {
            Ok(is_listed)
        } else {
            Err(format!("EC2 does not list the machines of {zone} at the moment"))
        }
    }

    async fn end_some(&self, ids: &[String], shutdown: Shutdown) -> Result<(), Failure> {
        if ids.is_empty() {
            return Ok(());
        }
        let mut form = Form::ec2("TerminateInstances").with_list("InstanceId", ids);
        if shutdown == Shutdown::Skipped {
            form.set("SkipOsShutdown", "true");
        }
        // To end what has ended changes nothing, so it is tried as often as a question.
        self.api.ask::<Done>(Service::Ec2, &form).await.map(drop)
    }

    /// What a machine wrote to its console.
    ///
    /// # Errors
    /// When EC2 cannot be asked.
    pub(crate) async fn console(&self, id: &ProviderId) -> Result<Option<String>, Failure> {
        let Some(instance) = machine::instance_id(id) else { return Ok(None) };
        let form = Form::ec2("GetConsoleOutput").with("InstanceId", instance);
        // What it wrote until now, or, where its hypervisor cannot tell, until some minutes after its start.
        let latest = self.api.ask(Service::Ec2, &form.clone().with("Latest", "true")).await;
        let told: Console = match latest {
            Err(failure) if failure.code() == Some("UnsupportedOperation") => self.api.ask(Service::Ec2, &form).await?,
            answer => answer?,
        };
        // AWS breaks the text into lines.
        let text: String = told.output.unwrap_or_default().split_whitespace().collect();
        Ok(BASE64_STANDARD.decode(text).ok().map(|bytes| String::from_utf8_lossy(&bytes).into_owned()))
    }
}
