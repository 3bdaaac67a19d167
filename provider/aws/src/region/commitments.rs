//! What the account has paid for beforehand: reservations, capacity blocks and reserved instances, as the policy writes them.

use serde_json::json;
use stoker_core::base::kinds::CommitmentKind;
use stoker_core::base::units::UsdPerHour;
use stoker_core::policy::RawCommitment;

use super::RegionSupplier;
use crate::answers::{RecurringCharge, Reservation, ReservedInstance, ReservedInstances, SavingsPlan, SavingsPlans};
use crate::config::Config;
use crate::wire::{Failure, Form, MOST_PAGES, Service};

/// How a note begins that says what could not be asked.
pub const MISSING: &str = "missing:";

impl RegionSupplier {
    /// Its commitments of GPU machines, and what of them is to be looked at by people. What cannot be asked is a note that begins with
    /// [`MISSING`].
    ///
    /// # Errors
    /// When there are no credentials; in words.
    pub(crate) async fn commitments(&self, config: &Config) -> Result<(Vec<RawCommitment>, Vec<String>), String> {
        let missing = |what: &str, why: &str| format!("{MISSING} {what} of {}: {why}", self.name);
        match self.account().await {
            Ok(_) => {}
            Err(failure @ Failure::NoCredentials(_)) => return Err(failure.to_string()),
            Err(failure) => return Ok((Vec::new(), vec![missing("all commitments", &failure.with_cure())])),
        }
        let (mut all, mut notes) = (Vec::new(), Vec::new());
        let looked = self.looked_up(config).await.map_err(|why| notes.push(missing("the zones' ids", &why))).ok();
        let reservations = self.reservations().await.unwrap_or_else(|failure| {
            notes.push(missing("reservations", &failure.with_cure()));
            (self.api.now(), Vec::new())
        });
        let (_, reservations) = reservations;
        let form = Form::ec2("DescribeReservedInstances").filter("state", ["active"]);
        let reserved: ReservedInstances = self.api.ask(Service::Ec2, &form).await.unwrap_or_else(|failure| {
            notes.push(missing("reserved instances", &failure.with_cure()));
            ReservedInstances::default()
        });
        let is_gpu = |name: &str| self.types.iter().any(|known| known.as_str() == name);
        for one in reservations.iter().filter(|one| is_gpu(&one.instance_type)) {
            let is_block = one.reservation_type.as_deref() == Some("capacity-block");
            if is_block {
                let id = &one.capacity_reservation_id;
                notes.push(format!(
                    "{id} is a capacity block: write its usdPerHour, what it cost over the hours that it lasts."
                ));
            }
            let zone = one
                .availability_zone_id
                .clone()
                .or_else(|| looked.as_ref()?.zone_id(&one.availability_zone).map(|id| id.to_string()));
            all.push(self.of_reservation(one, is_block, zone));
        }
        for one in reserved.reserved_instances_set.iter().filter(|one| is_gpu(&one.instance_type)) {
            let zone = one.availability_zone.as_deref().and_then(|name| looked.as_ref()?.zone_id(name));
            all.push(RawCommitment { zone: zone.map(|zone| zone.to_string()), ..self.of_reserved(one) });
        }
        let plans = self.savings_plans().await.unwrap_or_else(|failure| {
            let cure = "write those whose rates this cluster's nodes get";
            notes.push(missing("savings plans", &format!("{}; {cure}", failure.with_cure())));
            Vec::new()
        });
        for (plan, one) in plans.iter().filter_map(|plan| Some((plan, self.of_plan(plan)?))) {
            let id = &plan.savings_plan_id;
            notes.push(format!("{id} is a savings plan: write its discount, how far its rates are below on-demand."));
            all.push(one);
        }
        Ok((all, notes))
    }

    /// Savings plans of the account, whichever region they are for.
    async fn savings_plans(&self) -> Result<Vec<SavingsPlan>, Failure> {
        let (mut found, mut next) = (Vec::new(), None::<String>);
        for _ in 0..MOST_PAGES {
            let mut asked = json!({ "states": ["active"] });
            if let Some(next) = &next {
                asked["nextToken"] = json!(next);
            }
            let page: SavingsPlans = self.api.ask_rest(Service::SavingsPlans, "DescribeSavingsPlans", &asked).await?;
            found.extend(page.savings_plans);
            next = page.next_token.filter(|next| !next.is_empty());
            if next.is_none() {
                break;
            }
        }
        Ok(found)
    }

    /// A plan as the policy writes it; nothing for one that no GPU machine of this region is paid by.
    fn of_plan(&self, plan: &SavingsPlan) -> Option<RawCommitment> {
        let family = plan.ec2_instance_family.as_deref();
        let of_family = |name: &str| name.split_once('.').is_some_and(|(of, _)| Some(of) == family);
        let kind = match plan.savings_plan_type.as_str() {
            "Compute" => CommitmentKind::ComputeSavingsPlan,
            "EC2Instance" if self.types.iter().any(|known| of_family(known.as_str())) => CommitmentKind::Ec2SavingsPlan,
            _ => return None,
        };
        let is_here = kind == CommitmentKind::ComputeSavingsPlan || plan.region.as_deref() == Some(self.name.as_str());
        let in_dollars = plan.currency.as_deref().is_none_or(|currency| currency == "USD");
        (is_here && in_dollars).then(|| RawCommitment {
            region: plan.region.clone().filter(|_| kind == CommitmentKind::Ec2SavingsPlan),
            family: plan.ec2_instance_family.clone().filter(|_| kind == CommitmentKind::Ec2SavingsPlan),
            usd_per_hour: number(plan.commitment.as_deref()),
            until: plan.end.clone(),
            ..self.commitment(&plan.savings_plan_id, kind, None)
        })
    }

    fn of_reservation(&self, one: &Reservation, is_block: bool, zone: Option<String>) -> RawCommitment {
        let kind = if is_block { CommitmentKind::CapacityBlock } else { CommitmentKind::CapacityReservation };
        RawCommitment {
            zone,
            nodes: one.total_instance_count,
            from: one.start_date.clone().filter(|_| is_block),
            until: one.end_date.clone(),
            ..self.commitment(&one.capacity_reservation_id, kind, Some(&one.instance_type))
        }
    }

    fn of_reserved(&self, one: &ReservedInstance) -> RawCommitment {
        RawCommitment {
            nodes: one.instance_count,
            usd_per_hour: rate(one).and_then(|rate| serde_json::from_str(&dollars(rate)).ok()),
            until: one.end.clone(),
            ..self.commitment(&one.reserved_instances_id, CommitmentKind::ReservedInstance, Some(&one.instance_type))
        }
    }

    fn commitment(&self, name: &str, kind: CommitmentKind, instance_type: Option<&str>) -> RawCommitment {
        RawCommitment {
            name: name.to_owned(),
            cloud: "aws".to_owned(),
            kind,
            region: Some(self.name.to_string()),
            zone: None,
            instance_type: instance_type.map(ToOwned::to_owned),
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

/// What AWS writes as text, as a number.
fn number(text: Option<&str>) -> Option<serde_json::Number> {
    let rate = UsdPerHour::parse_usd(text?).ok()?;
    serde_json::from_str(&dollars(rate)).ok()
}

/// Dollars as plain decimal text.
fn dollars(rate: UsdPerHour) -> String {
    format!("{}.{:06}", rate.0 / 1_000_000, rate.0 % 1_000_000)
}
