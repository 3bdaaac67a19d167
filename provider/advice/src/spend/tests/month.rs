//! A hand-worked month, and published examples of months, each with its arithmetic.

use serde_json::{Value, json};
use stoker_core::policy::{Policy, RawPolicy};

use super::*;

/// By these commitments alone.
fn tariff(commitments: &Value) -> Tariff {
    let raw: RawPolicy = serde_json::from_value(json!({
        "apiVersion": "stoker.dev/v1alpha1",
        "kind": "Policy",
        "clusterName": "test",
        "pools": [{
            "name": "train", "workload": "training", "gpu": {"models": ["A100"]},
            "where": {"clouds": ["aws"], "regions": ["us-east-1"]}, "capacity": {"prefer": ["on-demand"]},
            "limits": {"maxNodes": 9},
        }],
        "commitments": commitments,
    }))
    .unwrap();
    let policy = Policy::try_from_raw(&raw).unwrap();
    Tariff::new(Arc::new(policy), Arc::new(prices()), jiff::Timestamp::UNIX_EPOCH)
}

/// Thirty days of which all is known.
fn month(tariff: &Tariff, spans: &[Span], pods: Vec<PodTime>) -> Vec<KeptDay> {
    let (pods, known) = (by_node(pods), always());
    let day = |day| tariff.day(day, (day * DAY, (day + 1) * DAY), (spans, &pods), (&known, &known), &GpuUse::default(), false);
    (0..30).map(day).collect()
}

fn of_pool(pool: &str, span: Span) -> Span {
    Span { pool: PoolName::new(pool).unwrap(), ..span }
}

/// A node with one GPU, which costs the same at list.
fn small(record: u64, time: (i64, i64), model: &str, capacity_type: CapacityType, rate: i64) -> Span {
    let whole = span(record, time, NodeState::Held, capacity_type, 0);
    let place = Place { instance_type: InstanceType::new("one-gpu").unwrap(), ..place() };
    let market = Market { place, capacity_type };
    let (model, rate) = (GpuModel::new(model).unwrap(), UsdPerHour(rate));
    Span { market, model, rate, list: Some(rate), gpus: 1, units: 1, ..whole }
}

/// So many of them from the month's begin on.
fn nodes((first, number): (u64, u64), hours: i64, capacity_type: CapacityType, rate: i64) -> Vec<Span> {
    (first..first + number).map(|n| small(n, (0, hours * H), "A100", capacity_type, rate)).collect()
}

/// The rows of thirty days without commitments.
fn rows_of(spans: &[Span], pods: Vec<PodTime>) -> Vec<DayRow> {
    month(&tariff(&json!([])), spans, pods).into_iter().flat_map(|day| day.rows).collect()
}

/// Effective dollars by line, in micro-dollars.
fn paid(rows: &[DayRow], by: &By) -> BTreeMap<String, i64> {
    grouped(rows, |of| of.line(by)).into_iter().map(|(name, figures)| (name, figures.effective.0)).collect()
}

fn sums<const N: usize>(lines: [(&str, i64); N]) -> BTreeMap<String, i64> {
    lines.into_iter().map(|(name, micros)| (name.to_owned(), micros)).collect()
}

