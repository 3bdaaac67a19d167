//! `stoker suppliers`: who makes nodes for the running service, and how that goes.

use clap::Args;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use stoker_core::base::engine_clock::Wall;
use stoker_core::base::text::length;
use stoker_core::catalogue::live::still_counts;
use stoker_service::print::{count, table, wrapped};
use stoker_service::suppliers::{CallKind, Failure, SupplierStanding, Went};

use super::args::OutputArg;
use super::exit::{CliError, Exit};
use super::out;
use super::side_port::UrlArg;

/// Lists the suppliers of the running service: what each can make, how old its facts are, and what went wrong last.
#[derive(Debug, Args)]
pub(super) struct SuppliersArgs {
    #[command(flatten)]
    service: UrlArg,
    #[command(flatten)]
    output: OutputArg,
}

/// What `/debug/view` says of suppliers.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct SuppliersReport {
    at: Timestamp,
    suppliers: Vec<SupplierStanding>,
    /// What a supplier refused for more than one market.
    refused_areas: Vec<RefusedRow>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct RefusedRow {
    area: String,
    /// It is left alone until then.
    until: Timestamp,
    why: String,
}

/// Carries the command out.
pub(super) async fn run(args: &SuppliersArgs) -> Result<Exit, CliError> {
    let report: SuppliersReport = args.service.debug_view().await?;
    out::print(args.output.format, &report, SuppliersReport::table)?;
    Ok(Exit::Done)
}

impl SuppliersReport {
    fn table(&self) -> String {
        const HEADER: [&str; 7] = ["SUPPLIER", "KIND", "MACHINES", "LISTED", "MARKETS", "NODE CLASSES", "MAKES NODES IN"];
        let since = |at: Timestamp| length(self.at.duration_since(at));
        let ago = |at: Option<Timestamp>| at.map_or_else(|| "never".to_owned(), |at| format!("{} ago", since(at)));
        let rows = self.suppliers.iter().map(|row| {
            let markets = row.calls.iter().find(|(kind, _)| *kind == CallKind::Markets);
            vec![
                row.name.to_string(),
                row.kind.clone(),
                row.machines.map_or_else(|| "unknown".to_owned(), |machines| machines.to_string()),
                ago(row.listed_at),
                ago(markets.and_then(|(_, went)| went.answered_at)),
                made_with(row),
                places(row),
            ]
        });
        let mut said = String::new();
        for row in &self.suppliers {
            for fault in &row.faults {
                said += &wrapped(&format!("{}: ", row.name), fault);
            }
            for (kind, Went { answered_at, failed }) in &row.calls {
                let Some(Failure { at, since: begun, message }) = failed else { continue };
                let is_over = answered_at.is_some_and(|answered| answered > *at);
                let when =
                    if is_over { format!("failed {} ago", since(*at)) } else { format!("has failed for {}", since(*begun)) };
                said += &wrapped(&format!("{}: ", row.name), &format!("{kind} {when}: {message}"));
            }
        }
        for row in &self.suppliers {
            if let Some(told) = account(row, self.at) {
                said += &wrapped(&format!("{}: ", row.name), &told);
            }
        }
        for RefusedRow { area, until, why } in &self.refused_areas {
            let left = length(until.duration_since(self.at));
            said += &wrapped("refused: ", &format!("{area}, left alone for {left}: {why}"));
        }
        let text = table(&HEADER, &["MACHINES"], rows.collect());
        if said.is_empty() { text } else { format!("{text}\n{said}") }
    }
}

/// How many quotas and reservations a supplier tells, and how old the oldest figure of each is.
fn account(row: &SupplierStanding, now: Timestamp) -> Option<String> {
    let told = |what, as_of: Vec<Timestamp>| {
        let oldest = as_of.iter().min()?;
        let age = length(now.duration_since(*oldest));
        let stale = as_of.iter().filter(|as_of| !still_counts(**as_of, Wall(now))).count();
        let stale = if stale > 0 { format!(", {stale} too old to count") } else { String::new() };
        Some(format!("{} (up to {age} old{stale})", count(as_of.len(), what)))
    };
    let quotas = told("quota", row.quotas.iter().map(|(_, fact)| fact.as_of).collect());
    let reservations = told("reservation", row.reservations.values().map(|fact| fact.as_of).collect());
    let both: Vec<String> = [quotas, reservations].into_iter().flatten().collect();
    (!both.is_empty()).then(|| format!("tells {}", both.join(" and ")))
}

fn places(row: &SupplierStanding) -> String {
    match (&row.clouds, &row.regions) {
        (None, _) => "has not said".to_owned(),
        (Some(_), Some(regions)) => {
            regions.iter().map(|(cloud, region)| format!("{cloud}/{region}")).collect::<Vec<_>>().join(", ")
        }
        (Some(clouds), None) => clouds.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
    }
}

fn made_with(row: &SupplierStanding) -> String {
    match row.node_classes.as_deref() {
        None | Some([]) => "-".to_owned(),
        Some(classes) => classes.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
    }
}

#[cfg(test)]
mod tests {
    use stoker_core::base::ids::{Cloud, SupplierName};
    use stoker_core::facts::supply::QuotaFact;
    use stoker_core::policy::QuotaKey;

    use super::*;

    #[test]
    fn figures_of_an_account_are_shown_with_their_age() {
        let now: Timestamp = "2026-11-02T12:00:00Z".parse().unwrap();
        let quota = |name: &str, hours: i64| {
            let as_of = now - jiff::SignedDuration::from_hours(hours);
            let key = QuotaKey { name: name.to_owned(), cloud: Cloud::new("aws").unwrap(), region: None };
            (key, QuotaFact { limit: 8, used: None, as_of })
        };
        let mut row = SupplierStanding {
            name: SupplierName::new("lambda").unwrap(),
            kind: "plugin".to_owned(),
            clouds: None,
            regions: None,
            node_classes: None,
            machines: None,
            listed_at: None,
            faults: Vec::new(),
            calls: Vec::new(),
            quotas: Vec::new(),
            reservations: std::collections::BTreeMap::new(),
        };
        assert_eq!(account(&row, now), None);
        row.quotas = vec![quota("a", 2), quota("b", 30)];
        assert_eq!(account(&row, now).unwrap(), "tells 2 quotas (up to 30h old, 1 too old to count)");
    }
}
