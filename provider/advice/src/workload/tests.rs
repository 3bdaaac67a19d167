use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::SignedDuration;
use serde_json::{Value, json};

use super::class::of;
use super::*;
use crate::rollup::{Bought, GpuPod, NodeContext, PodLabels, Rollup};
use stoker_core::base::ids::{Cloud, GpuModel, GpuUuid, InstanceType, NodeName, Region, SupplierName, ZoneId};
use stoker_core::base::units::{MiB, Milli, Percent, Ppm, UsdMicros, UsdPerHour};
use stoker_core::facts::reading::{DriverState, GpuReading, Measured, MemoryLevel, NodeReading, Permille, Source};
use stoker_core::facts::supply::MarketFacts;
use stoker_core::market::hazard::Hazard;
use stoker_core::market::offer::{Arch, CapacityType, GpuNames, GpuSpec, InstanceSpec, Market, Place};
use stoker_core::market::price::{Entry, Quote, QuoteKind};
use stoker_core::policy::rules::advise::Thresholds;
use stoker_core::policy::{Policy, RawPolicy};

fn spread(p95: u16, peak: u16) -> Spread {
    let permille = |level| Permille::new(level).unwrap();
    Spread { p50: permille(0), p95: permille(p95), peak: permille(peak) }
}

fn used(compute: u16, memory_peak: u16, bandwidth: Option<u16>) -> Used {
    Used {
        utilization: Some(spread(compute, 1000)),
        memory: Some(spread(0, memory_peak)),
        sm: None,
        bandwidth: bandwidth.map(|p95| spread(p95, 1000)),
        by: Measure::Utilization,
    }
}

#[test]
fn a_workload_is_called_by_what_it_runs_out_of_first() {
    let called = |compute, memory, bandwidth| of(&used(compute, memory, bandwidth), Thresholds::default());
    assert_eq!([called(399, 849, None), called(400, 849, None)], [Class::OverProvisioned, Class::Fits]);
    assert_eq!([called(949, 849, Some(849)), called(950, 849, None)], [Class::Fits, Class::ComputeBound]);
    assert_eq!([called(950, 850, None), called(100, 0, Some(850))], [Class::MemoryBound; 2], "memory before arithmetic");
    let strict = Thresholds { over_provisioned_below: Percent(70), ..Thresholds::default() };
    assert_eq!(of(&used(699, 0, None), strict), Class::OverProvisioned);
    // Memory may be why its arithmetic is little used.
    let blind = |compute, bandwidth| of(&Used { memory: None, ..used(compute, 0, bandwidth) }, Thresholds::default());
    assert_eq!([blind(100, None), blind(400, None), blind(950, None)], [Class::Unknown, Class::Fits, Class::ComputeBound]);
    assert_eq!(blind(100, Some(850)), Class::MemoryBound);
}

/// Half an hour between checkpoints of which each takes 3 % of it: 54 s.
fn half_hours(hazard: u64) -> Interval {
    interval(SignedDuration::from_mins(30), Percent(3), Hazard(hazard), UsdMicros(1_000_000_000)).unwrap()
}

/// * 0.16 reclaims an hour, one in 6.25 h = 22,500 s: √(2 × 54 × 22,500) = √2,430,000 = 1,558.845 s. Now 3 % + 0.16 × 0.5 ÷ 2 = 7 % is
///   lost; then 54 ÷ 1,558.845 + 0.16 × 0.433 ÷ 2 = 3.4641 % twice, 6.9282 %. Of $1,000 a month 0.0718 % is $0.72.
/// * 0.01 an hour, one in 360,000 s: √38,880,000 = 6,235.383 s. Now 3.25 %, then 1.7321 %: $15.18.
#[test]
fn the_best_interval_is_where_writing_and_doing_again_cost_alike() {
    let often = half_hours(160_000_000);
    assert_eq!((often.cost, often.between), (SignedDuration::from_secs(54), SignedDuration::from_secs(22_500)));
    assert_eq!(often.best, SignedDuration::from_millis(1_558_845));
    assert_eq!((often.wasted, often.least, often.saved), (Ppm(70_000), Ppm(69_282), UsdMicros(718_000)));
    let seldom = half_hours(10_000_000);
    assert_eq!(seldom.best, SignedDuration::from_millis(6_235_382));
    assert_eq!((seldom.wasted, seldom.least, seldom.saved), (Ppm(32_500), Ppm(17_321), UsdMicros(15_179_000)));
}

