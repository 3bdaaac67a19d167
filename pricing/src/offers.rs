//! Tables of offers: what an instance type is made of and what it costs in one region or zone.

use std::sync::Arc;

use jiff::Timestamp;
use stoker_core::base::ids::{Cloud, GpuModel, InstanceType, Region, ZoneId};
use stoker_core::base::kinds::CommitmentKind;
use stoker_core::base::units::{MiB, Milli, UsdPerHour};
use stoker_core::market::offer::Arch;
use stoker_core::market::price::{Entry, NoSignal, Quote, QuoteKind, TermRates};

use crate::cell::{Cell, Parser};
use crate::fault::{Fault, Problem, shown};
use crate::sheet::{At, Sheet, Table, cell, line};

/// How far a spot quote may stand from the price it is pinned at: sources print spot prices with four decimals.
const QUOTE_STEP: i64 = 100;

line! {
    /// A line of a table of offers.
    Line {
        cloud, region, zone, instance_type, arch, gpu_model, gpu_count, gpu_memory_gib, vcpu, memory_gib,
        on_demand_usd_hour, on_demand_source, on_demand_date,
        spot_usd_hour, spot_source, spot_date,
        reserved_1y_usd_hour, reserved_3y_usd_hour, reserved_kind, reserved_source, reserved_date,
        note,
    }
}

/// What an instance type is made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) arch: Arch,
    pub(crate) gpu_model: GpuModel,
    /// `None` where no source tells, and then there is no specification.
    pub(crate) gpus: Option<Milli>,
    pub(crate) gpu_memory: MiB,
    pub(crate) vcpus: Option<u32>,
    pub(crate) memory: Option<MiB>,
}

/// What a commitment for one or three years costs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Reserved {
    one_year: Option<UsdPerHour>,
    three_years: Option<UsdPerHour>,
    kind: String,
    as_of: Option<Timestamp>,
    source: String,
}

impl Reserved {
    /// The rates, where a policy can have such a commitment.
    pub(crate) fn rates(&self) -> Option<TermRates> {
        let kind = match self.kind.as_str() {
            "standard-ri-no-upfront" => CommitmentKind::ReservedInstance,
            "resource-cud" => CommitmentKind::CommittedUse,
            "savings-plan" => CommitmentKind::SavingsPlan,
            _ => return None,
        };
        let source = Arc::from(format!("{} by {}", self.kind, self.source));
        Some(TermRates { kind, one_year: self.one_year, three_years: self.three_years, as_of: self.as_of, source })
    }
}

/// One line of a table of offers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Offer {
    pub(crate) cloud: Cloud,
    pub(crate) region: Region,
    pub(crate) zone: Option<ZoneId>,
    pub(crate) instance_type: InstanceType,
    pub(crate) shape: Shape,
    /// The list price; shown even where it cannot be ordered at it.
    pub(crate) list: Option<Quote>,
    /// Whether the list price is of something that cannot be ordered on demand.
    pub(crate) list_only: bool,
    /// The spot quote, or why it says nothing.
    pub(crate) spot: Option<Entry>,
    pub(crate) reserved: Reserved,
}

impl Offer {
    /// What the on-demand market's entry is.
    pub(crate) fn on_demand(&self) -> Option<Entry> {
        if self.list_only { Some(Entry::NoSignal(NoSignal::ListOnly)) } else { self.list.clone().map(Entry::Price) }
    }
}

/// Parses every line of a table of offers.
pub(crate) fn parse(table: &Arc<Table>, bytes: &[u8], faults: &mut Vec<Fault>) -> Vec<(At, Offer)> {
    let sheet = Sheet::read(table, bytes, Line::COLUMNS, faults);
    let mut offers = Vec::new();
    for (at, line) in sheet.lines::<Line<'_>>(faults) {
        if let Some(offer) = offer(&mut Parser::new(at, faults), &line) {
            offers.push((at.clone(), offer));
        }
    }
    offers
}

