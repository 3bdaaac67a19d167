//! Launches: one machine a call, looked for before any "no".

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use futures::StreamExt as _;
use futures::stream;
use jiff::SignedDuration;
use stoker_core::base::ids::{LaunchKey, NodeClassName};
use stoker_core::base::sabotage;
use stoker_core::facts::supply::{Instance, LaunchOutcome, Refusal, RefusalKind, RefusalScope};
use stoker_core::market::offer::{Arch, CapacityType};
use stoker_service::failpoints;
use stoker_service::suppliers::{Launch, Pace};
use tokio::time::{Instant, sleep, timeout_at};

use super::lookup::{LookedUp, NoImage};
use super::{Known, LAUNCHES_AT_ONCE, RegionSupplier, SHOWN_WITHIN};
use crate::answers::{Machine, Run};
use crate::config::{Config, NodeClass};
use crate::launch::{Ordered, token};
use crate::machine;
use crate::refusal::{Meaning, meaning, of_ended};
use crate::user_data::user_data;
use crate::wire::{Class, Failure, Form};

/// How long a batch may take: the service throws away what comes after a minute.
const ANSWERED_WITHIN: Duration = Duration::from_secs(45);

/// Launches a second, and at once after a pause: a little less than EC2 gives an account in a region (2, and 5), as calls do not arrive
/// at the pace at which they are made.
const PACE: (f64, u32) = (1.9, 4);

/// The same for a minute after EC2 has said that they are too many.
const SLOW: (f64, u32) = (1.0, 1);
const SLOW_FOR: Duration = Duration::from_mins(1);

/// When to make a call again of which EC2 had nothing.
pub(super) const AGAIN_AFTER: Duration = Duration::from_secs(1);

/// When to ask again for a launch whose turn did not come.
const NOT_REACHED: SignedDuration = SignedDuration::from_secs(5);

/// What a call needs beside the launch.
pub(super) struct Prepared<'a> {
    pub(super) class_name: &'a NodeClassName,
    pub(super) class: &'a NodeClass,
    pub(super) image: &'a str,
    /// Base64.
    pub(super) user_data: String,
    pub(super) reservation: Option<(String, bool)>,
}

impl RegionSupplier {
    /// Makes machines. Every launch gets an answer within [`ANSWERED_WITHIN`].
    pub(crate) async fn launch(&self, config: &Config, batch: Vec<Launch>) -> Vec<(LaunchKey, LaunchOutcome)> {
        let until = Instant::now() + ANSWERED_WITHIN;
        let one = async |launch: Launch| {
            let outcome = timeout_at(until, self.launch_one(config, &launch, until)).await;
            let late = || LaunchOutcome::Unclear {
                message: format!("no answer of EC2 within {} s", ANSWERED_WITHIN.as_secs()),
                retry_after: Some(NOT_REACHED),
            };
            (launch.request.key, outcome.unwrap_or_else(|_| late()))
        };
        stream::iter(batch).map(one).buffer_unordered(LAUNCHES_AT_ONCE).collect().await
    }

