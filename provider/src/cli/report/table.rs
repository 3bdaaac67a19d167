//! The report as people read it: its tables and sentences, and both as text.

use stoker_advice::spend::LifeTimes;
use stoker_core::base::units::UsdMicros;
use stoker_service::print::{Table, count, paragraph, wrapped};

use super::figures::{Amounts, CommitmentLine, MonthLine, Report};
use crate::cli::out::{Money, quiet, text_of};
use crate::cli::simulate::BeforeAfter;

/// From so many seconds on months are told apart: of 30 days, which two months share, nobody asks.
const MONTHS_FROM: i64 = 62 * 86_400;

pub(super) fn table_of(report: &Report) -> String {
    let line = |line: String| line + "\n";
    let mut text: String = head(report).into_iter().map(line).collect();
    if report.known_seconds > 0 {
        for grid in grids(report) {
            text.push('\n');
            text += &text_of(grid);
        }
        text.push('\n');
        text.extend(lives(report).into_iter().chain(unit_costs(report)).map(line));
    }
    if let Some(played) = &report.before_after {
        text.push('\n');
        text.extend(played.sentences().iter().map(|sentence| wrapped("", sentence)));
        for grid in played.grids() {
            text.push('\n');
            text += &text_of(grid);
        }
        text.push('\n');
    }
    text.extend(notes(report).iter().map(|(word, what)| paragraph(&format!("{word}:"), what)));
    text
}

/// The time that is reported, and what it cost in all.
pub(super) fn head(report: &Report) -> Vec<String> {
    let day = |at: jiff::Timestamp| at.strftime("%Y-%m-%d %H:%MZ").to_string();
    let mut lines = vec![format!("Spend from {} to {}", day(report.from), day(report.until))];
    if report.known_seconds > 0 {
        let Amounts { list, contracted, effective, .. } = &report.total;
        lines.push(format!(
            "{} at list prices, {} at the prices paid, {} with commitments",
            usd(list),
            usd(contracted),
            usd(effective)
        ));
        lines.push(wasted(report));
    }
    lines
}

/// What GPUs could have done and did not, and of how much of the cost that is known.
fn wasted(report: &Report) -> String {
    let Amounts { read, effective, waste, .. } = &report.total;
    match waste {
        Some(waste) => {
            let known = i128::from(read.micro_usd) * 1_000 / i128::from(effective.micro_usd.max(1));
            format!("{} of it wasted by GPUs that were not used; readings tell of {} of the cost", usd(waste), percent(known))
        }
        None => "Wasted by GPUs that were not used: unknown, no readings tell".to_owned(),
    }
}

pub(super) fn grids(report: &Report) -> Vec<Table> {
    let mut grids = vec![lines(report), states(report), capacity(report)];
    if report.seconds > MONTHS_FROM {
        grids.push(months(report));
    }
    if !report.commitments.is_empty() {
        grids.push(commitments(report));
    }
    grids
}

fn header(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn lines(report: &Report) -> Table {
    let by = report.by.to_uppercase();
    let rows = report.lines.iter().map(|line| {
        let rise = line.rise_permille.map_or_else(|| "-".to_owned(), |rise| signed(rise) + if line.rose { " (!)" } else { "" });
        let rest = vec![waste(&line.amounts), share(&line.amounts, report), rise];
        [vec![quiet(&line.name)], amounts(&line.amounts), rest].concat()
    });
    Table {
        caption: format!("By {}", report.by),
        header: header(&[by.as_str(), "NODE-HOURS", "GPU-HOURS", "LIST", "PAID", "EFFECTIVE", "WASTE", "SHARE", "RISE"]),
        numbers: 1..7,
        rows: rows.collect(),
    }
}

fn states(report: &Report) -> Table {
    let rows = report.by_state.iter().map(|line| (line.state.as_str(), &line.amounts));
    Table {
        caption: "By what nodes did".to_owned(),
        header: header(&["STATE", "NODE-HOURS", "GPU-HOURS", "LIST", "PAID", "EFFECTIVE", "SHARE"]),
        numbers: 1..6,
        rows: with_unused(report, rows),
    }
}

fn capacity(report: &Report) -> Table {
    let rows = report.by_capacity.iter().map(|line| (line.capacity_type.as_str(), &line.amounts));
    Table {
        caption: "By how nodes were bought".to_owned(),
        header: header(&["CAPACITY", "NODE-HOURS", "GPU-HOURS", "LIST", "PAID", "EFFECTIVE", "SHARE"]),
        numbers: 1..6,
        rows: with_unused(report, rows),
    }
}

/// The lines of a table, and what commitments cost beside them: together they are the total.
fn with_unused<'a>(report: &'a Report, lines: impl Iterator<Item = (&'a str, &'a Amounts)>) -> Vec<Vec<String>> {
    let unused = report.unused_commitments.iter().map(|of| ("unused commitments", of));
    let row = |(name, of): (&str, &Amounts)| [vec![name.to_owned()], amounts(of), vec![share(of, report)]].concat();
    lines.chain(unused).map(row).collect()
}