/// The nodes of a month, and what each costs:
///
/// | node | what | contracted |
/// |---|---|---|
/// | 0 | p4d on demand at $32, held by `web` all month | 720 × $32 = $23,040 |
/// | 1 | p4d on spot at $12, held by `train` from 22:00 to 03:00, when it is reclaimed | 5 × $12 = $60 |
/// | 2 | its successor boots for 10 min and is held for 6 h | $2 + 6 × $12 = $74 |
/// | 3 | a GPU in 7 parts at $14 for 48 h: 3 parts of `mig-a`, 2 of `mig-b` | 48 × $14 = $672 |
/// | 4 | an H100 in 4 turns at $6.944444, each of another namespace | 720 × $6.944444 = $4,999.99968 |
/// | 5 | p4d on spot: 10 h warm, 1 h idle, 30 min draining | $120 + $12 + $6 = $138 |
///
/// In all $28,983.99968. One of two reserved nodes pays for node 0 from the 15th on: 336 × $32 + 384 × $20 = $18,432, and
/// 384 × $20 = $7,680 are unused. $28,983.99968 - $23,040 + $18,432 + $7,680 = $32,055.99968.
#[test]
fn a_month_with_sharing_a_reclaim_and_a_commitment_half_used() {
    let spot = |record, time, state| span(record, time, state, CapacityType::Spot, 12);
    let at = |day: i64, hour: i64| day * DAY + hour * H;
    let lost = at(4, 3);
    let mig = small(3, (at(9, 0), at(11, 0)), "A100", CapacityType::OnDemand, 14_000_000);
    let turns = small(4, (0, 30 * DAY), "H100", CapacityType::OnDemand, 6_944_444);
    let spans = [
        of_pool("serve", span(0, (0, 30 * DAY), NodeState::Held, CapacityType::OnDemand, 32)),
        spot(1, (at(3, 22), lost), NodeState::Held),
        spot(2, (lost, lost + 600), NodeState::Booting),
        spot(2, (lost + 600, lost + 600 + 6 * H), NodeState::Held),
        Span { units: 7, ..mig },
        of_pool("serve", Span { units: 4, ..turns }),
        of_pool("serve", spot(5, (at(20, 0), at(20, 10)), NodeState::Warm)),
        of_pool("serve", spot(5, (at(20, 10), at(20, 11)), NodeState::Idle)),
        of_pool("serve", spot(5, (at(20, 11), at(20, 11) + H / 2), NodeState::Draining)),
    ];
    let mut pods = vec![
        pod(0, (0, 30 * DAY), Some(8), "web", "team=red"),
        pod(1, (at(3, 22), lost), Some(8), "train", ""),
        pod(2, (lost + 600, lost + 600 + 6 * H), Some(8), "train", ""),
        pod(3, (at(9, 0), at(11, 0)), Some(3), "mig-a", "team=blue"),
        pod(3, (at(9, 0), at(11, 0)), Some(2), "mig-b", "team=blue"),
    ];
    pods.extend((1..=4).map(|turn| pod(4, (0, 30 * DAY), Some(1), &format!("turn-{turn}"), "")));
    // Two reserved nodes from the 15th on.
    let reserved = json!([{
        "name": "ri", "cloud": "aws", "kind": "reserved-instance", "region": "us-east-1", "instanceType": "p4d.24xlarge",
        "nodes": 2, "usdPerHour": 40, "from": "1970-01-15T00:00:00Z",
    }]);
    let days = month(&tariff(&reserved), &spans, pods);
    let rows: Vec<DayRow> = days.iter().flat_map(|day| day.rows.clone()).collect();

    let all = total(&rows);
    assert_eq!((all.contracted.0, all.effective.0), (28_983_999_680, 32_055_999_680));
    // 720 × $32 + 5 × $32 + 600 s × $32 + 6 × $32 + $672 + $4,999.99968 + 11.5 × $32.
    assert_eq!(all.list.0, 23_040_000_000 + 160_000_000 + 5_333_333 + 192_000_000 + 672_000_000 + 4_999_999_680 + 368_000_000);
    // Two months, 5 + 6 + 48 + 11.5 hours, and ten minutes.
    assert_eq!(all.node_parts, (1_440 * H + 70 * H + H / 2 + 600) * PARTS);

    // The reserved node pays for 384 × $32 of node 0; without it, 336 × $32 less would be spent.
    assert_eq!(all.covered, dollars(1_228_800));
    let web = grouped(&rows, |of| of.line(&By::Namespace))["web"];
    assert_eq!((web.cash(), web.cash_parts()), (dollars(1_075_200), 336 * H * PARTS));

    let unused = ("unused commitments", 7_680_000_000);
    let by_namespace = [
        ("web", 18_432_000_000),
        // $60 + $72; of the node that was reclaimed $24 before midnight and $36 after.
        ("train", 132_000_000),
        // 3/7 and 2/7 of $672.
        ("mig-a", 288_000_000),
        ("mig-b", 192_000_000),
        ("turn-1", 1_249_999_920),
        ("turn-2", 1_249_999_920),
        ("turn-3", 1_249_999_920),
        ("turn-4", 1_249_999_920),
        // $2 while it booted, 2/7 of $672, and $138.
        ("no pod", 332_000_000),
        unused,
    ];
    assert_eq!(paid(&rows, &By::Namespace), sums(by_namespace));
    let by_label = [
        ("red", 18_432_000_000),
        ("blue", 480_000_000),
        // `train`, and the turns.
        ("no label", 132_000_000 + 4_999_999_680),
        ("no pod", 332_000_000),
        unused,
    ];
    assert_eq!(paid(&rows, &By::Label("team".to_owned())), sums(by_label));
    // $18,432 + $4,999.99968 + $138, and $60 + $74 + $672.
    let by_pool = [("serve", 23_569_999_680), ("train", 806_000_000), unused];
    assert_eq!(paid(&rows, &By::Pool), sums(by_pool));
    // $18,432 + $672 + $4,999.99968, and $60 + $74 + $138.
    let by_capacity = [("on-demand", 24_103_999_680), ("spot", 272_000_000), unused];
    assert_eq!(paid(&rows, &By::Capacity), sums(by_capacity));
    let by_model = [("A100", 19_376_000_000), ("H100", 4_999_999_680), unused];
    assert_eq!(paid(&rows, &By::Model), sums(by_model));
    assert_eq!(paid(&rows, &By::Zone), sums([("use1-az1", 24_375_999_680), unused]));

    let by_state = grouped(&rows, Use::state);
    let in_state = |state: NodeState| by_state[&Some(state)].effective.0;
    // $18,432 + $132 + 5/7 of $672 + $4,999.99968.
    assert_eq!(in_state(NodeState::Held), 24_043_999_680);
    // 2/7 of $672, and an hour.
    assert_eq!(in_state(NodeState::Idle), 204_000_000);
    let others = [NodeState::Warm, NodeState::Booting, NodeState::Draining].map(in_state);
    assert_eq!(others, [120_000_000, 2_000_000, 6_000_000]);

    // 384 h × $40, of which half was used.
    let costs = days.iter().flat_map(|day| day.commitments.clone()).reduce(|sum, more| sum.plus(&more)).unwrap();
    assert_eq!((costs.cost, costs.unused), (dollars(1_536_000), dollars(768_000)));

    let train = |day: usize| grouped(&days[day].rows, |of| of.line(&By::Namespace))["train"].contracted;
    assert_eq!((train(3), train(4)), (dollars(2_400), dollars(3_600 + 7_200)));

    // Whatever is spread, and whatever is summed up as days are kept, the sum is the bill.
    for day in days {
        let before = total(&day.rows);
        assert_eq!(total(&spread(&day.rows)), before);
        assert_eq!(total(&day.folded_to(2).rows), before);
    }

    let lives = Lives::of(&[life(1, at(3, 21), at(3, 22), Some(lost)), life(2, lost, lost + 600, None)], 0, 30 * DAY);
    assert_eq!(lives.recovery, Some(LifeTimes { nodes: 1, median_seconds: 600, p95_seconds: 600 }));
}

