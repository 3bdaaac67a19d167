use jiff::SignedDuration;
use serde_json::{Value, json};

use super::*;
use crate::ids::{Cloud, GpuModel, InstanceType, Region};
use crate::offer::{Arch, InstanceSpec, Market, Place};
use crate::policy::{Fault, QuotaUnit, UnknownQuota};
use crate::price::{Entry, PriceBook, Quote, QuoteKind};
use crate::units::Milli;

/// A policy with nothing wrong and nothing that could be left out but a second pool, a quota and a price.
fn good() -> Value {
    let pool = |name: &str, workload: &str| {
        json!({
            "name": name, "workload": workload,
            "gpu": {"models": ["L4", "L40S"]},
            "where": {"clouds": ["aws"], "regions": ["us-east-1"]},
            "limits": {"maxNodes": 2},
        })
    };
    json!({
        "apiVersion": "stoker.dev/v1alpha1", "kind": "Policy", "clusterName": "demo",
        "pools": [pool("inference", "inference"), pool("training", "training")],
        "quotas": [{"name": "L-DB2E81BA", "cloud": "aws", "region": "us-east-1", "limit": 64}],
        "prices": [{"cloud": "aws", "region": "us-east-1", "instanceType": "g6.xlarge", "capacityType": "spot", "usdPerHour": 0.3}],
    })
}

/// The good policy with the field at `pointer` set to `value`; a pointer that ends in `/-` appends to a list.
fn with(pointer: &str, value: Value) -> RawPolicy {
    let mut file = good();
    let mut part = &mut file;
    for step in pointer.split('/').skip(1) {
        part = if step == "-" {
            let list = part.as_array_mut().expect("a list");
            list.push(Value::Null);
            list.last_mut().expect("just pushed")
        } else if part.is_array() {
            &mut part[step.parse::<usize>().expect("an index")]
        } else {
            &mut part[step]
        };
    }
    *part = value;
    serde_json::from_value(file).expect("a raw policy")
}

fn shown(faults: &[Fault]) -> Vec<String> {
    faults.iter().map(ToString::to_string).collect()
}

fn faults(raw: &RawPolicy) -> Vec<String> {
    Policy::try_from_raw(raw).err().map(|faults| shown(&faults)).unwrap_or_default()
}

#[test]
fn a_good_policy_gets_its_defaults() {
    let policy = Policy::try_from_raw(&with("/kind", json!("Policy"))).expect("no faults");
    assert_eq!(policy.cluster.as_str(), "demo");
    assert_eq!(policy.boot_deadline, SignedDuration::from_mins(10));
    let [inference, training] = policy.pools.as_slice() else { panic!("two pools") };
    assert_eq!(inference.prefer, [CapacityType::OnDemand]);
    assert_eq!(training.prefer, [CapacityType::Spot, CapacityType::OnDemand]);
    assert_eq!(inference.evidence, Evidence::Pods);
    assert_eq!(inference.limits, Limits { min_nodes: 0, max_nodes: 2, max_usd_per_hour: None });
    let taint = Taint { key: "nvidia.com/gpu".into(), value: "true".into(), effect: TaintEffect::NoSchedule };
    assert_eq!(inference.taints, [taint]);
    let quota = &policy.quotas[0];
    assert_eq!((quota.limit, quota.unit, quota.used, quota.safety), (64, QuotaUnit::Vcpus, 0, 0));
    assert_eq!(policy.unknown_quota, None);
    assert_eq!(policy.prices[0].price, UsdPerHour(300_000));
}

