//! Candidates as `plan` and `explain` show them: what each costs, what became of it and why.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use serde::Serialize;
use stoker_core::base::engine_clock::Wall;
use stoker_core::base::ids::{Cloud, InstanceType, NodeGroupId, Region, SupplierName, ZoneId};
use stoker_core::base::units::UsdPerHour;
use stoker_core::catalogue::Catalogue;
use stoker_core::catalogue::claims::Unlisted;
use stoker_core::choose::candidate::{Candidate, OfferVerdict};
use stoker_core::choose::parts::SpotParts;
use stoker_core::limits::commitment::CoveredBy;
use stoker_core::market::offer::CapacityType;
use stoker_core::market::price::{Quote, QuoteKind};

use super::out::{Money, age};
use stoker_service::print::{count, paragraph, table};

/// One offer that was weighed.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct CandidateRow {
    /// The group that it would grow.
    pub group: NodeGroupId,
    pub cloud: Cloud,
    pub region: Region,
    /// The zone, by id.
    pub zone: ZoneId,
    pub instance_type: InstanceType,
    /// Who would make it, where the policy names suppliers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub supplier: Option<SupplierName>,
    pub capacity_type: CapacityType,
    /// Advertised GPUs of one node; physical ones where the pool shares them.
    pub gpus: u32,
    /// Slices of one node, where the pool shares GPUs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slices: Option<u32>,
    /// `None` where no price is known or counts.
    pub price: Option<PriceRow>,
    pub verdict: VerdictWord,
    /// Nodes chosen of it.
    pub nodes: u32,
    /// The verdict in words.
    pub reason: String,
    /// Quotas that count it, that the policy does not list and that are taken as unlimited.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unlimited: Vec<Unlisted>,
    /// For a chosen one: the limit but for which there would have been more of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended_by: Option<String>,
    /// Other limits that leave no room for one more.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub also: Vec<String>,
}

/// What a node of an offer costs.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PriceRow {
    /// What the bill will say of one node.
    pub per_node: Money,
    /// What the choice ranks one node by.
    pub effective_per_node: Money,
    /// The effective price of one advertised GPU.
    pub effective_per_gpu: Money,
    /// What reclaims make of a spot price.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spot: Option<SpotParts>,
    /// What bringing the pool's data to one node costs per hour; a part of the effective price, and not of the node's bill.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transfer_per_node: Option<Money>,
    /// The commitment that covers it, and how much of its price.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub covered: Option<CoveredBy>,
    /// The effective price of a slice, where the pool shares GPUs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effective_per_slice: Option<Money>,
    /// The effective price of a unit of work, where the pool weighs work.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effective_per_work: Option<Money>,
    #[serde(flatten)]
    pub quote: QuoteRow,
    #[serde(skip)]
    shown: [UsdPerHour; 3],
    #[serde(skip)]
    ranked: UsdPerHour,
    #[serde(skip)]
    transfer: Option<UsdPerHour>,
}

/// By whose word a price is, and from when.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct QuoteRow {
    pub kind: QuoteKind,
    /// `None` where the source is undated.
    pub as_of: Option<Timestamp>,
    pub age_seconds: Option<i64>,
    /// Whether it is a list price of which operators are warned: old, or undated.
    pub old: bool,
    pub source: String,
}

/// A verdict as one word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum VerdictWord {
    Chosen,
    Barred,
    LessPreferred,
    #[serde(rename = "moreExpensive")]
    Dearer,
    LargerStep,
    Tied,
}

impl VerdictWord {
    /// As a count of candidates reads: `3 more expensive`.
    pub(super) const fn in_words(self) -> &'static str {
        match self {
            Self::Chosen => "chosen",
            Self::Barred => "ruled out",
            Self::LessPreferred => "less preferred",
            Self::Dearer => "more expensive",
            Self::LargerStep => "same price in larger nodes",
            Self::Tied => "same price",
        }
    }
}