    async fn launch_one(&self, config: &Config, launch: &Launch, until: Instant) -> LaunchOutcome {
        let mut looked = match self.looked_up(config).await {
            Ok(looked) => looked,
            Err(why) => return LaunchOutcome::unclear(why),
        };
        if launch.request.market.capacity_type == CapacityType::Reserved
            && let Err(failure) = self.know_reservations(named_reservation(launch)).await
        {
            return LaunchOutcome::unclear(failure.to_string());
        }
        let mut renewed = false;
        loop {
            let token = token(&looked.account, self.api.region(), &launch.request.key);
            let asked = match self.prepared(config, launch, &looked) {
                Ok(prepared) => self.ask(launch, &token, &prepared, &looked, until).await,
                // An earlier try may have had what is missing now.
                Err(said) => Err(said),
            };
            let said = match asked {
                Ok(made) => return self.launched(&made, &looked),
                Err(said) => said,
            };
            return match said {
                Meaning::Unclear(message) => LaunchOutcome::unclear(message),
                Meaning::No(refusal) => self.look_before_no(launch, &token, &looked, refusal).await,
                Meaning::SubnetFull(message) => {
                    let refusal = Refusal {
                        kind: RefusalKind::OutOfCapacity,
                        scope: RefusalScope::Zone,
                        message: format!("no subnet of the zone has a free address: {message}"),
                        retry_after: None,
                    };
                    self.look_before_no(launch, &token, &looked, refusal).await
                }
                Meaning::Stale(_) | Meaning::StaleImage(_) if !renewed => {
                    renewed = true;
                    let is_image = matches!(said, Meaning::StaleImage(_));
                    let image = class_of(config, launch.node_class.as_ref()).ok().filter(|_| is_image);
                    self.doubt_look(image.map(|(class, _)| (class, arch_of(launch))));
                    match self.looked_up(config).await {
                        Ok(anew) => looked = anew,
                        Err(why) => return LaunchOutcome::unclear(why),
                    }
                    continue;
                }
                Meaning::Look(message) | Meaning::Stale(message) | Meaning::StaleImage(message) => {
                    let refusal = Refusal::of_market(RefusalKind::Config, message);
                    self.look_before_no(launch, &token, &looked, refusal).await
                }
            };
        }
    }

