//! The report as CSV: its lines, or FOCUS rows by day and machine.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::num::NonZero;
use std::sync::LazyLock;

use csv::Writer;
use stoker_advice::spend::{DAY, DayRow, Figures, Holder, KeptDay, NodeState, PARTS, Use};
use stoker_core::base::units::UsdMicros;
use stoker_core::market::offer::CapacityType;
use stoker_core::policy::rules::commitment::{Commitment, Terms};

use super::at;
use super::figures::{Line, Report};
use crate::cli::exit::CliError;
use crate::cli::out::Money;

/// Columns of FOCUS 1.0; then the five that `focus-validator` 1.0.0 asks for under older names, those of FOCUS 1.2 that concern
/// reservations and commitments, and Stoker's own.
const COLUMNS: [&str; 61] = [
    "AvailabilityZone",
    "BilledCost",
    "BillingAccountId",
    "BillingAccountName",
    "BillingCurrency",
    "BillingPeriodEnd",
    "BillingPeriodStart",
    "ChargeCategory",
    "ChargeClass",
    "ChargeDescription",
    "ChargeFrequency",
    "ChargePeriodEnd",
    "ChargePeriodStart",
    "CommitmentDiscountCategory",
    "CommitmentDiscountId",
    "CommitmentDiscountName",
    "CommitmentDiscountStatus",
    "CommitmentDiscountType",
    "ConsumedQuantity",
    "ConsumedUnit",
    "ContractedCost",
    "ContractedUnitPrice",
    "EffectiveCost",
    "InvoiceIssuerName",
    "ListCost",
    "ListUnitPrice",
    "PricingCategory",
    "PricingQuantity",
    "PricingUnit",
    "ProviderName",
    "PublisherName",
    "RegionId",
    "RegionName",
    "ResourceId",
    "ResourceName",
    "ResourceType",
    "ServiceCategory",
    "ServiceName",
    "SkuId",
    "SkuPriceId",
    "SubAccountId",
    "SubAccountName",
    "Tags",
    "ChargeType",
    "InvoiceIssuer",
    "Provider",
    "Publisher",
    "ResourceID",
    "CapacityReservationId",
    "CapacityReservationStatus",
    "CommitmentDiscountQuantity",
    "CommitmentDiscountUnit",
    "x_CapacityType",
    "x_GpuHours",
    "x_GpuModel",
    "x_Namespace",
    "x_Pool",
    "x_ReadCost",
    "x_State",
    "x_WastedCost",
    "x_Workload",
];

/// A text as a cell that no spreadsheet takes for a formula.
pub(super) fn cell(text: &str) -> Cow<'_, str> {
    if text.starts_with(['=', '+', '-', '@', '\t', '\r']) { format!("'{text}").into() } else { text.into() }
}

pub(super) fn failed(error: impl std::error::Error + Send + Sync + 'static) -> CliError {
    CliError::Failed { doing: "the report could not be written as CSV".into(), source: error.into() }
}

pub(super) fn finish(writer: Writer<Vec<u8>>) -> Result<String, CliError> {
    let bytes = writer.into_inner().map_err(|error| failed(error.into_error()))?;
    String::from_utf8(bytes).map_err(failed)
}

/// The lines of a report.
pub(super) fn lines(report: &Report) -> Result<String, CliError> {
    let mut writer = Writer::from_writer(Vec::new());
    let head = ["nodeHours", "gpuHours", "listUsd", "contractedUsd", "effectiveUsd", "readUsd", "wasteUsd", "risePermille"];
    writer.write_record([&*cell(&report.by)].into_iter().chain(head)).map_err(failed)?;
    for Line { name, amounts, rise_permille, .. } in &report.lines {
        let row = [
            cell(name).into_owned(),
            hours(amounts.node_seconds.saturating_mul(PARTS)),
            hours(amounts.gpu_seconds.saturating_mul(PARTS)),
            amounts.list.usd.clone(),
            amounts.contracted.usd.clone(),
            amounts.effective.usd.clone(),
            amounts.read.usd.clone(),
            // A blank is no number, and none is what is not known.
            amounts.waste.as_ref().map_or_else(String::new, |waste| waste.usd.clone()),
            rise_permille.map_or_else(String::new, |rise| rise.to_string()),
        ];
        writer.write_record(row).map_err(failed)?;
    }
    finish(writer)
}

