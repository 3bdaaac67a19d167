//! The report as the console shows it: the last thirty days, by pool and by namespace.

use std::sync::Arc;

use jiff::Timestamp;
use stoker_advice::spend::{By, Idle, Tariff};
use stoker_core::base::units::UsdMicros;
use stoker_core::market::offer::CapacityType;
use stoker_core::market::price::PriceBook;
use stoker_core::policy::Policy;
use stoker_journal::Reader;
use stoker_service::api::console::{Day, Money};

use super::figures::{DayLine, DayPart, Report};
use super::table::{grids, head, lives, notes};
use super::{Apart, Asked, Billed, Period, Spend, USUAL_DAYS};
use crate::cli::exit::CliError;

/// What the last thirty days cost.
pub(in crate::cli) async fn money(
    reader: &Reader,
    (policy, book): (Arc<Policy>, Arc<PriceBook>),
    now: Timestamp,
) -> Result<Money, CliError> {
    let spend = Spend { reader, tariff: Tariff::new(policy, book, now), now };
    let (period, before) = Period::last(USUAL_DAYS, now);
    let asked = Asked { idle: Idle::Separate, apart: Apart::AsKept, with_use: true, billed: Billed::AsKept };
    let by = [&By::Pool, &By::Namespace];
    let summed = spend.summed(period, asked, &by).await?;
    let before = spend.summed(before, Asked { with_use: false, ..asked }, &by).await?;
    let report = |by| Report::of(&summed, &before, by, Idle::Separate);
    let (by_pool, by_namespace) = (report(&By::Pool), report(&By::Namespace));
    if by_pool.known_seconds == 0 {
        return Ok(Money { head: head(&by_pool), notes: spoken(&by_pool), ..Money::default() });
    }
    let of_namespaces = grids(&by_namespace).into_iter().take(1);
    Ok(Money {
        head: head(&by_pool),
        days: by_pool.by_day.iter().map(cost).collect(),
        tables: grids(&by_pool).into_iter().chain(of_namespaces).collect(),
        lines: lives(&by_pool),
        notes: spoken(&by_pool),
    })
}

fn spoken(report: &Report) -> Vec<(String, String)> {
    notes(report).into_iter().map(|(word, what)| (word.to_owned(), what)).collect()
}

/// What a day cost. A day of which nobody knows what nodes did has no cost, rather than none.
fn cost(line: &DayLine) -> Day {
    let part = |part: &DayPart| {
        let name = part.capacity_type.map_or("unused commitments", CapacityType::as_str);
        (name.to_owned(), UsdMicros(part.effective.micro_usd))
    };
    Day { day: line.day, cost: (line.known_seconds > 0).then(|| line.by_capacity.iter().map(part).collect()) }
}