/// The best of all intervals of whole seconds, tried one by one with the exact share of time that is lost under a constant hazard.
#[test]
fn no_other_interval_wastes_less() {
    for hazard in [1_000_000, 10_000_000, 160_000_000, 600_000_000] {
        let advised = half_hours(hazard);
        #[expect(clippy::cast_precision_loss, reason = "an oracle")]
        let wasted = |seconds: i64| {
            let (interval, rate) = (seconds as f64, hazard as f64 / 1e9 / 3_600.0);
            54.0 / interval + rate * interval / 2.0
        };
        let best = (60..200_000).min_by(|a, b| wasted(*a).total_cmp(&wasted(*b))).unwrap();
        assert!((advised.best.as_secs() - best).abs() <= 1, "{hazard}: {best} s is better than {:?}", advised.best);
    }
}

#[test]
fn without_reclaims_or_without_a_cost_there_is_no_best_interval() {
    let of = |overhead, hazard| interval(SignedDuration::from_mins(30), Percent(overhead), Hazard(hazard), UsdMicros(1));
    assert_eq!((of(0, 10_000_000), of(3, 0)), (None, None));
}

/// Type, model, GiB, GPUs, price in micro-dollars; GB/s, gigaflops, MIG profiles.
type Row = (&'static str, &'static str, u64, u32, i64, u32, u64, &'static [&'static str]);

const H100X8: Row = ("p5.48xlarge", "H100", 80, 8, 55_040_000, 3350, 989_000, &["1g.10gb", "2g.20gb", "7g.80gb"]);
const A100X8: Row = ("p4de.24xlarge", "A100", 80, 8, 27_447_050, 2039, 312_000, &["1g.10gb", "7g.80gb"]);
const L4: Row = ("g6.xlarge", "L4", 24, 1, 804_800, 300, 121_000, &[]);

fn place(instance_type: &str) -> Place {
    Place {
        cloud: Cloud::new("aws").unwrap(),
        region: Region::new("us-east-1").unwrap(),
        zone: ZoneId::new("use1-az1").unwrap(),
        instance_type: InstanceType::new(instance_type).unwrap(),
    }
}

fn on_demand(instance_type: &str) -> Market {
    Market { place: place(instance_type), capacity_type: CapacityType::OnDemand }
}

fn time() -> Timestamp {
    "2026-11-01T00:00:00Z".parse().unwrap()
}

fn book(rows: &[Row]) -> PriceBook {
    let mut book = PriceBook::new();
    for (name, model, gib, gpus, price, gb_s, gflops, profiles) in rows {
        book.insert_gpu(GpuSpec {
            model: GpuModel::new(*model).unwrap(),
            memory: MiB::from_gib(*gib),
            bandwidth_gb_s: Some(*gb_s),
            fp16_gflops: Some(*gflops),
            fp8_gflops: None,
            compute_capability: "9.0".parse().ok(),
            mig_max_instances: Some(if profiles.is_empty() { 0 } else { 7 }),
            mig_profiles: profiles.iter().map(|profile| profile.parse().unwrap()).collect(),
            nvlink_gb_s: Some(0),
            names: GpuNames::default(),
        });
        book.insert_spec(InstanceSpec {
            cloud: Cloud::new("aws").unwrap(),
            instance_type: InstanceType::new(*name).unwrap(),
            gpu_model: GpuModel::new(*model).unwrap(),
            gpus: Milli(gpus * 1000),
            gpu_memory: MiB::from_gib(*gib),
            vcpus: Some(96),
            memory: Some(MiB::from_gib(512)),
            arch: Arch::Amd64,
            network: None,
            local_disk: None,
        });
        let quote = Quote { price: UsdPerHour(*price), kind: QuoteKind::List, as_of: Some(time()), source: "test".into() };
        book.insert(on_demand(name), Entry::Price(quote));
    }
    book
}