    /// What a call needs beside the launch.
    pub(super) fn prepared<'a>(
        &self,
        config: &'a Config,
        launch: &Launch,
        looked: &'a LookedUp,
    ) -> Result<Prepared<'a>, Meaning> {
        let config_fault = |why: String| Meaning::No(Refusal::of_market(RefusalKind::Config, why));
        let (name, class) = class_of(config, launch.node_class.as_ref()).map_err(config_fault)?;
        let image = looked.image(name, arch_of(launch)).map_err(|no_image| match no_image {
            NoImage { why, is_certain: true } => config_fault(why),
            NoImage { why, .. } => Meaning::Unclear(why),
        })?;
        let user_data = user_data(launch, class, &config.cluster.name, &looked.cluster).map_err(config_fault)?;
        let market = &launch.request.market;
        let reservation = match market.capacity_type {
            CapacityType::Reserved => Some(self.reservation(launch).map_err(Meaning::No)?),
            CapacityType::Spot | CapacityType::OnDemand => None,
        };
        Ok(Prepared { class_name: name, class, image, user_data: BASE64_STANDARD.encode(user_data), reservation })
    }

    /// The call for the machine in one subnet.
    pub(super) fn form(
        &self,
        launch: &Launch,
        token: &str,
        prepared: &Prepared<'_>,
        looked: &LookedUp,
        subnet: &str,
    ) -> Result<Form, String> {
        let ordered = Ordered {
            launch,
            class_name: prepared.class_name,
            class: prepared.class,
            cluster: &self.cluster,
            eks: &looked.eks,
            token,
            image: prepared.image,
            subnet,
            groups: &looked.groups,
            reservation: prepared.reservation.as_ref().map(|(id, is_block)| (id.as_str(), *is_block)),
            user_data: &prepared.user_data,
        };
        ordered.form()
    }

    /// Asks for the machine in one subnet of its zone after the other.
    async fn ask(
        &self,
        launch: &Launch,
        token: &str,
        prepared: &Prepared<'_>,
        looked: &LookedUp,
        until: Instant,
    ) -> Result<Machine, Meaning> {
        let zone = &launch.request.market.place.zone;
        let no_subnet = || {
            let message = format!("no subnet in zone {zone}: add one to subnets in aws.yaml");
            Meaning::No(Refusal { kind: RefusalKind::Config, scope: RefusalScope::Zone, message, retry_after: None })
        };
        let mut last = no_subnet();
        for subnet in looked.subnets.get(zone).into_iter().flatten() {
            let form = self.form(launch, token, prepared, looked, &subnet.subnet_id);
            let form = form.map_err(|why| Meaning::No(Refusal::of_market(RefusalKind::Config, why)))?;
            match self.ask_in_turn(launch, &form, until).await {
                Ok(machine) => return Ok(machine),
                Err(failure) => match meaning(&failure, launch) {
                    full @ Meaning::SubnetFull(_) => last = full,
                    other => return Err(other),
                },
            }
        }
        Err(last)
    }

    /// Makes the call at the pace that EC2 takes, and again where EC2 says that it had none of it.
    async fn ask_in_turn(&self, launch: &Launch, form: &Form, until: Instant) -> Result<Machine, Failure> {
        let key = &launch.request.key;
        loop {
            self.turns.wait(self.pace()).await;
            // The semaphore is never closed.
            let _permit = self.launches.acquire().await;
            // From here on EC2 may know more than is known here, until it answers.
            self.known().doubt(key);
            let answer = self.api.change::<Run>(form).await;
            failpoints::point(failpoints::INSTANCE_ANSWERED);
            let failure = match answer {
                Ok(run) => {
                    let none = || Failure::NoAnswer { action: form.action, why: "the answer has no instance".to_owned() };
                    return run.instances_set.into_iter().next().ok_or_else(none);
                }
                Err(failure) => failure,
            };
            let was_throttled = failure.class() == Class::Throttled;
            let had_none_of_it = was_throttled || matches!(failure, Failure::NotSent { .. } | Failure::NoCredentials(_));
            if was_throttled {
                self.known().slow_until = Some(Instant::now() + SLOW_FOR);
            }
            if had_none_of_it || !matches!(meaning(&failure, launch), Meaning::Unclear(_)) {
                self.known().no_doubt(key);
            }
            if !had_none_of_it || Instant::now() + AGAIN_AFTER * 2 > until {
                return Err(failure);
            }
            sleep(AGAIN_AFTER).await;
        }
    }

    pub(super) fn pace(&self) -> Option<Pace> {
        let is_slow = self.known().slow_until.is_some_and(|until| Instant::now() < until);
        let (calls, burst) = if is_slow { SLOW } else { PACE };
        Pace::per_second(calls, burst)
    }

    /// A "no" counts where no machine bears the token: an earlier try, of which nobody knows, may have made one.
    async fn look_before_no(&self, launch: &Launch, token: &str, looked: &LookedUp, no: Refusal) -> LaunchOutcome {
        if sabotage::on("aws-refuse-without-look") {
            return LaunchOutcome::Refused(no);
        }
        let found = match self.find(token).await {
            Ok(found) => found,
            Err(failure) => return LaunchOutcome::unclear(format!("{}; looking for a machine: {failure}", no.message)),
        };
        match found {
            Some(machine) if machine::is_gone(&machine) => {
                self.known().settled(&launch.request.key);
                LaunchOutcome::Refused(of_ended(&machine.state_reason.code, &machine.state_reason.message))
            }
            Some(machine) => self.launched(&machine, looked),
            None if self.may_be_hidden(launch) => LaunchOutcome::unclear(no.message),
            None => {
                self.known().settled(&launch.request.key);
                LaunchOutcome::Refused(no)
            }
        }
    }

    /// Whether an earlier try may have made a machine that EC2 does not show yet.
    fn may_be_hidden(&self, launch: &Launch) -> bool {
        let age = self.api.now().duration_since(self.started_at);
        // The process before may have asked until its end.
        let of_before = launch.first_asked < self.started_at && age.unsigned_abs() < SHOWN_WITHIN;
        // A key that only this process has asked, and of which each try was answered, has no other machine.
        of_before || self.known().is_doubtful(&launch.request.key)
    }

    async fn find(&self, token: &str) -> Result<Option<Machine>, Failure> {
        let form = Form::ec2("DescribeInstances").filter("client-token", [token]);
        let found: crate::answers::Machines = self.api.ask(crate::wire::Service::Ec2, &form).await?;
        let machines = found.reservation_set.into_iter().flat_map(|run| run.instances_set);
        // Of a token there is one machine in a zone.
        Ok(machines.max_by_key(|machine| !machine::is_gone(machine)))
    }

    fn launched(&self, machine: &Machine, looked: &LookedUp) -> LaunchOutcome {
        match machine::instance(machine, &self.name, |zone| looked.zone_id(zone)) {
            Ok(instance) => {
                let instance = Arc::new(instance);
                let mut known = self.known();
                known.settled(&instance.key);
                known.made.insert(instance.provider_id.clone(), (Arc::clone(&instance), Instant::now()));
                known.stale_since = Some(Instant::now());
                LaunchOutcome::Launched(Instance::clone(&instance))
            }
            Err(why) => LaunchOutcome::unclear(format!("EC2 made a machine that cannot be read: {why}")),
        }
    }

    /// The reservation that a launch is bought from, by its id, and whether it is a capacity block.
    fn reservation(&self, launch: &Launch) -> Result<(String, bool), Refusal> {
        let request = &launch.request;
        let mut known = self.known();
        let Known { reservations: asked, facts, .. } = &mut *known;
        let named = named_reservation(launch).map(str::to_owned);
        let chosen = named.or_else(|| asked.get(&request.key).cloned());
        let now = self.api.now();
        let found = match chosen {
            Some(id) => Some((facts.is_block(&id), id)),
            None => facts.reservation_for(&request.market.place, now).map(|id| (facts.is_block(&id), id)),
        };
        let (is_block, id) = found.ok_or_else(|| {
            let scope = request.reservation.clone().map_or(RefusalScope::Market, RefusalScope::Reservation);
            let message =
                "the account has no active reservation with room there: name it by its id (cr-…) under commitments".to_owned();
            Refusal { kind: RefusalKind::OutOfCapacity, scope, message, retry_after: None }
        })?;
        asked.insert(request.key.clone(), id.clone());
        Ok((id, is_block))
    }
}

