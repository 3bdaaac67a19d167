mod data;
mod floors;
mod health;
mod karpenter;
mod signals;
mod suppliers;
mod windows;

use jiff::SignedDuration;
use serde_json::{Value, json};

use super::*;
use crate::base::ids::{Cloud, GpuModel, InstanceType, Region};
use crate::base::kinds::{QuotaUnit, ReturnToSpot};
use crate::base::units::{Milli, Percent, UsdMicros};
use crate::market::offer::{Arch, GpuFigure, InstanceSpec, Market, Place};
use crate::market::price::{Entry, NoSignal, PriceBook, Quote, QuoteKind};
use crate::policy::rules::month::MonthBudget;
use crate::policy::rules::spot::{Saving, SpotRules};
use crate::policy::{Fault, OneOrMany, Throughput, UnknownQuota};

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
    assert_eq!(
        inference.limits,
        Limits { min_nodes: 0, max_nodes: 2, max_usd_per_hour: None, month: None, guaranteed: UsdPerHour::ZERO }
    );
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
    let work = |policy: Policy| policy.pools[0].throughput.clone();
    let model = |name: &str| GpuModel::new(name).expect("an id");
    assert_eq!(
        work(read("/pools/0/gpu/throughput", json!({"L4": 1, "L40S": 3.125}))),
        Throughput::Given([(model("L4"), Milli(1_000)), (model("L40S"), Milli(3_125))].into())
    );
    assert_eq!(work(read("/pools/0/gpu/throughputFrom", json!("fp8"))), Throughput::From(GpuFigure::Fp8));
    assert_eq!(work(read("/pools/0/gpu/needs", json!(["mig"]))), Throughput::Alike);
    let least = |number: Value| read("/pools/0/gpu/minComputeCapability", number).pools[0].min_compute_capability;
    assert_eq!((least(json!(9.0)), least(json!(10))), ("9.0".parse().ok(), "10.0".parse().ok()));
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
fn what_a_workload_says_of_spot_holds_until_the_pool_says_otherwise() {
    let read = |pointer: &str, value: Value| Policy::try_from_raw(&with(pointer, value)).expect("no faults").pools;
    let mins = SignedDuration::from_mins;
    let checkpoints = |every, overhead| Saving::Checkpoints { every: mins(every), overhead: Percent(overhead) };
    let rules = |saving, restart| SpotRules {
        max_share: Percent(100),
        max_market_share: Percent(100),
        max_interruption: None,
        saving,
        save: None,
        restart: mins(restart),
        return_to_spot: ReturnToSpot::Idle,
    };
    let [inference, training] = read("/kind", json!("Policy")).try_into().expect("two pools");
    assert_eq!((inference.spot, training.spot), (None, Some(rules(checkpoints(30, 3), 5))));
    for (workload, default) in [("dev", rules(checkpoints(30, 3), 5)), ("batch", rules(checkpoints(10, 3), 2))] {
        assert_eq!(read("/pools/1/workload", json!(workload))[1].spot, Some(default), "{workload}");
    }
    // Best effort admits spot, and a replica has nothing to save.
    let best_effort = &read("/pools/0/tier", json!("bestEffort"))[0];
    assert_eq!(best_effort.prefer, [CapacityType::Spot, CapacityType::OnDemand]);
    assert_eq!(best_effort.spot, Some(rules(Saving::Stateless, 2)));
    assert_eq!(read("/pools/0/tier", json!("standard"))[0].prefer, [CapacityType::OnDemand]);
    // Work that a reclaim loses whole gets no spot, unless the pool insists by naming it.
    let unsaved = json!({"spot": {"checkpoint": "none"}});
    assert_eq!(read("/pools/1/capacity", unsaved)[1].prefer, [CapacityType::OnDemand]);
    let insists = json!({"prefer": ["spot", "on-demand"], "spot": {"checkpoint": "none"}});
    assert_eq!(read("/pools/1/capacity", insists)[1].spot, Some(rules(Saving::Nothing, 5)));
    let all = json!({"maxShare": "50%", "maxMarketShare": "25%", "maxInterruption": "10%", "checkpoint": "1h",
        "checkpointOverhead": "1%", "checkpointSave": "100s", "restart": "90s"});
    let said = SpotRules {
        max_share: Percent(50),
        max_market_share: Percent(25),
        max_interruption: Some(Percent(10)),
        saving: checkpoints(60, 1),
        save: Some(SignedDuration::from_secs(100)),
        restart: SignedDuration::from_secs(90),
        return_to_spot: ReturnToSpot::Busy,
    };
    assert_eq!(read("/pools/1/capacity/spot", all)[1].spot, Some(said));
}

#[test]
fn busy_nodes_move_back_to_spot_only_where_the_pool_says_that_work_is_saved() {
    let read = |capacity: Value| {
        let pools = Policy::try_from_raw(&with("/pools/1/capacity", capacity)).map(|policy| policy.pools);
        pools.map(|pools| pools[1].spot.as_ref().expect("spot rules").return_to_spot).map_err(|faults| faults[0].to_string())
    };
    assert_eq!(read(json!({})), Ok(ReturnToSpot::Idle), "the interval is our guess");
    assert_eq!(read(json!({"spot": {"checkpoint": "30m"}})), Ok(ReturnToSpot::Busy));
    assert_eq!(read(json!({"spot": {"checkpoint": "30m", "returnToSpot": "idle"}})), Ok(ReturnToSpot::Idle));
    assert_eq!(read(json!({"spot": {"returnToSpot": "busy"}})), Ok(ReturnToSpot::Busy), "so it says");
    assert_eq!(read(json!({"spot": {"returnToSpot": "never"}})), Ok(ReturnToSpot::Never));
    assert_eq!(read(json!({"prefer": ["on-demand", "spot"]})), Ok(ReturnToSpot::Never));
    assert_eq!(read(json!({"prefer": ["spot"]})), Ok(ReturnToSpot::Never), "there is nowhere to come back from");
    let fault = "pools[1].capacity.spot.returnToSpot has no effect: it is for pools that name spot before on-demand in \
                 capacity.prefer, remove it";
    assert_eq!(read(json!({"prefer": ["on-demand", "spot"], "spot": {"returnToSpot": "idle"}})), Err(fault.to_owned()));
    let fault = "pools[1].capacity.spot.returnToSpot is busy, and work that saves nothing must not be moved: name checkpoint, or write idle";
    let unsaved = json!({"prefer": ["spot", "on-demand"], "spot": {"checkpoint": "none", "returnToSpot": "busy"}});
    assert_eq!(read(unsaved), Err(fault.to_owned()));
}

