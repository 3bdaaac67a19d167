//! A choice in a few lines: what was chosen, the losers that tell most, how many more there are, and the limit most worth lifting.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use stoker_core::base::units::UsdPerHour;
use stoker_core::choose::sensitivity::Lift;

use super::candidates::{CandidateRow, VerdictWord};
use super::out::Money;
use stoker_service::print::{count, wrapped};

/// Chosen offers shown where not all are asked for: a demand spread over more markets is read as a table.
const CHOSEN: usize = 5;

/// Losers shown where not all are asked for.
const LOSERS: usize = 3;

/// What lifting one limit would bring, for programs.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct LiftRow {
    /// The limit, as people are shown it.
    pub limit: String,
    /// Where it stands; `None` where it has no height.
    pub from: Option<String>,
    /// How high it would have to be, at least.
    pub to: Option<String>,
    /// Nodes that would be found, of those asked for.
    pub found: u32,
    /// How many more those are.
    pub more: u32,
    /// What the nodes found would add to the bill per hour.
    pub cost: Money,
    /// How much less per hour the same capacity would add to it.
    pub gain: Money,
    /// Whether the choice was made anew without the limit; else this is the most that it could bring.
    pub exact: bool,
    #[serde(skip)]
    shown: [UsdPerHour; 2],
}

impl LiftRow {
    pub(super) fn of(lift: Lift) -> Self {
        let Lift { limit, from, to, found, more, cost, gain, exact } = lift;
        Self {
            limit: limit.to_string(),
            from: from.map(|level| level.to_string()),
            to: to.map(|level| level.to_string()),
            found,
            more,
            cost: cost.into(),
            gain: gain.into(),
            exact,
            shown: [cost, gain],
        }
    }

    /// `quota L-3819A6DF us-east-1 from 8 vCPU to 24 vCPU: the same capacity for $0.4098/h less`.
    fn in_words(&self) -> String {
        let height = match (&self.from, &self.to) {
            (Some(from), Some(to)) if from != to => format!(" from {from} to {to}"),
            (None, Some(to)) => format!(" at {to}"),
            (Some(from), _) => format!(" above {from}"),
            (None, None) => String::new(),
        };
        let [cost, gain] = self.shown;
        let most = if self.exact { "" } else { "up to " };
        let brings = if self.more > 0 {
            format!("{most}{}, {cost}/h for all {}", count(self.more, "more node"), self.found)
        } else {
            format!("the same capacity for {most}{gain}/h less")
        };
        format!("{}{height}: {brings}", self.limit)
    }
}

/// A line with its word in front; lines after the first of a kind have none.
pub(super) fn line(text: &mut String, word: &str, rest: &str) {
    text.push_str(&wrapped(&format!("  {word:<9}"), rest));
}

/// The limits that bind the candidates, by name: what stands before their figures.
fn binding(rows: &[CandidateRow]) -> BTreeSet<&str> {
    let limit =
        |text: &&str| ["limits.", "offHours.", "quota ", "capacity.spot.", "where."].iter().any(|of| text.starts_with(of));
    let barred = |row: &'_ &CandidateRow| row.verdict == VerdictWord::Barred;
    let reasons = rows.iter().filter(barred).map(|row| row.reason.as_str());
    let bounds = rows.iter().flat_map(|row| row.ended_by.iter().chain(&row.also)).map(String::as_str);
    let name = |text| str::split_once(text, ": ").map_or(text, |(name, _)| name);
    reasons.chain(bounds).filter(limit).map(name).collect()
}

/// The candidates that tell most.
pub(super) fn tell(text: &mut String, rows: &[CandidateRow]) {
    let (chosen, lost): (Vec<_>, Vec<_>) = rows.iter().partition(|row| row.verdict == VerdictWord::Chosen);
    for (at, row) in chosen.iter().take(CHOSEN).enumerate() {
        let ended = row.ended_in_words().map_or_else(String::new, |ended| format!("; {ended}"));
        line(text, if at == 0 { "chosen" } else { "" }, &format!("{} x {}: {}{ended}", row.nodes, market(row), price(row)));
    }
    let telling = telling(&lost);
    for (at, row) in telling.iter().enumerate() {
        line(text, if at == 0 { "lost" } else { "" }, &format!("{}: {}; {}", market(row), price(row), row.reason));
    }
    let mut folded: BTreeMap<&str, usize> = BTreeMap::new();
    let shown = |row: &CandidateRow| telling.iter().any(|one| std::ptr::eq(*one, row));
    for row in chosen.iter().skip(CHOSEN).chain(lost.iter().filter(|row| !shown(row))) {
        *folded.entry(row.verdict.in_words()).or_default() += 1;
    }
    if !folded.is_empty() {
        let more: usize = folded.values().sum();
        let kinds: Vec<_> = folded.into_iter().map(|(word, n)| format!("{n} {word}")).collect();
        line(text, "", &format!("and {more} more: {}; shown with --all", kinds.join(", ")));
    }
}

/// The limit most worth raising; that there is none is worth a line only where nodes of these candidates are missing.
pub(super) fn tell_lifts(text: &mut String, lifts: &[LiftRow], missing: Option<&[CandidateRow]>) {
    if let Some(best) = lifts.first() {
        return line(text, "raise", &best.in_words());
    }
    let Some(binding) = missing.map(binding) else { return };
    let named = binding.iter().copied().collect::<Vec<_>>().join(", ");
    match binding.len() {
        0 => line(text, "raise", "no limit causes the shortage"),
        1 => line(text, "raise", &format!("no single limit change would help (1 limit binds: {named})")),
        n => line(text, "raise", &format!("no single limit change would help ({n} limits bind: {named})")),
    }
}

/// The losers that tell most, in their own order: the cheapest of each reason, and where there are few reasons the next cheapest.
fn telling<'a>(lost: &[&'a CandidateRow]) -> Vec<&'a CandidateRow> {
    let mut by_price: Vec<(usize, &CandidateRow)> = lost.iter().copied().enumerate().collect();
    by_price.sort_by_key(|(at, row)| (row.ranked().unwrap_or(UsdPerHour(i64::MAX)), *at));
    let mut reasons: BTreeSet<&str> = BTreeSet::new();
    // Rows that are dearer differ in words by how much, and are still alike.
    let reason =
        |row: &'a CandidateRow| if row.verdict == VerdictWord::Barred { row.reason.as_str() } else { row.verdict.in_words() };
    let (first, again): (Vec<_>, Vec<_>) = by_price.into_iter().partition(|(_, row)| reasons.insert(reason(row)));
    let mut shown: Vec<_> = first.into_iter().chain(again).take(LOSERS).collect();
    shown.sort_by_key(|(at, _)| *at);
    shown.into_iter().map(|(_, row)| row).collect()
}

fn market(row: &CandidateRow) -> String {
    let by = row.supplier.as_ref().map(|supplier| format!(" from {supplier}")).unwrap_or_default();
    format!("{}/{}/{} {}{by}", row.cloud, row.zone, row.instance_type, row.capacity_type)
}

fn price(row: &CandidateRow) -> String {
    row.price.as_ref().map_or_else(|| "no price".to_owned(), |price| price.in_words(row.nodes))
}