fn months(report: &Report) -> Table {
    let row = |line: &MonthLine| match line.known_seconds {
        0 => [vec![line.month.clone()], vec!["unknown".to_owned(); 6]].concat(),
        _ => [vec![line.month.clone()], amounts(&line.amounts), vec![waste(&line.amounts)]].concat(),
    };
    Table {
        caption: "By month".to_owned(),
        header: header(&["MONTH", "NODE-HOURS", "GPU-HOURS", "LIST", "PAID", "EFFECTIVE", "WASTE"]),
        numbers: 1..7,
        rows: report.by_month.iter().map(row).collect(),
    }
}

fn commitments(report: &Report) -> Table {
    let row = |line: &CommitmentLine| {
        vec![line.name.clone(), line.kind.as_str().to_owned(), usd(&line.cost), usd(&line.used), usd(&line.unused)]
    };
    Table {
        caption: "Commitments".to_owned(),
        header: header(&["COMMITMENT", "KIND", "COST", "USED", "UNUSED"]),
        numbers: 2..4,
        rows: report.commitments.iter().map(row).collect(),
    }
}

/// What became of nodes, and what the time before cost.
pub(super) fn lives(report: &Report) -> Vec<String> {
    let of = &report.lives;
    let mut lines = vec![format!(
        "Nodes: {} became Ready, {} were released, {} were reclaimed, {} did not join, {} vanished",
        of.started, of.released, of.reclaimed, of.failed, of.vanished
    )];
    let times = |times: &LifeTimes| format!("median {}, 95 % within {}", span(times.median_seconds), span(times.p95_seconds));
    if let Some(ready) = &of.order_to_ready {
        lines.push(format!("From order to Ready: {}", times(ready)));
    }
    if let Some(recovery) = &of.recovery {
        let of = count(recovery.nodes, "reclaim");
        lines.push(format!("From reclaim to the next Ready node: {}, of {of}", times(recovery)));
    }
    if of.not_replaced > 0 {
        lines.push(format!("Reclaimed and not replaced: {}", count(of.not_replaced, "node")));
    }
    if let Some(before) = &report.before {
        let rise = before.rise_permille.map_or_else(String::new, |rise| format!("; an hour now costs {}", signed(rise)));
        let (from, until) = (before.from.strftime("%Y-%m-%d"), before.until.strftime("%Y-%m-%d"));
        lines.push(format!("Before, from {from} to {until}: {} with commitments{rise}", usd(&before.total.effective)));
    }
    lines
}

/// What one request or the like costs.
pub(super) fn unit_costs(report: &Report) -> impl Iterator<Item = String> {
    report.unit_costs.iter().filter_map(|line| line.shown().ok())
}

/// What to look at, and what is not known: each with its word.
pub(super) fn notes(report: &Report) -> Vec<(&'static str, String)> {
    let played = report.before_after.iter().flat_map(BeforeAfter::notes);
    of_spend(report).into_iter().chain(played).collect()
}

