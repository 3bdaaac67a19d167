use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::*;
use crate::base::ids::{Cloud, GpuModel, InstanceType, ZoneId};
use crate::base::units::{MiB, Milli, UsdPerHour};
use crate::market::offer::CapacityType::{OnDemand, Reserved, Spot};
use crate::market::offer::{Arch, Market};
use crate::policy::RawPolicy;
use crate::policy::rules::commitment::{Capacity, Paid, Terms};

const AWS: (&str, &str) = ("aws", "us-east-1");
const GCP: (&str, &str) = ("gcp", "us-central1");
const AZURE: (&str, &str) = ("azure", "eastus");

/// Cloud and region, type, GPU model, GPUs in thousandths, GiB of each, vCPUs.
type Kind = ((&'static str, &'static str), &'static str, &'static str, u32, u64, u32);

const G6: Kind = (AWS, "g6.xlarge", "L4", 1000, 24, 4);
const P4D: Kind = (AWS, "p4d.24xlarge", "A100", 8000, 40, 96);
const P5EN: Kind = (AWS, "p5en.48xlarge", "H200", 8000, 141, 192);
const P6: Kind = (AWS, "p6-b200.48xlarge", "B200", 8000, 180, 192);
const G2: Kind = (GCP, "g2-standard-24", "L4", 2000, 24, 24);
const A2: Kind = (GCP, "a2-highgpu-1g", "A100", 1000, 40, 12);
const A2_ULTRA: Kind = (GCP, "a2-ultragpu-1g", "A100", 1000, 80, 12);
const A3: Kind = (GCP, "a3-highgpu-8g", "H100", 8000, 80, 208);
const T4: Kind = (AZURE, "Standard_NC16as_T4_v3", "T4", 1000, 16, 16);
const NC_A100: Kind = (AZURE, "Standard_NC24ads_A100_v4", "A100", 1000, 80, 24);

fn spec(kind: Kind) -> InstanceSpec {
    let ((cloud, _), instance_type, model, gpus, gib, vcpus) = kind;
    InstanceSpec {
        cloud: Cloud::new(cloud).unwrap(),
        instance_type: InstanceType::new(instance_type).unwrap(),
        gpu_model: GpuModel::new(model).unwrap(),
        gpus: Milli(gpus),
        gpu_memory: MiB::from_gib(gib),
        vcpus: Some(vcpus),
        memory: Some(MiB::from_gib(64)),
        arch: Arch::Amd64,
        network: None,
        local_disk: None,
    }
}

fn place(kind: Kind) -> Place {
    let (cloud, region) = kind.0;
    Place {
        cloud: Cloud::new(cloud).unwrap(),
        region: Region::new(region).unwrap(),
        zone: ZoneId::new("z").unwrap(),
        instance_type: InstanceType::new(kind.1).unwrap(),
    }
}

/// A policy with these quotas, a million units of each.
fn listing<'a>(names: impl IntoIterator<Item = &'a str>) -> Policy {
    let quota = |name: &str| -> Value {
        let known = KnownQuota::find(name).unwrap();
        let region = [AWS, GCP, AZURE].into_iter().find(|(cloud, _)| *cloud == known.cloud).map(|(_, region)| region);
        json!({ "name": name, "cloud": known.cloud, "region": region.filter(|_| !known.global), "limit": 1_000_000 })
    };
    let raw: RawPolicy = serde_json::from_value(json!({
        "apiVersion": "stoker.dev/v1alpha1", "kind": "Policy", "clusterName": "test",
        "pools": [{
            "name": "pool", "workload": "training", "gpu": { "models": ["L4"] },
            "where": { "clouds": ["aws"], "regions": ["us-east-1"] }, "limits": { "maxNodes": 1 },
        }],
        "quotas": names.into_iter().map(quota).collect::<Vec<_>>(),
    }))
    .unwrap();
    Policy::try_from_raw(&raw).unwrap()
}

/// The quotas that count a node, with the units that it takes.
fn counted(policy: &Policy, kind: Kind, capacity_type: CapacityType) -> Vec<(&str, u64)> {
    let claims = Claims::of(policy, &place(kind), &spec(kind), capacity_type);
    claims.listed.iter().map(|claim| (policy.quotas[claim.quota].name.as_str(), claim.units)).collect()
}