/// 50 tenants with an A100 each at $0.66 an hour are 50 × $475.20 = $23,760 a month. On 8 A100 in seven parts each they pay a seventh of
/// $475.20, $67.885714, and all eight cost $3,801.60, 84 % less. That is not what tenants pay, which is
/// $3,394.285714: six parts stand empty, $407.314286.
#[test]
fn fifty_tenants_on_eight_gpus_pay_for_their_parts_alone() {
    let whole = nodes((0, 50), 720, CapacityType::OnDemand, 660_000);
    let pods = |units: u64, most: u64| -> Vec<PodTime> {
        (0..most).map(|n| pod(n / units, (0, 30 * DAY), Some(1), &format!("tenant-{n}"), "")).collect()
    };
    let before = paid(&rows_of(&whole, pods(1, 50)), &By::Namespace);
    assert_eq!((before.values().sum::<i64>(), before["tenant-0"]), (23_760_000_000, 475_200_000));
    let parts: Vec<Span> = whole.into_iter().take(8).map(|span| Span { units: 7, ..span }).collect();
    let after = paid(&rows_of(&parts, pods(7, 50)), &By::Namespace);
    // Days are rounded to the micro-dollar one by one.
    let tenants: Vec<i64> = after.iter().filter(|(name, _)| name.starts_with("tenant-")).map(|(_, micros)| *micros).collect();
    assert!(tenants.len() == 50 && tenants.iter().all(|micros| (micros - 67_885_714).abs() <= 30), "{tenants:?}");
    let paid: i64 = tenants.iter().sum();
    assert_eq!(paid + after["no pod"], 3_801_600_000);
    assert!((after["no pod"] - 407_314_286).abs() <= 30 * 8, "{after:?}");
}

