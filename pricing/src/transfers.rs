//! `regions.csv` and `egress.csv`: on which continent a region is, and what moving data costs.

use std::collections::BTreeSet;
use std::sync::Arc;

use stoker_core::base::ids::{Cloud, Region};
use stoker_core::base::units::{MICROS_PER_USD, UsdPerHour};
use stoker_core::market::transfer::{Continent, Crossing, End, Hop, TransferPrices, UsdPerGiB};

use crate::cell::{Cell, Parser, not_money};
use crate::fault::{Fault, Problem, shown};
use crate::sheet::{At, Sheet, Table, cell, line};

line! {
    /// A line of `regions.csv`.
    RegionLine { cloud, region, continent, place }
}

line! {
    /// A line of `egress.csv`.
    EgressLine { cloud, crosses, from, to, usd_gib, source, date }
}

/// A region and where it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Located {
    pub(crate) cloud: Cloud,
    pub(crate) region: Region,
    pub(crate) continent: Continent,
}

/// A price of moved data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Priced {
    pub(crate) hop: Hop,
    pub(crate) price: UsdPerGiB,
}

/// Parses every line of `regions.csv`.
pub(crate) fn parse_regions(table: &Arc<Table>, bytes: &[u8], faults: &mut Vec<Fault>) -> Vec<(At, Located)> {
    let sheet = Sheet::read(table, bytes, RegionLine::COLUMNS, faults);
    let mut regions = Vec::new();
    for (at, line) in sheet.lines::<RegionLine<'_>>(faults) {
        if let Some(region) = region(&mut Parser::new(at, faults), &line) {
            regions.push((at.clone(), region));
        }
    }
    regions
}

fn region(parser: &mut Parser<'_>, line: &RegionLine<'_>) -> Option<Located> {
    const WORDS: &str = "africa, asia, europe, middle-east, north-america, oceania or south-america";
    let cloud = parser.name::<Cloud>(cell!(line.cloud));
    let region = parser.name::<Region>(cell!(line.region));
    let continent = parser.filled(cell!(line.continent), "name the continent, or remove the line").and_then(|text| {
        let known = continent(text);
        if known.is_none() {
            parser.fault(cell!(line.continent), Problem::Word { value: shown(text), words: WORDS });
        }
        known
    });
    parser.filled(cell!(line.place), "name the place, by which the continent can be checked");
    if parser.is_clean() { Some(Located { cloud: cloud?, region: region?, continent: continent? }) } else { None }
}

fn continent(text: &str) -> Option<Continent> {
    Continent::ALL.into_iter().find(|continent| continent.as_str() == text)
}

/// Parses every line of `egress.csv`.
pub(crate) fn parse_egress(table: &Arc<Table>, bytes: &[u8], faults: &mut Vec<Fault>) -> Vec<(At, Priced)> {
    let sheet = Sheet::read(table, bytes, EgressLine::COLUMNS, faults);
    let mut prices = Vec::new();
    for (at, line) in sheet.lines::<EgressLine<'_>>(faults) {
        if let Some(price) = egress(&mut Parser::new(at, faults), &line) {
            prices.push((at.clone(), price));
        }
    }
    prices
}

fn egress(parser: &mut Parser<'_>, line: &EgressLine<'_>) -> Option<Priced> {
    let cloud = parser.name::<Cloud>(cell!(line.cloud));
    let crosses = match parser.filled(cell!(line.crosses), "write zone, region or internet") {
        Some("zone") => Some(Crossing::Zone),
        Some("region") => Some(Crossing::Region),
        Some("internet") => Some(Crossing::Internet),
        Some(other) => {
            parser.fault(cell!(line.crosses), Problem::Word { value: shown(other), words: "zone, region or internet" });
            None
        }
        None => None,
    };
    let from = scope(parser, cell!(line.from));
    let to = scope(parser, cell!(line.to));
    match (crosses, &to) {
        // A region of which other cloud, the line does not say.
        (Some(Crossing::Internet), Some(End::Region(_))) => {
            parser.fault(cell!(line.to), Problem::Word { value: shown(line.to), words: "a continent, or nothing" });
        }
        (Some(Crossing::Zone), Some(End::Region(_) | End::Continent(_))) => {
            parser.fault(cell!(line.to), Problem::Word { value: shown(line.to), words: "nothing: zones are of one region" });
        }
        _ => {}
    }
    let price = per_gib(parser, cell!(line.usd_gib));
    parser.filled(cell!(line.source), "name the source of the price");
    parser.date(cell!(line.date));
    if !parser.is_clean() {
        return None;
    }
    Some(Priced { hop: Hop { cloud: cloud?, crosses: crosses?, from: from?, to: to? }, price: price? })
}

/// A continent by its word, a region by its name, or every region where empty.
fn scope(parser: &mut Parser<'_>, cell: Cell<'_>) -> Option<End> {
    match cell.text {
        "" => Some(End::Anywhere),
        text => match continent(text) {
            Some(continent) => Some(End::Continent(continent)),
            None => parser.id(cell).map(End::Region),
        },
    }
}

/// Dollars per GiB; nought is a price here, and a dollar or more a price of something else.
fn per_gib(parser: &mut Parser<'_>, cell: Cell<'_>) -> Option<UsdPerGiB> {
    const CURE: &str = "write dollars per GiB, e.g. 0.02, or remove the line where no price is known";
    let text = parser.filled(cell, CURE)?;
    let problem = match UsdPerHour::parse_usd(text) {
        Ok(UsdPerHour(micros)) if micros < MICROS_PER_USD => return Some(UsdPerGiB(micros)),
        Ok(_) => Problem::Number { value: shown(text), wanted: "a price of one GiB, which is below a dollar: write e.g. 0.02" },
        Err(error) => not_money(error, CURE.to_owned()),
    };
    parser.fault(cell, problem);
    None
}

/// Puts both tables together; a price of a region that `regions.csv` does not know would never be found.
pub(crate) fn join(regions: Vec<(At, Located)>, prices: Vec<(At, Priced)>, faults: &mut Vec<Fault>) -> TransferPrices {
    let known: BTreeSet<(&Cloud, &Region)> = regions.iter().map(|(_, at)| (&at.cloud, &at.region)).collect();
    for (at, Priced { hop, .. }) in &prices {
        for (column, scope) in [("from", &hop.from), ("to", &hop.to)] {
            if let End::Region(region) = scope
                && !known.contains(&(&hop.cloud, region))
            {
                let (cloud, value) = (hop.cloud.to_string(), shown(region.as_str()));
                faults.push(at.fault(Some(column), Problem::NoRegion { value, cloud }));
            }
        }
    }
    let mut transfers = TransferPrices::default();
    for (_, Located { cloud, region, continent }) in regions {
        transfers.insert_continent(cloud, region, continent);
    }
    for (_, Priced { hop, price }) in prices {
        transfers.insert(hop, price);
    }
    transfers
}
