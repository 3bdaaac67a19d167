//! Recount of quota membership: from a node to the names of its quotas. The claims go from each
//! quota to its nodes.

use std::collections::BTreeSet;

use crate::facts::foreign::ForeignKind;
use crate::market::offer::{CapacityType, InstanceSpec, Market, Place};
use crate::policy::rules::commitment::{Paid, Terms};
use crate::policy::{Counts, Policy, Quota, UnknownQuota};

/// The GPUs of which nothing is bought on demand until their quota is listed.
const LARGE: [&str; 11] = ["K80", "P100", "V100", "A100", "H100", "H100NVL", "H200", "B200", "B300", "GB200", "GB300"];

/// The quotas that count a node of this type bought in this market, by their places in the policy.
pub fn quotas_of(policy: &Policy, market: &Market, spec: &InstanceSpec) -> Vec<usize> {
    let granted = |either: Vec<String>| either.into_iter().find(|name| listed(policy, name, market));
    let names: Vec<String> = names(policy, market, spec).into_iter().filter_map(granted).collect();
    let counts = |quota: &Quota| match &quota.counts {
        Counts::Known(_) => names.contains(&quota.name),
        Counts::Own { models, capacity_types } => {
            (models.is_empty() || models.iter().any(|model| *model == spec.gpu_model))
                && (capacity_types.is_empty() || capacity_types.iter().any(|one| *one == market.capacity_type))
        }
    };
    let all = policy.quotas.iter().enumerate();
    all.filter(|(_, quota)| here(quota, market) && counts(quota)).map(|(at, _)| at).collect()
}

/// The quotas that may count nodes that are not Stoker's, by their places in the policy.
pub(crate) fn quotas_of_foreign(policy: &Policy, kind: &ForeignKind) -> BTreeSet<usize> {
    let Some((place, spec)) = kind.place() else {
        let all = policy.quotas.iter().enumerate();
        return all.filter(|(_, quota)| kind.may_be_in(&quota.cloud, quota.region.as_ref())).map(|(at, _)| at).collect();
    };
    let bought = |capacity_type| Market { place: place.clone(), capacity_type };
    kind.capacity_types().flat_map(|how| quotas_of(policy, &bought(how), spec)).collect()
}

/// The quota for want of which a node of this type may not be bought in this market.
pub(crate) fn wanting(policy: &Policy, market: &Market, spec: &InstanceSpec) -> Option<String> {
    let large = LARGE.contains(&spec.gpu_model.as_str());
    names(policy, market, spec).into_iter().filter(|either| !either.iter().any(|name| listed(policy, name, market))).find_map(
        |either| {
            let name = either.into_iter().next()?;
            // The totals over all models are not the quota of a large GPU.
            let its_own = large && !matches!(name.as_str(), "cores" | "GPUS_ALL_REGIONS");
            let denied = match policy.unknown_quota {
                Some(UnknownQuota::Deny) => true,
                Some(UnknownQuota::Allow) => false,
                None => its_own && market.capacity_type == CapacityType::OnDemand,
            };
            denied.then_some(name)
        },
    )
}

fn here(quota: &Quota, market: &Market) -> bool {
    let elsewhere = quota.region.iter().any(|region| *region != market.place.region);
    quota.cloud == market.place.cloud && !elsewhere
}

fn listed(policy: &Policy, name: &str, market: &Market) -> bool {
    policy.quotas.iter().any(|quota| quota.name == name && matches!(quota.counts, Counts::Known(_)) && here(quota, market))
}