#[test]
fn aws_counts_vcpus_by_class_with_spot_apart_and_p5_spot_apart_from_p4() {
    let policy = listing(["L-DB2E81BA", "L-417A185B", "L-3819A6DF", "L-7212CCBC", "L-C4BD4855"]);
    assert_eq!(counted(&policy, G6, OnDemand), [("L-DB2E81BA", 4)]);
    assert_eq!(counted(&policy, G6, Spot), [("L-3819A6DF", 4)]);
    assert_eq!(counted(&policy, P4D, Spot), [("L-7212CCBC", 96)]);
    assert_eq!(counted(&policy, P5EN, Spot), [("L-C4BD4855", 192)]);
    assert_eq!(counted(&policy, P6, Spot), [("L-C4BD4855", 192)]);
    for kind in [P4D, P5EN, P6] {
        // One quota for all of P on demand, capacity reservations with them.
        let units = u64::from(kind.5);
        assert_eq!(counted(&policy, kind, OnDemand), [("L-417A185B", units)]);
        assert_eq!(counted(&policy, kind, Reserved), [("L-417A185B", units)]);
    }
}

/// Capacity kept in the place of a kind: a capacity block on AWS or a calendar reservation on GCP where `ahead`, else on demand.
fn kept(kind: Kind, ahead: bool) -> Commitment {
    let place = place(kind);
    let leave_at = jiff::Timestamp::MAX;
    let paid = if ahead { Paid::Ahead { rate: UsdPerHour(1), leave_at } } else { Paid::OnDemand };
    let terms = Terms::Capacity(Capacity { place: place.clone(), nodes: 1, paid });
    Commitment { name: "kept".into(), cloud: place.cloud, from: None, until: None, terms }
}

#[test]
fn a_capacity_block_counts_against_no_quota_and_other_reservations_do() {
    let mut policy = listing(["L-417A185B", "NVIDIA_A100_GPUS"]);
    policy.commitments = vec![kept(P5EN, true), kept(A2, true)];
    assert_eq!(counted(&policy, P5EN, Reserved), []);
    assert_eq!(counted(&policy, P5EN, OnDemand), [("L-417A185B", 192)]);
    assert_eq!(counted(&policy, P4D, Reserved), [("L-417A185B", 96)], "the block is of another type");
    // Nothing tells that Google's do not count.
    assert_eq!(counted(&policy, A2, Reserved), [("NVIDIA_A100_GPUS", 1)]);
    // Beside an on-demand capacity reservation, a node may be of either.
    policy.commitments.push(kept(P5EN, false));
    assert_eq!(counted(&policy, P5EN, Reserved), [("L-417A185B", 192)]);
    // No quota of a block's can be missing, whatever the policy says of those that it does not list.
    let mut denied = listing([]);
    denied.unknown_quota = Some(UnknownQuota::Deny);
    denied.commitments = vec![kept(P5EN, true)];
    let claims = |capacity_type| Claims::of(&denied, &place(P5EN), &spec(P5EN), capacity_type).denied.is_some();
    assert_eq!((claims(Reserved), claims(OnDemand)), (false, true));
    // A quota of the operator's own counts what it says.
    let counts = Counts::Own { models: BTreeSet::new(), capacity_types: [Reserved].into() };
    let (name, cloud) = ("mine".to_owned(), Cloud::new("aws").unwrap());
    denied.quotas = vec![Quota { name, cloud, region: None, counts, unit: QuotaUnit::Gpus, limit: 64, used: 0, safety: 0 }];
    assert_eq!(counted(&denied, P5EN, Reserved), [("mine", 8)]);
}

