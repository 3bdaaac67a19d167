use stoker_core::market::offer::CapacityType;

use super::*;

const MINUTE: i64 = 60;

/// A day, looked at every ten minutes: 144 steps.
fn day() -> Observed {
    Observed::new(Grid::new(0, 86_400, 10 * MINUTE))
}

fn key(name: &str) -> PodKey {
    ("ml".to_owned(), name.to_owned(), format!("uid-{name}"))
}

fn kinds(rates: &[(&str, Option<i64>)]) -> BTreeMap<String, Kind> {
    let kind = |rate: Option<i64>| Kind {
        instance_type: rate.map(|_| "p5.4xlarge".to_owned()),
        bought: Some(CapacityType::OnDemand),
        rate: rate.map(|usd| UsdPerHour(usd * 10_000)),
        ..Kind::default()
    };
    rates.iter().map(|(name, rate)| ((*name).to_owned(), kind(*rate))).collect()
}

#[test]
fn steps_are_whole_and_within_the_time() {
    let grid = Grid::new(61, 301, 60);
    // 120, 180, 240 and 300.
    assert_eq!((grid.steps(), grid.begins(0), grid.begins(3)), (4, 120, 300));
    assert_eq!([119, 120, 179, 300, 359, 360].map(|at| grid.step_of(at)), [None, Some(0), Some(0), Some(3), Some(3), None]);
    assert_eq!(Grid::new(300, 100, 60).steps(), 0);
    assert_eq!(Grid::new(i64::MAX, i64::MIN, 0).steps(), 0);
}

#[test]
fn steps_join_in_any_order() {
    let mut spells = Spells::new();
    let order = [3, 4, 9, 1, 2, 8, 6, 4, 9, 0];
    let new: Vec<bool> = order.iter().map(|step| spells.add(*step)).collect();
    assert_eq!(new, [true, true, true, true, true, true, true, false, false, true]);
    // 0 to 4, 6, and 8 to 9.
    assert_eq!((spells.ranges(), spells.count(), spells.first(), spells.last()), (3, 8, Some(0), Some(9)));
    assert_eq!([0, 4, 5, 6, 7, 9, 10].map(|step| spells.has(step)), [true, true, false, true, false, true, false]);
    assert_eq!([0, 3, 7, 99].map(|step| spells.before(step)), [0, 3, 6, 8]);
    let mut other = Spells::new();
    (2..9).for_each(|step| assert!(other.add(step)));
    // 2, 3, 4, 6 and 8.
    assert_eq!((spells.shared(&other), other.shared(&spells), spells.shared(&Spells::new())), (5, 5, 0));
    assert_eq!(spells::most([&spells, &other].into_iter()), 2);
    assert_eq!(spells::most(std::iter::empty()), 0);
}

/// The articles' cluster: 20 H100 at 18 % for $100,448 a month, of which 7 would hold what there is.
///
/// 20 × $6.88 × 730 h = $100,448, and 82 % of it are $82,367. Seven cost $35,156.80. The articles have the seven at 72 %: 7 × 72 % are
/// 5.04 GPUs at work, and 20 × 18 % are 3.6. The work of the twenty keeps seven GPUs busy for 51.4 % of the time; at 72 % five would do.
#[test]
fn twenty_nodes_at_18_percent_waste_82_of_100_thousand() {
    let mut seen = day();
    let names: Vec<String> = (0..20).map(|n| format!("gpu-{n}")).collect();
    for step in 0..144 {
        seen.take_known(step);
        for (n, name) in names.iter().enumerate() {
            seen.take_node(name, step, 1);
            // 7 × 51.4 % and 13 × 0 % are 3.6 of 20 GPUs but for rounding: 6 × 514 + 516 = 3,600 thousandths.
            let permille = [516, 514, 514, 514, 514, 514, 514].get(n).copied().unwrap_or(0);
            seen.take_use(name, step, 1, permille);
            if n < 7 {
                seen.take_pod(&key(name), step, 1, Some(name));
            }
        }
    }
    let rates: Vec<(&str, Option<i64>)> = names.iter().map(|name| (name.as_str(), Some(688))).collect();
    let figures = seen.figures(&kinds(&rates));
    let Amounts { node_seconds, gpu_seconds, held_seconds, read_seconds, worked_seconds, .. } = figures.total;
    assert_eq!((figures.nodes_last, figures.nodes_most, figures.lines.len()), (20, 20, 1));
    assert_eq!((node_seconds, gpu_seconds, read_seconds), (20 * 86_400, 20 * 86_400, 20 * 86_400));
    // Of each node whole seconds count.
    let worked = 20 * 86_400 * 18 / 100;
    assert!(held_seconds == 7 * 86_400 && (worked - 20..=worked).contains(&worked_seconds), "{worked_seconds}");
    // 20 × $6.88 × 24 h = $3,302.40, of which 82 % are $2,707.968.
    assert_eq!(figures.total.cost, UsdMicros(3_302_400_000));
    assert_eq!(figures.total.waste(), Some(UsdMicros(2_707_968_000)));
    assert_eq!(a_month(figures.total.cost, 86_400), Some(UsdMicros(100_448_000_000)));
    assert_eq!(a_month(figures.total.waste().unwrap(), 86_400), Some(UsdMicros(82_367_360_000)));
    // Seven hold what there is, and work as much: 3.6 / 7 = 51.4 % of the time, and not 72 %; 3.6 / 72 % = 5.
    assert_eq!((worked * 1_000 / (7 * 86_400), worked * 100 / 72 / 86_400), (514, 5));
    let pods = seen.pods();
    assert_eq!((pods.pods.len(), pods.never_ran.len()), (7, 0));
    assert!(pods.pods.iter().all(|pod| (pod.arrives, pod.runs, pod.gpus, pod.goes_on) == (0, 86_400, 1, true)));
}