fn offer(parser: &mut Parser<'_>, line: &Line<'_>) -> Option<Offer> {
    let cloud = parser.name::<Cloud>(cell!(line.cloud));
    let region = parser.name::<Region>(cell!(line.region));
    let zone = parser.id::<ZoneId>(cell!(line.zone));
    if line.cloud == "aws" && is_aws_zone_name(line.region, line.zone) {
        parser.fault(cell!(line.zone), Problem::ZoneName(shown(line.zone)));
    }
    let instance_type = parser.name::<InstanceType>(cell!(line.instance_type));
    let shape = shape(parser, line);
    let list = quote(
        parser,
        QuoteKind::List,
        cell!(line.on_demand_usd_hour),
        cell!(line.on_demand_source),
        cell!(line.on_demand_date),
    );
    let spot = quote(parser, QuoteKind::Spot, cell!(line.spot_usd_hour), cell!(line.spot_source), cell!(line.spot_date));
    if line.on_demand_usd_hour.is_empty() && line.spot_usd_hour.is_empty() {
        parser.line_fault(Problem::Priceless);
    }
    let reserved = reserved(parser, line);
    let notes = notes(parser, line);
    check_notes(parser, line, notes, list.as_ref(), spot.as_ref());
    if !parser.is_clean() {
        return None;
    }
    Some(Offer {
        cloud: cloud?,
        region: region?,
        zone,
        instance_type: instance_type?,
        shape: shape?,
        list,
        list_only: notes.list_only,
        spot: spot.map(|quote| notes.spot.map_or(Entry::Price(quote), Entry::NoSignal)),
        reserved,
    })
}

/// AWS zone ids carry an `-az` (`use1-az6`); names are the region and a letter (`us-east-1a`).
fn is_aws_zone_name(region: &str, zone: &str) -> bool {
    !zone.is_empty() && zone.starts_with(region) && !zone.contains("-az")
}

fn shape(parser: &mut Parser<'_>, line: &Line<'_>) -> Option<Shape> {
    const WORDS: &str = "amd64 or arm64";
    let arch = match parser.filled(cell!(line.arch), "write amd64 or arm64") {
        Some("amd64") => Some(Arch::Amd64),
        Some("arm64") => Some(Arch::Arm64),
        Some(other) => {
            parser.fault(cell!(line.arch), Problem::Word { value: shown(other), words: WORDS });
            None
        }
        None => None,
    };
    let gpu_model = parser.name::<GpuModel>(cell!(line.gpu_model));
    let gpus = parser.decimal(cell!(line.gpu_count), 3, "a number of GPUs, e.g. 8 or 0.166667").map(Milli);
    if gpus.is_some_and(|Milli(gpus)| gpus == 0 || (gpus > 1000 && gpus % 1000 != 0)) {
        let wanted = "a whole number of GPUs, nor a fraction of one: write e.g. 8 or 0.166667";
        parser.fault(cell!(line.gpu_count), Problem::Number { value: shown(line.gpu_count), wanted });
    }
    parser.filled(cell!(line.gpu_memory_gib), "write the GiB of one physical GPU");
    let gpu_memory = parser.memory(cell!(line.gpu_memory_gib));
    let vcpus = parser.whole(cell!(line.vcpu), "a whole number of virtual CPUs");
    if vcpus == Some(0) {
        let wanted = "a number of virtual CPUs: leave it empty where none is known";
        parser.fault(cell!(line.vcpu), Problem::Number { value: shown(line.vcpu), wanted });
    }
    let memory = parser.memory(cell!(line.memory_gib));
    Some(Shape { arch: arch?, gpu_model: gpu_model?, gpus, gpu_memory: gpu_memory?, vcpus, memory })
}

/// A price with its source and date: all of it, or nothing.
fn quote(parser: &mut Parser<'_>, kind: QuoteKind, price: Cell<'_>, source: Cell<'_>, date: Cell<'_>) -> Option<Quote> {
    if price.text.is_empty() {
        for cell in [source, date].into_iter().filter(|cell| !cell.text.is_empty()) {
            parser.fault(cell, Problem::NoPrice { value: shown(cell.text), price: price.column });
        }
        return None;
    }
    let amount = parser.price(price);
    let source = parser.filled(source, "name the source of the price");
    let as_of = parser.date(date);
    let said = if date.text.is_empty() { "undated" } else { date.text };
    Some(Quote { price: amount?, kind, as_of, source: Arc::from(format!("{}@{said}", source?)) })
}

