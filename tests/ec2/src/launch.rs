//! `RunInstances`: one machine a call, and the tokens by which a repeated call gets the same one.

mod check;
mod room;

use jiff::Timestamp;

use crate::ec2::{Answer, reservation_id};
use crate::machine::{Machine, Market, SpotRequest, State};
use crate::region::quota_code;
use crate::reply::Refusal;
use crate::request::{Asked, Params};
use crate::world::World;
use crate::xml::Xml;
use check::Wanted;

/// What a token was used for in a zone.
#[derive(Debug, Clone)]
pub(crate) struct Use {
    params: Params,
    machine: String,
}

/// A refusal for want of rights.
pub(crate) fn unauthorized() -> Refusal {
    Refusal::new(403, "UnauthorizedOperation", "You are not authorized to perform this operation.")
}

/// The answer to a dry run of what is allowed.
pub(crate) fn would_succeed() -> Refusal {
    Refusal::new(412, "DryRunOperation", "Request would have succeeded, but DryRun flag is set.")
}

impl World {
    /// Launches a machine, or answers with the one that the token has in the zone.
    pub(crate) fn run_instances(&mut self, asked: &Asked, now: Timestamp) -> Answer {
        let region = self.asked_region(asked)?;
        self.check_tags(asked)?;
        let subnet = check::subnet(region, asked)?;
        let (zone_id, subnet) = (subnet.zone_id.clone(), subnet.id.clone());
        let is_dry = asked.is_true("DryRun");
        let token = asked.get("ClientToken").unwrap_or_default().to_owned();
        let key = (asked.account.clone(), asked.region.clone(), zone_id, token.clone());
        if let Some(used) = self.tokens.get(&key).filter(|_| !is_dry && !token.is_empty()) {
            return self.replayed(asked, used, now);
        }
        let wanted = self.check_launch(region, asked, &subnet)?;
        if is_dry {
            return Err(would_succeed());
        }
        let reservation = self.room_for(region, &wanted, now)?;
        let id = self.make(asked, wanted, reservation, now)?;
        if !token.is_empty() {
            self.tokens.insert(key, Use { params: asked.params.clone(), machine: id.clone() });
        }
        self.launched(asked, &id, now)
    }

    /// The answer to a token that has a machine in that zone.
    fn replayed(&self, asked: &Asked, used: &Use, now: Timestamp) -> Answer {
        if used.params != asked.params {
            let message = "The client token you have provided is associated with a resource that is already deleted or has other \
                           parameters. Please use a different client token.";
            return Err(Refusal::bad("IdempotentParameterMismatch", message));
        }
        let state = self.machines.get(&used.machine).and_then(|machine| machine.state(now));
        if state.is_none_or(|state| state == State::Terminated) {
            let message = "The client token you have provided is associated with a terminated instance.";
            return Err(Refusal::bad("IdempotentInstanceTerminated", message));
        }
        self.launched(asked, &used.machine, now)
    }

    /// The answer that tells of a machine, as it truly is.
    fn launched(&self, asked: &Asked, id: &str, now: Timestamp) -> Answer {
        let region = self.asked_region(asked)?;
        let machine = self.machines.get(id).ok_or_else(|| Refusal::new(500, "InternalError", "the machine is gone"))?;
        let state = machine.state(now).unwrap_or(State::Terminated);
        Ok(Xml::of(|xml| {
            xml.text("reservationId", reservation_id(machine));
            xml.text("ownerId", &machine.account);
            xml.items("groupSet", [(); 0], |_, ()| {});
            xml.items("instancesSet", [machine], |xml, machine| self.write_machine(xml, region, machine, state, now));
        }))
    }