#[test]
fn gcp_counts_gpus_by_model_and_all_of_them_together() {
    let policy = listing(["GPUS_ALL_REGIONS", "NVIDIA_L4_GPUS", "NVIDIA_A100_GPUS", "NVIDIA_A100_80GB_GPUS"]);
    assert_eq!(counted(&policy, G2, OnDemand), [("GPUS_ALL_REGIONS", 2), ("NVIDIA_L4_GPUS", 2)]);
    assert_eq!(counted(&policy, A2, OnDemand), [("GPUS_ALL_REGIONS", 1), ("NVIDIA_A100_GPUS", 1)]);
    assert_eq!(counted(&policy, A2_ULTRA, OnDemand), [("GPUS_ALL_REGIONS", 1), ("NVIDIA_A100_80GB_GPUS", 1)]);
    // Another region has its own quota by model, and the same one of all regions.
    let elsewhere = Place { region: Region::new("europe-west4").unwrap(), ..place(G2) };
    let claims = Claims::of(&policy, &elsewhere, &spec(G2), OnDemand);
    assert_eq!(claims.listed, [Claim { quota: 0, units: 2 }]);
    assert_eq!(claims.unlimited.iter().map(ToString::to_string).collect::<Vec<_>>(), ["quota NVIDIA_L4_GPUS europe-west4"]);
}

#[test]
fn gcp_spot_falls_back_to_the_standard_quota_where_no_preemptible_one_is_listed() {
    let without = listing(["NVIDIA_L4_GPUS", "GPUS-PER-GPU-FAMILY/NVIDIA_H100"]);
    assert_eq!(counted(&without, G2, Spot), [("NVIDIA_L4_GPUS", 2)]);
    assert_eq!(counted(&without, A3, Spot), [("GPUS-PER-GPU-FAMILY/NVIDIA_H100", 8)]);
    let with = listing(["NVIDIA_L4_GPUS", "PREEMPTIBLE_NVIDIA_L4_GPUS"]);
    assert_eq!(counted(&with, G2, Spot), [("PREEMPTIBLE_NVIDIA_L4_GPUS", 2)]);
    assert_eq!(counted(&with, G2, OnDemand), [("NVIDIA_L4_GPUS", 2)]);
    // With neither, it is the preemptible one that is missing.
    let neither = Claims::of(&listing([]), &place(G2), &spec(G2), Spot);
    let missing: Vec<&str> = neither.unlimited.iter().map(|quota| quota.name.as_str()).collect();
    assert_eq!(missing, ["GPUS_ALL_REGIONS", "PREEMPTIBLE_NVIDIA_L4_GPUS"]);
}

#[test]
fn azure_counts_family_and_region_on_demand_and_one_pool_of_all_families_on_spot() {
    let policy = listing(["cores", "lowPriorityCores", "Standard NCASv3_T4 Family", "StandardNCADSA100v4Family"]);
    assert_eq!(counted(&policy, T4, OnDemand), [("cores", 16), ("Standard NCASv3_T4 Family", 16)]);
    assert_eq!(counted(&policy, NC_A100, OnDemand), [("cores", 24), ("StandardNCADSA100v4Family", 24)]);
    assert_eq!(counted(&policy, T4, Spot), [("lowPriorityCores", 16)]);
    assert_eq!(counted(&policy, NC_A100, Spot), [("lowPriorityCores", 24)]);
}

#[test]
fn large_gpus_on_demand_wait_for_their_quota_and_the_rest_does_not() {
    let mut policy = listing([]);
    let unlisted = |policy: &Policy, kind, capacity_type| {
        let claims = Claims::of(policy, &place(kind), &spec(kind), capacity_type);
        (claims.denied.map(|quota| quota.to_string()), claims.unlimited.len())
    };
    let p = Some("quota L-417A185B us-east-1 (\"Running On-Demand P instances\")".to_owned());
    assert_eq!(unlisted(&policy, P4D, OnDemand), (p.clone(), 0));
    // A reservation that exists was granted.
    assert_eq!(unlisted(&policy, P4D, Reserved), (None, 1));
    assert_eq!(unlisted(&policy, P4D, Spot), (None, 1));
    assert_eq!(unlisted(&policy, G6, OnDemand), (None, 1));
    let a100 = Some("quota NVIDIA_A100_GPUS us-central1".to_owned());
    assert_eq!(unlisted(&policy, A2, OnDemand), (a100, 1), "all regions' GPUs are taken as unlimited");
    let a100 = Some("quota StandardNCADSA100v4Family eastus".to_owned());
    assert_eq!(unlisted(&policy, NC_A100, OnDemand), (a100, 1));
    policy.unknown_quota = Some(UnknownQuota::Allow);
    assert_eq!(unlisted(&policy, P4D, OnDemand), (None, 1));
    policy.unknown_quota = Some(UnknownQuota::Deny);
    assert_eq!(unlisted(&policy, P4D, OnDemand), (p, 0));
    assert!(unlisted(&policy, G6, Spot).0.is_some());
    // Where nothing is known of a cloud's quotas, none can be missing.
    assert_eq!(unlisted(&policy, (("lambda", "us-west-1"), "gpu_1x_a10", "A10", 1000, 24, 30), OnDemand), (None, 0));
}