#[test]
fn what_is_not_known_is_in_no_figure() {
    let mut seen = day();
    for step in (0..144).filter(|step| !(60..72).contains(step)) {
        // Two hours are missing.
        seen.take_known(step);
        seen.take_node("a", step, 8);
        // The second node comes at step 72 without a price.
        if step >= 72 {
            seen.take_node("b", step, 4);
        }
        // Readings of half of the GPUs of `a`, 25 % each, until the gap.
        if step < 60 {
            seen.take_use("a", step, 4, 1_000);
        }
        // One that is read and not there.
        seen.take_use("c", step, 8, 8_000);
    }
    let figures = seen.figures(&kinds(&[("a", Some(5_504)), ("b", None)]));
    assert_eq!((figures.seconds, figures.known_seconds), (86_400, 79_200));
    assert_eq!((figures.nodes_last, figures.nodes_most), (2, 2));
    let total = figures.total;
    // a: 22 h, b: 12 h.
    assert_eq!((total.node_seconds, total.unpriced_node_seconds), (34 * 3_600, 12 * 3_600));
    assert_eq!(total.gpu_seconds, (22 * 8 + 12 * 4) * 3_600);
    // 10 h of 4 GPUs at a quarter.
    assert_eq!((total.read_seconds, total.worked_seconds, total.held_seconds), (40 * 3_600, 10 * 3_600, 0));
    // 22 h × $55.04 = $1,210.88. 40 of its 176 GPU-hours are read: $275.20, three quarters of which are $206.40.
    assert_eq!((total.cost, total.read), (UsdMicros(1_210_880_000), UsdMicros(275_200_000)));
    assert_eq!(total.waste(), Some(UsdMicros(206_400_000)));
    let lines: Vec<Option<&str>> = figures.lines.iter().map(|(kind, _)| kind.instance_type.as_deref()).collect();
    assert_eq!(lines, [Some("p5.4xlarge"), None], "the most expensive first");
    assert_eq!(figures.lines[1].1.waste(), None);
}

#[test]
fn a_demand_goes_on_after_a_gap_as_if_that_had_not_been() {
    let mut seen = day();
    for step in (0..144).filter(|step| !(60..72).contains(step)) {
        seen.take_known(step);
        // Waits for half an hour, holds two GPUs over the gap until step 84.
        match step {
            30..33 => seen.take_pod(&key("over"), step, 2, None),
            33..84 => seen.take_pod(&key("over"), step, 2, Some("a")),
            _ => {}
        }
        // Comes after the gap and stays.
        if step >= 90 {
            seen.take_pod(&key("stays"), step, 1, Some("a"));
        }
        if step >= 140 {
            seen.take_pod(&key("never"), step, 1, None);
        }
        seen.take_pod(&key("none"), step, 0, Some("a"));
    }
    seen.take_size(&key("over"), 4_000, 16_384);
    seen.take_size(&key("over"), 2_000, 8_192);
    seen.take_size(&key("unseen"), 1, 1);
    let PodTimes { pods, never_ran } = seen.pods();
    assert_eq!(never_ran, ["ml/never"]);
    let times: Vec<_> = pods.iter().map(|pod| (pod.name.as_str(), pod.arrives / 600, pod.runs / 600, pod.goes_on)).collect();
    // 51 steps less the 12 of the gap; the gap is off the second one's arrival.
    assert_eq!(times, [("ml/over", 30, 39, false), ("ml/stays", 78, 54, true)]);
    assert_eq!((pods[0].gpus, pods[0].milli_cpu, pods[0].memory_mib), (2, 4_000, 16_384));
}

#[test]
fn odd_samples_count_for_no_more_than_there_is() {
    let mut seen = day();
    seen.take_known(0);
    seen.take_node("a", 0, 4);
    seen.take_node("a", 0, 4);
    seen.take_node("none", 0, 0);
    // Read twice for a moment, and once busier than it can be.
    seen.take_use("a", 0, 8, 4_000);
    seen.take_use("a", 0, 1, u64::MAX);
    // More GPUs than the node has.
    seen.take_pod(&key("a"), 0, 3, Some("a"));
    seen.take_pod(&key("b"), 0, 3, Some("a"));
    let total = seen.figures(&kinds(&[("a", Some(100))])).total;
    assert_eq!((total.gpu_seconds, total.held_seconds, total.read_seconds), (2_400, 2_400, 2_400));
    assert!(total.worked_seconds <= 2_400 && total.waste().unwrap().0 >= 0, "{total:?}");
    assert_eq!(a_month(UsdMicros(1), 0), None);
}