#[test]
fn what_is_written_is_what_counts() {
    let read = |pointer: &str, value: Value| Policy::try_from_raw(&with(pointer, value)).expect("no faults");
    assert_eq!(read("/pools/0/capacity/prefer", json!(["reserved"])).pools[0].prefer, [CapacityType::Reserved]);
    assert_eq!(read("/pools/0/limits/maxUsdPerHour", json!(0.1)).pools[0].limits.max_usd_per_hour, Some(UsdPerHour(100_000)));
    assert_eq!(read("/pools/0/limits/maxNodes", json!(0)).pools[0].limits.max_nodes, 0);
    assert_eq!(read("/pools/0/gpu/count", json!([8, 4])).pools[0].gpu_counts, [4, 8].into());
    assert_eq!(read("/pools/0/gpu/minMemoryGiB", json!(24)).pools[0].min_gpu_memory, MiB(24 * 1024));
    assert_eq!(read("/pools/0/template/taints", json!([])).pools[0].taints, []);
    assert_eq!(read("/pools/0/evidence", json!("none")).pools[0].evidence, Evidence::None);
    let quota = |value: Value| read("/quotas/0", value).quotas[0].clone();
    let own = quota(json!({"name": "none granted", "cloud": "aws", "gpus": 0}));
    assert_eq!((own.limit, own.unit), (0, QuotaUnit::Gpus));
    // What others use and what is kept back may be more than the limit: then nothing is left.
    let full =
        quota(json!({"name": "l-db2e81ba", "cloud": "aws", "region": "us-east-1", "limit": 768, "used": 764, "safety": 8}));
    assert_eq!((full.name.as_str(), full.share()), ("L-DB2E81BA", 0));
    for (cloud, region, written, name, unit) in [
        ("gcp", "us-central1", "NVIDIA-L4-GPUS-per-project-region", "NVIDIA_L4_GPUS", QuotaUnit::Gpus),
        (
            "gcp",
            "us-central1",
            "GPUS-PER-GPU-FAMILY-per-project-region/NVIDIA_H100",
            "GPUS-PER-GPU-FAMILY/NVIDIA_H100",
            QuotaUnit::Gpus,
        ),
        ("azure", "eastus", "standardNCASv3_T4Family", "Standard NCASv3_T4 Family", QuotaUnit::Vcpus),
        ("azure", "eastus", "LowPriorityCores", "lowPriorityCores", QuotaUnit::Vcpus),
    ] {
        let read = quota(json!({"name": written, "cloud": cloud, "region": region, "limit": 5}));
        assert_eq!((read.name.as_str(), read.unit), (name, unit));
    }
    assert_eq!(quota(json!({"name": "GPUS-ALL-REGIONS-per-project", "cloud": "gcp", "limit": 5})).name, "GPUS_ALL_REGIONS");
    assert_eq!(read("/defaults/unknownQuota", json!("deny")).unknown_quota, Some(UnknownQuota::Deny));
    assert_eq!(read("/commitments", json!([])).quotas.len(), 1);
    let types = read("/pools/0/instanceTypes", json!(["g6.*", "g5.xlarge"])).pools[0].instance_types.clone();
    assert_eq!(types[0], TypePattern::Prefix("g6.".into()));
    assert!(types[1].matches(&InstanceType::new("g5.xlarge").expect("an id")));
    for (text, seconds) in [("1m", 60), ("90s", 90), ("1h", 3600), ("30m30s", 1830), ("59m60s", 3600), ("0h10m", 600)] {
        let policy = read("/defaults/bootDeadline", json!(text));
        assert_eq!(policy.boot_deadline, SignedDuration::from_secs(seconds), "{text}");
    }
}

