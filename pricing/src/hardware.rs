//! `aws-types.csv`: how many pods, disks and network interfaces an AWS instance type has.

use std::sync::Arc;

use stoker_core::base::ids::InstanceType;
use stoker_core::base::units::MiB;
use stoker_core::market::offer::Network;

use crate::cell::{Cell, Parser};
use crate::fault::{Fault, Problem, shown};
use crate::sheet::{At, Sheet, Table, cell, line};

line! {
    /// A line of `aws-types.csv`.
    Line { instance_type, pods, local_disk_gb, efa_interfaces, network_cards, source, date }
}

/// Network and local disks of one instance type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Hardware {
    pub(crate) instance_type: InstanceType,
    pub(crate) network: Network,
    pub(crate) local_disk: Option<MiB>,
}

/// Parses every line of `aws-types.csv`.
pub(crate) fn parse(table: &Arc<Table>, bytes: &[u8], faults: &mut Vec<Fault>) -> Vec<(At, Hardware)> {
    let sheet = Sheet::read(table, bytes, Line::COLUMNS, faults);
    let mut types = Vec::new();
    for (at, line) in sheet.lines::<Line<'_>>(faults) {
        if let Some(hardware) = hardware(&mut Parser::new(at, faults), &line) {
            types.push((at.clone(), hardware));
        }
    }
    types
}

fn hardware(parser: &mut Parser<'_>, line: &Line<'_>) -> Option<Hardware> {
    let instance_type = parser.name::<InstanceType>(cell!(line.instance_type));
    parser.filled(cell!(line.pods), "write how many pods its network has addresses for, or remove the line");
    let pods = count(parser, cell!(line.pods), "a number of pods above 0, e.g. 58");
    let gigabytes =
        count(parser, cell!(line.local_disk_gb), "a number of GB above 0: leave it empty where there is no local disk");
    let efa = count(parser, cell!(line.efa_interfaces), "a number of interfaces above 0: leave it empty where there is none");
    parser.filled(cell!(line.network_cards), "write how many network cards it has, e.g. 1");
    let cards = count(parser, cell!(line.network_cards), "a number of network cards above 0, e.g. 1");
    parser.filled(cell!(line.source), "name the source");
    parser.date(cell!(line.date));
    if !parser.is_clean() {
        return None;
    }
    // Disks are sold in gigabytes of 10⁹ bytes.
    let local_disk = gigabytes.map(|gigabytes| MiB(u64::from(gigabytes) * 1_000_000_000 / (1024 * 1024)));
    let network = Network { pods: pods?, cards: cards?, efa_interfaces: efa.unwrap_or(0) };
    Some(Hardware { instance_type: instance_type?, network, local_disk })
}

/// A whole number above 0; `None` where the cell is empty.
fn count(parser: &mut Parser<'_>, cell: Cell<'_>, wanted: &'static str) -> Option<u32> {
    let number = parser.whole(cell, wanted);
    if number == Some(0) {
        parser.fault(cell, Problem::Number { value: shown(cell.text), wanted });
    }
    number
}
