//! Messages of the protocol to values and back.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use stoker_core::base::ids::{
    Cloud, IdError, InstanceType, LaunchKey, NodeClassName, NodeGroupId, NodeName, ProviderId, Region, ZoneId, ZoneName,
};
use stoker_core::base::units::UsdPerHour;
use stoker_core::facts::supply::{
    EndedWhy, Instance, InstanceState, KeyParts, LaunchOutcome, LaunchRequest, QuotaFact, Refusal, RefusalKind, RefusalScope,
    ReservationFact,
};
use stoker_core::market::offer::{CapacityType, Market, Place};
use stoker_core::market::price::{Quote, QuoteKind};
use stoker_core::policy::QuotaKey;
use stoker_proto::supplier as wire;
use stoker_proto::supplier::outcome::Is;
use stoker_service::suppliers::Launch;

/// What is wrong with a message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unreadable {
    /// A text is no id.
    #[error(transparent)]
    Id(#[from] IdError),
    /// Something that must be said is not.
    #[error("{0} is missing")]
    Missing(&'static str),
    /// A moment is beyond all that time knows.
    #[error("{0} is no moment")]
    Moment(&'static str),
}

/// The form of a launch key for clouds that know only short names: the same for the same key, for ever.
fn token(key: &str) -> String {
    blake3::hash(key.as_bytes()).to_hex().chars().take(32).collect()
}

/// A moment of a message.
fn moment(at: Option<stoker_proto::Timestamp>, what: &'static str) -> Result<Timestamp, Unreadable> {
    let at = at.ok_or(Unreadable::Missing(what))?;
    Timestamp::new(at.seconds, at.nanos).map_err(|_| Unreadable::Moment(what))
}

pub(crate) fn to_moment(at: Timestamp) -> stoker_proto::Timestamp {
    stoker_proto::Timestamp { seconds: at.as_second(), nanos: at.subsec_nanosecond() }
}

fn length(length: Option<stoker_proto::Duration>) -> Option<SignedDuration> {
    let length = length?;
    let whole = SignedDuration::new(length.seconds, length.nanos);
    (whole > SignedDuration::ZERO).then_some(whole)
}

fn to_length(length: SignedDuration) -> stoker_proto::Duration {
    stoker_proto::Duration { seconds: length.as_secs(), nanos: length.subsec_nanos() }
}

fn capacity_type(wire: wire::CapacityType) -> Result<CapacityType, Unreadable> {
    Ok(match wire {
        wire::CapacityType::Reserved => CapacityType::Reserved,
        wire::CapacityType::Spot => CapacityType::Spot,
        wire::CapacityType::OnDemand => CapacityType::OnDemand,
        wire::CapacityType::Unspecified => return Err(Unreadable::Missing("capacity_type")),
    })
}

pub(crate) const fn to_capacity_type(capacity_type: CapacityType) -> wire::CapacityType {
    match capacity_type {
        CapacityType::Reserved => wire::CapacityType::Reserved,
        CapacityType::Spot => wire::CapacityType::Spot,
        CapacityType::OnDemand => wire::CapacityType::OnDemand,
    }
}

fn place(cloud: &str, region: &str, zone: &str, instance_type: &str) -> Result<Place, Unreadable> {
    Ok(Place {
        cloud: Cloud::new(cloud)?,
        region: Region::new(region)?,
        zone: ZoneId::new(zone)?,
        instance_type: InstanceType::new(instance_type)?,
    })
}

/// A machine as a plugin tells of it.
pub(crate) fn instance(machine: wire::Instance) -> Result<Instance, Unreadable> {
    let place = place(&machine.cloud, &machine.region, &machine.zone_id, &machine.instance_type)?;
    let state = match machine.state() {
        wire::State::Pending => InstanceState::Pending,
        wire::State::Running => InstanceState::Running,
        wire::State::Reclaiming => InstanceState::Reclaiming { at: moment(machine.gone_at, "gone_at")? },
        wire::State::Stopping => InstanceState::Stopping,
        wire::State::Unspecified => return Err(Unreadable::Missing("state")),
    };
    Ok(Instance {
        market: Market { place, capacity_type: capacity_type(machine.capacity_type())? },
        key: LaunchKey::new(machine.key)?,
        provider_id: ProviderId::new(machine.provider_id)?,
        node_name: NodeName::new(machine.node_name)?,
        launched_at: moment(machine.launched_at, "launched_at")?,
        state,
    })
}

/// What is wrong with a machine; nothing where that is not known.
pub(crate) fn ails(machine: &wire::Instance) -> Option<String> {
    let why = machine.impaired.trim();
    (!why.is_empty()).then(|| why.chars().filter(|c| !c.is_control()).take(200).collect())
}

/// Why a machine ended, where that is known.
pub(crate) fn gone(gone: &wire::Gone) -> Option<(ProviderId, EndedWhy)> {
    let why = match gone.why() {
        wire::GoneWhy::Reclaimed => EndedWhy::Reclaimed,
        wire::GoneWhy::Deleted => EndedWhy::Deleted,
        wire::GoneWhy::FailedBoot => EndedWhy::FailedBoot,
        wire::GoneWhy::Broken => EndedWhy::Broken,
        wire::GoneWhy::Unspecified => return None,
    };
    Some((ProviderId::new(gone.provider_id.as_str()).ok()?, why))
}

pub(crate) fn to_gone(machine: &ProviderId, why: EndedWhy) -> wire::Gone {
    let why = match why {
        EndedWhy::Reclaimed => wire::GoneWhy::Reclaimed,
        EndedWhy::Deleted => wire::GoneWhy::Deleted,
        EndedWhy::FailedBoot => wire::GoneWhy::FailedBoot,
        EndedWhy::Broken => wire::GoneWhy::Broken,
    };
    wire::Gone { provider_id: machine.to_string(), why: why.into() }
}

pub(crate) fn to_instance(made: &Instance) -> wire::Instance {
    let Place { cloud, region, zone, instance_type } = &made.market.place;
    let (state, gone_at) = match made.state {
        InstanceState::Pending => (wire::State::Pending, None),
        InstanceState::Running => (wire::State::Running, None),
        InstanceState::Reclaiming { at } => (wire::State::Reclaiming, Some(to_moment(at))),
        InstanceState::Stopping => (wire::State::Stopping, None),
    };
    wire::Instance {
        key: made.key.to_string(),
        provider_id: made.provider_id.to_string(),
        node_name: made.node_name.to_string(),
        cloud: cloud.to_string(),
        region: region.to_string(),
        zone_id: zone.to_string(),
        instance_type: instance_type.to_string(),
        capacity_type: to_capacity_type(made.market.capacity_type).into(),
        launched_at: Some(to_moment(made.launched_at)),
        state: state.into(),
        gone_at,
        impaired: String::new(),
    }
}

/// How a launch ended, as a plugin tells. What cannot be read is unclear: it is asked again.
pub(crate) fn outcome(is: Option<Is>) -> LaunchOutcome {
    match is {
        Some(Is::Launched(made)) => match instance(made) {
            Ok(made) => LaunchOutcome::Launched(made),
            Err(why) => LaunchOutcome::unclear(format!("the plugin's answer cannot be read: {why}")),
        },
        // Its key is asked again until the machine is there.
        Some(Is::Accepted(wire::Accepted { handle, retry_after })) => LaunchOutcome::Unclear {
            message: format!("accepted as {handle:?}, and not there yet"),
            retry_after: length(retry_after),
        },
        Some(Is::Refused(refused)) => refusal(refused),
        Some(Is::Unclear(wire::Unclear { message, retry_after })) => {
            LaunchOutcome::Unclear { message, retry_after: length(retry_after) }
        }
        None => LaunchOutcome::unclear("the plugin's answer says nothing of this launch"),
    }
}

fn refusal(refused: wire::Refused) -> LaunchOutcome {
    let kind = match refused.class() {
        wire::RefusalClass::OutOfCapacity => RefusalKind::OutOfCapacity,
        wire::RefusalClass::Quota => RefusalKind::QuotaExceeded,
        wire::RefusalClass::Permission => RefusalKind::Permission,
        wire::RefusalClass::Invalid => RefusalKind::Config,
        wire::RefusalClass::Unspecified => {
            return LaunchOutcome::unclear(format!("the plugin refuses without a class: {}", refused.message));
        }
    };
    let scope = match refused.scope() {
        wire::RefusalScope::Unspecified | wire::RefusalScope::Market => RefusalScope::Market,
        wire::RefusalScope::TypeInZone => RefusalScope::TypeInZone,
        wire::RefusalScope::Zone => RefusalScope::Zone,
        wire::RefusalScope::CapacityTypeInRegion => RefusalScope::CapacityTypeInRegion,
        wire::RefusalScope::Region => RefusalScope::Region,
        wire::RefusalScope::Account => RefusalScope::Account,
        // Which one is not said: it is no wider than the market.
        wire::RefusalScope::Quota if refused.quota.is_empty() => RefusalScope::Market,
        wire::RefusalScope::Quota => RefusalScope::Quota(refused.quota),
        wire::RefusalScope::Reservation if refused.reservation.is_empty() => RefusalScope::Market,
        wire::RefusalScope::Reservation => RefusalScope::Reservation(refused.reservation),
    };
    LaunchOutcome::Refused(Refusal { kind, scope, retry_after: length(refused.retry_after), message: refused.message })
}

pub(crate) fn to_outcome(key: &LaunchKey, outcome: LaunchOutcome) -> wire::Outcome {
    let is = match outcome {
        LaunchOutcome::Launched(made) => Is::Launched(to_instance(&made)),
        LaunchOutcome::Unclear { message, retry_after } => {
            Is::Unclear(wire::Unclear { message, retry_after: retry_after.map(to_length) })
        }
        LaunchOutcome::Refused(Refusal { kind, scope, message, retry_after }) => {
            let class = match kind {
                RefusalKind::OutOfCapacity => wire::RefusalClass::OutOfCapacity,
                RefusalKind::QuotaExceeded => wire::RefusalClass::Quota,
                RefusalKind::Permission => wire::RefusalClass::Permission,
                // No supplier says that a machine did not boot: Stoker finds that itself.
                RefusalKind::Config | RefusalKind::BootTimeout => wire::RefusalClass::Invalid,
            };
            let (mut quota, mut reservation) = (String::new(), String::new());
            let scope = match scope {
                RefusalScope::Market => wire::RefusalScope::Market,
                RefusalScope::TypeInZone => wire::RefusalScope::TypeInZone,
                RefusalScope::Zone => wire::RefusalScope::Zone,
                RefusalScope::CapacityTypeInRegion => wire::RefusalScope::CapacityTypeInRegion,
                RefusalScope::Region => wire::RefusalScope::Region,
                RefusalScope::Account => wire::RefusalScope::Account,
                RefusalScope::Quota(name) => {
                    quota = name;
                    wire::RefusalScope::Quota
                }
                RefusalScope::Reservation(name) => {
                    reservation = name;
                    wire::RefusalScope::Reservation
                }
            };
            let (class, scope) = (class.into(), scope.into());
            Is::Refused(wire::Refused { class, scope, message, retry_after: retry_after.map(to_length), quota, reservation })
        }
    };
    wire::Outcome { key: key.to_string(), is: Some(is) }
}

/// A machine of a call.
pub(crate) fn machine(key: &str, boot_data: Vec<u8>) -> wire::Machine {
    wire::Machine { key: key.to_owned(), token: token(key), boot_data: boot_data.into() }
}

/// A call of launches that are alike but for their keys, and what each machine boots with.
pub(crate) fn to_launch(cluster: &str, launches: &[Launch], boot_data: Vec<Vec<u8>>) -> Option<wire::LaunchRequest> {
    let machines = launches.iter().zip(boot_data).map(|(launch, data)| machine(launch.request.key.as_str(), data)).collect();
    let first = launches.first()?;
    let Market { place: Place { cloud, region, zone, instance_type }, capacity_type } = &first.request.market;
    let taint = |taint: &stoker_core::base::kinds::Taint| wire::Taint {
        key: taint.key.clone(),
        value: taint.value.clone(),
        effect: taint.effect.as_str().to_owned(),
    };
    Some(wire::LaunchRequest {
        cluster: cluster.to_owned(),
        cloud: cloud.to_string(),
        region: region.to_string(),
        zone_id: zone.to_string(),
        instance_type: instance_type.to_string(),
        capacity_type: to_capacity_type(*capacity_type).into(),
        reservation: first.request.reservation.clone().unwrap_or_default(),
        node_class: first.node_class.as_ref().map(ToString::to_string).unwrap_or_default(),
        labels: first.labels.clone(),
        taints: first.taints.iter().map(taint).collect(),
        machines,
    })
}

/// The launches that a call asks for.
pub(crate) fn launches(asked: &wire::LaunchRequest) -> Result<Vec<Launch>, Unreadable> {
    let market = Market {
        place: place(&asked.cloud, &asked.region, &asked.zone_id, &asked.instance_type)?,
        capacity_type: capacity_type(asked.capacity_type())?,
    };
    let node_class = Some(asked.node_class.as_str()).filter(|name| !name.is_empty()).map(NodeClassName::new).transpose()?;
    let reservation = Some(&asked.reservation).filter(|name| !name.is_empty());
    let launch = |machine: &wire::Machine| {
        let key = LaunchKey::new(machine.key.as_str())?;
        let group = key.as_str().parse::<KeyParts>().map_or_else(|_| NodeGroupId::new("unknown"), |parts| Ok(parts.group))?;
        let zone_name = ZoneName::from(&market.place.zone);
        let request = LaunchRequest { key, group, market: market.clone(), zone_name, reservation: reservation.cloned() };
        Ok(Launch { node_class: node_class.clone(), ..request.into() })
    };
    asked.machines.iter().map(launch).collect()
}

/// A price as a plugin tells it.
pub(crate) fn quote(quoted: &wire::Quote) -> Result<(Market, Quote), Unreadable> {
    let place = place(&quoted.cloud, &quoted.region, &quoted.zone_id, &quoted.instance_type)?;
    let market = Market { place, capacity_type: capacity_type(quoted.capacity_type())? };
    if quoted.micro_usd_per_hour <= 0 {
        return Err(Unreadable::Missing("micro_usd_per_hour"));
    }
    let as_of = Some(moment(quoted.as_of, "as_of")?);
    let price = UsdPerHour(quoted.micro_usd_per_hour);
    let kind = if quoted.simulated { QuoteKind::Simulated } else { QuoteKind::Live };
    Ok((market, Quote { price, kind, as_of, source: Arc::from("plugin") }))
}

/// A quota as a plugin tells it.
pub(crate) fn quota(told: wire::Quota) -> Result<(QuotaKey, QuotaFact), Unreadable> {
    if told.name.is_empty() {
        return Err(Unreadable::Missing("name"));
    }
    let region = Some(told.region).filter(|region| !region.is_empty()).map(Region::new).transpose()?;
    let limit = told.limit.ok_or(Unreadable::Missing("limit"))?;
    let fact = QuotaFact { limit, used: told.used, as_of: moment(told.as_of, "as_of")? };
    Ok((QuotaKey { name: told.name, cloud: Cloud::new(told.cloud)?, region }, fact))
}

pub(crate) fn to_quota(
    QuotaKey { name, cloud, region }: &QuotaKey,
    QuotaFact { limit, used, as_of }: &QuotaFact,
) -> wire::Quota {
    wire::Quota {
        name: name.clone(),
        cloud: cloud.to_string(),
        region: region.as_ref().map(ToString::to_string).unwrap_or_default(),
        limit: Some(*limit),
        used: *used,
        as_of: Some(to_moment(*as_of)),
    }
}

/// A reservation as a plugin tells it.
pub(crate) fn reservation(told: wire::Reservation) -> Result<(String, ReservationFact), Unreadable> {
    if told.id.is_empty() {
        return Err(Unreadable::Missing("id"));
    }
    let fact = ReservationFact {
        place: place(&told.cloud, &told.region, &told.zone_id, &told.instance_type)?,
        total: told.total.ok_or(Unreadable::Missing("total"))?,
        free: told.free,
        ends: told.ends.map(|ends| moment(Some(ends), "ends")).transpose()?,
        as_of: moment(told.as_of, "as_of")?,
    };
    Ok((told.id, fact))
}

pub(crate) fn to_reservation(id: &str, told: &ReservationFact) -> wire::Reservation {
    let ReservationFact { place: Place { cloud, region, zone, instance_type }, total, free, ends, as_of } = told;
    wire::Reservation {
        id: id.to_owned(),
        cloud: cloud.to_string(),
        region: region.to_string(),
        zone_id: zone.to_string(),
        instance_type: instance_type.to_string(),
        total: Some(*total),
        free: *free,
        ends: ends.map(to_moment),
        as_of: Some(to_moment(*as_of)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_of_an_account_come_back_as_they_were_told_and_unknown_is_not_zero() {
        let as_of = Timestamp::from_second(1_790_000_000).unwrap();
        for (region, used) in [(Some("us-east-1"), Some(0)), (None, None)] {
            let region = region.map(|region| Region::new(region).unwrap());
            let key = QuotaKey { name: "L-DB2E81BA".to_owned(), cloud: Cloud::new("aws").unwrap(), region };
            let fact = QuotaFact { limit: 0, used, as_of };
            let told = to_quota(&key, &fact);
            assert_eq!(quota(wire::Quota { limit: None, ..told.clone() }), Err(Unreadable::Missing("limit")));
            assert_eq!(quota(told).unwrap(), (key, fact));
        }
        for (free, ends) in [(Some(0), Some(as_of)), (None, None)] {
            let place = place("aws", "us-east-1", "use1-az1", "g6.xlarge").unwrap();
            let fact = ReservationFact { place, total: 2, free, ends, as_of };
            let told = to_reservation("cr-0a1b", &fact);
            assert_eq!(reservation(wire::Reservation { as_of: None, ..told.clone() }), Err(Unreadable::Missing("as_of")));
            assert_eq!(reservation(told).unwrap(), ("cr-0a1b".to_owned(), fact));
        }
    }

    fn refused(class: wire::RefusalClass, scope: wire::RefusalScope) -> wire::Refused {
        wire::Refused { class: class.into(), scope: scope.into(), ..wire::Refused::default() }
    }

    #[test]
    fn a_refusal_of_each_scope_comes_back_as_it_was_sent() {
        let key = LaunchKey::new("test/g/0c4de2a1/1/1").unwrap();
        for scope in [
            RefusalScope::Market,
            RefusalScope::TypeInZone,
            RefusalScope::Zone,
            RefusalScope::Quota("L-DB2E81BA".to_owned()),
            RefusalScope::Reservation("cr-0a1b".to_owned()),
            RefusalScope::CapacityTypeInRegion,
            RefusalScope::Region,
            RefusalScope::Account,
        ] {
            let refusal = Refusal { kind: RefusalKind::QuotaExceeded, scope, message: "no".to_owned(), retry_after: None };
            let refused = LaunchOutcome::Refused(refusal);
            assert_eq!(outcome(to_outcome(&key, refused.clone()).is), refused);
        }
    }

    #[test]
    fn a_refusal_that_does_not_name_its_quota_or_reservation_is_of_the_market() {
        for scope in [wire::RefusalScope::Quota, wire::RefusalScope::Reservation] {
            let LaunchOutcome::Refused(refusal) = refusal(refused(wire::RefusalClass::Quota, scope)) else { panic!() };
            assert_eq!((refusal.kind, refusal.scope), (RefusalKind::QuotaExceeded, RefusalScope::Market));
        }
    }
    #[test]
    fn a_launch_names_the_reservation_that_it_is_bought_from() {
        let market = Market {
            place: place("aws", "us-east-1", "use1-az1", "g6.xlarge").unwrap(),
            capacity_type: CapacityType::Reserved,
        };
        for reservation in [Some("cr-0a1b".to_owned()), None] {
            let request = LaunchRequest {
                key: LaunchKey::new("test/g/0c4de2a1/1/1").unwrap(),
                group: NodeGroupId::new("g").unwrap(),
                zone_name: ZoneName::from(&market.place.zone),
                market: market.clone(),
                reservation,
            };
            let asked = to_launch("test", &[request.clone().into()], vec![Vec::new()]).unwrap();
            assert_eq!(launches(&asked).unwrap(), [Launch::from(request)]);
        }
    }
}