/// What is advised to one workload of `gpus` whole GPUs a pod on `on`, that has read the same for eight days.
fn advised(pool: Value, rows: &[Row], on: Row, gpus: u32, reading: &GpuReading) -> WorkloadAdvice {
    advised_on(pool, rows, gpus, &[(on, reading)])
}

/// The same of a workload with a node of each of several types.
fn advised_on(pool: Value, rows: &[Row], gpus: u32, on: &[(Row, &GpuReading)]) -> WorkloadAdvice {
    let mut pool = pool;
    pool["name"] = json!("pool");
    pool["where"] = json!({ "clouds": ["aws"], "regions": ["us-east-1"] });
    pool["limits"] = json!({ "maxNodes": 4 });
    let raw: RawPolicy = serde_json::from_value(json!({
        "apiVersion": "stoker.dev/v1alpha1", "kind": "Policy", "clusterName": "test", "pools": [pool],
        "defaults": { "unknownQuota": "allow" },
    }))
    .unwrap();
    let (policy, book) = (Policy::try_from_raw(&raw).unwrap(), book(rows));
    let facts = MarketFacts { clouds: [Cloud::new("aws").unwrap()].into(), ..MarketFacts::default() };
    let facts = BTreeMap::from([(SupplierName::new("simulated").unwrap(), facts)]);
    let wide = everything(&policy, &book, &facts);
    let catalogue = Catalogue::derive(&Arc::new(policy), &book, &facts);

    let (pool, mut observed) = (PoolName::new("pool").unwrap(), Observed::default());
    for (on, reading) in on {
        read(&pool, *on, gpus, reading).flush().hours.iter().for_each(|row| observed.add(row));
    }
    let memory = Memory::default();
    let advice = advise(&observed, &Inputs { catalogue: &catalogue, wide: &wide, book: &book, memory: &memory, now: time() });
    advice.workloads.into_iter().next().unwrap_or_else(|| panic!("{:?}", (advice.too_little, advice.unknown)))
}

/// Eight days of a node whose only pod holds all of it.
fn read(pool: &PoolName, on: Row, gpus: u32, reading: &GpuReading) -> Rollup {
    let (node, mut rollup) = (NodeName::new("n").unwrap(), Rollup::default());
    let (owner, labels) = (Owner::of("ml", "job", None, None), PodLabels::default());
    let pod = GpuPod { name: "ml/job".into(), uid: None, owner, labels, units: Some(on.3), started_after: None };
    let bought = Bought { pool: pool.clone(), market: on_demand(on.0), price: UsdPerHour(on.4), gpus: on.3, units: on.3 };
    rollup.follow([(node.clone(), Arc::new(NodeContext { bought: Some(bought), pods: Some(vec![pod]) }))].into());
    for second in (0..=8 * 86_400).step_by(60) {
        let uuid = |n: u32| GpuUuid::new(format!("GPU-{n}")).unwrap();
        rollup.take(
            &node,
            time() + SignedDuration::from_secs(second),
            &NodeReading {
                arrived: time() + SignedDuration::from_secs(second),
                source: Source::Probe,
                driver: DriverState::Ready,
                counted: Measured::Known(gpus),
                gpus: (0..gpus).map(|n| (uuid(n), reading.clone())).collect(),
                gates: BTreeMap::new(),
            },
        );
    }
    rollup
}

