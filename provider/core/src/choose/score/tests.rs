use serde_json::json;

use super::*;
use crate::base::ids::NodeGroupId;
use crate::catalogue::Catalogue;
use crate::market::offer::CapacityType::OnDemand;
use crate::testing::{Kind, L4, Lots, catalogue};

const TWO: Kind = ("g6.12xlarge", "L4", 2, 8);
const BIG: Kind = ("g6e.xlarge", "L40S", 1, 4);

/// Groups of one and two L4 and of one L40S, which does three times the work, in two zones.
fn groups() -> Catalogue {
    let pool = json!({
        "workload": "training", "gpu": { "models": ["L4", "L40S"], "throughput": { "L4": 1, "L40S": 3 } },
        "capacity": { "prefer": ["on-demand"] }, "limits": { "maxNodes": 10 },
    });
    let rows: Vec<_> =
        [L4, TWO, BIG].into_iter().flat_map(|kind| ["a", "b"].map(|zone| (kind, zone, OnDemand, 1_000_000))).collect();
    catalogue(&pool, &json!([]), &rows)
}

fn find<'a>(catalogue: &'a Catalogue, id: &str) -> &'a Group {
    &catalogue.groups[&NodeGroupId::new(id).unwrap()]
}

fn at(nodes: u32, price: i64) -> Step {
    Step { nodes, price: UsdPerHour(price) }
}

fn best<'a>(ways: &[Way<'a>]) -> &'a str {
    ways.iter().filter_map(Score::of).min().unwrap().group.as_str()
}

const fn gpus(gpus: u32) -> Asked {
    Asked { gpus, pods: gpus, speed: Work(0) }
}

#[test]
fn committed_nodes_make_a_way_cheap_only_as_far_as_they_reach() {
    let catalogue = groups();
    let (committed, plain) = (find(&catalogue, "pool.g6-xlarge.a"), find(&catalogue, "pool.g6-xlarge.b"));
    let (covered, list) = ([at(2, 1), at(8, 900_000)], [at(10, 800_000)]);
    let ways = |nodes| {
        [(committed, &covered[..]), (plain, &list[..])].map(|(group, supply)| Way { group, supply, nodes, asked: gpus(nodes) })
    };
    // 2 for nothing + 2 × 0.90 = $1.80 against 4 × 0.80 = $3.20.
    assert_eq!(best(&ways(4)), "pool.g6-xlarge.a");
    // Of 10, 2 for nothing + 8 × 0.90 = $7.20, against $8.00; of 10 more none is covered, so the other is cheaper.
    assert_eq!(best(&ways(10)), "pool.g6-xlarge.a");
    let used_up = [at(10, 900_000)];
    let after = [(committed, &used_up[..]), (plain, &list[..])];
    let after = after.map(|(group, supply)| Way { group, supply, nodes: 10, asked: gpus(10) });
    assert_eq!(best(&after), "pool.g6-xlarge.b");
}

#[test]
fn a_quota_or_a_trial_that_lets_few_through_counts_for_few() {
    let catalogue = groups();
    // One node on trial at $0.30, and then on demand at $0.90: 0.30 + 3 × 0.90 = $3.00 for four, against $2.80 elsewhere.
    let trial = [at(1, 300_000), at(9, 900_000)];
    let steady = [at(10, 700_000)];
    let of = |group, supply, nodes| Way { group: find(&catalogue, group), supply, nodes, asked: gpus(nodes) };
    assert_eq!(best(&[of("pool.g6-xlarge.a", &trial, 4), of("pool.g6-xlarge.b", &steady, 4)]), "pool.g6-xlarge.b");
    assert_eq!(best(&[of("pool.g6-xlarge.a", &trial, 1), of("pool.g6-xlarge.b", &steady, 1)]), "pool.g6-xlarge.a");
    // Room for two of four at the same price: four served beat two.
    let two = [at(2, 700_000)];
    let few = Score::of(&of("pool.g6-xlarge.a", &two, 4)).unwrap();
    assert_eq!((few.micros, few.asked), (1_400_000, gpus(2)));
    assert_eq!(best(&[of("pool.g6-xlarge.a", &two, 4), of("pool.g6-xlarge.b", &steady, 4)]), "pool.g6-xlarge.b");
    assert_eq!(Score::of(&of("pool.g6-xlarge.a", &[], 4)), None);
}

const TWO_FOR: &[Step] = &[Step { nodes: 10, price: UsdPerHour(1_500_000) }];
const ONE_FOR: &[Step] = &[Step { nodes: 10, price: UsdPerHour(800_000) }];
const BIG_FOR: &[Step] = &[Step { nodes: 10, price: UsdPerHour(2_100_000) }];

#[test]
fn waste_is_paid_for_and_work_is_weighed() {
    let catalogue = groups();
    let of = |group, price: &'static [Step], nodes, asked| Way {
        group: find(&catalogue, group),
        supply: price,
        nodes,
        asked: gpus(asked),
    };
    // Both GPUs used: $0.75 each; one for nothing: $1.50.
    assert_eq!(best(&[of("pool.g6-xlarge.a", ONE_FOR, 2, 2), of("pool.g6-12xlarge.a", TWO_FOR, 1, 2)]), "pool.g6-12xlarge.a");
    assert_eq!(best(&[of("pool.g6-xlarge.a", ONE_FOR, 1, 1), of("pool.g6-12xlarge.a", TWO_FOR, 1, 1)]), "pool.g6-xlarge.a");
    // An L40S does three times the work: $0.70 a unit.
    assert_eq!(best(&[of("pool.g6-xlarge.a", ONE_FOR, 2, 2), of("pool.g6e-xlarge.a", BIG_FOR, 2, 2)]), "pool.g6e-xlarge.a");
}