/// The head of FOCUS rows.
pub(super) fn focus_head() -> Result<String, CliError> {
    let mut writer = Writer::from_writer(Vec::new());
    writer.write_record(COLUMNS).map_err(failed)?;
    finish(writer)
}

/// FOCUS rows of a day by machine, of the cluster of that name. What is billed is what Stoker reckons, with commitments
/// spread over the hours that they count. All cores write: a day of a large cluster has 50,000 rows.
pub(super) fn focus(day: &KeptDay, cluster: &str) -> Result<String, CliError> {
    let (begin, end) = (day.day * DAY, (day.day + 1) * DAY);
    let period = &ChargePeriod { month: month_of(begin), time: (time(begin), time(end)) };
    let text = |rows: &[DayRow]| {
        let mut writer = Writer::from_writer(Vec::new());
        for of in rows {
            let cells = Row { period, of, billed_by: &day.billed_by, cluster }.cells();
            writer.write_record(cells.0.iter().map(|cell| cell.as_bytes())).map_err(failed)?;
        }
        finish(writer)
    };
    let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
    let parts: Result<Vec<String>, CliError> = std::thread::scope(|scope| {
        let parts = day.rows.chunks(day.rows.len().div_ceil(cores).max(1));
        let writing: Vec<_> = parts.map(|rows| scope.spawn(|| text(rows))).collect();
        writing.into_iter().map(|part| part.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
    });
    Ok(parts?.concat())
}

/// The times of a charge, as they are written.
struct ChargePeriod {
    month: (String, String),
    time: (String, String),
}

struct Row<'a> {
    period: &'a ChargePeriod,
    of: &'a DayRow,
    /// The commitments that its day was billed by.
    billed_by: &'a [Commitment],
    cluster: &'a str,
}

/// What stands in each column; nothing in those that are left out.
struct Cells<'a>([Cow<'a, str>; COLUMNS.len()]);

impl<'a> Cells<'a> {
    fn set(&mut self, column: &'static str, text: impl Into<Cow<'a, str>>) {
        static PLACES: LazyLock<HashMap<&str, usize>> = LazyLock::new(|| COLUMNS.into_iter().zip(0..).collect());
        if let Some(cell) = PLACES.get(column).and_then(|place| self.0.get_mut(*place)) {
            *cell = text.into();
        }
    }

    fn extend<const N: usize>(&mut self, cells: [(&'static str, Cow<'a, str>); N]) {
        for (column, text) in cells {
            self.set(column, text);
        }
    }
}