fn reads(utilization: u16, gib: u64, total: u64) -> GpuReading {
    GpuReading {
        utilization: Measured::Known(Permille::new(utilization).unwrap()),
        memory: Measured::Known(MemoryLevel { used: gib << 30, total: total << 30, reserved: 0 }),
        ..GpuReading::default()
    }
}

/// Eight H100 at 10 % with 20 GiB in each, and a fifth on top: 949.4 TFLOPS, 3,216 GB/s and 192 GiB. Two H100 or A100 have 160 GiB. Four
/// A100 have 1,248, 8,156 and 320, and there are two such pods in a node: $27.44705 ÷ 2, to the micro-dollar. Four H100 are $27.52.
#[test]
fn a_pod_of_many_gpus_gets_an_even_part_of_them_or_others() {
    let pool = |models: Value| json!({ "workload": "training", "gpu": { "models": models } });
    let both = advised(pool(json!(["H100", "A100"])), &[H100X8, A100X8], H100X8, 8, &reads(100, 20, 80));
    let cheapest = both.cheapest.unwrap();
    assert_eq!((cheapest.market.place.instance_type.as_str(), cheapest.gpus, cheapest.pods_per_node), ("p4de.24xlarge", 4, 2));
    assert_eq!((cheapest.per_pod, cheapest.changes.len(), both.as_it_stands), (UsdPerHour(13_723_525), 0, None));
    // $55.04 × 730 less $13.723525 × 730.
    assert_eq!((both.now.per_month, cheapest.saved), (UsdMicros(40_179_200_000), UsdMicros(30_161_026_750)));
    // Where the policy names H100 alone, that is told, and what the policy allows beside it.
    let one = advised(pool(json!(["H100"])), &[H100X8, A100X8], H100X8, 8, &reads(100, 20, 80));
    assert_eq!(one.cheapest.unwrap().changes, [Change::Model(GpuModel::new("A100").unwrap())]);
    let stands = one.as_it_stands.unwrap();
    assert_eq!((stands.gpus, stands.per_pod, stands.changes.is_empty()), (4, UsdPerHour(27_520_000), true));
}

/// An H100 of which a pod needs 989 × 0.1 × 1.2 = 118.7 TFLOPS, 402 GB/s and 9.6 GiB: a `1g.10gb` has 141.3, 418.75 and 10. An A100's has
/// 44.6, and an L4 300 GB/s.
#[test]
fn a_pod_with_one_gpu_may_get_a_part_where_the_pool_may_share() {
    let rows = [H100X8, A100X8, L4];
    let pool = |more: Value| {
        let mut pool = json!({ "workload": "inference", "gpu": { "models": ["H100"] } });
        pool.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        pool
    };
    let one_h100: Row = ("p5.4xlarge", "H100", 80, 1, 6_880_000, 3350, 989_000, H100X8.7);
    let on = |more: Value| advised(pool(more), &[&rows[1..], &[one_h100]].concat(), one_h100, 1, &reads(100, 8, 80)).cheapest;
    let split = on(json!({})).unwrap();
    assert_eq!((split.layout.to_string(), split.per_pod), ("mig 1g.10gb, 7 a GPU".to_owned(), UsdPerHour(982_857)));
    assert_eq!(split.changes.iter().map(Change::to_string).collect::<Vec<_>>(), ["sharing: { mig: all-1g.10gb }"]);
    // Time-slicing is the pool's way, and it is inference: four take turns because the pool says so, and MIG is not proposed to it.
    let turns = json!({ "sharing": { "timeSlicing": 4, "acknowledge": ["timeSlicedInference"] } });
    assert_eq!(on(turns).unwrap().layout, Layout::TimeSlicing(8));
    // NVLink does not reach into an instance.
    let linked = advised(
        json!({ "workload": "inference", "gpu": { "models": ["H100"], "needs": ["nvlink"] } }),
        &[one_h100],
        one_h100,
        1,
        &reads(100, 8, 80),
    );
    assert_eq!(linked.cheapest, Err(Stay::NothingCheaper));
}

