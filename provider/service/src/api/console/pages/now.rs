//! Now: what the fleet costs, its pools with their floors and budgets, and what is wrong.

use std::collections::BTreeMap;

use maud::{Markup, html};
use stoker_core::base::units::UsdPerHour;
use stoker_core::limits::budget::Budget;
use stoker_core::market::offer::CapacityType;
use stoker_core::policy::rules::warm_floor::FloorStands;
use stoker_core::state::budget::Stage;

use super::nodes::standing;
use crate::api::console::beat::Beat;
use crate::api::console::draw::{Chart, Usd, cell, dollars, moment, share, since, table, to_the_cent};
use crate::api::console::history::Sample;
use crate::api::console::page::{NodesAsked, Page};
use crate::api::side::Standing;
use crate::print::count;
use crate::publish::picture::{Picture, PoolPicture};

/// Columns of pools that are numbers.
const NUMBERS: std::ops::Range<usize> = 1..6;

/// Rows of the table below the chart: one each five minutes or so.
const EACH: usize = 10;

/// What the chart shows, in seconds.
const HOUR: i64 = 3_600;

pub(in crate::api::console) fn main(beat: &Beat, history: &[Sample]) -> Markup {
    let picture = &beat.picture;
    let rate = picture.pools.iter().fold(UsdPerHour::ZERO, |sum, pool| sum.plus(pool.rate));
    html! {
        h1 { (picture.cluster) " now" }
        p.sum {
            strong { (Usd(to_the_cent(rate))) "/h" } " for " (count(u32::try_from(picture.nodes.len()).unwrap_or(u32::MAX), "node"))
            ", before commitments; as of " (moment(picture.at))
        }
        @if let Some(budget) = &picture.budget { p { "Overall budget: " (stands(budget)) } }
        (verdicts(picture))
        (wrong(beat))
        (pools(picture))
        (spending(history))
    }
}

/// How many nodes there are of each verdict.
fn verdicts(picture: &Picture) -> Markup {
    let mut counts: BTreeMap<&str, (u32, Option<NodesAsked>)> = BTreeMap::new();
    for node in &picture.nodes {
        let asked = || node.verdict.map(|verdict| NodesAsked { verdict: Some(verdict), ..NodesAsked::default() });
        counts.entry(standing(node)).or_insert_with(|| (0, asked())).0 += 1;
    }
    html! {
        @if counts.is_empty() { p { "No nodes." } }
        @else {
            ul.counts {
                @for (word, (nodes, asked)) in &counts {
                    li {
                        @match asked {
                            Some(asked) => a href=(asked.url(1)) { span.verdict.{ "is-" (word) } { (word) } " " (nodes) },
                            None => { span.verdict { (word) } " " (nodes) },
                        }
                    }
                }
            }
        }
    }
}

/// What is not as it should be.
fn wrong(beat: &Beat) -> Markup {
    let faults: Vec<_> = beat
        .conditions
        .iter()
        .filter_map(|condition| match &condition.standing {
            Standing::Good => None,
            Standing::Degraded(detail) => Some(("degraded", &condition.name, detail)),
            Standing::NotReady(detail) => Some(("not ready", &condition.name, detail)),
        })
        .collect();
    html! {
        @if faults.is_empty() { p { span.good { "Ready" } ": every condition holds." } }
        @else {
            section.wrong aria-labelledby="wrong" {
                h2 #wrong { "What is wrong" }
                ul { @for (how, name, detail) in faults { li { strong { (name) } ", " (how) ": " (detail) } } }
            }
        }
    }
}

fn pools(picture: &Picture) -> Markup {
    let header = ["Pool", "Running", "Coming", "Wanted", "Max", "$/h", "Warm floor", "Budget", "Note"];
    let rows: Vec<Vec<Markup>> = picture.pools.iter().map(row).collect();
    html! { h2 { "Pools" } (table("Pools", &header, &NUMBERS, &rows)) }
}

fn row(pool: &PoolPicture) -> Vec<Markup> {
    let nodes = NodesAsked { pool: Some(pool.pool.to_string()), ..NodesAsked::default() };
    vec![
        html! { a href=(Page::Nodes(nodes).url()) { (pool.pool) } },
        html! { (pool.running) },
        html! { (pool.coming) },
        html! { (pool.wanted) },
        match pool.max {
            Some(max) => html! { (max) },
            None => cell("not in the policy"),
        },
        html! { (Usd(to_the_cent(pool.rate))) },
        pool.floor.as_ref().map_or_else(|| cell("none"), floor),
        pool.budget.as_ref().map_or_else(|| cell("none"), stands),
        html! { @if let Some(fault) = &pool.fault { span.bad { (fault) } } },
    ]
}

fn floor(floor: &FloorStands) -> Markup {
    let FloorStands { pool: _, wanted, why, warm, coming, usd_per_hour, unmet_since, blocked } = floor;
    html! {
        (warm) " of " (wanted) " warm"
        @if *coming > 0 { ", " (coming) " coming" }
        "; " (Usd(to_the_cent(*usd_per_hour))) "/h"
        @if let Some(at) = unmet_since { "; " span.bad { "short since " (since(*at)) } }
        @if let Some(blocked) = blocked { ": " (blocked) }
        span.faint { " (" (why) ")" }
    }
}

/// A budget as a bar and in words.
fn stands(budget: &Budget) -> Markup {
    let is_tight = budget.stage != Stage::Ample;
    html! {
        (share(budget.spent, budget.limit, is_tight)) " "
        (Usd(to_the_cent(budget.spent))) " of " (Usd(to_the_cent(budget.limit))) "/h"
        @if is_tight { ", " span.bad { (budget.stage) } }
    }
}

/// The last hour.
fn spending(history: &[Sample]) -> Markup {
    let header: Vec<&str> = std::iter::once("Time").chain(CapacityType::ALL.map(CapacityType::as_str)).collect();
    // The newest first, and then one each five minutes.
    let rows: Vec<Vec<Markup>> = history
        .iter()
        .rev()
        .step_by(EACH)
        .map(|sample| {
            let rates = sample.rates.iter().map(|rate| html! { (Usd(to_the_cent(*rate))) });
            std::iter::once(moment(sample.at)).chain(rates).collect()
        })
        .collect();
    let rates = |at: usize| history.iter().map(|sample| sample.rates.get(at).map(|rate| dollars(rate.0))).collect();
    let chart = Chart {
        names: CapacityType::ALL.iter().map(ToString::to_string).collect(),
        at: history.iter().map(|sample| sample.at.as_second()).collect(),
        values: (0..CapacityType::ALL.len()).map(rates).collect(),
        span: Some(HOUR),
    };
    html! {
        h2 { "The last hour" }
        p.faint { "Kept in memory, since this process began; the report of " a href=(Page::Money.url()) { "Money" } " lasts." }
        (chart.figure("$/h by capacity type", &table("$/h in the last hour", &header, &(1..4), &rows)))
    }
}
