//! What one request, or a million tokens, costs: by the signals of the policy that count such each second.

use serde::Serialize;
use stoker_advice::spend::{By, UnitCost};
use stoker_core::base::ids::{PoolName, SignalName};
use stoker_core::base::text::with_causes;
use stoker_core::policy::Policy;
use stoker_service::feeds::prometheus::Asker;
use stoker_service::feeds::prometheus::history::Counted;

use super::at;
use super::reckon::Summed;
use super::table::percent;
use crate::cli::exit::CliError;

/// What one of what a signal counts costs.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct UnitCostLine {
    pool: PoolName,
    signal: SignalName,
    /// What is counted.
    unit: String,
    /// Seconds of which the signal is known.
    known_seconds: i64,
    /// Seconds that are reported.
    seconds: i64,
    #[serde(flatten)]
    cost: Option<UnitCost>,
    #[serde(skip_serializing_if = "Option::is_none")]
    unknown_because: Option<String>,
}

/// Asks for every signal of the policy that counts something each second; `spent` has what each pool cost.
///
/// # Errors
/// Where none does.
pub(super) async fn of(asker: &Asker, policy: &Policy, spent: &Summed) -> Result<Vec<UnitCostLine>, CliError> {
    if !policy.pools.iter().flat_map(|pool| &pool.signals).any(|signal| signal.per_second.is_some()) {
        let cure = "write what one counts each second, such as perSecond: requests";
        return Err(CliError::Usage(format!("--unit-cost: no signal of the policy has perSecond: {cure}")));
    }
    let pools = spent.sums.lines(&By::Pool);
    let (period, known) = (spent.reckoned.period, spent.reckoned.known_seconds);
    let mut lines = Vec::new();
    for (pool, signal) in policy.pools.iter().flat_map(|pool| pool.signals.iter().map(move |signal| (pool, signal))) {
        let Some(unit) = &signal.per_second else { continue };
        let seconds = period.until - period.from;
        let counted = Counted::read(asker, &signal.query, (at(period.from), at(period.until))).await;
        let (counted, why) = match counted {
            Ok(counted) if counted.seconds == 0 => {
                (counted, Some("it has no samples in that time that a rate can be".to_owned()))
            }
            Ok(counted) => (counted, None),
            Err(error) => (Counted::default(), Some(with_causes(&error))),
        };
        let spent = pools.and_then(|pools| pools.get(pool.name.as_str())).map(|figures| figures.effective);
        let cost = spent.and_then(|spent| UnitCost::of(spent, (counted.seconds, known), counted.millionths));
        let why = why.or_else(|| cost.is_none().then(|| "nothing was counted, or nothing spent".to_owned()));
        lines.push(UnitCostLine {
            pool: pool.name.clone(),
            signal: signal.name.clone(),
            unit: unit.clone(),
            known_seconds: counted.seconds,
            seconds,
            cost,
            unknown_because: why,
        });
    }
    Ok(lines)
}

impl UnitCostLine {
    /// As a sentence; an error where it is not known.
    pub(super) fn shown(&self) -> Result<String, String> {
        let Self { pool, signal, unit, known_seconds, seconds, cost, unknown_because } = self;
        let unknown = || {
            let why = unknown_because.as_deref().unwrap_or_default();
            format!("what {unit} of pool {pool} cost: signal {signal}: {why}")
        };
        let UnitCost { counted, per, price } = cost.as_ref().ok_or_else(unknown)?;
        let per = match per {
            1 => "one of".to_owned(),
            1_000 => "a thousand".to_owned(),
            _ => "a million".to_owned(),
        };
        let known = percent(i128::from(*known_seconds) * 1_000 / i128::from((*seconds).max(1)));
        Ok(format!(
            "Unit cost of pool {pool}: {price:#} for {per} {unit} ({counted} of them; {signal} is known of {known} of the time)"
        ))
    }
}

#[cfg(test)]
mod tests {
    use stoker_core::base::units::UsdMicros;

    use super::*;

    #[test]
    fn a_unit_cost_is_told_with_what_it_rests_on() {
        let line = |cost: Option<UnitCost>, why: Option<&str>| UnitCostLine {
            pool: PoolName::new("recs").unwrap(),
            signal: SignalName::new("qps").unwrap(),
            unit: "requests".to_owned(),
            known_seconds: 32_400,
            seconds: 36_000,
            cost,
            unknown_because: why.map(str::to_owned),
        };
        let cost = UnitCost { counted: 1_620_000, per: 1_000, price: UsdMicros(55_555) };
        let shown =
            "Unit cost of pool recs: $0.0556 for a thousand requests (1620000 of them; qps is known of 90.0 % of the time)";
        assert_eq!(line(Some(cost), None).shown(), Ok(shown.to_owned()));
        let unknown = "what requests of pool recs cost: signal qps: it has no samples in that time";
        assert_eq!(line(None, Some("it has no samples in that time")).shown(), Err(unknown.to_owned()));
    }
}
