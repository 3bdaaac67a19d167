//! How advice is put into words: levels, figures, and the arithmetic behind them.

use jiff::SignedDuration;
use stoker_advice::fit::Power;
use stoker_advice::workload::{Class, Layout, MONTH_HOURS, Measure, Spread, Suggestion, WorkloadAdvice};
use stoker_core::base::text;
use stoker_core::base::units::Ppm;
use stoker_core::facts::reading::Permille;
use stoker_core::policy::rules::advise::Thresholds;

use crate::cli::idle::hours;

/// What all of it rests on.
pub(super) fn assumptions(thresholds: Thresholds) -> Vec<String> {
    let Thresholds { headroom, .. } = thresholds;
    vec![
        format!(
            "a workload fits where there is {headroom} headroom above its p95 of arithmetic and of bandwidth, and above its \
             peak of memory; GPUs are compared by dense FP16 and bandwidth of their data sheets"
        ),
        "where no bandwidth was read, it is assumed to be used as much as the arithmetic; utilization stands in for \
         arithmetic where SM activity was not read, and is never below it"
            .to_owned(),
        "a pod keeps its number of GPUs or gets an even part of it, and a pod with one may get a part of one; other pods fill the rest of \
         the node"
            .to_owned(),
        "prices are current, for the capacity type it used most, without commitments and without the cost of migrating".to_owned(),
        format!("a month is {MONTH_HOURS} hours like those with readings; hours without readings are excluded"),
        "checkpoints: nodes are lost one at a time, writing a checkpoint takes equally long at any interval, and a reclaim \
         loses half an interval on average".to_owned(),
    ]
}

/// `30` or `30.5` of thousandths.
pub(super) fn percent(level: Permille) -> String {
    match (level.get() / 10, level.get() % 10) {
        (whole, 0) => whole.to_string(),
        (whole, tenths) => format!("{whole}.{tenths}"),
    }
}

/// Median, 95th percentile and peak.
pub(super) fn spread(levels: Option<Spread>) -> String {
    levels.map_or_else(|| "-".to_owned(), |Spread { p50, p95, peak }| [p50, p95, peak].map(percent).join("/"))
}

/// Tera of millions, with one decimal.
pub(super) fn tera(mega: u128) -> String {
    let tenths = (mega + 50_000) / 100_000;
    format!("{}.{}", tenths / 10, tenths % 10)
}

/// Bytes as GiB with one decimal.
pub(super) fn gib(bytes: u128) -> String {
    let tenths = (bytes * 10 + (1 << 29)) >> 30;
    format!("{}.{} GiB", tenths / 10, tenths % 10)
}

pub(super) fn power(power: &Power) -> String {
    format!("{} TFLOPS, {} GB/s and {}", tera(power.megaflops), (power.mb_s + 500) / 1_000, gib(power.memory))
}

/// A length of time; from an hour on without seconds.
pub(super) fn length(length: SignedDuration) -> String {
    let seconds = length.as_secs();
    text::length(SignedDuration::from_secs(if seconds < 3_600 { seconds } else { seconds - seconds % 60 }))
}

/// Millionths as a percentage with two decimals.
pub(super) fn ppm(share: Ppm) -> String {
    let hundredths = (share.0 + 50) / 100;
    format!("{}.{:02}%", hundredths / 100, hundredths % 100)
}

/// GPUs and how they are given, as the table shows them.
pub(super) fn shown(suggestion: &Suggestion) -> String {
    let Suggestion { market, gpus, layout, .. } = suggestion;
    let part = match layout {
        Layout::Whole => String::new(),
        shared => format!(" ({shared})"),
    };
    format!("{gpus} of {}{part} {} in {}", market.place.instance_type, market.capacity_type, market.place.zone)
}

/// How the figures of a workload come about, a line each.
pub(super) fn arithmetic(advice: &WorkloadAdvice, thresholds: Thresholds) -> Vec<String> {
    let WorkloadAdvice { levels, class, now, cheapest, as_it_stands, checkpoints, known_days, .. } = advice;
    let Thresholds { headroom, over_provisioned_below, memory_bound_from, compute_bound_from } = thresholds;
    let p95 = levels.compute().map_or_else(|| "-".to_owned(), |level| percent(level.p95));
    let by = levels.by.as_str();
    let memory = levels.memory.map_or_else(|| "-".to_owned(), |level| percent(level.peak));
    let why = match class {
        Class::MemoryBound => {
            format!("memory peaks at {memory}% or bandwidth's p95 is as high; the threshold is {memory_bound_from}")
        }
        Class::ComputeBound => format!("p95 of {by} is {p95}%, not below {compute_bound_from}"),
        Class::OverProvisioned => format!(
            "p95 of {by} is {p95}%, below {over_provisioned_below}, and memory peaks at {memory}%, below {memory_bound_from}"
        ),
        Class::Unknown => format!("p95 of {by} is {p95}%, below {over_provisioned_below}, and its memory was not read"),
        Class::Fits => format!("p95 of {by} is {p95}%, from {over_provisioned_below} to below {compute_bound_from}"),
    };
    let mut lines = vec![format!("{}: {why}; by {known_days} days of readings", class.as_str())];
    let (pod_hours, pods) = (hours(now.pod_seconds), now.pods);
    lines.push(format!(
        "now: {pod_hours} pod-hours x {} / {} h x {MONTH_HOURS} h = {} a month; on average {pods} at a time, each with {} of {}",
        now.per_pod,
        now.hours,
        now.per_month,
        now.gpus,
        now.instance_types.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
    ));
    let tell = |lines: &mut Vec<String>, word: &str, one: &Suggestion| {
        lines.push(format!(
            "{word}: {} a node / {} = {} a pod; {pod_hours} x {} / {} h x {MONTH_HOURS} h = {} a month, {} less",
            one.node, one.pods_per_node, one.per_pod, one.per_pod, now.hours, one.per_month, one.saved
        ));
        lines.push(format!(
            "  a pod needs {} ({} plus {headroom}), and {} has {}",
            power(&one.need),
            if levels.by == Measure::SmActivity {
                "p95 of SM activity and bandwidth, peak of memory"
            } else {
                "p95 of utilization and bandwidth, peak of memory"
            },
            shown(one),
            power(&one.has)
        ));
    };
    match cheapest {
        Ok(one) => tell(&mut lines, "then", one),
        Err(why) => lines.push(format!("stays: {why}")),
    }
    if let Some(one) = as_it_stands {
        tell(&mut lines, "with the current policy", one);
    }
    if let Some(of) = checkpoints {
        lines.push(format!(
            "checkpoints: {} of {} are {} each; {} reclaims/node-h, one in {}; best every sqrt(2 x {} x {}) = {}",
            of.overhead,
            length(of.every),
            length(of.cost),
            of.hazard,
            length(of.between),
            length(of.cost),
            length(of.between),
            length(of.best)
        ));
        lines.push(format!(
            "  every {} wastes {} of {} a month, every {} {}: {} less",
            length(of.every),
            ppm(of.wasted),
            of.spot_per_month,
            length(of.best),
            ppm(of.least),
            of.saved
        ));
    }
    lines
}