impl PriceRow {
    /// `$0.8048/node-h, $0.8048/GPU-h (list 104d, karpenter-aws@2026-07-20)`, for the first of so many nodes.
    pub(super) fn in_words(&self, nodes: u32) -> String {
        let [per_node, effective, per_unit] = self.shown;
        let unit = match (&self.effective_per_work, &self.effective_per_slice) {
            (Some(_), _) => "unit of work and h",
            (None, Some(_)) => "slice-h",
            (None, None) => "GPU-h",
        };
        let ranked = match &self.spot {
            // What differs by less than is shown is not worth a word.
            Some(spot) if effective.to_string() != per_node.to_string() => format!(" ranked as {effective} ({spot})"),
            _ => String::new(),
        };
        let moved = self.transfer.map_or_else(String::new, |transfer| format!(" + {transfer} of data transfer"));
        let covered = covered_first(self, nodes).map_or_else(String::new, |by| format!(" ({by})"));
        // That a simulated price comes from a simulated market needs no second word.
        let source = match self.quote.kind {
            QuoteKind::Simulated => String::new(),
            _ => format!(", {}", self.quote.source),
        };
        format!("{per_node}/node-h{covered}{moved}{ranked}, {per_unit}/{unit} ({}{source})", self.quote.kind_and_age())
    }
}

impl QuoteRow {
    pub(super) fn of(quote: &Quote, now: Timestamp) -> Self {
        Self {
            kind: quote.kind,
            as_of: quote.as_of,
            age_seconds: quote.age(Wall(now)).map(|age| age.as_secs()),
            old: quote.is_old(Wall(now)),
            source: quote.source.to_string(),
        }
    }

    /// `104d`; its date where that is after now, and nobody knows how old it is.
    fn age_in_words(&self) -> String {
        match (self.age_seconds, self.as_of) {
            (None, Some(at)) => format!("of {}", at.strftime("%F")),
            (seconds, _) => age(seconds.map(SignedDuration::from_secs)),
        }
    }

    /// `list 104d`: an operator's own word has no age, and a simulated price is seldom older than now.
    pub(super) fn kind_and_age(&self) -> String {
        match self.kind {
            QuoteKind::Operator => "operator".to_owned(),
            QuoteKind::Simulated if self.age_seconds.is_some_and(|seconds| seconds < 60) => "simulated".to_owned(),
            kind => format!("{kind} {}", self.age_in_words()),
        }
    }
}

impl CandidateRow {
    /// What the choice compares; `None` where no price is known or counts.
    pub(super) fn ranked(&self) -> Option<UsdPerHour> {
        self.price.as_ref().map(|price| price.ranked)
    }

    pub(super) fn of(candidate: &Candidate, now: Timestamp) -> Self {
        let Candidate { group, market, gpus, slices, price, verdict, unlimited, ended_by, also, preference: _ } = candidate;
        let price_row = price.as_ref().ok().map(|parts| PriceRow {
            per_node: parts.quote.price.into(),
            effective_per_node: parts.effective.into(),
            effective_per_gpu: parts.per_gpu.into(),
            spot: parts.spot.clone(),
            transfer_per_node: parts.transfer.map(Money::from),
            covered: parts.covered.clone(),
            effective_per_slice: parts.per_slice.map(Money::from),
            effective_per_work: parts.per_work.map(Money::from),
            quote: QuoteRow::of(&parts.quote, now),
            shown: [parts.quote.price, parts.effective, parts.per_unit()],
            ranked: parts.ranked(),
            transfer: parts.transfer,
        });
        let (word, nodes) = match verdict {
            OfferVerdict::Chosen { nodes } => (VerdictWord::Chosen, *nodes),
            OfferVerdict::Barred(_) => (VerdictWord::Barred, 0),
            OfferVerdict::LessPreferred { .. } => (VerdictWord::LessPreferred, 0),
            OfferVerdict::Dearer { .. } | OfferVerdict::DearerWork { .. } => (VerdictWord::Dearer, 0),
            OfferVerdict::LargerStep => (VerdictWord::LargerStep, 0),
            OfferVerdict::Tied => (VerdictWord::Tied, 0),
        };
        Self {
            group: group.clone(),
            cloud: market.place.cloud.clone(),
            region: market.place.region.clone(),
            zone: market.place.zone.clone(),
            instance_type: market.place.instance_type.clone(),
            supplier: None,
            capacity_type: market.capacity_type,
            gpus: *gpus,
            slices: *slices,
            price: price_row,
            verdict: word,
            nodes,
            reason: match verdict {
                OfferVerdict::Barred(_) => {
                    also.iter().fold(verdict.to_string(), |reason, bound| format!("{reason}, and {bound}"))
                }
                _ => verdict.to_string(),
            },
            unlimited: unlimited.clone(),
            ended_by: ended_by.as_ref().map(ToString::to_string),
            also: also.iter().map(ToString::to_string).collect(),
        }
    }