#[test]
fn the_catalogue_is_sound() {
    let names: Vec<String> = KnownQuota::all().map(|known| known.name.to_owned()).collect();
    assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len());
    for known in KnownQuota::all() {
        assert_eq!(KnownQuota::find(known.name), Some(known), "no two names are the same when squeezed");
        let fallback = known.fallback.map(|name| KnownQuota::find(name).unwrap());
        assert!(fallback.is_none_or(|other| other.cloud == known.cloud && !other.global && other.fallback.is_none()));
        let text = serde_json::to_string(&known).unwrap();
        assert_eq!((text.as_str(), serde_json::from_str::<KnownQuota>(&text).unwrap()), (&*format!("{:?}", known.name), known));
    }
    assert!(serde_json::from_str::<KnownQuota>("\"L-00000000\"").is_err());
}

/// Types of every family that the price tables hold.
const ALL: [Kind; 55] = [
    G6,
    P4D,
    P5EN,
    P6,
    G2,
    A2,
    A2_ULTRA,
    A3,
    T4,
    NC_A100,
    (AWS, "g4dn.xlarge", "T4", 1000, 16, 4),
    (AWS, "g5.48xlarge", "A10G", 8000, 24, 192),
    (AWS, "g5g.xlarge", "T4g", 1000, 16, 4),
    (AWS, "g6e.xlarge", "L40S", 1000, 48, 4),
    (AWS, "g6f.large", "L4", 125, 24, 2),
    (AWS, "gr6.4xlarge", "L4", 1000, 24, 16),
    (AWS, "gr6f.4xlarge", "L4", 500, 24, 16),
    (AWS, "g7.xlarge", "RTXPRO4500", 1000, 32, 4),
    (AWS, "g7e.2xlarge", "RTXPRO6000", 1000, 96, 8),
    (AWS, "p2.xlarge", "K80", 1000, 12, 4),
    (AWS, "p3.2xlarge", "V100", 1000, 16, 8),
    (AWS, "p3dn.24xlarge", "V100", 8000, 32, 96),
    (AWS, "p4de.24xlarge", "A100", 8000, 80, 96),
    (AWS, "p5.48xlarge", "H100", 8000, 80, 192),
    (AWS, "p5e.48xlarge", "H200", 8000, 141, 192),
    (AWS, "p6-b300.48xlarge", "B300", 8000, 268, 192),
    (GCP, "n1-standard-4+1xt4", "T4", 1000, 16, 4),
    (GCP, "n1-standard-8+1xv100", "V100", 1000, 16, 8),
    (GCP, "a2-megagpu-16g", "A100", 16000, 40, 96),
    (GCP, "a3-megagpu-8g", "H100", 8000, 80, 208),
    (GCP, "a3-ultragpu-8g", "H200", 8000, 141, 224),
    (GCP, "a4-highgpu-8g", "B200", 8000, 180, 224),
    (GCP, "g4-standard-6", "RTXPRO6000", 125, 96, 6),
    (AZURE, "Standard_NC6s_v3", "V100", 1000, 16, 6),
    (AZURE, "Standard_NC24rs_v3", "V100", 4000, 16, 24),
    (AZURE, "Standard_ND40rs_v2", "V100", 8000, 32, 40),
    (AZURE, "Standard_NC8ads_A10_v4", "A10", 1000, 24, 8),
    (AZURE, "Standard_NV6ads_A10_v5", "A10", 167, 24, 6),
    (AZURE, "Standard_NV36adms_A10_v5", "A10", 1000, 24, 36),
    (AZURE, "Standard_NC96ads_A100_v4", "A100", 4000, 80, 96),
    (AZURE, "Standard_ND96asr_v4", "A100", 8000, 40, 96),
    (AZURE, "Standard_ND96amsr_A100_v4", "A100", 8000, 80, 96),
    (AZURE, "Standard_NC40ads_H100_v5", "H100NVL", 1000, 94, 40),
    (AZURE, "Standard_NC80adis_H100_v5", "H100NVL", 2000, 94, 80),
    (AZURE, "Standard_NCC40ads_H100_v5", "H100NVL", 1000, 94, 40),
    (AZURE, "Standard_ND96isr_H100_v5", "H100", 8000, 80, 96),
    (AZURE, "Standard_ND96isr_H200_v5", "H200", 8000, 141, 96),
    (AZURE, "Standard_ND128isr_NDR_GB200_v6", "GB200", 4000, 186, 128),
    (AZURE, "Standard_NC144ds_xl_RTXPRO6000BSE_v6", "RTXPRO6000", 1000, 96, 144),
    (AZURE, "Standard_NC24lds_xl_RTXPRO6000BSE_v6", "RTXPRO6000", 1000, 96, 24),
    (AZURE, "Standard_NV12s_v3", "M60", 1000, 8, 12),
    (AZURE, "Standard_NV6s_v2", "M60", 1000, 8, 6),
    (("lambda", "us-west-1"), "gpu_1x_a10", "A10", 1000, 24, 30),
    (AWS, "gpu.1", "L4", 1000, 24, 4),
    (AWS, "trn1.2xlarge", "none", 1000, 32, 8),
];

