//! Money: what the last thirty days cost, and what for.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use maud::{Markup, html};
use stoker_core::base::units::UsdMicros;
use tokio::time::Instant;

use crate::api::console::draw::{Chart, UNKNOWN, Usd, dollars, moment, table, text_table};
use crate::api::console::text::{Day, Money};

/// How long a report is shown before it is made anew, at least and at most; between these, a hundred times as long as making it took.
const SHOWN: (Duration, Duration) = (Duration::from_mins(1), Duration::from_hours(1));

/// The last report, and whether another is being made.
#[derive(Debug, Default)]
pub(in crate::api::console) struct Kept(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    last: Option<Made>,
    is_under_way: bool,
    /// When the next is to be made.
    due: Option<Instant>,
}

/// A report, or why there is none.
#[derive(Debug, Clone)]
pub(in crate::api::console) struct Made {
    pub(in crate::api::console) at: Timestamp,
    pub(in crate::api::console) money: Result<Arc<Money>, String>,
}

impl Kept {
    /// The last report, and whether whoever asks has to make another.
    pub(in crate::api::console) fn last(&self) -> (Option<Made>, bool) {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_due = !inner.is_under_way && inner.due.is_none_or(|due| due <= Instant::now());
        inner.is_under_way |= is_due;
        (inner.last.clone(), is_due)
    }

    /// Keeps a report that took so long to make.
    pub(in crate::api::console) fn keep(&self, made: Made, took: Duration) {
        let shown = took.saturating_mul(100).clamp(SHOWN.0, SHOWN.1);
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *inner = Inner { last: Some(made), is_under_way: false, due: Some(Instant::now() + shown) };
    }
}

pub(in crate::api::console) fn main(made: Option<&Made>) -> Markup {
    html! {
        h1 { "Money" }
        @match made {
            None => p { "The report is being made: a month is read. It appears here, or reload the page in a moment." },
            Some(Made { money: Err(why), .. }) => p.wrong { "There is no report: " (why) },
            Some(Made { at, money: Ok(money) }) => {
                (report(money))
                p.faint { "Made at " (moment(*at)) ". " code { "stoker report" } " has other months, other lines and other formats." }
            },
        }
    }
}

fn report(money: &Money) -> Markup {
    html! {
        @for line in &money.head { p.sum { (line) } }
        @if !money.days.is_empty() { (days(&money.days)) }
        @for of in &money.tables {
            h2 { (of.caption) }
            (text_table(of))
        }
        @for line in &money.lines { p { (line) } }
        @if !money.notes.is_empty() { dl.notes { @for (word, what) in &money.notes { dt { (word) } dd { (what) } } } }
    }
}

/// What each day cost, by how nodes were bought.
fn days(days: &[Day]) -> Markup {
    let names: BTreeSet<&str> = days.iter().flat_map(|day| day.cost.iter().flatten()).map(|(name, _)| name.as_str()).collect();
    let of = |day: &Day, name: &str| -> Option<UsdMicros> {
        let cost = day.cost.as_ref()?;
        Some(cost.iter().find(|(known, _)| known == name).map_or(UsdMicros(0), |(_, cost)| *cost))
    };
    let second = |day: &Day| day.day.to_zoned(TimeZone::UTC).map_or(0, |at| at.timestamp().as_second());
    let chart = Chart {
        names: names.iter().map(|name| (*name).to_owned()).collect(),
        at: days.iter().map(second).collect(),
        values: names.iter().map(|name| days.iter().map(|day| of(day, name).map(|cost| dollars(cost.0))).collect()).collect(),
        span: None,
    };
    let header: Vec<&str> = std::iter::once("Day").chain(names.iter().copied()).collect();
    let unknown = || html! { span.unknown { (UNKNOWN) } };
    let shown = |cost: Option<UsdMicros>| cost.map_or_else(unknown, |cost| html! { (Usd(cost)) });
    let row = |day: &Day| std::iter::once(html! { (day.day) }).chain(names.iter().map(|name| shown(of(day, name)))).collect();
    let rows: Vec<Vec<Markup>> = days.iter().rev().map(row).collect();
    let numbers = 1..header.len();
    html! {
        h2 { "By day" }
        (chart.figure("Cost of each day by capacity type, with commitments", &table("Cost of each day", &header, &numbers, &rows)))
    }
}

#[cfg(test)]
mod tests {
    use jiff::civil::date;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_report_is_made_once_and_again_when_it_is_old() {
        let kept = Kept::default();
        assert!(kept.last().1);
        assert!(!kept.last().1, "it is under way");
        let made = Made { at: Timestamp::UNIX_EPOCH, money: Err("why".to_owned()) };
        kept.keep(made, Duration::from_secs(2));
        tokio::time::advance(Duration::from_secs(199)).await;
        assert!(kept.last().0.is_some() && !kept.last().1);
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(kept.last().1);
    }

    #[test]
    fn a_day_that_nobody_knows_of_costs_not_zero() {
        let day = |day, cost: Option<i64>| Day {
            day: date(2026, 11, day),
            cost: cost.map(|cost| vec![("spot".to_owned(), UsdMicros(cost))]),
        };
        let money = Money { days: vec![day(1, Some(1_000_000)), day(2, None)], ..Money::default() };
        let page = main(Some(&Made { at: Timestamp::UNIX_EPOCH, money: Ok(Arc::new(money)) })).into_string();
        assert!(page.contains("[[1.0,null]]") && page.contains(">unknown</span>") && !page.contains("$0.00"), "{page}");
        assert!(main(None).into_string().contains("being made"));
    }

    #[test]
    fn names_of_a_report_are_text() {
        let of = crate::print::Table {
            caption: "By <pool>".to_owned(),
            header: vec!["<b>".to_owned()],
            numbers: 1..1,
            rows: vec![vec!["\"><script>alert(1)</script>".to_owned()]],
        };
        let money = Money { tables: vec![of], notes: vec![("<i>".to_owned(), "<u>".to_owned())], ..Money::default() };
        let page = report(&money).into_string();
        assert!(["<script>", "<b>", "<i>", "<u>", "<pool>"].iter().all(|tag| !page.contains(tag)), "{page}");
    }
}