#[test]
#[rustfmt::skip] // A case a line.
fn each_rule_names_the_field_and_the_cure() {
    let (long_name, long_value) = ("a".repeat(41), "x".repeat(64));
    let name_too_long = format!("pools[0].name \"{long_name}\" has 41 characters, more than 40: shorten it");
    let value_too_long = format!("pools[0].template.labels.team {} is not a label value: write up to 63 letters, digits, '-', '_' and '.', beginning and ending with a letter or digit", quoted(&long_value));
    let taint = json!({"key": "team", "effect": "NoSchedule"});
    let cases: Vec<(&str, Value, &str)> = vec![
        ("/apiVersion", json!("v1"), r#"apiVersion "v1" is not a supported version: write stoker.dev/v1alpha1"#),
        ("/kind", json!("Pod"), r#"kind "Pod" is not a supported kind: write Policy"#),
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
        ("/pools/0/gpu/models", json!(["L4", "T4", "L4"]), r#"pools[0].gpu.models[2] "L4" is listed twice: remove one"#),
        ("/pools/0/gpu/models", json!(["L4 "]), r#"pools[0].gpu.models[0] "L4 " begins or ends with a space: remove it"#),
        ("/pools/0/gpu/models", json!(["L4\n\u{7}"]), r#"pools[0].gpu.models[0] "L4\n\u{7}" has a control character: remove it"#),
        ("/pools/0/gpu/count", json!(0), "pools[0].gpu.count is 0, below 1: name how many GPUs a node has"),
        ("/pools/0/gpu/count", json!([4, 0]), "pools[0].gpu.count[1] is 0, below 1: name how many GPUs a node has"),
        ("/pools/0/gpu/count", json!([]), "pools[0].gpu.count is empty: name at least one count, or leave it out for any"),
        ("/pools/0/gpu/count", json!([8, 8]), "pools[0].gpu.count[1] 8 is listed twice: remove one"),
        ("/pools/0/gpu/minComputeCapability", json!(8.95), r#"pools[0].gpu.minComputeCapability "8.95" is not a compute capability: write it like 8.9"#),
        ("/pools/0/gpu/minComputeCapability", json!(-8), r#"pools[0].gpu.minComputeCapability "-8" is not a compute capability: write it like 8.9"#),
        ("/pools/0/gpu/needs", json!(["fp8", "fp8"]), "pools[0].gpu.needs[1] FP8 is listed twice: remove one"),
        ("/pools/0/gpu/throughput", json!({"L4": 1}), "pools[0].gpu.throughput has no figure for L40S: add one, or remove it from models"),
        ("/pools/0/gpu/throughput", json!({"L4": 1, "L40S": 2, "T4": 1}), "pools[0].gpu.throughput.T4 is not among the pool's models: remove it, or add it to models"),
        ("/pools/0/gpu/throughput", json!({"L4": 0, "L40S": 2}), "pools[0].gpu.throughput.L4 0 is zero: write how much one GPU does, from 0.001, or remove the model from the pool"),
        ("/pools/0/gpu/throughput", json!({"L4": 0.0004, "L40S": 2}), "pools[0].gpu.throughput.L4 0.0004 is zero: write how much one GPU does, from 0.001, or remove the model from the pool"),
        ("/pools/0/gpu/throughput", json!({"L4": -1.5, "L40S": 2}), "pools[0].gpu.throughput.L4 -1.5 is negative: write how much work one GPU does"),
        ("/pools/0/gpu/throughput", json!({"L4": 1e-9, "L40S": 2}), "pools[0].gpu.throughput.L4 1e-9 is not a plain decimal number: write it like 1.5"),
        ("/pools/0/gpu/throughput", json!({"L4": 1, "L40S": 1_000_001}), "pools[0].gpu.throughput.L40S 1000001 is above 1000000: divide all of them alike, only their proportions count"),
        ("/pools/0/where/clouds", json!([]), "pools[0].where.clouds is empty: name at least one cloud, such as aws"),
        ("/pools/0/where/regions", json!([]), "pools[0].where.regions is empty: name at least one region, such as us-east-1"),
        ("/pools/0/where/zones", json!(["use1-az1", "use1-az1"]), r#"pools[0].where.zones[1] "use1-az1" is listed twice: remove one"#),
        ("/pools/0/instanceTypes", json!(["g6.*", "*"]), r#"pools[0].instanceTypes[1] "*" is every type: leave instanceTypes out instead"#),
        ("/pools/0/instanceTypes", json!(["g*.xlarge"]), r#"pools[0].instanceTypes[0] "g*.xlarge" has '*' before its end: write a whole name, or a prefix such as g6.*"#),
        ("/pools/0/instanceTypes", json!(["g6.*", "g6.*"]), r#"pools[0].instanceTypes[1] "g6.*" is listed twice: remove one"#),
        ("/pools/0/capacity/prefer", json!([]), "pools[0].capacity.prefer is empty: name at least one of reserved, spot and on-demand, or leave it out"),
        ("/pools/0/capacity/prefer", json!(["spot", "on-demand", "spot"]), "pools[0].capacity.prefer[2] spot is listed twice: remove one"),
        ("/pools/0/capacity/spot", json!({"maxShare": "50%"}), "pools[0].capacity.spot has rules, but the pool buys no spot: name spot in capacity.prefer, or remove the rules"),
        ("/pools/1/capacity/spot", json!({"maxShare": "140%"}), r#"pools[1].capacity.spot.maxShare "140%" is above 100%: lower it"#),
        ("/pools/1/capacity/spot", json!({"maxShare": "0.5"}), r#"pools[1].capacity.spot.maxShare "0.5" is not a share: write it like 25%"#),
        ("/pools/1/capacity/spot", json!({"maxMarketShare": "-5%"}), r#"pools[1].capacity.spot.maxMarketShare "-5%" is not a share: write it like 25%"#),
        ("/pools/1/capacity/spot", json!({"maxMarketShare": "0%"}), "pools[1].capacity.spot.maxMarketShare is 0%, which no node fits: raise it, or remove spot from capacity.prefer"),
        ("/pools/1/capacity/spot", json!({"maxInterruption": "%"}), r#"pools[1].capacity.spot.maxInterruption "%" is not a share: write it like 25%"#),
        ("/pools/1/capacity/spot", json!({"checkpoint": "0m"}), "pools[1].capacity.spot.checkpoint is 0, below 1s: name the time between checkpoints, or none"),
        ("/pools/1/capacity/spot", json!({"checkpoint": "often"}), r#"pools[1].capacity.spot.checkpoint "often" is not a length of time: write it like 10m, 1h30m or 90s"#),
        ("/pools/1/capacity/spot", json!({"restart": "169h"}), r#"pools[1].capacity.spot.restart "169h" is above 168h, longer than a spot node lives: shorten it"#),
        ("/pools/1/capacity/spot", json!({"checkpointOverhead": "100%"}), "pools[1].capacity.spot.checkpointOverhead is 100%, which leaves no time for work: lower it"),
        ("/pools/1/capacity/spot", json!({"checkpoint": "none", "checkpointOverhead": "3%"}), "pools[1].capacity.spot.checkpointOverhead applies to checkpoints, and the pool writes none: remove it, or name checkpoint"),
        ("/pools/1/capacity", json!({"prefer": ["spot"], "spot": {"maxShare": "99%"}}), "pools[1].capacity.spot.maxShare leaves a share that no other capacity type may fill: name on-demand in capacity.prefer too"),
        ("/pools/1/tier", json!("bestEffort"), "pools[1].tier bestEffort applies to inference pools only, the others take spot first anyway: remove it"),
        ("/pools/1/limits/minNodes", json!(4), "pools[1].limits minNodes 4 is above maxNodes 2: lower minNodes or raise maxNodes"),
        ("/pools/1/limits/maxNodes", json!(100_001), "pools[1].limits.maxNodes 100001 is above 100000, more than a cluster can have: lower it"),
        ("/pools/0/limits/maxUsdPerHour", json!(0), "pools[0].limits.maxUsdPerHour is 0: name a rate, or close the pool with maxNodes: 0"),
        ("/pools/0/limits/maxUsdPerHour", json!(-3), "pools[0].limits.maxUsdPerHour -3 is negative: name a rate, or close the pool with maxNodes: 0"),
        ("/pools/0/limits/maxUsdPerHour", json!(1e-9), "pools[0].limits.maxUsdPerHour 1e-9 is not plain dollars: write it like 12.5"),
        ("/pools/0/limits/maxUsdPerHour", json!(99_999_999_999_i64), "pools[0].limits.maxUsdPerHour 99999999999 is more than a rate can hold: lower it"),
        ("/pools/0/template/labels", json!({"a b": "c"}), r#"pools[0].template.labels["a b"] "a b" is not a label key: write up to 63 letters, digits, '-', '_' and '.', after at most one prefix such as example.com/"#),
        ("/pools/0/template/labels", json!({"a/b/c": "d"}), r#"pools[0].template.labels["a/b/c"] "a/b/c" is not a label key: write up to 63 letters, digits, '-', '_' and '.', after at most one prefix such as example.com/"#),
        ("/pools/0/template/labels", json!({"team": "-a"}), r#"pools[0].template.labels.team "-a" is not a label value: write up to 63 letters, digits, '-', '_' and '.', beginning and ending with a letter or digit"#),
        ("/pools/0/template/labels", json!({"team": long_value}), &value_too_long),
        ("/pools/0/template/labels", json!({"stoker.dev/pool": "x"}), r#"pools[0].template.labels["stoker.dev/pool"] "stoker.dev/pool" is set by Stoker or by Kubernetes itself: remove it"#),
        ("/pools/0/template/labels", json!({"topology.kubernetes.io/zone": "x"}), r#"pools[0].template.labels["topology.kubernetes.io/zone"] "topology.kubernetes.io/zone" is set by Stoker or by Kubernetes itself: remove it"#),
        ("/pools/0/template/labels", json!({"karpenter.sh/capacity-type": "spot"}), r#"pools[0].template.labels["karpenter.sh/capacity-type"] "karpenter.sh/capacity-type" is set by Stoker or by Kubernetes itself: remove it"#),
        ("/pools/0/template/taints", json!([taint, {"key": "team", "value": "b", "effect": "NoExecute"}, taint]), r#"pools[0].template.taints[2] "team" with NoSchedule is listed twice: remove one"#),
        ("/pools/0/template/taints", json!([{"key": "node.kubernetes.io/not-ready", "effect": "NoExecute"}]), r#"pools[0].template.taints[0].key "node.kubernetes.io/not-ready" is set by Stoker or by Kubernetes itself: remove it"#),
        ("/pools/0/template/taints", json!([{"key": "startup-taint.cluster-autoscaler.kubernetes.io/driver", "effect": "NoSchedule"}]), r#"pools[0].template.taints[0].key "startup-taint.cluster-autoscaler.kubernetes.io/driver" is reserved by the autoscaler, and a node that has it never counts as ready: choose another key"#),
        ("/pools/0/template/taints", json!([{"key": "team", "value": "a b", "effect": "NoExecute"}]), r#"pools[0].template.taints[0].value "a b" is not a label value: write up to 63 letters, digits, '-', '_' and '.', beginning and ending with a letter or digit"#),
        ("/quotas/0", json!({"name": "x", "cloud": "aws", "vcpus": 8, "gpus": 8}), "quotas[0] has both vcpus and gpus: give one of them"),
        ("/quotas/0", json!({"name": "x", "cloud": "aws"}), "quotas[0] has no limit: give one of vcpus and gpus"),
        ("/quotas/0", json!({"name": "x", "cloud": "aws", "limit": 8}), "quotas[0] has a limit without a unit, which only the name of a known quota implies: write vcpus or gpus"),
        ("/quotas/0", json!({"name": "x", "cloud": "aws", "gpus": 8, "models": ["L4", "L4"]}), r#"quotas[0].models[1] "L4" is listed twice: remove one"#),
        ("/quotas/0", json!({"name": "x", "cloud": "aws", "gpus": 8, "capacityTypes": ["spot", "spot"]}), "quotas[0].capacityTypes[1] spot is listed twice: remove one"),
        ("/quotas/0", json!({"name": "x", "cloud": "aws", "gpus": 8, "used": 4_000_000_000_u32}), "quotas[0].used 4000000000 is above 100000000, more than a cluster could use: write vCPUs or whole GPUs"),
        ("/quotas/0", json!({"name": "x", "cloud": "aws", "gpus": 8, "safety": 9}), "quotas[0].safety 9 is above the limit of 8, so nothing could be bought: lower it"),
        ("/quotas/0", json!({"name": "", "cloud": "aws", "vcpus": 8}), "quotas[0].name is empty: give a name"),
        ("/quotas/0/name", json!("L-DB2E81AB"), r#"quotas[0].name "L-DB2E81AB" is not a known quota of aws; nearest is L-DB2E81BA: did you mean that? A quota of your own needs a name less like it"#),
        ("/quotas/0/cloud", json!("gcp"), r#"quotas[0].cloud "gcp" has no L-DB2E81BA, aws has: write cloud: aws"#),
        ("/quotas/0/region", Value::Null, "quotas[0] has no region: each region has its own L-DB2E81BA, name one"),
        ("/quotas/0", json!({"name": "GPUS_ALL_REGIONS", "cloud": "gcp", "region": "us-central1", "limit": 8}), r#"quotas[0].region "us-central1" is too narrow: GPUS_ALL_REGIONS counts every region, remove it"#),
        ("/quotas/0/models", json!(["L4"]), "quotas[0].models does not apply to L-DB2E81BA, for which it is known what it counts: remove it"),
        ("/quotas/0/capacityTypes", json!(["spot"]), "quotas[0].capacityTypes does not apply to L-DB2E81BA, for which it is known what it counts: remove it"),
        ("/quotas/0/vcpus", json!(8), "quotas[0].vcpus does not apply to L-DB2E81BA, which is known to count in vCPU: write limit"),
        ("/quotas/0/limit", Value::Null, "quotas[0] has no limit: write limit, in vCPU"),
        ("/quotas/0/limit", json!(100_000_001), "quotas[0].limit 100000001 is above 100000000, more than a cluster could use: write vCPUs or whole GPUs"),
        ("/quotas", json!([{"name": "x", "cloud": "aws", "capacityTypes": ["spot"], "vcpus": 8}, {"name": "x", "cloud": "aws", "capacityTypes": ["on-demand"], "vcpus": 8}]), r#"quotas[1] counts other nodes than quotas[0] under the same name "x": give it another name"#),
        ("/quotas/-", good()["quotas"][0].clone(), r#"quotas[1] is the same quota as quotas[0], "L-DB2E81BA" of one place: remove one"#),
        ("/quotas/-", json!({"name": "l db2e81ba", "cloud": "aws", "region": "us-east-1", "limit": 3}), r#"quotas[1] is the same quota as quotas[0], "L-DB2E81BA" of one place: remove one"#),
        ("/prices/0/usdPerHour", json!(0.0), "prices[0].usdPerHour is 0: name what one node costs per hour"),
        ("/prices/0/zone", json!(""), "prices[0].zone is empty: give a name"),
        ("/prices/0/capacityType", json!("reserved"), "prices[0].capacityType reserved has no price of its own: the entry under commitments gives it"),
        ("/prices/-", good()["prices"][0].clone(), "prices[1] prices the same market as prices[0]: remove one"),
    ];
    for (pointer, value, said) in cases {
        assert_eq!(faults(&with(pointer, value)), [said], "{pointer}");
    }
}

/// A commitment of each kind with nothing wrong.
fn commitments() -> Value {
    let place = json!({"cloud": "aws", "region": "us-east-1", "zone": "use1-az1", "instanceType": "g6.xlarge", "nodes": 2});
    let one = |name: &str, kind: &str, more: Value| {
        let mut one = json!({"name": name, "kind": kind});
        one.as_object_mut().expect("a map").extend(more.as_object().expect("a map").clone());
        one
    };
    let block = one("block", "capacity-block", place.clone());
    json!([
        one(
            "ri",
            "reserved-instance",
            json!({"cloud": "aws", "region": "us-east-1", "instanceType": "g6.xlarge", "nodes": 2, "usdPerHour": 1})
        ),
        one("plan", "compute-savings-plan", json!({"cloud": "aws", "usdPerHour": 5, "discount": "28%"})),
        one("odcr", "capacity-reservation", place),
        one("block", "capacity-block", {
            let mut block = block;
            block["usdPerHour"] = json!(1);
            block["from"] = json!("2026-12-01T11:30:00Z");
            block["until"] = json!("2026-12-08T11:30:00Z");
            block
        }),
    ])
}

/// The good policy with those commitments, and the field at `pointer` set to `value`; `null` takes it out.
fn committed(pointer: &str, value: Value) -> RawPolicy {
    let mut list = commitments();
    let (parent, field) = pointer.rsplit_once('/').expect("a pointer");
    match list.pointer_mut(parent).expect("a part") {
        Value::Array(list) => list.push(value),
        Value::Object(map) if value.is_null() => drop(map.remove(field)),
        part => part[field] = value,
    }
    with("/commitments", list)
}

#[test]
#[rustfmt::skip] // A case a line.
fn each_rule_of_a_commitment_names_the_field_and_the_cure() {
    assert_eq!(faults(&with("/commitments", commitments())), [""; 0]);
    // Capacity that is kept is bought by pools that do not say how they buy.
    let pools = Policy::try_from_raw(&with("/commitments", commitments())).expect("no faults").pools;
    assert_eq!(pools[0].prefer, [CapacityType::Reserved, CapacityType::OnDemand]);
    let mut twin = commitments()[0].clone();
    twin["name"] = json!("ri-2");
    twin["nodes"] = json!(9);
    let mut named = commitments()[2].clone();
    named["name"] = json!("ri");
    named["region"] = json!("us-west-2");
    let cases: Vec<(&str, Value, &str)> = vec![
        ("/0/name", json!(""), "commitments[0].name is empty: give a name"),
        ("/-", named, r#"commitments[4].name "ri" is the name of commitments[0] too: give each its own"#),
        ("/-", twin, "commitments[4] covers the same as commitments[0]: add the two up in one, or name the times in which they differ"),
        ("/0/cloud", json!("gcp"), r#"commitments[0].kind reserved-instance is sold by aws, not by "gcp": write one of committed-use, reservation, calendar-reservation"#),
        ("/0/cloud", json!("lambda"), r#"commitments[0].kind reserved-instance is sold by aws, not by "lambda": write aws, gcp or azure as its cloud"#),
        ("/0/kind", json!("capacity-reservation"), "commitments[0] has no zone, which a capacity-reservation needs: name the zone by its id, such as use1-az6; commitments[0].usdPerHour does not apply to a capacity-reservation: remove it"),
        ("/0/nodes", json!(null), "commitments[0] has no nodes, which a reserved-instance needs: say how many nodes it is for"),
        ("/0/nodes", json!(0), "commitments[0].nodes is 0, below 1: say how many it is for, or remove the commitment"),
        ("/0/nodes", json!(100_001), "commitments[0].nodes 100001 is above 100000, more than a cluster can have: lower it"),
        ("/0/usdPerHour", json!(-1), "commitments[0].usdPerHour -1 is negative: say what all of it costs per hour, used or not"),
        ("/0/discount", json!("28%"), "commitments[0].discount does not apply to a reserved-instance: remove it"),
        ("/0/from", json!("1 December"), r#"commitments[0].from "1 December" is not a moment: write it like 2026-12-01T11:30:00Z"#),
        ("/1/usdPerHour", json!(null), "commitments[1] has no usdPerHour, which a compute-savings-plan needs: say what all of it costs per hour, used or not"),
        ("/1/usdPerHour", json!(0), "commitments[1].usdPerHour is 0: say what all of it costs per hour, used or not"),
        ("/1/discount", json!(null), "commitments[1] has no discount, which a compute-savings-plan needs: say how far its rates lie below on-demand, such as 28%"),
        ("/1/discount", json!("28"), r#"commitments[1].discount "28" is not a share: write it like 28% or 37.5%"#),
        ("/1/discount", json!("0.0%"), r#"commitments[1].discount "0.0%" is not above 0% and below 100%: say how far its rates lie below on-demand, such as 28%"#),
        ("/1/discount", json!("100%"), r#"commitments[1].discount "100%" is not above 0% and below 100%: say how far its rates lie below on-demand, such as 28%"#),
        ("/1/discount", json!({"g6.*": "-3%"}), r#"commitments[1].discount["g6.*"] "-3%" is not a share: write it like 28% or 37.5%"#),
        ("/1/discount", json!({}), "commitments[1].discount is empty: say how far its rates lie below on-demand, such as 28%"),
        ("/1/kind", json!("ec2-savings-plan"), "commitments[1] has no region, which a ec2-savings-plan needs: name the region, such as us-east-1; commitments[1] has no family, which a ec2-savings-plan needs: name the family, such as g6"),
        ("/2/family", json!("g6.xlarge"), r#"commitments[2].family does not apply to a capacity-reservation: remove it; commitments[2].family "g6.xlarge" is an instance type: write its family, "g6""#),
        ("/3/until", json!("2026-12-01T11:30:00Z"), "commitments[3].until 2026-12-01T11:30:00Z is not after its beginning at 2026-12-01T11:30:00Z: correct one of them"),
        ("/3/until", json!("2026-12-01T12:10:00Z"), "commitments[3].until 2026-12-01T12:10:00Z is too soon: nodes of a capacity-block leave 40 min before its end"),
        ("/3/until", json!("2027-06-02T11:30:00Z"), "commitments[3].until 2027-06-02T11:30:00Z is more than 182 days after its beginning, longer than a capacity-block lasts: correct it"),
        ("/3/from", json!(null), "commitments[3] has no from, which a capacity-block needs: say when it begins, such as 2026-12-01T11:30:00Z"),
        ("/3/nodes", json!(65), "commitments[3].nodes 65 is above 64, the most that one capacity-block has: split it as it was bought"),
    ];
    for (pointer, value, said) in cases {
        assert_eq!(faults(&committed(pointer, value.clone())).join("; "), said, "{pointer}: {value}");
    }
}

#[test]
#[rustfmt::skip] // A case a line.
fn commitments_are_held_against_the_price_tables() {
    let book = book();
    assert_eq!(check_against_prices(&with("/commitments", commitments()), &book), []);
    for (pointer, value, said) in [
        ("/0/cloud", json!("aw"), r#"commitments[0].cloud "aw" is not a known cloud: nearest is aws"#),
        ("/0/region", json!("us-east-3"), r#"commitments[0].region "us-east-3" is not a known region of aws: nearest is us-east-1"#),
        ("/0/region", json!("us-east-2"), "commitments[0] is for g6.xlarge in us-east-2, where it is not sold: it is in us-east-1"),
        ("/0/instanceType", json!("g6.xlrage"), r#"commitments[0].instanceType "g6.xlrage" is not a known instance type of aws: nearest is g6.xlarge"#),
        ("/0/instanceType", json!("p5.48xlarge"), "commitments[0] is for p5.48xlarge in us-east-1, where it is not sold: no zone is known to sell it"),
        // $0.80 on demand: two nodes for $3.21 are more than twice that.
        ("/0/usdPerHour", json!(3.21), "commitments[0].usdPerHour $3.2100 is $1.6050 for a node, more than 2 times on-demand ($0.8000): write what all of it costs per hour, with what was paid upfront spread over the term"),
        ("/1/discount", json!({"g7.*": "28%"}), r#"commitments[1].discount["g7.*"] "g7.*" matches no instance type of aws: nearest is g6.xlarge"#),
        ("/2/zone", json!("use1-az6"), "commitments[2] is for g6.xlarge in use1-az6, where it is not sold: it is in use1-az1"),
        ("/2/zone", json!("us-east-1a"), r#"commitments[2].zone "us-east-1a" is a zone's name, which means another zone in each account: write its id, such as use1-az1"#),
        ("/2/model", json!("L44"), r#"commitments[2].model "L44" is not a known GPU model: nearest is L4"#),
        ("/2/family", json!("g66"), r#"commitments[2].family "g66" is not a known instance family of aws: nearest is g6"#),
    ] {
        assert_eq!(shown(&check_against_prices(&committed(pointer, value), &book)), [said], "{pointer}");
    }
}

#[test]
fn isolation_is_refused_where_it_makes_no_sense() {
    let cases = [
        ("/pools/0/isolation", json!({"maxCostRatio": 0.9}), "pools[0].isolation.maxCostRatio 0.9 is below 1: raise it"),
        ("/pools/0/isolation", json!({"maxCostRatio": 1e3}), "pools[0].isolation.maxCostRatio 1000.0 is above 100: lower it"),
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
fn conflicting_words_about_gpus_are_told() {
    let mut raw = with("/pools/0/gpu/throughput", json!({"L4": 1, "L40S": 3.1}));
    raw.pools[0].gpu.throughput_from = Some(GpuFigure::Fp16);
    assert_eq!(faults(&raw), ["pools[0].gpu.throughputFrom is given together with throughput: give one of them"]);
    let mut raw = with("/pools/0/gpu/needs", json!(["nvlink", "mig"]));
    raw.pools[0].gpu.count = Some(OneOrMany::One(1));
    assert_eq!(
        faults(&raw),
        ["pools[0].gpu.needs has nvlink, but count allows one GPU a node, which has no other to link to: drop one of them"]
    );
}

#[test]
fn how_long_a_pod_may_do_nothing_is_read_where_a_probe_can_tell() {
    let read = |evidence: Evidence, text: &str| {
        let mut raw = with("/pools/0/heldAfter", json!(text));
        raw.pools[0].evidence = Some(evidence);
        Policy::try_from_raw(&raw).map(|policy| policy.pools[0].held_after).map_err(|faults| faults[0].to_string())
    };
    assert_eq!(read(Evidence::Probe, "15m"), Ok(SignedDuration::from_mins(15)));
    assert_eq!(read(Evidence::Probe, "168h"), Ok(SignedDuration::from_hours(168)));
    for (evidence, text, says) in [
        (Evidence::Probe, "14m59s", "14m59s is below 15m: lengthen it, a pod that loads its model would count as forgotten"),
        (Evidence::Probe, "168h1s", "168h1s is above 168h, a week: shorten it, or leave it out for 2h"),
        (
            Evidence::Pods,
            "2h",
            "cannot be met by the evidence: pods show that a pod has GPUs, and not whether it uses them: write evidence: \
             probe, or remove it",
        ),
        (
            Evidence::None,
            "2h",
            "cannot be met by the evidence: none shows nothing about what runs on a node: write evidence: probe, or remove \
             it",
        ),
    ] {
        assert_eq!(read(evidence, text), Err(format!("pools[0].heldAfter {says}")));
    }
}

#[test]
fn every_fault_comes_at_once_in_file_order() {
    let mut raw = with("/pools/0/limits/minNodes", json!(3));
    raw.kind = "Politics".into();
    raw.pools[0].name = "UP".into();
    raw.pools[1].gpu.models = vec![String::new()];
    raw.pools[1].held_after = Some("1h".into());
    raw.quotas[0].limit = None;
    assert_eq!(
        faults(&raw),
        [
            r#"kind "Politics" is not a supported kind: write Policy"#,
            r#"pools[0].name "UP" has 'U': use only lower-case letters, digits and '-'"#,
            "pools[0].limits minNodes 3 is above maxNodes 2: lower minNodes or raise maxNodes",
            "pools[1].gpu.models[0] is empty: give a name",
            "pools[1].heldAfter cannot be met by the evidence: pods show that a pod has GPUs, and not whether it uses them: \
             write evidence: probe, or remove it",
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
        ("aws", "us-east-2", "use2-az2", "p4d.24xlarge", "A100"),
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
            network: None,
            local_disk: None,
        });
        let spot = match zone {
            "use1-az1" => Some(Entry::Price(quote(300_000))),
            "use2-az1" => Some(Entry::NoSignal(NoSignal::PinnedAtOnDemand)),
            _ => None,
        };
        if let Some(entry) = spot {
            book.insert(Market { place: place.clone(), capacity_type: CapacityType::Spot }, entry);
        }
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
    let row = |region: &str, zone: Option<&str>, instance_type: &str| {
        json!({"cloud": "aws", "region": region, "zone": zone, "instanceType": instance_type, "capacityType": "spot", "usdPerHour": 1})
    };
    let zoned = row("eu-west-9", Some("euw9-az1"), "p5.48xlarge");
    assert_eq!(check_against_prices(&with("/prices/0", zoned), &book), [], "the operator says which zone sells it");
    assert_eq!(check_against_prices(&with("/kind", json!("Policy")), &book), []);
    for (pointer, value, said) in [
        ("/pools/0/gpu/models", json!(["L4", "L40"]), r#"pools[0].gpu.models[1] "L40" is not a known GPU model: nearest is L4"#),
        ("/pools/0/gpu/models", json!(["l40s"]), r#"pools[0].gpu.models[0] "l40s" is not a known GPU model: nearest is L40S"#),
        ("/pools/0/gpu/models", json!(["banana"]), r#"pools[0].gpu.models[0] "banana" is not a known GPU model: known are A100, L4, L40S, T4"#),
        ("/pools/1/where/clouds", json!(["aws", "azur"]), r#"pools[1].where.clouds[1] "azur" is not a known cloud: nearest is azure"#),
        ("/pools/1/where/regions", json!(["us-east-3"]), r#"pools[1].where.regions[0] "us-east-3" is not a known region of aws: nearest is us-east-1"#),
        ("/pools/1/where/regions", json!(["eastus"]), r#"pools[1].where.regions[0] "eastus" is not a known region of aws: known are eu-west-9, us-east-1, us-east-2"#),
        ("/pools/0/where/zones", json!(["us-east-1a", "use1-az6", "use1-az7"]), r#"pools[0].where.zones[2] "use1-az7" is not a known zone of these regions: nearest is use1-az1; a zone's name, such as us-east-1a, works too"#),
        ("/pools/0/where/zones", json!(["us-east-2a"]), r#"pools[0].where.zones[0] "us-east-2a" is not a known zone of these regions: known are use1-az1, use1-az6; a zone's name, such as us-east-1a, works too"#),
        ("/pools/0/instanceTypes", json!(["g6.*", "g66.xlarge"]), r#"pools[0].instanceTypes[1] "g66.xlarge" is not a known instance type of aws: nearest is g6.xlarge"#),
        ("/pools/0/instanceTypes", json!(["p4e.*"]), r#"pools[0].instanceTypes[0] "p4e.*" matches no instance type of aws: nearest is p4d.24xlarge"#),
        ("/pools/0/instanceTypes", json!(["Standard_*"]), r#"pools[0].instanceTypes[0] "Standard_*" matches no instance type of aws: none is near"#),
        ("/quotas/0/cloud", json!("AWS"), r#"quotas[0].cloud "AWS" is not a known cloud: nearest is aws"#),
        ("/quotas/0/region", json!("us-est-1"), r#"quotas[0].region "us-est-1" is not a known region of aws: nearest is us-east-1"#),
        ("/quotas/0/models", json!(["A10"]), r#"quotas[0].models[0] "A10" is not a known GPU model: nearest is A100"#),
        ("/prices/0/zone", json!("us-east-1a"), r#"prices[0].zone "us-east-1a" is a zone's name, which means another zone in each account: write its id, such as use1-az1"#),
        ("/prices/0/zone", json!("use1-az2"), r#"prices[0].zone "use1-az2" is not a known zone of us-east-1: nearest is use1-az1"#),
        ("/prices/0/instanceType", json!("g6.xlrage"), r#"prices[0].instanceType "g6.xlrage" is not a known instance type of aws: nearest is g6.xlarge"#),
        ("/prices/0/instanceType", json!("p4d.24xlarge"), "prices[0] prices p4d.24xlarge in us-east-1, where no zone is known to sell it: remove it"),
        ("/prices/0/zone", json!("use1-az6"), "prices[0] prices g6.xlarge in use1-az6, which is not known to sell it: use1-az1 is"),
        ("/prices/0", row("us-east-2", None, "p4d.24xlarge"), "prices[0] prices p4d.24xlarge spot in us-east-2, where the tables know no such market: name the zone if you know better, such as use2-az2"),
        ("/prices/0", row("us-east-2", Some("use2-az1"), "p4d.24xlarge"), "prices[0] prices p4d.24xlarge spot in use2-az1, where it is not sold (spot quote is pinned at the on-demand price: no spot market): remove it"),
        ("/prices/0", row("eu-west-9", None, "p5.48xlarge"), "prices[0] prices p5.48xlarge in eu-west-9, and no table tells which of its zones sell it: name the zone by its id"),
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
        [r#"pools[1].where.clouds[0] "gcp" is not a known cloud: known are aws, azure"#]
    );
}

#[test]
fn committed_use_names_the_memory_where_a_model_has_several() {
    let mut book = book();
    for gib in [40, 80] {
        book.insert_spec(InstanceSpec {
            cloud: Cloud::new("azure").expect("an id"),
            instance_type: InstanceType::new(format!("a{gib}")).expect("an id"),
            gpu_model: GpuModel::new("A100").expect("an id"),
            gpus: Milli(1000),
            gpu_memory: MiB::from_gib(gib),
            vcpus: Some(4),
            memory: Some(MiB::from_gib(16)),
            arch: Arch::Amd64,
            network: None,
            local_disk: None,
        });
    }
    let told = |memory: Value| {
        let cud =
            json!({"name": "cud", "cloud": "azure", "kind": "committed-use", "model": "A100", "memoryGiB": memory, "gpus": 1});
        shown(&check_against_prices(&with("/commitments", json!([cud])), &book))
    };
    assert_eq!(told(json!(80)), [""; 0]);
    let missing = "commitments[0] has no memoryGiB, and A100 comes with several: write memoryGiB: 40 or 80";
    assert_eq!(told(json!(null)), [missing]);
    let wrong = "commitments[0].memoryGiB 48 is not a memory size of A100 on azure: write 40 or 80";
    assert_eq!(told(json!(48)), [wrong]);
    let zero = json!([{"name": "cud", "cloud": "gcp", "kind": "committed-use", "region": "us-central1", "model": "L4",
                       "memoryGiB": 0, "gpus": 1, "usdPerHour": 1}]);
    let said = "commitments[0].memoryGiB is 0: name the memory of one GPU in GiB, such as 80, or leave it out";
    assert_eq!(faults(&with("/commitments", zero)), [said]);
}

#[test]
#[rustfmt::skip] // A case a line.
fn budgets_and_floors_fit_together() {
    let limited = |pointer: &str, value: Value| {
        let mut raw = with(pointer, value);
        raw.pools[1].limits.max_usd_per_hour = Some(60.into());
        raw
    };
    assert_eq!(Policy::try_from_raw(&limited("/limits", json!({"maxUsdPerHour": 60}))).map(|p| p.max_usd_per_hour), Ok(Some(UsdPerHour(60_000_000))));
    assert_eq!(Policy::try_from_raw(&limited("/limits", json!({}))).map(|p| p.max_usd_per_hour), Ok(None));
    for (limit, said) in [
        (json!(0), "limits.maxUsdPerHour is 0: name a rate, or close the pools with maxNodes: 0"),
        (json!(-5), "limits.maxUsdPerHour -5 is negative: name a rate, or close the pools with maxNodes: 0"),
        (json!(59.5), "pools[1].limits.maxUsdPerHour $60.0000 is above the $59.5000 of all pools together (limits.maxUsdPerHour): lower it, or raise that"),
    ] {
        assert_eq!(faults(&limited("/limits/maxUsdPerHour", limit)), [said]);
    }
    // Inference takes nodes of $0.80 on demand; training may get spot, for no less than a tenth of that: 5 nodes for $0.40, 6 for $0.48.
    let floors = |inference: u32, training: u32, own: f64, all: f64| {
        let mut raw = with("/limits/maxUsdPerHour", json!(all));
        raw.prices.clear();
        raw.pools[0].limits.min_nodes = Some(inference);
        raw.pools[0].limits.max_usd_per_hour = serde_json::Number::from_f64(own);
        raw.pools[1].limits.min_nodes = Some(training);
        shown(&check_against_prices(&raw, &book()))
    };
    assert_eq!(floors(2, 5, 1.6, 2.0), [""; 0]);
    assert_eq!(floors(2, 0, 1.5, 2.0), ["pools[0].limits minNodes 2 costs at least $1.6000/h, above maxUsdPerHour $1.5000: lower it or raise that"]);
    assert_eq!(floors(2, 6, 1.6, 2.0), ["limits.maxUsdPerHour $2.0000 is below the $2.0800/h that the minNodes of all pools cost at least: raise it or lower them"]);
}

#[test]
#[rustfmt::skip] // A case a line.
fn months_and_guarantees_fit_the_budgets_over_them() {
    let month = |limits: Value| Policy::try_from_raw(&with("/limits", limits)).map(|policy| policy.month);
    let budget = |dollars: i64, pace: u32| Ok(Some(MonthBudget { limit: UsdMicros(dollars * 1_000_000), pace: Milli(pace) }));
    assert_eq!(month(json!({"maxUsdPerMonth": 20_000})), budget(20_000, 1_000));
    assert_eq!(month(json!({"maxUsdPerMonth": 20_000, "monthlyPace": 2.5})), budget(20_000, 2_500));
    for (limits, said) in [
        (json!({"maxUsdPerMonth": 0}), "limits.maxUsdPerMonth is 0: name an amount, or close the pool with maxNodes: 0"),
        (json!({"monthlyPace": 2}), "limits.monthlyPace is the pace of maxUsdPerMonth, which is not set: set it, or remove this"),
        (json!({"maxUsdPerMonth": 1, "monthlyPace": 0.5}), "limits.monthlyPace 0.5 is below 1: raise it"),
        (json!({"maxUsdPerMonth": 1, "monthlyPace": 25}), "limits.monthlyPace 25 is above 24: lower it"),
    ] {
        assert_eq!(faults(&with("/limits", limits)), [said]);
    }
    let own = |all: Value, own: Value| {
        let mut raw = with("/limits", all);
        raw.pools[0].limits = serde_json::from_value(own).unwrap();
        faults(&raw)
    };
    for (all, pool, said) in [
        (json!({"maxUsdPerMonth": 500}), json!({"maxNodes": 2, "maxUsdPerMonth": 501}), vec!["pools[0].limits.maxUsdPerMonth $501.00 is above the $500.00 of all pools together (limits.maxUsdPerMonth): lower it, or raise that"]),
        (json!({}), json!({"maxNodes": 2, "guaranteedUsdPerHour": 5}), vec!["pools[0].limits.guaranteedUsdPerHour is a part of limits.maxUsdPerHour of all pools, which is not set: set it, or remove this"]),
        (json!({"maxUsdPerHour": 4}), json!({"maxNodes": 2, "maxUsdPerHour": 4, "guaranteedUsdPerHour": 5}), vec![
            "pools[0].limits.guaranteedUsdPerHour makes the guarantees $5.0000/h, above the $4.0000/h of all pools (limits.maxUsdPerHour): lower one, or raise that",
            "pools[0].limits.guaranteedUsdPerHour $5.0000/h is above the pool's own maxUsdPerHour $4.0000/h: lower it, or raise that",
        ]),
        (json!({"maxUsdPerHour": 9}), json!({"maxNodes": 2, "guaranteedUsdPerHour": 5}), vec![]),
        // $2,976 in 744 hours are $4 an hour.
        (json!({"maxUsdPerHour": 9, "maxUsdPerMonth": 2976}), json!({"maxNodes": 2, "guaranteedUsdPerHour": 5}), vec![
            "pools[0].limits.guaranteedUsdPerHour makes the guarantees $5.0000/h, above the $4.0000/h that limits.maxUsdPerMonth leaves in a month of 31 days: lower one, or raise that",
        ]),
    ] {
        assert_eq!(own(all, pool), said);
    }
}

#[test]
#[rustfmt::skip] // A case a line.
fn shares_of_models_are_of_models_of_the_pool_and_leave_room_for_all() {
    let shares = |models: Value, shares: Value| {
        let mut raw = with("/kind", json!("Policy"));
        raw.pools[0].gpu.models = serde_json::from_value(models).unwrap();
        raw.pools[0].gpu.max_share = serde_json::from_value(shares).unwrap();
        raw
    };
    let read = Policy::try_from_raw(&shares(json!(["L4", "L40S", "T4"]), json!({"L40S": "20%", "T4": "100%"}))).expect("no faults");
    let read: Vec<String> = read.pools[0].max_model_share.iter().map(|(model, share)| format!("{model} {share}")).collect();
    assert_eq!(read, ["L40S 20%"]);
    for (models, given, said) in [
        (json!(["L4"]), json!({"T4": "20%"}), "pools[0].gpu.maxShare.T4 is not among the pool's models: remove it, or add it to models"),
        (json!(["L4", "T4"]), json!({"T4": "0%"}), "pools[0].gpu.maxShare.T4 is 0%, which no node fits: raise it, or remove it"),
        (json!(["L4", "T4"]), json!({"L4": "40%", "T4": "30%"}), "pools[0].gpu.maxShare allows 70% of the nodes by all models together: raise a share, or remove the model that may be the rest"),
    ] {
        assert_eq!(faults(&shares(models, given)), [said]);
    }
}

#[test]
#[rustfmt::skip] // A case a line.
fn lives_and_deadlines_are_within_reason() {
    let outdated = |outdated: Value| {
        let mut raw = with("/kind", json!("Policy"));
        raw.pools[0].outdated = Some(serde_json::from_value(outdated).unwrap());
        faults(&raw)
    };
    assert_eq!(outdated(json!({"maxNodeLife": "24h", "deadline": "8h"})), [""; 0]);
    assert_eq!(outdated(json!({"maxNodeLife": "59m", "deadline": "91d"})), [
        "pools[0].outdated.deadline 91d is above 90d: lower it, or remove it to leave nodes with pods alone",
        "pools[0].outdated.maxNodeLife 59m is below 1h: raise it, a node would be too old soon after it is ready",
    ]);
    assert_eq!(outdated(json!({"maxNodeLife": "366d"})), ["pools[0].outdated.maxNodeLife 366d is above 365d: lower it, or remove it to let nodes grow as old as they like"]);
}

#[test]
#[rustfmt::skip] // A case a line.
fn thresholds_of_advice_are_shares_in_order() {
    let usual = crate::policy::rules::advise::Thresholds::default();
    let read = |advise: Value| Policy::try_from_raw(&with("/advise", advise)).map(|policy| policy.advise);
    assert_eq!(read(json!({})), Ok(usual));
    assert_eq!(read(json!({"headroom": "0%", "computeBoundFrom": "90%"})), Ok(crate::policy::rules::advise::Thresholds { headroom: Percent(0), compute_bound_from: Percent(90), ..usual }));
    let faults = |advise: Value| faults(&with("/advise", advise));
    assert_eq!(faults(json!({"memoryBoundFrom": "0%"})), ["advise.memoryBoundFrom is 0%, and every workload would be memory-bound: raise it"]);
    assert_eq!(
        faults(json!({"overProvisionedBelow": "95%", "memoryBoundFrom": "0%"})),
        [
            "advise.memoryBoundFrom is 0%, and every workload would be memory-bound: raise it",
            "advise.overProvisionedBelow 95% is not below computeBoundFrom, 95%: lower it, or no workload could fit",
        ]
    );
    assert!(faults(json!({"headroom": "lots"}))[0].starts_with("advise.headroom "));
}