impl<'a> Row<'a> {
    fn cells(&self) -> Cells<'a> {
        let DayRow { key, figures } = self.of;
        let Figures { list, contracted, effective, node_parts, gpu_parts, read, wasted, .. } = figures;
        let ChargePeriod { month, time } = self.period;
        let cluster = cell(self.cluster);
        let mut cells = Cells(std::array::from_fn(|_| Cow::Borrowed("")));
        cells.extend([
            ("BilledCost", usd(*effective).into()),
            ("EffectiveCost", usd(*effective).into()),
            ("ListCost", usd(*list).into()),
            ("ContractedCost", usd(*contracted).into()),
            ("BillingAccountId", cluster.clone()),
            ("BillingAccountName", cluster.clone()),
            ("SubAccountId", cluster.clone()),
            ("SubAccountName", cluster),
            ("BillingCurrency", "USD".into()),
            ("BillingPeriodStart", month.0.as_str().into()),
            ("BillingPeriodEnd", month.1.as_str().into()),
            ("ChargePeriodStart", time.0.as_str().into()),
            ("ChargePeriodEnd", time.1.as_str().into()),
            ("ChargeCategory", "Usage".into()),
            ("ChargeType", "Usage".into()),
            ("ChargeFrequency", "Usage-Based".into()),
            ("ServiceCategory", "Compute".into()),
            ("ServiceName", "GPU nodes".into()),
        ]);
        match &key.of {
            Use::Nodes { pool, market, model, state, holder } => {
                let (place, hours_of) = (&market.place, Cow::from(hours(*node_parts)));
                sold_by(&mut cells, place.cloud.as_str());
                let price = |cost: UsdMicros| unit_price(cost, *node_parts).into();
                let sku = format!("{}/{}", place.instance_type, market.capacity_type);
                let description = format!("{} {} in pool {pool}: {state}", place.instance_type, market.capacity_type);
                cells.extend([
                    ("AvailabilityZone", cell(place.zone.as_str())),
                    ("RegionId", cell(place.region.as_str())),
                    ("RegionName", cell(place.region.as_str())),
                    ("ChargeDescription", safe(&description)),
                    ("ConsumedQuantity", hours_of.clone()),
                    ("ConsumedUnit", "Hours".into()),
                    ("PricingQuantity", hours_of),
                    ("PricingUnit", "Hours".into()),
                    ("ListUnitPrice", price(*list)),
                    ("ContractedUnitPrice", price(*contracted)),
                    ("SkuId", safe(&sku)),
                    ("SkuPriceId", safe(&format!("{sku}/{}", place.zone))),
                    ("x_CapacityType", market.capacity_type.as_str().into()),
                    ("x_GpuHours", hours(*gpu_parts).into()),
                    ("x_GpuModel", cell(model.as_str())),
                    ("x_Pool", cell(pool.as_str())),
                    ("x_State", state.as_str().into()),
                ]);
                // A blank is no number, and none is what no reading tells.
                if read.0 > 0 {
                    cells.extend([("x_ReadCost", usd(*read).into()), ("x_WastedCost", usd(*wasted).into())]);
                }
                let category = match market.capacity_type {
                    CapacityType::Spot => "Dynamic",
                    CapacityType::Reserved | CapacityType::OnDemand => "Standard",
                };
                cells.set("PricingCategory", category);
                if let Some((instance, reservation)) = &key.instance {
                    cells.set("ResourceId", cell(instance.as_str()));
                    cells.set("ResourceID", cell(instance.as_str()));
                    cells.set("ResourceType", "Node");
                    if let Some(reservation) = reservation {
                        cells.set("CapacityReservationId", cell(reservation));
                        cells.set("CapacityReservationStatus", "Used");
                    }
                }
                if let Some(name) = &key.paid_by {
                    self.discount(&mut cells, name, "Used");
                    cells.set("ChargeDescription", safe(&format!("{description}, paid by {name}")));
                }
                if let Holder::Pods { namespace, workload, labels } = holder {
                    let tags: BTreeMap<&str, &str> = labels.iter().collect();
                    // It begins with a brace, so that no spreadsheet reads it as a formula.
                    cells.set("Tags", serde_json::to_string(&tags).unwrap_or_default());
                    cells.set("x_Namespace", cell(namespace));
                    cells.set("x_Workload", cell(workload));
                }
                if *state == NodeState::Held && *holder == Holder::Unknown {
                    cells.set("x_Namespace", "not recorded");
                }
            }
            Use::Unused { commitment: name } => self.unused(&mut cells, name),
        }
        cells
    }

    /// What a commitment costs that is not used.
    fn unused(&self, cells: &mut Cells<'a>, name: &'a str) {
        let known = self.billed_by.iter().find(|commitment| commitment.name == name);
        sold_by(cells, known.map_or("unknown", |commitment| commitment.cloud.as_str()));
        let id = cell(name);
        cells.extend([
            ("ChargeDescription", safe(&format!("{name}: unused"))),
            ("SkuId", id.clone()),
            ("SkuPriceId", id.clone()),
            ("x_State", "unused".into()),
        ]);
        if known.is_some_and(|commitment| matches!(commitment.terms, Terms::Capacity(_))) {
            cells.extend([("CapacityReservationId", id), ("CapacityReservationStatus", "Unused".into())]);
            cells.set("PricingCategory", "Standard");
            return;
        }
        self.discount(cells, name, "Unused");
    }

    /// The discount that a charge is for, and how much of it, used or not.
    fn discount(&self, cells: &mut Cells<'a>, name: &'a str, status: &'static str) {
        let known = self.billed_by.iter().find(|commitment| commitment.name == name);
        let is_spend = known.is_some_and(|commitment| matches!(commitment.terms, Terms::Spend(_)));
        let kind = known.map_or("", |commitment| commitment.kind().as_str());
        cells.extend([
            ("CommitmentDiscountCategory", if is_spend { "Spend" } else { "Usage" }.into()),
            ("CommitmentDiscountId", cell(name)),
            ("CommitmentDiscountName", cell(name)),
            ("CommitmentDiscountStatus", status.into()),
            ("CommitmentDiscountType", kind.into()),
            ("PricingCategory", "Committed".into()),
        ]);
        if let Some((quantity, unit)) = known.and_then(|commitment| self.quantity(commitment)) {
            cells.extend([("CommitmentDiscountQuantity", quantity.into()), ("CommitmentDiscountUnit", unit.into())]);
        }
    }

    /// How much of a discount a charge is for, and in which unit. By count it is hours, and of what nothing used so many as it costs.
    fn quantity(&self, commitment: &Commitment) -> Option<(String, &'static str)> {
        let DayRow { key, figures: Figures { effective, node_parts, gpu_parts, .. } } = self.of;
        let (number, rate, parts, unit) = match &commitment.terms {
            Terms::Spend(_) => return Some((usd(*effective), "USD")),
            Terms::Nodes(nodes) => (nodes.nodes, nodes.rate, *node_parts, "Hours"),
            Terms::Gpus(gpus) => (gpus.gpus, gpus.rate, *gpu_parts, "GPU Hours"),
            Terms::Capacity(_) => return None,
        };
        if key.paid_by.is_some() {
            return Some((hours(parts), unit));
        }
        let millionths = (i128::from(effective.0) * i128::from(number) * 1_000_000).checked_div(i128::from(rate.0))?;
        Some((Money::from(UsdMicros(i64::try_from(millionths).ok()?)).usd, unit))
    }
}