    /// Makes the machine: nothing refuses it any more.
    fn make(&mut self, asked: &Asked, wanted: Wanted, reservation: Option<String>, now: Timestamp) -> Result<String, Refusal> {
        let region = self.asked_region(asked)?;
        let zone = region.zone_name(&wanted.zone_id);
        let place = (asked.account.clone(), asked.region.clone());
        let key = (wanted.instance_type.name.clone(), wanted.zone_id.clone(), wanted.market);
        if let Some(region) = self.regions.get_mut(&place).filter(|_| reservation.is_none()) {
            region.stock.entry(key).and_modify(|left| *left = left.saturating_sub(1));
        }
        let id = self.next_id("i");
        let number = self.machines.len() + 10;
        let address = [number >> 16 & 0xFF, number >> 8 & 0xFF, number & 0xFF];
        let dashed = format!("ip-10-{}-{}-{}", address[0], address[1], address[2]);
        let domain = match asked.region.as_str() {
            "us-east-1" => "ec2.internal".to_owned(),
            region => format!("{region}.compute.internal"),
        };
        let spot_request = (wanted.market == Market::Spot).then(|| self.next_id("sir"));
        if let Some(id_of_request) = &spot_request {
            let tags = check::tags(asked, "spot-instances-request");
            let request = SpotRequest { id: id_of_request.clone(), machine: id.clone(), tags };
            self.spot_requests.insert(id_of_request.clone(), request);
        }
        let machine = Machine {
            id: id.clone(),
            account: asked.account.clone(),
            region: asked.region.clone(),
            zone,
            zone_id: wanted.zone_id,
            subnet: wanted.subnet,
            vpc: wanted.vpc,
            instance_type: wanted.instance_type.name,
            image: wanted.image,
            arch: wanted.instance_type.arch,
            market: wanted.market,
            spot_request,
            reservation,
            preference: wanted.preference,
            target: wanted.target,
            token: asked.get("ClientToken").unwrap_or_default().to_owned(),
            tags: check::tags(asked, "instance"),
            volume_tags: check::tags(asked, "volume"),
            interface_tags: check::tags(asked, "network-interface"),
            groups: wanted.groups,
            addresses: check::addresses(&wanted.interfaces),
            interfaces: wanted.interfaces,
            profile: wanted.profile,
            user_data: wanted.user_data,
            private_ip: format!("10.{}.{}.{}", address[0], address[1], address[2]),
            private_dns: format!("{dashed}.{domain}"),
            launched: now,
            boot: self.boot,
            ended: None,
            stopped: None,
            reclaimed: None,
            protected: asked.is_true("DisableApiTermination"),
            console: String::new(),
            health: crate::Health::default(),
            request: asked.params.clone(),
        };
        self.machines.insert(id.clone(), machine);
        Ok(id)
    }

    /// vCPU of a quota that are taken. A reservation takes them whether it is used or not; the machines in it take no more.
    pub(crate) fn vcpus_taken(&self, account: &str, region: &str, code: &str, now: Timestamp) -> u32 {
        let vcpus = |name: &str| self.types.get(name).map_or(0, |of| of.vcpus);
        let reservations = self.regions.get(&(account.to_owned(), region.to_owned())).map(|region| &region.reservations);
        let reserved = reservations.into_iter().flat_map(|all| all.values()).filter(|reservation| {
            let is_odcr = reservation.kind == crate::ReservationKind::Odcr;
            let counts = quota_code(&reservation.instance_type, Market::OnDemand) == Some(code);
            is_odcr && counts && reservation.state(now) == "active"
        });
        let reserved: u32 = reserved.map(|reservation| reservation.total * vcpus(&reservation.instance_type)).sum();
        let is_reserved = |machine: &Machine| {
            let reservation = machine.reservation.as_ref();
            reservation.and_then(|id| reservations?.get(id)).is_some_and(|of| of.state(now) == "active")
        };
        let counted = self.machines.values().filter(|machine| {
            let is_here = machine.account == account && machine.region == region && machine.is_alive(now);
            is_here && quota_code(&machine.instance_type, machine.market) == Some(code) && !is_reserved(machine)
        });
        reserved + counted.map(|machine| vcpus(&machine.instance_type)).sum::<u32>()
    }
}
