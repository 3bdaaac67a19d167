//! `gcp-zones.csv` and `aws-spot-advisor.csv`: where a type is sold, and how often its spot nodes are reclaimed.

use std::sync::Arc;

use stoker_core::base::ids::{InstanceType, Region, ZoneId};
use stoker_core::base::units::Milli;

use crate::cell::Parser;
use crate::fault::{Fault, Problem, shown};
use crate::sheet::{At, Sheet, Table, cell, line};

line! {
    /// A line of `gcp-zones.csv`.
    ZoneLine { machine_or_accelerator, zone, source, date }
}

line! {
    /// A line of `aws-spot-advisor.csv`.
    AdvisorLine { region, instance_type, bucket, interruption_pct_month, savings_pct, source, date }
}

/// A machine type, or an accelerator for N1 machines, and a zone that sells it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Sold {
    pub(crate) what: String,
    pub(crate) region: Region,
    pub(crate) zone: ZoneId,
}

/// How often spot nodes of a type are reclaimed in a region: the share of them per month.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Reclaims {
    pub(crate) region: Region,
    pub(crate) instance_type: InstanceType,
    pub(crate) per_month: Milli,
}

/// Parses every line of `gcp-zones.csv`.
pub(crate) fn parse_zones(table: &Arc<Table>, bytes: &[u8], faults: &mut Vec<Fault>) -> Vec<Sold> {
    let sheet = Sheet::read(table, bytes, ZoneLine::COLUMNS, faults);
    let mut sold = Vec::new();
    for (at, line) in sheet.lines::<ZoneLine<'_>>(faults) {
        sold.extend(zone(&mut Parser::new(at, faults), &line));
    }
    sold
}

fn zone(parser: &mut Parser<'_>, line: &ZoneLine<'_>) -> Option<Sold> {
    let what = parser.filled(cell!(line.machine_or_accelerator), "write the machine type or accelerator");
    let zone = parser.name::<ZoneId>(cell!(line.zone));
    let region = line.zone.rsplit_once('-').filter(|(region, _)| region.contains('-'));
    if region.is_none() && zone.is_some() {
        parser.fault(cell!(line.zone), Problem::NoZone(shown(line.zone)));
    }
    parser.filled(cell!(line.source), "name the source that lists the zone");
    parser.date(cell!(line.date));
    let region = region.and_then(|(region, _)| Region::new(region).ok());
    if parser.is_clean() { Some(Sold { what: what?.to_owned(), region: region?, zone: zone? }) } else { None }
}

/// Parses every line of `aws-spot-advisor.csv`.
pub(crate) fn parse_advisor(table: &Arc<Table>, bytes: &[u8], faults: &mut Vec<Fault>) -> Vec<(At, Reclaims)> {
    let sheet = Sheet::read(table, bytes, AdvisorLine::COLUMNS, faults);
    let mut reclaims = Vec::new();
    for (at, line) in sheet.lines::<AdvisorLine<'_>>(faults) {
        if let Some(rate) = advisor(&mut Parser::new(at, faults), &line) {
            reclaims.push((at.clone(), rate));
        }
    }
    reclaims
}

fn advisor(parser: &mut Parser<'_>, line: &AdvisorLine<'_>) -> Option<Reclaims> {
    const PERCENT: &str = "a percentage from 0 to 100, e.g. 2.5";
    let region = parser.name::<Region>(cell!(line.region));
    let instance_type = parser.name::<InstanceType>(cell!(line.instance_type));
    parser.filled(cell!(line.interruption_pct_month), "write the percentage, e.g. 2.5, or remove the line");
    // Tenths of a percent are thousandths of the whole.
    let per_month: Option<u32> = parser.decimal(cell!(line.interruption_pct_month), 1, PERCENT);
    let savings: Option<u32> = parser.decimal(cell!(line.savings_pct), 1, PERCENT);
    for (cell, share) in [(cell!(line.interruption_pct_month), per_month), (cell!(line.savings_pct), savings)] {
        if share.is_some_and(|share| share > 1000) {
            parser.fault(cell, Problem::Number { value: shown(cell.text), wanted: PERCENT });
        }
    }
    parser.text(cell!(line.bucket));
    parser.filled(cell!(line.source), "name the source");
    parser.date(cell!(line.date));
    if !parser.is_clean() {
        return None;
    }
    Some(Reclaims { region: region?, instance_type: instance_type?, per_month: Milli(per_month?) })
}
