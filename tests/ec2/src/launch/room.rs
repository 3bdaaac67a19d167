//! What EC2 refuses of a launch for want of room: addresses, reservations, quotas, stock.

use std::time::Duration;

use jiff::Timestamp;

use super::check::{Wanted, addresses, billionths};
use crate::machine::Market;
use crate::region::{Region, Reservation, ReservationKind, quota_code};
use crate::reply::Refusal;
use crate::world::World;

impl World {
    /// Machines that a reservation has room for.
    pub(crate) fn left_in(&self, reservation: &Reservation, now: Timestamp) -> u32 {
        let inside = self
            .machines
            .values()
            .filter(|machine| machine.reservation.as_ref() == Some(&reservation.id) && machine.takes_room(now));
        reservation.total.saturating_sub(u32::try_from(inside.count()).unwrap_or(u32::MAX))
    }

    /// Finds room for a launch; answers with the reservation that it goes into.
    pub(super) fn room_for(&self, region: &Region, wanted: &Wanted, now: Timestamp) -> Result<Option<String>, Refusal> {
        offered(region, wanted)?;
        let needs = addresses(&wanted.interfaces);
        let is_full = |subnet| self.free_addresses(subnet, now) < needs;
        if region.subnets.get(&wanted.subnet).is_some_and(is_full) {
            let message = "There are not enough free addresses in subnet";
            let message = format!("{message} '{}' to satisfy the requested number of instances.", wanted.subnet);
            return Err(Refusal::bad("InsufficientFreeAddressesInSubnet", message));
        }
        if let Some(reservation) = self.reservation_for(region, wanted, now)? {
            return Ok(Some(reservation));
        }
        self.within_quota(region, wanted, now)?;
        in_stock(region, wanted)?;
        Ok(None)
    }

    /// The reservation that a launch goes into: the one that it names, or an open one that it does not decline.
    fn reservation_for(&self, region: &Region, wanted: &Wanted, now: Timestamp) -> Result<Option<String>, Refusal> {
        let full = |what: &str| Refusal::bad("ReservationCapacityExceeded", format!("{what} has no capacity left"));
        if let Some(reservation) = wanted.target.as_ref().and_then(|id| region.reservations.get(id)) {
            let id = &reservation.id;
            let closes = reservation.ends.filter(|_| reservation.kind == ReservationKind::Block);
            let closes = closes.map(|ends| ends - Duration::from_mins(30));
            return match reservation.state(now) {
                "active" if closes.is_some_and(|closes| closes <= now) => {
                    let message = format!("The capacity block '{id}' is about to end");
                    Err(Refusal::bad("InvalidCapacityReservationState", message))
                }
                "active" if self.left_in(reservation, now) == 0 => Err(full(&format!("The capacity reservation '{id}'"))),
                "active" => Ok(Some(id.clone())),
                "scheduled" => {
                    let message = format!("The capacity reservation '{id}' has not started yet");
                    Err(Refusal::bad("InvalidCapacityReservationState.PendingActivation", message))
                }
                state => {
                    let message = format!("The capacity reservation '{id}' is {state}");
                    Err(Refusal::bad("InvalidCapacityReservationState", message))
                }
            };
        }
        if wanted.market != Market::OnDemand || wanted.preference == "none" {
            return Ok(None);
        }
        let mut open = region.reservations.values().filter(|reservation| {
            let fits = reservation.instance_type == wanted.instance_type.name && reservation.zone_id == wanted.zone_id;
            let is_odcr = reservation.kind == ReservationKind::Odcr;
            fits && is_odcr && reservation.open && reservation.state(now) == "active" && self.left_in(reservation, now) > 0
        });
        match open.next() {
            Some(reservation) => Ok(Some(reservation.id.clone())),
            None if wanted.preference == "capacity-reservations-only" => Err(full("Every open capacity reservation")),
            None => Ok(None),
        }
    }

    fn within_quota(&self, region: &Region, wanted: &Wanted, now: Timestamp) -> Result<(), Refusal> {
        let code = quota_code(&wanted.instance_type.name, wanted.market);
        let Some((code, quota)) = code.and_then(|code| Some((code, region.quotas.get(code)?))) else { return Ok(()) };
        let taken = self.vcpus_taken(&wanted.account, &wanted.region, code, now);
        if taken + wanted.instance_type.vcpus <= quota.limit {
            return Ok(());
        }
        if wanted.market == Market::Spot {
            return Err(Refusal::bad("MaxSpotInstanceCountExceeded", "Max spot instance count exceeded"));
        }
        Err(Refusal::bad(
            "VcpuLimitExceeded",
            format!(
                "You have requested more vCPU capacity than your current vCPU limit of {} allows for the instance bucket that the \
                 specified instance type belongs to. Please visit http://aws.amazon.com/contact-us/ec2-request to request an \
                 adjustment to this limit.",
                quota.limit
            ),
        ))
    }
}

fn in_stock(region: &Region, wanted: &Wanted) -> Result<(), Refusal> {
    let name = &wanted.instance_type.name;
    if let (Market::Spot, Some(most)) = (wanted.market, wanted.most) {
        let of_place =
            region.spot_prices.iter().filter(|price| price.instance_type == *name && price.zone_id == wanted.zone_id);
        let now = of_place.max_by_key(|price| price.at).and_then(|price| billionths(&price.price));
        if now.is_some_and(|now| now > most) {
            let message = "Your Spot request price is lower than the minimum required Spot request fulfillment price.";
            return Err(Refusal::bad("SpotMaxPriceTooLow", message));
        }
    }
    let left = |zone_id: &str| region.stock.get(&(name.clone(), zone_id.to_owned(), wanted.market)).copied();
    if left(&wanted.zone_id) != Some(0) {
        return Ok(());
    }
    let message = match wanted.market {
        Market::Spot => "There is no Spot capacity available that matches your request.".to_owned(),
        Market::OnDemand | Market::Block => {
            let zone = region.zone_name(&wanted.zone_id);
            let other = region.zones.iter().filter(|zone| left(&zone.id) != Some(0)).map(|zone| zone.name.as_str());
            let other: Vec<&str> = other.collect();
            format!(
                "We currently do not have sufficient {name} capacity in the Availability Zone you requested ({zone}). Our system \
                 will be working on provisioning additional capacity. You can currently get {name} capacity by not specifying an \
                 Availability Zone in your request or choosing {}.",
                other.join(", ")
            )
        }
    };
    Err(Refusal::new(500, "InsufficientInstanceCapacity", message))
}

fn offered(region: &Region, wanted: &Wanted) -> Result<(), Refusal> {
    let name = &wanted.instance_type.name;
    if region.offered.contains(&(name.clone(), wanted.zone_id.clone())) {
        return Ok(());
    }
    let elsewhere = region.zones.iter().filter(|zone| region.offered.contains(&(name.clone(), zone.id.clone())));
    let elsewhere: Vec<&str> = elsewhere.map(|zone| zone.name.as_str()).collect();
    let zone = region.zone_name(&wanted.zone_id);
    Err(Refusal::bad(
        "Unsupported",
        format!(
            "Your requested instance type ({name}) is not supported in your requested Availability Zone ({zone}). Please retry \
             your request by not specifying an Availability Zone or choosing {}.",
            elsewhere.join(", ")
        ),
    ))
}