    /// With who would make it, where the policy names suppliers.
    #[must_use]
    pub(super) fn by(mut self, catalogue: &Catalogue) -> Self {
        let group = catalogue.groups.get(&self.group).filter(|_| !catalogue.policy.suppliers.is_empty());
        self.supplier = group.map(|group| group.supplier.clone());
        self
    }

    /// `limited by limits.maxNodes: 8 of 8 nodes in use`, with every limit that ended its choice.
    pub(super) fn ended_in_words(&self) -> Option<String> {
        let first = format!("limited by {}", self.ended_by.as_ref()?);
        Some(self.also.iter().fold(first, |text, bound| format!("{text} and {bound}")))
    }
}

/// Whether data would have to be moved to some of them.
pub(super) fn moves_data(rows: &[CandidateRow]) -> bool {
    rows.iter().any(|row| row.price.as_ref().is_some_and(|price| price.transfer.is_some()))
}

/// Says which quotas that the policy does not list were taken as unlimited; `None` where there is none.
pub(super) fn unlimited_quotas(rows: &[CandidateRow]) -> Option<String> {
    let all: BTreeSet<&Unlisted> = rows.iter().flat_map(|row| &row.unlimited).collect();
    let named: Vec<String> = all.into_iter().map(ToString::to_string).collect();
    let them = if named.len() == 1 { "it" } else { "them" };
    (!named.is_empty())
        .then(|| format!("{}: assumed unlimited, because the policy does not list {them} under quotas", named.join(", ")))
}

/// Says which list prices among those weighed are old or undated, by source; `None` where there is none.
pub(super) fn old_prices(rows: &[CandidateRow]) -> Option<String> {
    let mut sources: BTreeMap<&str, (usize, String)> = BTreeMap::new();
    let old = rows.iter().filter_map(|row| Some(&row.price.as_ref()?.quote)).filter(|quote| quote.old);
    for quote in old {
        let counted = sources.entry(&quote.source).or_insert_with(|| (0, quote.age_in_words()));
        counted.0 += 1;
    }
    if sources.is_empty() {
        return None;
    }
    let total: usize = sources.values().map(|(n, _)| n).sum();
    let days = stoker_core::market::price::OLD_LIST_PRICE.as_hours() / 24;
    let named: Vec<_> = sources.iter().map(|(source, (n, age))| format!("{n} by {source} ({age})")).collect();
    let prices = if total == 1 { "1 list price is".to_owned() } else { format!("{total} list prices are") };
    Some(format!(
        "{prices} undated or older than {days} days: {}; write newer ones under prices in the policy",
        named.join(", ")
    ))
}

/// Sources by number, so that a table's cells stay short.
#[derive(Debug, Default)]
pub(super) struct Sources(Vec<String>);

impl Sources {
    /// `[2]`.
    pub(super) fn mark(&mut self, source: &str) -> String {
        let at = self.0.iter().position(|known| known == source).unwrap_or_else(|| {
            self.0.push(source.to_owned());
            self.0.len() - 1
        });
        format!("[{}]", at + 1)
    }

    /// The line below the table that says what the marks mean.
    pub(super) fn legend(&self) -> String {
        if self.0.is_empty() {
            return String::new();
        }
        let named: Vec<_> = self.0.iter().enumerate().map(|(at, source)| format!("[{}] {source}", at + 1)).collect();
        paragraph("sources:", &named.join("  "))
    }
}