/// The names of the quotas that count it; of alternatives, the first that was granted.
fn names(policy: &Policy, market: &Market, spec: &InstanceSpec) -> Vec<Vec<String>> {
    let spot = market.capacity_type == CapacityType::Spot;
    let one = |name: &str| vec![name.to_owned()];
    match market.place.cloud.as_str() {
        // EC2's capacity blocks count against nothing; what may also be of another reservation does.
        "aws" if market.capacity_type == CapacityType::Reserved && paid_ahead(policy, &market.place) == Some(true) => {
            Vec::new()
        }
        "aws" => aws(spec.instance_type.as_str(), spot).map(one).into_iter().collect(),
        "gcp" => {
            let model = match spec.gpu_model.as_str() {
                "A100" if spec.gpu_memory.0 > 41_000 => "A100_80GB",
                "RTXPRO6000" => "RTX_PRO_6000",
                model => model,
            };
            let by_family = format!("GPUS-PER-GPU-FAMILY/NVIDIA_{model}");
            let (by_model, by_spot) = (format!("NVIDIA_{model}_GPUS"), format!("PREEMPTIBLE_NVIDIA_{model}_GPUS"));
            let own = match model {
                "H100" if spot => vec![by_spot, by_family],
                "H100" | "H200" | "B200" | "RTX_PRO_6000" => vec![by_family],
                "T4" | "P4" | "L4" | "K80" | "P100" | "V100" | "A100" | "A100_80GB" if spot => vec![by_spot, by_model],
                "T4" | "P4" | "L4" | "K80" | "P100" | "V100" | "A100" | "A100_80GB" => vec![by_model],
                _ => Vec::new(),
            };
            [own, one("GPUS_ALL_REGIONS")].into_iter().filter(|either| !either.is_empty()).collect()
        }
        "azure" if spot => vec![one("lowPriorityCores")],
        "azure" => {
            let family = azure(&spec.instance_type.as_str().to_lowercase(), spec.gpu_model.as_str());
            [Some("cores"), family].into_iter().flatten().map(one).collect()
        }
        _ => Vec::new(),
    }
}

/// Whether everything that is kept at a place is paid ahead; `None` where nothing is kept.
fn paid_ahead(policy: &Policy, place: &Place) -> Option<bool> {
    let ahead = policy.commitments.iter().filter_map(|commitment| match &commitment.terms {
        Terms::Capacity(kept) if kept.place == *place => Some(matches!(kept.paid, Paid::Ahead { .. })),
        _ => None,
    });
    ahead.reduce(|all, one| all && one)
}

fn aws(instance_type: &str, spot: bool) -> Option<&'static str> {
    let digit = instance_type.find(|c: char| c.is_ascii_digit())?;
    match (instance_type.get(..digit)?, instance_type.as_bytes().get(digit)?, spot) {
        ("g" | "gr" | "vt", _, false) => Some("L-DB2E81BA"),
        ("g" | "gr" | "vt", _, true) => Some("L-3819A6DF"),
        ("p", _, false) => Some("L-417A185B"),
        ("p", b'2'..=b'4', true) => Some("L-7212CCBC"),
        ("p", b'5' | b'6', true) => Some("L-C4BD4855"),
        _ => None,
    }
}

fn azure(size: &str, model: &str) -> Option<&'static str> {
    let is = |start: &str| size.starts_with(&format!("standard_{start}"));
    Some(match model {
        "T4" => "Standard NCASv3_T4 Family",
        "A10" if is("nv") => "StandardNVADSA10v5Family",
        "A10" => "StandardNCADSA10v4Family",
        "RTXPRO6000" => "StandardNCdsRTXPRO6000BSEv6XLFamily",
        "V100" if is("nd") => "standardNDSv2Family",
        "V100" => "standardNCSv3Family",
        "A100" if is("nd") && size.contains("ams") => "standard NDAMSv4_A100Family",
        "A100" if is("nd") => "Standard NDASv4_A100 Family",
        "A100" => "StandardNCADSA100v4Family",
        "H100NVL" if is("ncc") => "StandardNCCads2023Family",
        "H100NVL" => "StandardNCadsH100v5Family",
        "H100" => "standardNDSH100v5Family",
        "H200" => "standardNDISRH200V5Family",
        "GB200" => "standardNDISRGB200V6NDRFamily",
        "GB300" => "standardNDISRGB300V6Family",
        _ => return None,
    })
}