fn reserved(parser: &mut Parser<'_>, line: &Line<'_>) -> Reserved {
    let one_year = parser.price(cell!(line.reserved_1y_usd_hour));
    let three_years = parser.price(cell!(line.reserved_3y_usd_hour));
    let about = [cell!(line.reserved_kind), cell!(line.reserved_source)];
    let mut as_of = None;
    if line.reserved_1y_usd_hour.is_empty() && line.reserved_3y_usd_hour.is_empty() {
        for cell in about.into_iter().chain([cell!(line.reserved_date)]).filter(|cell| !cell.text.is_empty()) {
            parser.fault(cell, Problem::NoPrice { value: shown(cell.text), price: "reserved_3y_usd_hour" });
        }
    } else {
        for cell in about {
            parser.filled(cell, "say what kind of reservation this is, and name the source of its price");
        }
        as_of = parser.date(cell!(line.reserved_date));
    }
    Reserved {
        one_year,
        three_years,
        kind: line.reserved_kind.to_owned(),
        as_of,
        source: format!("{}@{}", line.reserved_source, line.reserved_date),
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Notes {
    spot: Option<NoSignal>,
    list_only: bool,
}

fn notes(parser: &mut Parser<'_>, line: &Line<'_>) -> Notes {
    let mut notes = Notes::default();
    let cell = cell!(line.note);
    for word in parser.text(cell).unwrap_or_default().split_whitespace() {
        match word {
            "list-only" => notes.list_only = true,
            "pinned-at-on-demand" if notes.spot.is_none() => notes.spot = Some(NoSignal::PinnedAtOnDemand),
            "floor" if notes.spot.is_none() => notes.spot = Some(NoSignal::Floor),
            _ => {
                let words = "pinned-at-on-demand or floor (not both), list-only, or nothing";
                parser.fault(cell, Problem::Word { value: shown(word), words });
            }
        }
    }
    notes
}

/// Notes and prices must agree, so that no source's sentinel passes for a bargain.
fn check_notes(parser: &mut Parser<'_>, line: &Line<'_>, notes: Notes, list: Option<&Quote>, spot: Option<&Quote>) {
    let note = cell!(line.note);
    if notes.list_only && line.on_demand_usd_hour.is_empty() {
        parser.fault(note, Problem::NoteWithoutPrice { note: "list-only", price: "on_demand_usd_hour" });
    }
    let named = match notes.spot {
        Some(NoSignal::PinnedAtOnDemand) => Some("pinned-at-on-demand"),
        Some(NoSignal::Floor) => Some("floor"),
        Some(NoSignal::ListOnly | NoSignal::Unreserved) | None => None,
    };
    if let Some(note_text) = named.filter(|_| line.spot_usd_hour.is_empty()) {
        parser.fault(note, Problem::NoteWithoutPrice { note: note_text, price: "spot_usd_hour" });
    }
    let (Some(spot), Some(on_demand)) = (spot.map(|q| q.price), list.map(|q| q.price)) else { return };
    let is_pinned = (spot.0 - on_demand.0).abs() <= QUOTE_STEP;
    match (notes.spot, named) {
        (Some(signal), Some(note_text)) => {
            // A floor is the nearest step to a tenth, so ten times it is off by up to ten half steps.
            let fits = if signal == NoSignal::Floor {
                (spot.0.saturating_mul(10) - on_demand.0).abs() <= QUOTE_STEP * 5
            } else {
                is_pinned
            };
            if !fits {
                parser.fault(note, Problem::NoteContradicted { note: note_text, spot, on_demand });
            }
        }
        _ if is_pinned => parser.fault(cell!(line.spot_usd_hour), Problem::UnmarkedPin(spot)),
        _ if spot > on_demand => {
            parser.fault(cell!(line.spot_usd_hour), Problem::SpotAboveOnDemand { spot, on_demand });
        }
        _ => {}
    }
}