/// A text that was put together, as a [`cell`].
fn safe(text: &str) -> Cow<'static, str> {
    cell(text).into_owned().into()
}

/// Who sells it, in every column that asks.
fn sold_by<'a>(cells: &mut Cells<'a>, cloud: &'a str) {
    let columns = ["InvoiceIssuerName", "InvoiceIssuer", "ProviderName", "Provider", "PublisherName", "Publisher"];
    cells.extend(columns.map(|column| (column, cell(cloud))));
}

fn usd(micros: UsdMicros) -> String {
    Money::from(micros).usd
}

/// Hours with six decimals, rounded to the nearest.
fn hours(parts: i64) -> String {
    let per_hour = i128::from(PARTS) * 3_600;
    let millionths = (i128::from(parts) * 1_000_000 + per_hour / 2).div_euclid(per_hour);
    format!("{}.{:06}", millionths / 1_000_000, millionths % 1_000_000)
}

/// The mean price of an hour; nothing where there was no time.
fn unit_price(cost: UsdMicros, parts: i64) -> String {
    let per_hour = i128::from(cost.0) * i128::from(PARTS) * 3_600;
    let micros = per_hour.checked_div(i128::from(parts)).and_then(|micros| i64::try_from(micros).ok());
    micros.map_or_else(String::new, |micros| usd(UsdMicros(micros)))
}

fn time(second: i64) -> String {
    at(second).strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// When the month of a moment begins and ends.
fn month_of(second: i64) -> (String, String) {
    let first = at(second).to_zoned(jiff::tz::TimeZone::UTC).date().first_of_month();
    let next = first.checked_add(jiff::Span::new().months(1)).unwrap_or(first);
    let text = |date: jiff::civil::Date| format!("{}T00:00:00Z", date.strftime("%Y-%m-%d"));
    (text(first), text(next))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_cell_is_a_formula() {
        let cells = ["=SUM(A1)", "+1", "-1", "@x", "\tx", "a=b", ""].map(cell);
        assert_eq!(cells, ["'=SUM(A1)", "'+1", "'-1", "'@x", "'\tx", "a=b", ""]);
    }

    /// $6 for a quarter of an hour is $24 an hour; in December the month ends with the year.
    #[test]
    fn hours_prices_and_months() {
        assert_eq!(
            (hours(PARTS * 900), unit_price(UsdMicros(6_000_000), PARTS * 900)),
            ("0.250000".into(), "24.000000".into())
        );
        assert_eq!(unit_price(UsdMicros(1), 0), "");
        let december = (1_796_083_200, ("2026-12-01T00:00:00Z".to_owned(), "2027-01-01T00:00:00Z".to_owned()));
        assert_eq!(month_of(december.0), december.1);
    }
}
