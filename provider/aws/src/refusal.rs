//! What each error of a launch means: AWS's contract, row by row.

use jiff::SignedDuration;
use stoker_core::facts::supply::{Refusal, RefusalKind, RefusalScope};
use stoker_core::market::offer::{CapacityType, InstanceSpec};
use stoker_core::market::quota_names::KnownQuota;
use stoker_service::suppliers::Launch;

use crate::wire::{Class, Failure};

/// How long an account that waits for AWS's people is left alone.
const BY_PEOPLE: SignedDuration = SignedDuration::from_mins(30);

/// How long a type that a zone does not sell is left alone.
const NOT_SOLD: SignedDuration = SignedDuration::from_hours(12);

/// What an error of a launch means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Meaning {
    /// Nothing was made, and nothing will be: EC2 has looked at it as a launch.
    No(Refusal),
    /// The subnet has no address left: another of the zone may.
    SubnetFull(String),
    /// What was looked up before the call is not there any more: look it up again.
    Stale(String),
    /// The same of the image.
    StaleImage(String),
    /// There may be a machine under this token already.
    Look(String),
    /// Nobody knows, or nobody was asked.
    Unclear(String),
}

impl Meaning {
    /// What was said, in words.
    pub(crate) fn into_message(self) -> String {
        match self {
            Self::No(refusal) => refusal.message,
            Self::SubnetFull(why) | Self::Stale(why) | Self::StaleImage(why) | Self::Look(why) | Self::Unclear(why) => why,
        }
    }
}

/// What that failure of a launch means.
pub(crate) fn meaning(failure: &Failure, launch: &Launch) -> Meaning {
    let Failure::Said(said) = failure else { return Meaning::Unclear(failure.to_string()) };
    let text = said.to_string();
    if said.class() != Class::Final {
        return Meaning::Unclear(text);
    }
    let no = |kind, scope| Meaning::No(Refusal { kind, scope, message: text.clone(), retry_after: None });
    let later = |kind, scope, after| Meaning::No(Refusal { kind, scope, message: text.clone(), retry_after: Some(after) });
    let reservation = launch.request.reservation.as_ref();
    let of_reservation = || reservation.map_or(RefusalScope::Market, |name| RefusalScope::Reservation(name.clone()));
    let is_in = |codes: &[&str]| codes.contains(&said.code.as_str());
    match said.code.as_str() {
        "InsufficientInstanceCapacity" if said.message.to_lowercase().contains("spread placement group") => {
            no(RefusalKind::Config, RefusalScope::Market)
        }
        // EC2 says the same of a reservation that has no room as of a market.
        "InsufficientInstanceCapacity"
        | "UnfulfillableCapacity"
        | "InsufficientHostCapacity"
        | "ReservationCapacityExceeded"
        | "InvalidLaunchTargets"
        | "InvalidCapacityReservationState.PendingActivation" => no(RefusalKind::OutOfCapacity, of_reservation()),
        "InsufficientVolumeCapacity" | "VolumeTypeNotAvailableInZone" => no(RefusalKind::OutOfCapacity, RefusalScope::Zone),
        "InvalidCapacityReservationId.NotFound" | "InvalidCapacityReservationState" => {
            no(RefusalKind::Config, of_reservation())
        }
        "SpotMaxPriceTooLow" => no(RefusalKind::OutOfCapacity, RefusalScope::Market),
        // The type is not sold there, however it is bought.
        "Unsupported" => later(RefusalKind::Config, RefusalScope::TypeInZone, NOT_SOLD),
        "InsufficientFreeAddressesInSubnet" => Meaning::SubnetFull(text),
        "VcpuLimitExceeded" | "InstanceLimitExceeded" => no(RefusalKind::QuotaExceeded, quota(launch, CapacityType::OnDemand)),
        "MaxSpotInstanceCountExceeded" | "MaxFleetCountExceeded" => {
            no(RefusalKind::QuotaExceeded, quota(launch, CapacityType::Spot))
        }
        _ if is_in(&[
            "VolumeLimitExceeded",
            "MaxIOPSLimitExceeded",
            "NetworkInterfaceLimitExceeded",
            "AttachmentLimitExceeded",
            "ResourceLimitExceeded",
        ]) =>
        {
            no(RefusalKind::QuotaExceeded, RefusalScope::Region)
        }
        "AuthFailure.ServiceLinkedRoleCreationNotPermitted" => no(RefusalKind::Permission, RefusalScope::CapacityTypeInRegion),
        "OptInRequired" | "PendingVerification" => later(RefusalKind::Permission, RefusalScope::Region, BY_PEOPLE),
        "UnauthorizedOperation" | "AuthFailure" | "AccessDenied" | "AccessDeniedException" | "Blocked" | "AccountDisabled" => {
            no(RefusalKind::Permission, RefusalScope::Region)
        }
        "InvalidSubnetID.NotFound" | "InvalidGroup.NotFound" => Meaning::Stale(text),
        code if code.starts_with("InvalidAMIID.") => Meaning::StaleImage(text),
        "IdempotentParameterMismatch" => Meaning::Look(text),
        // It was made and has ended: where that is still listed, its reason counts instead.
        "IdempotentInstanceTerminated" => no(RefusalKind::OutOfCapacity, RefusalScope::Market),
        _ if said.status >= 500 => Meaning::Unclear(text),
        // InvalidParameter and its like, and what nobody here knows.
        _ => no(RefusalKind::Config, RefusalScope::Market),
    }
}

/// The quota that counts such a machine: all that it counts is left alone. Where none is known, the market.
fn quota(launch: &Launch, bought: CapacityType) -> RefusalScope {
    let counts = |spec: &InstanceSpec| KnownQuota::all().find(|quota| quota.counts(spec, bought));
    let quota = launch.spec.as_deref().and_then(counts);
    quota.map_or(RefusalScope::Market, |quota| RefusalScope::Quota(quota.name.to_owned()))
}

/// Why there is no machine of a launch whose machine has ended, by its `StateReason`.
pub(crate) fn of_ended(code: &str, message: &str) -> Refusal {
    let kind = match code {
        "Client.VolumeLimitExceeded" => RefusalKind::QuotaExceeded,
        // Somebody ended it, Stoker among others: its key is used up, and the market has nothing to do with it.
        "Client.InternalError" | "Client.InvalidSnapshot.NotFound" | "Client.UserInitiatedShutdown" => RefusalKind::Config,
        // Stock that ran out, a reclaim, and what nobody knows.
        _ => RefusalKind::OutOfCapacity,
    };
    let cure = match code {
        "Client.InternalError" => ": look whether the key that encrypts its disk may be used here",
        _ => "",
    };
    Refusal::of_market(kind, format!("the machine of this launch has ended: {code}: {message}{cure}"))
}