/// An L40S does three units of work an hour, an L4 one. Beyond what the L40S does, the fastest comes nearest.
#[test]
fn a_deadline_takes_the_cheapest_gpu_that_is_fast_enough() {
    let catalogue = groups();
    let best_at = |speed: u64| {
        let of = |group, supply: &'static [Step]| {
            let asked = Asked { speed: Work(speed), ..gpus(1) };
            Way { group: find(&catalogue, group), supply, nodes: 1, asked }
        };
        best(&[of("pool.g6-xlarge.a", &[Step { nodes: 1, price: UsdPerHour(600_000) }]), of("pool.g6e-xlarge.a", BIG_FOR)])
    };
    assert_eq!(best_at(0), "pool.g6-xlarge.a");
    assert_eq!(best_at(1_000_000), "pool.g6-xlarge.a");
    assert_eq!(best_at(1_000_001), "pool.g6e-xlarge.a");
    assert_eq!(best_at(9_000_000), "pool.g6e-xlarge.a");
}

#[test]
fn at_the_same_unit_price_more_is_served_and_then_the_id_decides() {
    let catalogue = groups();
    let supply = [at(10, 800_000)];
    let of = |group, nodes| Way { group: find(&catalogue, group), supply: &supply, nodes, asked: gpus(nodes) };
    assert_eq!(best(&[of("pool.g6-xlarge.a", 1), of("pool.g6-xlarge.b", 3)]), "pool.g6-xlarge.b");
    assert_eq!(best(&[of("pool.g6-xlarge.b", 3), of("pool.g6-xlarge.a", 3)]), "pool.g6-xlarge.a");
}

#[test]
fn extremes_do_not_wrap() {
    let catalogue = groups();
    let (dear, less) = ([at(u32::MAX, i64::MAX)], [at(u32::MAX, i64::MAX - 1)]);
    let all = Asked { gpus: u32::MAX, pods: u32::MAX, speed: Work(0) };
    let of = |group, supply| Way { group: find(&catalogue, group), supply, nodes: u32::MAX, asked: all };
    assert_eq!(best(&[of("pool.g6-xlarge.a", &dear), of("pool.g6-xlarge.b", &less)]), "pool.g6-xlarge.b");
    assert_eq!(Score::of(&of("pool.g6-xlarge.a", &[at(1, -1_000_000)])), None);
}

/// The slow and obvious way: node by node, and every way with every other.
fn oracle<'a>(ways: &[Way<'a>]) -> Option<&'a str> {
    struct Worth {
        plain: bool,
        idle: bool,
        cost: i128,
        useful: i128,
        pods: i128,
    }
    let worth = |way: &Way<'_>| {
        let mut prices = Vec::new();
        for step in way.supply {
            for _ in 0..step.nodes {
                prices.push(way.group.weighed(step.price).0);
            }
        }
        prices.truncate(usize::try_from(way.nodes).unwrap());
        if prices.is_empty() || prices.iter().any(|price| *price < 0) {
            return None;
        }
        let (had, wanted) = (i128::try_from(prices.len()).unwrap(), i128::from(way.nodes));
        let part = |asked: u32| (i128::from(asked) * had + wanted - 1) / wanted;
        let (gpus, pods) = (part(way.asked.gpus), part(way.asked.pods));
        let useful = if gpus > 0 { gpus } else { pods };
        let cost = prices.iter().map(|price| i128::from(*price)).sum();
        Some(Worth { plain: gpus == 0, idle: useful == 0, cost, useful, pods })
    };
    let beats = |a: &Way<'_>, b: &Way<'_>| {
        let (Some(x), Some(y)) = (worth(a), worth(b)) else { return false };
        if (x.plain, x.idle) != (y.plain, y.idle) {
            return (x.plain, x.idle) < (y.plain, y.idle);
        }
        if x.cost * y.useful != y.cost * x.useful {
            return x.cost * y.useful < y.cost * x.useful;
        }
        if x.useful != y.useful {
            return x.useful > y.useful;
        }
        if x.pods != y.pods {
            return x.pods > y.pods;
        }
        a.group.id < b.group.id
    };
    let open: Vec<_> = ways.iter().filter(|way| worth(way).is_some()).collect();
    open.iter().find(|a| open.iter().all(|b| a.group.id == b.group.id || beats(a, b))).map(|way| way.group.id.as_str())
}

#[test]
fn the_best_is_the_oracle_s_in_any_order() {
    let catalogue = groups();
    for seed in 0..3_000 {
        let mut lots = Lots(seed);
        let supplies: Vec<Vec<Step>> = (0..catalogue.groups.len())
            .map(|_| {
                let steps = lots.below(4);
                // Few different prices, so that ties are common; now and then one that makes no sense.
                (0..steps)
                    .map(|_| at(lots.upto(3) + 1, 300_000 * (i64::from(lots.upto(4)) - i64::from(lots.below(40) == 0))))
                    .collect()
            })
            .collect();
        let mut ways: Vec<Way<'_>> = catalogue
            .groups
            .values()
            .zip(&supplies)
            .map(|(group, supply)| {
                let (nodes, pods) = (lots.upto(5) + 1, lots.upto(6));
                let gpus = if lots.below(3) == 0 { 0 } else { pods * lots.upto(2) };
                Way { group, supply, nodes, asked: Asked { gpus, pods, speed: Work(0) } }
            })
            .collect();
        let expected = oracle(&ways);
        for _ in 0..3 {
            let found = ways.iter().filter_map(Score::of).min().map(|score| score.group.as_str());
            assert_eq!(found, expected, "seed {seed}: {ways:?}");
            let middle = usize::try_from(lots.below(6)).unwrap();
            ways.rotate_left(middle);
        }
    }
}
