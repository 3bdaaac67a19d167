//! What the account has paid for beforehand: reservations, capacity blocks and reserved instances, as the policy writes them.

use stoker_core::base::kinds::CommitmentKind;
use stoker_core::base::units::UsdPerHour;
use stoker_core::policy::RawCommitment;

use super::RegionSupplier;
use crate::answers::{RecurringCharge, Reservation, ReservedInstance, ReservedInstances};
use crate::config::Config;
use crate::wire::{Form, Service};

impl RegionSupplier {
    /// Its commitments of GPU machines, and what of them is to be looked at by people.
    ///
    /// # Errors
    /// When it cannot be asked; in words.
    pub(crate) async fn commitments(&self, config: &Config) -> Result<(Vec<RawCommitment>, Vec<String>), String> {
        let looked = self.looked_up(config).await?;
        let (_, reservations) = self.reservations().await.map_err(|failure| failure.to_string())?;
        let form = Form::ec2("DescribeReservedInstances").filter("state", ["active"]);
        let reserved: ReservedInstances = self.api.ask(Service::Ec2, &form).await.map_err(|failure| failure.to_string())?;
        let is_gpu = |name: &str| self.types.iter().any(|known| known.as_str() == name);
        let (mut all, mut notes) = (Vec::new(), Vec::new());
        for one in reservations.iter().filter(|one| is_gpu(&one.instance_type)) {
            let is_block = one.reservation_type.as_deref() == Some("capacity-block");
            if is_block {
                let id = &one.capacity_reservation_id;
                notes.push(format!(
                    "{id} is a capacity block: write its usdPerHour, what it cost over the hours that it lasts."
                ));
            }
            all.push(self.of_reservation(one, is_block, looked.zone_of(one).map(|zone| zone.to_string())));
        }
        for one in reserved.reserved_instances_set.iter().filter(|one| is_gpu(&one.instance_type)) {
            let zone = one.availability_zone.as_deref().and_then(|name| looked.zone_id(name));
            all.push(RawCommitment { zone: zone.map(|zone| zone.to_string()), ..self.of_reserved(one) });
        }
        Ok((all, notes))
    }

    fn of_reservation(&self, one: &Reservation, is_block: bool, zone: Option<String>) -> RawCommitment {
        let kind = if is_block { CommitmentKind::CapacityBlock } else { CommitmentKind::CapacityReservation };
        RawCommitment {
            zone,
            nodes: one.total_instance_count,
            from: one.start_date.clone().filter(|_| is_block),
            until: one.end_date.clone(),
            ..self.commitment(&one.capacity_reservation_id, kind, &one.instance_type)
        }
    }

    fn of_reserved(&self, one: &ReservedInstance) -> RawCommitment {
        RawCommitment {
            nodes: one.instance_count,
            usd_per_hour: rate(one).and_then(|rate| serde_json::from_str(&dollars(rate)).ok()),
            until: one.end.clone(),
            ..self.commitment(&one.reserved_instances_id, CommitmentKind::ReservedInstance, &one.instance_type)
        }
    }

    fn commitment(&self, name: &str, kind: CommitmentKind, instance_type: &str) -> RawCommitment {
        RawCommitment {
            name: name.to_owned(),
            cloud: "aws".to_owned(),
            kind,
            region: Some(self.name.to_string()),
            zone: None,
            instance_type: Some(instance_type.to_owned()),
            family: None,
            model: None,
            memory_gib: None,
            nodes: None,
            gpus: None,
            usd_per_hour: None,
            discount: None,
            from: None,
            until: None,
        }
    }
}

/// What all of it costs an hour, with what was paid at once spread over the term.
fn rate(one: &ReservedInstance) -> Option<UsdPerHour> {
    let hourly =
        |charge: &RecurringCharge| (charge.frequency == "Hourly").then(|| UsdPerHour::parse_usd(&charge.amount).ok())?;
    let recurring = one.recurring_charges.iter().filter_map(hourly).fold(UsdPerHour::ZERO, UsdPerHour::plus);
    let at_once = one.fixed_price.as_deref().map_or(Some(UsdPerHour::ZERO), |price| UsdPerHour::parse_usd(price).ok())?;
    let seconds = i64::from(one.duration?).max(1);
    let spread = UsdPerHour(at_once.0.checked_mul(3_600)? / seconds);
    Some(recurring.plus(spread).times(one.instance_count?))
}

/// Dollars as plain decimal text.
fn dollars(rate: UsdPerHour) -> String {
    format!("{}.{:06}", rate.0 / 1_000_000, rate.0 % 1_000_000)
}