/// Notes by letter, so that a table's cells stay short.
#[derive(Debug, Default)]
pub(super) struct Notes(Vec<(String, u64)>);

impl Notes {
    /// `[b]`.
    pub(super) fn mark(&mut self, note: &str) -> String {
        let at = self.0.iter().position(|(known, _)| known == note).unwrap_or_else(|| {
            self.0.push((note.to_owned(), 0));
            self.0.len() - 1
        });
        if let Some((_, rows)) = self.0.get_mut(at) {
            *rows += 1;
        }
        letters(at)
    }

    /// The lines below the table that say what the marks mean, and how many rows have each.
    pub(super) fn legend(&self) -> String {
        let line = |(at, (note, rows)): (usize, &(String, u64))| {
            paragraph(&letters(at), &format!("{note} ({})", count(*rows, "offer")))
        };
        self.0.iter().enumerate().map(line).collect()
    }
}

/// `[a]` to `[z]`, then `[aa]`.
fn letters(at: usize) -> String {
    let letter = char::from(b'a' + u8::try_from(at % 26).unwrap_or(0));
    format!("[{}]", letter.to_string().repeat(at / 26 + 1))
}

/// The column of what bringing the data adds to the price, and where it stands.
pub(super) const TRANSFER: &str = "DATA/H";
const TRANSFER_AT: usize = 5;

/// What covers the first of so many nodes: how far it reaches is in the total.
fn covered_first(price: &PriceRow, nodes: u32) -> Option<String> {
    let by = price.covered.as_ref()?;
    Some(if nodes > 1 { format!("{by} as far as it reaches") } else { by.to_string() })
}

/// Why a row won or lost, with what covers the node and what ended its choice.
fn result(row: &CandidateRow) -> String {
    let covered = row.price.as_ref().and_then(|price| covered_first(price, row.nodes));
    let covered = covered.map_or_else(String::new, |by| format!(", {by}"));
    let ended = row.ended_in_words().map_or_else(String::new, |ended| format!(", {ended}"));
    format!("{}{covered}{ended}", row.reason)
}

/// The candidates as a table, with what its source marks mean below.
pub(super) fn candidates_table(rows: &[CandidateRow]) -> String {
    let by_work = rows.iter().any(|row| row.price.as_ref().is_some_and(|price| price.effective_per_work.is_some()));
    let shared = rows.iter().any(|row| row.slices.is_some());
    let unit = match (by_work, shared) {
        (true, _) => "EFF/WORK-H",
        (false, true) => "EFF/SLICE-H",
        (false, false) => "EFF/GPU-H",
    };
    let pieces = if shared { "SLICES" } else { "GPUS" };
    let moves = moves_data(rows);
    let mut header = vec!["GROUP", "CAPACITY", pieces, "PRICE/H", "PRICE SOURCE", "EFF/NODE-H", unit, "RESULT"];
    if moves {
        header.insert(TRANSFER_AT, TRANSFER);
    }
    let mut sources = Sources::default();
    let cells = rows.iter().map(|row| {
        let dash = || "-".to_owned();
        let (price, from) = row.price.as_ref().map_or_else(
            || ([dash(), dash(), dash()], dash()),
            |price| {
                (
                    price.shown.map(|rate| rate.to_string()),
                    format!("{} {}", price.quote.kind_and_age(), sources.mark(&price.quote.source)),
                )
            },
        );
        let [per_node, effective, per_unit] = price;
        let transfer = row.price.as_ref().and_then(|price| price.transfer);
        let mut cells = vec![
            row.group.to_string(),
            row.capacity_type.to_string(),
            row.slices.unwrap_or(row.gpus).to_string(),
            per_node,
            from,
            effective,
            per_unit,
            result(row),
        ];
        if moves {
            cells.insert(TRANSFER_AT, transfer.map_or_else(dash, |transfer| transfer.to_string()));
        }
        cells
    });
    let rows: Vec<_> = cells.collect();
    table(&header, &[pieces, "PRICE/H", TRANSFER, "EFF/NODE-H", unit], rows) + &sources.legend()
}