fn arch_of(launch: &Launch) -> Arch {
    launch.spec.as_ref().map_or(Arch::Amd64, |spec| spec.arch)
}

/// The reservation that a launch is bought from, where the policy calls it by its id.
pub(super) fn named_reservation(launch: &Launch) -> Option<&str> {
    launch.request.reservation.as_deref().filter(|name| name.starts_with("cr-"))
}

/// The class that a pool names; where it names none, the only one.
pub(super) fn class_of<'a>(
    config: &'a Config,
    name: Option<&NodeClassName>,
) -> Result<(&'a NodeClassName, &'a NodeClass), String> {
    if let Some(name) = name {
        return config.classes.get_key_value(name).ok_or_else(|| format!("aws.yaml has no node class {name}"));
    }
    let only = config.classes.iter().next().filter(|_| config.classes.len() == 1);
    only.ok_or_else(|| "its pool names no nodeClass".to_owned())
}

impl Known {
    /// EC2 is asked for a launch: until it answers it may know more of it.
    fn doubt(&mut self, key: &LaunchKey) {
        self.doubtful.retain(|_, tries| {
            tries.retain(|at| at.elapsed() < SHOWN_WITHIN);
            !tries.is_empty()
        });
        self.doubtful.entry(key.clone()).or_default().push(Instant::now());
    }

    /// The last try was answered.
    fn no_doubt(&mut self, key: &LaunchKey) {
        self.doubtful.get_mut(key).and_then(Vec::pop);
    }

    /// Whether EC2 was asked for a launch of late and did not answer.
    pub(super) fn is_doubtful(&self, key: &LaunchKey) -> bool {
        self.doubtful.get(key).and_then(|tries| tries.last()).is_some_and(|at| at.elapsed() < SHOWN_WITHIN)
    }

    /// What came of a launch is known.
    fn settled(&mut self, key: &LaunchKey) {
        self.doubtful.remove(key);
        self.reservations.remove(key);
    }
}