#[test]
#[rustfmt::skip] // A case a line.
fn each_rule_names_the_field_and_the_cure() {
    let (long_name, long_value) = ("a".repeat(41), "x".repeat(64));
    let name_too_long = format!("pools[0].name \"{long_name}\" has 41 characters, more than 40: shorten it");
    let value_too_long = format!("pools[0].template.labels.team {} is not a label value: write up to 63 letters, digits, '-', '_' and '.', beginning and ending with a letter or digit", quoted(&long_value));
    let taint = json!({"key": "team", "effect": "NoSchedule"});
    let cases: Vec<(&str, Value, &str)> = vec![
        ("/apiVersion", json!("v1"), r#"apiVersion "v1" is not a version that is read here: write stoker.dev/v1alpha1"#),
        ("/kind", json!("Pod"), r#"kind "Pod" is not this file's kind: write Policy"#),
        ("/clusterName", json!("Prod"), r#"clusterName "Prod" has 'P': use only lower-case letters, digits and '-'"#),
        ("/clusterName", json!("prod-"), r#"clusterName "prod-" begins or ends with '-': begin and end with a letter or digit"#),
        ("/defaults/bootDeadline", json!("59s"), "defaults.bootDeadline 59s is below 1m: no machine joins that fast, and every launch would be given up"),
        ("/defaults/bootDeadline", json!("1h1s"), "defaults.bootDeadline 1h1s is above 60m: shorten it, a launch that failed is paid for until then"),
        ("/defaults/bootDeadline", json!("1.5h"), r#"defaults.bootDeadline "1.5h" is not a length of time: write it like 10m, 1h30m or 90s"#),
        ("/pools", json!([]), "pools is empty: describe at least one pool"),
        ("/pools/1/name", json!("inference"), r#"pools[1].name "inference" is the name of pools[0] too: give each pool its own"#),
        ("/pools/0/name", json!(""), "pools[0].name is empty: give a name"),
        ("/pools/0/name", json!("a b"), r#"pools[0].name "a b" has ' ': use only lower-case letters, digits and '-'"#),
        ("/pools/0/name", json!(long_name), &name_too_long),
        ("/pools/0/gpu/models", json!([]), "pools[0].gpu.models is empty: name at least one GPU model, such as L4"),
        ("/pools/0/gpu/models", json!(["L4", "T4", "L4"]), r#"pools[0].gpu.models[2] "L4" is named twice: take one out"#),
        ("/pools/0/gpu/models", json!(["L4 "]), r#"pools[0].gpu.models[0] "L4 " begins or ends with a space: take it out"#),
        ("/pools/0/gpu/models", json!(["L4\n\u{7}"]), r#"pools[0].gpu.models[0] "L4\n\u{7}" has a control character: take it out"#),
        ("/pools/0/gpu/count", json!(0), "pools[0].gpu.count is 0, below 1: name how many GPUs a node has"),
        ("/pools/0/gpu/count", json!([4, 0]), "pools[0].gpu.count[1] is 0, below 1: name how many GPUs a node has"),
        ("/pools/0/gpu/count", json!([]), "pools[0].gpu.count is empty: name at least one count, or leave it out for any"),
        ("/pools/0/gpu/count", json!([8, 8]), "pools[0].gpu.count[1] 8 is named twice: take one out"),
        ("/pools/0/where/clouds", json!([]), "pools[0].where.clouds is empty: name at least one cloud, such as aws"),
        ("/pools/0/where/regions", json!([]), "pools[0].where.regions is empty: name at least one region, such as us-east-1"),
        ("/pools/0/where/zones", json!(["use1-az1", "use1-az1"]), r#"pools[0].where.zones[1] "use1-az1" is named twice: take one out"#),
        ("/pools/0/instanceTypes", json!(["g6.*", "*"]), r#"pools[0].instanceTypes[1] "*" is every type: leave instanceTypes out instead"#),
        ("/pools/0/instanceTypes", json!(["g*.xlarge"]), r#"pools[0].instanceTypes[0] "g*.xlarge" has '*' before its end: write a whole name, or a prefix such as g6.*"#),
        ("/pools/0/instanceTypes", json!(["g6.*", "g6.*"]), r#"pools[0].instanceTypes[1] "g6.*" is named twice: take one out"#),
        ("/pools/0/capacity/prefer", json!([]), "pools[0].capacity.prefer is empty: name at least one of reserved, spot and on-demand, or leave it out"),
        ("/pools/0/capacity/prefer", json!(["spot", "on-demand", "spot"]), "pools[0].capacity.prefer[2] spot is named twice: take one out"),
        ("/pools/1/limits/minNodes", json!(4), "pools[1].limits minNodes 4 is above maxNodes 2: lower minNodes or raise maxNodes"),
        ("/pools/1/limits/maxNodes", json!(100_001), "pools[1].limits.maxNodes 100001 is above 100000, more than a cluster holds: lower it"),
        ("/pools/0/limits/maxUsdPerHour", json!(0), "pools[0].limits.maxUsdPerHour is 0: name a rate, or close the pool with maxNodes: 0"),
        ("/pools/0/limits/maxUsdPerHour", json!(-3), "pools[0].limits.maxUsdPerHour -3 is negative: name a rate, or close the pool with maxNodes: 0"),
        ("/pools/0/limits/maxUsdPerHour", json!(1e-9), "pools[0].limits.maxUsdPerHour 1e-9 is not plain dollars: write it like 12.5"),
        ("/pools/0/limits/maxUsdPerHour", json!(99_999_999_999_i64), "pools[0].limits.maxUsdPerHour 99999999999 is more than a rate can hold: lower it"),
        ("/pools/0/template/labels", json!({"a b": "c"}), r#"pools[0].template.labels["a b"] "a b" is not a label key: write up to 63 letters, digits, '-', '_' and '.', after at most one prefix such as example.com/"#),
        ("/pools/0/template/labels", json!({"a/b/c": "d"}), r#"pools[0].template.labels["a/b/c"] "a/b/c" is not a label key: write up to 63 letters, digits, '-', '_' and '.', after at most one prefix such as example.com/"#),
        ("/pools/0/template/labels", json!({"team": "-a"}), r#"pools[0].template.labels.team "-a" is not a label value: write up to 63 letters, digits, '-', '_' and '.', beginning and ending with a letter or digit"#),
        ("/pools/0/template/labels", json!({"team": long_value}), &value_too_long),
        ("/pools/0/template/labels", json!({"stoker.dev/pool": "x"}), r#"pools[0].template.labels["stoker.dev/pool"] "stoker.dev/pool" is set by Stoker or by Kubernetes itself: take it out"#),
        ("/pools/0/template/labels", json!({"topology.kubernetes.io/zone": "x"}), r#"pools[0].template.labels["topology.kubernetes.io/zone"] "topology.kubernetes.io/zone" is set by Stoker or by Kubernetes itself: take it out"#),
        ("/pools/0/template/labels", json!({"karpenter.sh/capacity-type": "spot"}), r#"pools[0].template.labels["karpenter.sh/capacity-type"] "karpenter.sh/capacity-type" is set by Stoker or by Kubernetes itself: take it out"#),
        ("/pools/0/template/taints", json!([taint, {"key": "team", "value": "b", "effect": "NoExecute"}, taint]), r#"pools[0].template.taints[2] "team" with NoSchedule is named twice: take one out"#),
        ("/pools/0/template/taints", json!([{"key": "node.kubernetes.io/not-ready", "effect": "NoExecute"}]), r#"pools[0].template.taints[0].key "node.kubernetes.io/not-ready" is set by Stoker or by Kubernetes itself: take it out"#),
        ("/pools/0/template/taints", json!([{"key": "startup-taint.cluster-autoscaler.kubernetes.io/driver", "effect": "NoSchedule"}]), r#"pools[0].template.taints[0].key "startup-taint.cluster-autoscaler.kubernetes.io/driver" is a mark of the autoscaler's own, and a node that bears it never counts as ready: choose another key"#),
        ("/pools/0/template/taints", json!([{"key": "team", "value": "a b", "effect": "NoExecute"}]), r#"pools[0].template.taints[0].value "a b" is not a label value: write up to 63 letters, digits, '-', '_' and '.', beginning and ending with a letter or digit"#),
        ("/quotas/0", json!({"name": "x", "cloud": "aws", "vcpus": 8, "gpus": 8}), "quotas[0] has both vcpus and gpus: give one of them"),
        ("/quotas/0", json!({"name": "x", "cloud": "aws"}), "quotas[0] has no limit: give one of vcpus and gpus"),
        ("/quotas/0", json!({"name": "x", "cloud": "aws", "limit": 8}), "quotas[0] has a limit without a unit, which only the name of a known quota tells: write vcpus or gpus"),
        ("/quotas/0", json!({"name": "x", "cloud": "aws", "gpus": 8, "models": ["L4", "L4"]}), r#"quotas[0].models[1] "L4" is named twice: take one out"#),
        ("/quotas/0", json!({"name": "x", "cloud": "aws", "gpus": 8, "capacityTypes": ["spot", "spot"]}), "quotas[0].capacityTypes[1] spot is named twice: take one out"),
        ("/quotas/0", json!({"name": "x", "cloud": "aws", "gpus": 8, "used": 4_000_000_000_u32}), "quotas[0].used 4000000000 is above 100000000, more than a cluster could use: write vCPUs or whole GPUs"),
        ("/quotas/0", json!({"name": "", "cloud": "aws", "vcpus": 8}), "quotas[0].name is empty: give a name"),
        ("/quotas/0/name", json!("L-DB2E81AB"), r#"quotas[0].name "L-DB2E81AB" is no quota known of aws; nearest is L-DB2E81BA: did you mean that? A quota of your own needs a name less like it"#),
        ("/quotas/0/cloud", json!("gcp"), r#"quotas[0].cloud "gcp" has no L-DB2E81BA, aws has: write cloud: aws"#),
        ("/quotas/0/region", Value::Null, "quotas[0] has no region: each region has its own L-DB2E81BA, name one"),
        ("/quotas/0", json!({"name": "GPUS_ALL_REGIONS", "cloud": "gcp", "region": "us-central1", "limit": 8}), r#"quotas[0].region "us-central1" is too narrow: GPUS_ALL_REGIONS counts every region, take it out"#),
        ("/quotas/0/models", json!(["L4"]), "quotas[0].models is not for L-DB2E81BA, of which it is known what it counts: take it out"),
        ("/quotas/0/capacityTypes", json!(["spot"]), "quotas[0].capacityTypes is not for L-DB2E81BA, of which it is known what it counts: take it out"),
        ("/quotas/0/vcpus", json!(8), "quotas[0].vcpus is not for L-DB2E81BA, which is known to count in vCPU: write limit"),
        ("/quotas/0/limit", Value::Null, "quotas[0] has no limit: write limit, in vCPU"),
        ("/quotas/0/limit", json!(100_000_001), "quotas[0].limit 100000001 is above 100000000, more than a cluster could use: write vCPUs or whole GPUs"),
        ("/quotas", json!([{"name": "x", "cloud": "aws", "capacityTypes": ["spot"], "vcpus": 8}, {"name": "x", "cloud": "aws", "capacityTypes": ["on-demand"], "vcpus": 8}]), r#"quotas[1] counts other nodes than quotas[0] under the same name "x": give it another name"#),
        ("/quotas/-", good()["quotas"][0].clone(), r#"quotas[1] is the same quota as quotas[0], "L-DB2E81BA" of one place: take one out"#),
        ("/quotas/-", json!({"name": "l db2e81ba", "cloud": "aws", "region": "us-east-1", "limit": 3}), r#"quotas[1] is the same quota as quotas[0], "L-DB2E81BA" of one place: take one out"#),
        ("/prices/0/usdPerHour", json!(0.0), "prices[0].usdPerHour is 0: name what one node costs per hour"),
        ("/prices/0/zone", json!(""), "prices[0].zone is empty: give a name"),
        ("/prices/-", good()["prices"][0].clone(), "prices[1] prices the same market as prices[0]: take one out"),
    ];
    for (pointer, value, said) in cases {
        assert_eq!(faults(&with(pointer, value)), [said], "{pointer}");
    }
}

#[test]
fn isolation_is_refused_where_it_makes_no_sense() {
    let cases = [
        ("/pools/0/isolation", json!({"kappa": 0.9}), "pools[0].isolation.kappa 0.9 is below 1: raise it"),
        ("/pools/0/isolation", json!({"kappa": 1e3}), "pools[0].isolation.kappa 1000.0 is above 100: lower it"),
        (
            "/pools/0/waitingUsdPerGpuHour",
            json!(2),
            "pools[0].waitingUsdPerGpuHour has no effect without isolation yet: name isolation too, or take it out",
        ),
        (
            "/pools/0/waitingUsdPerGpuHour",
            json!(0),
            "pools[0].waitingUsdPerGpuHour is 0: name what a waiting GPU-hour costs you",
        ),
    ];
    for (pointer, value, said) in cases {
        assert_eq!(faults(&with(pointer, value))[0], said, "{pointer}");
    }
}

#[test]
fn what_is_not_supported_yet_is_refused_not_ignored() {
    let not_yet = "is not supported yet: take it out";
    for (pointer, value) in [
        ("/defaults/dataRegion", json!("aws/us-east-1")),
        ("/commitments", json!([{}])),
        ("/pools/0/gpu/throughput", json!({"L4": 1})),
        ("/pools/0/where/datasetGiB", json!(200)),
        ("/pools/0/where/maxDistance", json!("continent")),
        ("/pools/0/capacity/spot", json!({})),
        ("/pools/0/warmFloor", json!({"nodes": 2})),
        ("/pools/0/stabilization", json!({"scaleDown": "15m"})),
        ("/pools/0/sharing", json!({"timeSlicing": 4})),
    ] {
        let path = pointer.trim_start_matches('/').replace("pools/0", "pools[0]").replace('/', ".");
        assert_eq!(faults(&with(pointer, value)), [format!("{path} {not_yet}")], "{pointer}");
    }
    let probe = with("/pools/0/evidence", json!("probe"));
    assert_eq!(faults(&probe), ["pools[0].evidence probe is not supported yet: write pods or none"]);
}

#[test]
fn every_fault_comes_at_once_in_file_order() {
    let mut raw = with("/pools/0/limits/minNodes", json!(3));
    raw.kind = "Politics".into();
    raw.pools[0].name = "UP".into();
    raw.pools[1].gpu.models = vec![String::new()];
    raw.pools[1].evidence = Some(Evidence::Probe);
    raw.quotas[0].limit = None;
    assert_eq!(
        faults(&raw),
        [
            r#"kind "Politics" is not this file's kind: write Policy"#,
            r#"pools[0].name "UP" has 'U': use only lower-case letters, digits and '-'"#,
            "pools[0].limits minNodes 3 is above maxNodes 2: lower minNodes or raise maxNodes",
            "pools[1].gpu.models[0] is empty: give a name",
            "pools[1].evidence probe is not supported yet: write pods or none",
            "quotas[0] has no limit: write limit, in vCPU",
        ]
    );
}

/// AWS with two regions and their zones, Azure without zones, and one AWS type whose zones nobody tells.
fn book() -> PriceBook {
    let mut book = PriceBook::new();
    let quote = |price| Quote { price: UsdPerHour(price), kind: QuoteKind::List, as_of: None, source: "test".into() };
    let rows = [
        ("aws", "us-east-1", "use1-az1", "g6.xlarge", "L4"),
        ("aws", "us-east-1", "use1-az6", "g6e.xlarge", "L40S"),
        ("aws", "us-east-2", "use2-az1", "p4d.24xlarge", "A100"),
        ("azure", "eastus", "eastus", "Standard_NC4as_T4_v3", "T4"),
    ];
    for (cloud, region, zone, instance_type, model) in rows {
        let place = Place {
            cloud: Cloud::new(cloud).expect("an id"),
            region: Region::new(region).expect("an id"),
            zone: ZoneId::new(zone).expect("an id"),
            instance_type: InstanceType::new(instance_type).expect("an id"),
        };
        book.insert_spec(InstanceSpec {
            cloud: place.cloud.clone(),
            instance_type: place.instance_type.clone(),
            gpu_model: GpuModel::new(model).expect("an id"),
            gpus: Milli(1000),
            gpu_memory: MiB::from_gib(24),
            vcpus: Some(4),
            memory: Some(MiB::from_gib(16)),
            arch: Arch::Amd64,
        });
        book.insert(Market { place, capacity_type: CapacityType::OnDemand }, Entry::Price(quote(800_000)));
    }
    let unzoned = (Cloud::new("aws"), Region::new("eu-west-9"), InstanceType::new("p5.48xlarge"));
    book.insert_unzoned(unzoned.0.expect("an id"), unzoned.1.expect("an id"), unzoned.2.expect("an id"), quote(55_000_000));
    book
}

#[test]
#[rustfmt::skip] // A case a line.
fn names_are_held_against_the_price_tables() {
    let book = book();
    assert_eq!(check_against_prices(&with("/kind", json!("Policy")), &book), []);
    for (pointer, value, said) in [
        ("/pools/0/gpu/models", json!(["L4", "L40"]), r#"pools[0].gpu.models[1] "L40" is no GPU model of the price tables: nearest is L4"#),
        ("/pools/0/gpu/models", json!(["l40s"]), r#"pools[0].gpu.models[0] "l40s" is no GPU model of the price tables: nearest is L40S"#),
        ("/pools/0/gpu/models", json!(["banana"]), r#"pools[0].gpu.models[0] "banana" is no GPU model of the price tables: known are A100, L4, L40S, T4"#),
        ("/pools/1/where/clouds", json!(["aws", "azur"]), r#"pools[1].where.clouds[1] "azur" is no cloud of the price tables: nearest is azure"#),
        ("/pools/1/where/regions", json!(["us-east-3"]), r#"pools[1].where.regions[0] "us-east-3" is no region of aws: nearest is us-east-1"#),
        ("/pools/1/where/regions", json!(["eastus"]), r#"pools[1].where.regions[0] "eastus" is no region of aws: known are eu-west-9, us-east-1, us-east-2"#),
        ("/pools/0/where/zones", json!(["us-east-1a", "use1-az6", "use1-az7"]), r#"pools[0].where.zones[2] "use1-az7" is no zone of these regions: nearest is use1-az1; a zone's name, such as us-east-1a, will do too"#),
        ("/pools/0/where/zones", json!(["us-east-2a"]), r#"pools[0].where.zones[0] "us-east-2a" is no zone of these regions: known are use1-az1, use1-az6; a zone's name, such as us-east-1a, will do too"#),
        ("/pools/0/instanceTypes", json!(["g6.*", "g66.xlarge"]), r#"pools[0].instanceTypes[1] "g66.xlarge" is no instance type of aws: nearest is g6.xlarge"#),
        ("/pools/0/instanceTypes", json!(["p4e.*"]), r#"pools[0].instanceTypes[0] "p4e.*" fits no instance type of aws: nearest is p4d.24xlarge"#),
        ("/pools/0/instanceTypes", json!(["Standard_*"]), r#"pools[0].instanceTypes[0] "Standard_*" fits no instance type of aws: none is near"#),
        ("/quotas/0/cloud", json!("AWS"), r#"quotas[0].cloud "AWS" is no cloud of the price tables: nearest is aws"#),
        ("/quotas/0/region", json!("us-est-1"), r#"quotas[0].region "us-est-1" is no region of aws: nearest is us-east-1"#),
        ("/quotas/0/models", json!(["A10"]), r#"quotas[0].models[0] "A10" is no GPU model of the price tables: nearest is A100"#),
        ("/prices/0/zone", json!("us-east-1a"), r#"prices[0].zone "us-east-1a" is a zone's name, which means another place in each account: write its id, such as use1-az1"#),
        ("/prices/0/zone", json!("use1-az2"), r#"prices[0].zone "use1-az2" is no zone of us-east-1: nearest is use1-az1"#),
        ("/prices/0/instanceType", json!("g6.xlrage"), r#"prices[0].instanceType "g6.xlrage" is no instance type of aws: nearest is g6.xlarge"#),
        ("/prices/0/instanceType", json!("p4d.24xlarge"), "prices[0] prices p4d.24xlarge in us-east-1, where no zone is known to sell it: take it out"),
        ("/prices/0/zone", json!("use1-az6"), "prices[0] prices g6.xlarge in use1-az6, which is not known to sell it: use1-az1 is"),
    ] {
        assert_eq!(shown(&check_against_prices(&with(pointer, value), &book)), [said], "{pointer}");
    }
    // A region whose zones nobody tells takes any zone; within an unknown cloud nothing more can be judged.
    let mut raw = with("/pools/0/where/regions", json!(["eu-west-9"]));
    raw.pools[0].place.zones = vec!["euw9-az1".into()];
    raw.pools[1].place.clouds = vec!["gcp".into()];
    raw.pools[1].place.regions = vec!["nowhere".into()];
    assert_eq!(
        shown(&check_against_prices(&raw, &book)),
        [r#"pools[1].where.clouds[0] "gcp" is no cloud of the price tables: known are aws, azure"#]
    );
}