/// An A100 whose pod serves with 30 GiB at 5 %: it needs 36 GiB, and half of that is in an L4, which has 121 TFLOPS and 300 GB/s for 18.7
/// and 122.3. Of training nothing is said: it needs its precision.
#[test]
fn half_of_the_memory_may_fit_a_smaller_gpu() {
    let one_a100: Row = ("a100", "A100", 80, 1, 3_430_000, 2039, 312_000, &[]);
    let pool = |workload: &str| json!({ "workload": workload, "gpu": { "models": ["A100"] } });
    let on = |workload: &str| advised(pool(workload), &[L4, one_a100], one_a100, 1, &reads(50, 30, 80));
    let serves = on("inference");
    assert_eq!(serves.cheapest, Err(Stay::NothingCheaper));
    let halved = serves.quantized.unwrap();
    assert_eq!((halved.market, halved.need.memory, halved.changes.len()), (on_demand("g6.xlarge"), 18 << 30, 1));
    assert_eq!(on("training").quantized, None);
    // What fits as it is, saves as much.
    let small = advised(pool("inference"), &[L4, one_a100], one_a100, 1, &reads(50, 8, 80));
    assert_eq!((small.cheapest.unwrap().market, small.quantized), (on_demand("g6.xlarge"), None));
}

#[test]
fn without_memory_or_a_data_sheet_nothing_is_suggested() {
    let pool = || json!({ "workload": "training", "gpu": { "models": ["L4"] } });
    let blind = GpuReading { memory: Measured::default(), ..reads(100, 1, 24) };
    assert_eq!(advised(pool(), &[L4], L4, 1, &blind).cheapest, Err(Stay::MemoryUnknown));
    let strange: Row = ("odd.xlarge", "Odd", 24, 1, 5_000_000, 300, 121_000, &[]);
    let mut used = advised(pool(), &[L4, strange], strange, 1, &reads(900, 8, 24));
    assert_eq!(used.cheapest, Err(Stay::NothingCheaper), "130.7 TFLOPS are needed, an L4 has 121");
    used = advised(pool(), &[L4], strange, 1, &reads(100, 8, 24));
    assert_eq!(used.cheapest, Err(Stay::PowerUnknown));
}

/// On an H100 with SM activity 10 %, and on an L4 that reads no SM activity and is at 30 % with 20 GiB: the need for memory is the L4's,
/// 24 GiB with a fifth on top.
#[test]
fn a_kind_that_is_not_known_in_full_is_never_left_out_of_the_need() {
    let pool = || json!({ "workload": "training", "gpu": { "models": ["H100", "L4"] } });
    let h100: Row = ("p5.4xlarge", "H100", 80, 1, 6_880_000, 3350, 989_000, &[]);
    let measured = GpuReading { sm_activity: Measured::Known(Permille::new(100).unwrap()), ..reads(150, 8, 80) };
    let on = |rows: &[Row], second: &GpuReading| advised_on(pool(), rows, 1, &[(h100, &measured), (L4, second)]);
    let both = on(&[h100, L4], &reads(300, 20, 24));
    assert_eq!(both.levels.by, Measure::SmActivity);
    assert_eq!(both.cheapest.unwrap().need.memory, 24 << 30);
    assert_eq!(on(&[h100], &reads(300, 20, 24)).cheapest, Err(Stay::PowerUnknown), "no data sheet");
    let dark = GpuReading { utilization: Measured::default(), ..reads(0, 20, 24) };
    assert_eq!(on(&[h100, L4], &dark).cheapest, Err(Stay::PowerUnknown), "neither SM activity nor utilization");
    let blind = GpuReading { memory: Measured::default(), ..reads(300, 0, 24) };
    assert_eq!(on(&[h100, L4], &blind).cheapest, Err(Stay::MemoryUnknown));
}