/// The ledger and the checker tell membership by rules of their own; where they differ, one of them is wrong.
#[test]
fn ledger_and_checker_agree_on_every_type() {
    let every = || KnownQuota::all().map(|known| known.name);
    let policies = [
        listing(every()),
        listing([]),
        listing(every().filter(|name| !name.starts_with("PREEMPTIBLE"))),
        listing(every().filter(|name| name.starts_with("PREEMPTIBLE"))),
        listing(every().enumerate().filter(|(n, _)| n % 2 == 0).map(|(_, name)| name)),
        listing(every().enumerate().filter(|(n, _)| n % 3 == 0).map(|(_, name)| name)),
    ];
    // Only these clouds sell capacity ahead.
    let ahead = ALL.into_iter().filter(|kind| matches!(kind.0.0, "aws" | "gcp")).map(|kind| kept(kind, true)).collect();
    let kept = [Vec::new(), ahead, ALL.map(|kind| kept(kind, false)).to_vec()];
    let policies = policies
        .into_iter()
        .flat_map(|policy| kept.iter().map(move |kept| Policy { commitments: kept.clone(), ..policy.clone() }));
    let words = [None, Some(UnknownQuota::Allow), Some(UnknownQuota::Deny)];
    for (mut policy, word) in policies.flat_map(|policy| words.map(|word| (policy.clone(), word))) {
        policy.unknown_quota = word;
        for (kind, capacity_type) in ALL.into_iter().flat_map(|kind| CapacityType::ALL.map(|c| (kind, c))) {
            let (place, spec) = (place(kind), spec(kind));
            let claims = Claims::of(&policy, &place, &spec, capacity_type);
            let market = Market { place, capacity_type };
            let ledger: Vec<usize> = claims.listed.iter().map(|claim| claim.quota).collect();
            let checker = crate::check::quotas_of(&policy, &market, &spec);
            assert_eq!(ledger, checker, "{market}");
            let wanting = crate::check::wanting(&policy, &market, &spec);
            assert_eq!(claims.denied.is_some(), wanting.is_some(), "{market}: {:?}, {wanting:?}", claims.denied);
        }
    }
    // Only types whose cloud tells no quota of them are counted by none or by a total alone.
    let policy = listing(every());
    for kind in ALL
        .into_iter()
        .filter(|kind| !matches!(kind.2, "M60" | "none") && kind.0.0 != "lambda" && kind.1.contains(['-', '_', 'x']))
    {
        for capacity_type in CapacityType::ALL {
            let least = if kind.0.0 == "gcp" || (kind.0.0 == "azure" && capacity_type != Spot) { 2 } else { 1 };
            assert_eq!(counted(&policy, kind, capacity_type).len(), least, "{} {capacity_type}", kind.1);
        }
    }
}