/// Recommendations on 12 A100 at $4.00 are 12 × 720 × $4 = $34,560 a month, and not the published $28,800 (ten of them). On 8 spot at
/// $0.80 and 4 on demand at $2.60 they are $4,608 and $7,488, together $12,096: 65 % less, and 58 % less than $28,800.
#[test]
fn recommendations_on_spot_and_on_demand() {
    let by_capacity = |spans: &[Span]| paid(&rows_of(spans, Vec::new()), &By::Capacity);
    let before = by_capacity(&nodes((0, 12), 720, CapacityType::OnDemand, 4_000_000));
    let spot = nodes((0, 8), 720, CapacityType::Spot, 800_000);
    let after = by_capacity(&[spot, nodes((100, 4), 720, CapacityType::OnDemand, 2_600_000)].concat());
    assert_eq!(before, sums([("on-demand", 34_560_000_000)]));
    assert_eq!(after, sums([("on-demand", 7_488_000_000), ("spot", 4_608_000_000)]));
}

/// A published bill of $200K a month came to $84K, 58 % less, by spot for training, MIG for serving, evaluation of 8 h instead of 24, and
/// reserved for the base; how large each part was is not published. By the published rates that takes a bill of which about half is base: of
/// 70 GPUs at $4.00, 14 train, 10 serve, 9 evaluate and 37 are base, 70 × 720 × $4 = $201,600.
///
/// Training on spot at $0.60 takes a quarter longer for the 20 % that is lost: 14 × 900 × $0.60 = $7,560. Serving fits on two GPUs in
/// seven parts: 2 × 720 × $4 = $5,760. Evaluation is 9 × 240 × $4 = $8,640. Reserved at 40.5 % less, the base is
/// 37 × 720 × $2.38 = $63,403.20. In all $85,363.20: 57.65 % less.
#[test]
fn a_mix_of_measures_saves_57_percent() {
    let cost = |spans: &[Span]| total(&rows_of(spans, Vec::new())).effective.0;
    let before = cost(&nodes((0, 70), 720, CapacityType::OnDemand, 4_000_000));
    let after = [
        // 900 h of each, in a month of 720.
        nodes((0, 14), 720, CapacityType::Spot, 600_000),
        nodes((100, 14), 180, CapacityType::Spot, 600_000),
        nodes((200, 2), 720, CapacityType::OnDemand, 4_000_000),
        nodes((300, 9), 240, CapacityType::OnDemand, 4_000_000),
        nodes((400, 37), 720, CapacityType::Reserved, 2_380_000),
    ];
    let parts = after.map(|spans| cost(&spans));
    assert_eq!(parts, [6_048_000_000, 1_512_000_000, 5_760_000_000, 8_640_000_000, 63_403_200_000]);
    let after: i64 = parts.iter().sum();
    assert_eq!((before, after), (201_600_000_000, 85_363_200_000));
    assert_eq!((before - after) * 10_000 / before, 5_765);
}