fn of_spend(report: &Report) -> Vec<(&'static str, String)> {
    if report.known_seconds == 0 {
        let what = "the journal does not know what nodes did in that time: the service writes it down while it runs, from this \
                    release on";
        return vec![("unknown", what.to_owned())];
    }
    let mut notes = Vec::new();
    let share = |seconds: i64| percent(i128::from(seconds) * 1_000 / i128::from(report.seconds.max(1)));
    if let Some(before) = report.before.as_ref().filter(|before| before.rose) {
        let rise = before.rise_permille.map_or_else(String::new, signed);
        notes.push(("rise", format!("an hour cost {rise} against the time before")));
    }
    for line in report.lines.iter().filter(|line| line.rose) {
        let rise = line.rise_permille.map_or_else(String::new, signed);
        notes.push(("rise", format!("{}: an hour cost {rise} against the time before", line.name)));
    }
    notes.extend(report.unit_costs.iter().filter_map(|line| Some(("unknown", line.shown().err()?))));
    if report.known_seconds < report.seconds {
        let what =
            format!("what nodes did is known of {} of the time; the rest is not in these figures", share(report.known_seconds));
        notes.push(("unknown", what));
    }
    if report.pods_known_seconds < report.known_seconds {
        let what = format!("which pods there were is known of {} of the time", share(report.pods_known_seconds));
        notes.push(("unknown", what));
    }
    if let Some(before) = &report.before {
        let seconds = before.until.as_second() - before.from.as_second();
        if before.known_seconds < seconds {
            let known = percent(i128::from(before.known_seconds) * 1_000 / i128::from(seconds.max(1)));
            let rise = before.rise_permille.map_or("too little for a rise", |_| "a rise compares what an hour cost");
            notes.push(("unknown", format!("of the time before, {known} is known: {rise}")));
        }
    }
    if report.lives_since > report.from {
        let since = report.lives_since.strftime("%Y-%m-%d");
        notes.push(("unknown", format!("what became of nodes is known since {since}: it is kept for 70 days")));
    }
    if report.unlisted_node_seconds > 0 {
        let hours = hours(report.unlisted_node_seconds);
        notes.push(("unknown", format!("{hours} node-hours have no published price, and are counted at what was paid")));
    }
    notes
}

fn amounts(of: &Amounts) -> Vec<String> {
    vec![hours(of.node_seconds), hours(of.gpu_seconds), usd(&of.list), usd(&of.contracted), usd(&of.effective)]
}

/// What was wasted of what readings tell of.
fn waste(of: &Amounts) -> String {
    of.waste.as_ref().map_or_else(|| "unknown".to_owned(), usd)
}

/// Its share of what all cost with commitments.
fn share(of: &Amounts, report: &Report) -> String {
    let all = i128::from(report.total.effective.micro_usd.max(1));
    percent((i128::from(of.effective.micro_usd) * 1_000 + all / 2).div_euclid(all))
}

/// Hours with one decimal, rounded to the nearest.
pub(super) fn hours(seconds: i64) -> String {
    let tenths = (seconds + 180).div_euclid(360);
    format!("{}.{}", tenths / 10, tenths % 10)
}

fn usd(money: &Money) -> String {
    UsdMicros(money.micro_usd).to_string()
}

/// Thousandths, in percent.
pub(in crate::cli) fn percent(permille: i128) -> String {
    let sign = if permille < 0 { "-" } else { "" };
    let of = permille.unsigned_abs();
    format!("{sign}{}.{} %", of / 10, of % 10)
}

fn signed(permille: i64) -> String {
    let sign = if permille < 0 { "" } else { "+" };
    sign.to_owned() + &percent(permille.into())
}

/// A time in words.
fn span(seconds: i64) -> String {
    match seconds {
        ..120 => format!("{seconds} s"),
        120..7_200 => format!("{} min {} s", seconds / 60, seconds % 60),
        _ => format!("{} h {} min", seconds / 3_600, seconds % 3_600 / 60),
    }
}
