use super::*;

const SEEDS: std::ops::Range<u64> = 0..40;

fn gpu_hours(event: &PodEvent) -> f64 {
    event.lifetime.as_secs_f64() / 3600.0 * f64::from(event.pod.requests.gpus)
}

/// GPUs in use at each minute of the day, if every pod ran from its arrival.
fn demand(day: &[PodEvent]) -> Vec<u32> {
    let mut demand = vec![0; 24 * 60];
    for event in day {
        let from = usize::try_from(event.at.as_mins()).unwrap();
        let until = usize::try_from((event.at + event.lifetime).as_mins()).unwrap();
        for gpus in demand.iter_mut().take(until).skip(from) {
            *gpus += event.pod.requests.gpus;
        }
    }
    demand
}

fn number(n: usize) -> f64 {
    f64::from(u32::try_from(n).unwrap())
}

fn mean(values: impl ExactSizeIterator<Item = f64>) -> f64 {
    let n = number(values.len());
    values.sum::<f64>() / n
}

#[test]
fn a_seed_makes_one_day_and_another_seed_another() {
    let pools = Pools::default();
    assert_eq!(Workload::day(7, &pools), Workload::day(7, &pools));
    assert_ne!(Workload::day(7, &pools), Workload::day(8, &pools));
}

#[test]
fn names_are_unique_and_times_in_order_and_within_the_day() {
    for seed in SEEDS {
        let day = Workload::day(seed, &Pools { training_gpus_per_pod: 1, ..Pools::default() });
        let names: std::collections::BTreeSet<&str> = day.iter().map(|e| e.pod.id.as_str()).collect();
        assert_eq!(names.len(), day.len());
        assert!(day.is_sorted_by_key(|e| e.at));
        assert!(day.iter().all(|e| !e.at.is_negative() && e.at < SignedDuration::from_hours(24)));
        assert!(day.iter().all(|e| e.lifetime >= SignedDuration::from_secs(1)));
    }
}

#[test]
fn pods_choose_their_pool_and_bear_the_gpu_taint() {
    let pools = Pools { inference: "serve".into(), ..Pools::default() };
    for event in Workload::day(1, &pools) {
        let pool = match event.kind {
            Kind::Inference => "serve",
            Kind::Training => "training",
            Kind::Dev => "dev",
            Kind::Batch => "batch",
        };
        assert_eq!(event.pod.node_selector.get("stoker.dev/pool").map(String::as_str), Some(pool));
        assert_eq!(event.pod.tolerations, [Toleration::of_key("nvidia.com/gpu")]);
        assert_eq!(event.pod.movable, matches!(event.kind, Kind::Inference | Kind::Batch));
    }
}

#[test]
fn a_job_is_split_into_pods_that_start_together() {
    let whole = Workload::day(3, &Pools::default());
    let split = Workload::day(3, &Pools { training_gpus_per_pod: 4, ..Pools::default() });
    let jobs = |day: &[PodEvent]| {
        let mut jobs: BTreeMap<u32, (SignedDuration, u32)> = BTreeMap::new();
        for event in day.iter().filter(|e| e.kind == Kind::Training) {
            let job = jobs.entry(event.gang.unwrap()).or_insert((event.at, 0));
            assert_eq!(job.0, event.at);
            job.1 += event.pod.requests.gpus;
        }
        jobs
    };
    assert_eq!(jobs(&whole), jobs(&split));
    assert!(jobs(&whole).values().all(|(_, gpus)| [4, 8].contains(gpus)));
    assert!(split.iter().all(|e| e.pod.requests.gpus <= 4));
    assert!(split.len() > whole.len());
}

#[test]
fn a_change_of_one_kind_does_not_shift_the_others() {
    let others = |day: Vec<PodEvent>| day.into_iter().filter(|e| e.kind != Kind::Training).collect::<Vec<_>>();
    let split = Pools { training_gpus_per_pod: 1, ..Pools::default() };
    assert_eq!(others(Workload::day(5, &split)), others(Workload::day(5, &Pools::default())));
}

#[test]
fn half_the_pods_are_short_and_a_few_use_most() {
    let days: Vec<Vec<PodEvent>> = SEEDS.map(|seed| Workload::day(seed, &Pools::default())).collect();
    let is_short = |e: &&PodEvent| e.lifetime < SignedDuration::from_mins(10);
    let short = mean(days.iter().map(|day| number(day.iter().filter(is_short).count()) / number(day.len())));
    assert!((0.45..0.65).contains(&short), "{short}");
    let total = |day: &[PodEvent]| day.iter().map(gpu_hours).sum::<f64>();
    let short_use = mean(days.iter().map(|day| day.iter().filter(is_short).map(gpu_hours).sum::<f64>() / total(day)));
    assert!(short_use < 0.02, "{short_use}");
    let largest = |parts: usize| {
        mean(days.iter().map(|day| {
            let mut hours: Vec<f64> = day.iter().map(gpu_hours).collect();
            hours.sort_by(|a, b| b.total_cmp(a));
            hours.iter().take(day.len() / parts).sum::<f64>() / total(day)
        }))
    };
    assert!(largest(10) > 0.45, "{}", largest(10));
    assert!(largest(4) > 0.85, "{}", largest(4));
}

#[test]
fn demand_follows_the_day() {
    let days: Vec<Vec<u32>> = SEEDS.map(|seed| demand(&Workload::day(seed, &Pools::default()))).collect();
    let at = |hour: usize| mean(days.iter().map(|d| f64::from(d[hour * 60])));
    let overall = mean(days.iter().map(|d| mean(d.iter().map(|gpus| f64::from(*gpus)))));
    assert!((30.0..50.0).contains(&overall), "{overall}");
    assert!(at(15) > 1.5 * at(4), "{} {}", at(15), at(4));
    let peak = mean(days.iter().map(|d| f64::from(*d.iter().max().unwrap())));
    assert!((1.5..2.2).contains(&(peak / overall)), "{peak} {overall}");
}

#[test]
fn arrivals_come_in_bursts() {
    let mut dispersion = Vec::new();
    for seed in SEEDS {
        // Two working hours, in which the rate is nearly even.
        let window = SignedDuration::from_hours(14)..SignedDuration::from_hours(16);
        let mut counts = [0.0_f64; 12];
        for event in Workload::day(seed, &Pools::default()) {
            if window.contains(&event.at) && event.kind == Kind::Batch {
                counts[usize::try_from((event.at - window.start).as_mins() / 10).unwrap()] += 1.0;
            }
        }
        let average = mean(counts.iter().copied());
        let variance = mean(counts.iter().map(|c| (c - average).powi(2)));
        dispersion.push(variance / average);
    }
    let dispersion = mean(dispersion.into_iter());
    assert!((1.5..3.0).contains(&dispersion), "{dispersion}");
}
