//! PromQL as the policy has it: whether it is any, and what it rests on.

use std::collections::BTreeSet;
use std::convert::Infallible;

use promql_parser::parser::value::ValueType;
use promql_parser::parser::{self, Expr, VectorSelector};
use promql_parser::util::{ExprVisitor, walk_expr};
use stoker_core::policy::{Fault, Path, RawPolicy};

/// What is wrong with the PromQL of a policy: what does not parse, and what gives no number.
pub fn check_queries(policy: &RawPolicy) -> Vec<Fault> {
    let pools = Path::root().key("pools");
    let signals = policy.pools.iter().enumerate().flat_map(|(at, pool)| {
        let path = pools.index(at).key("signals");
        pool.signals.iter().enumerate().map(move |(at, signal)| (path.index(at).key("query"), &signal.query))
    });
    // An empty one is told by the policy's own rules.
    let written = signals.filter(|(_, query)| !query.trim().is_empty());
    written.filter_map(|(path, query)| Some(Fault { path, message: check(query).err()? })).collect()
}

fn check(query: &str) -> Result<Expr, String> {
    let expr = parser::parse(query).map_err(|error| {
        let error = error.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join("; ");
        format!("is not PromQL: {error}: try it in Prometheus's own page first")
    })?;
    match expr.value_type() {
        ValueType::Vector | ValueType::Scalar => Ok(expr),
        ValueType::Matrix => {
            Err("returns a range of samples, not one number: put a function around it, such as rate()".to_owned())
        }
        ValueType::String => Err("is a string, not a number: write PromQL that returns a number".to_owned()),
    }
}

/// The query for when each metric that `query` reads was last sampled: one series each, told apart by the label `selector`. `None` where it
/// reads none.
///
/// The answer to an expression bears the time of the question, and an answer of Prometheus may rest on samples of five minutes ago. So
/// the selectors themselves are asked for, without the offset that the operator may want.
pub(crate) fn stamps(query: &str) -> Result<Option<Stamps>, String> {
    let expr = check(query)?;
    let mut found = Selectors::default();
    let Ok(_) = walk_expr(&mut found, &expr);
    let each: Vec<_> = found
        .0
        .iter()
        .enumerate()
        .map(|(at, selector)| format!("label_replace(max(timestamp({selector})), \"selector\", \"{at}\", \"\", \"\")"))
        .collect();
    Ok((!each.is_empty()).then(|| Stamps { query: each.join(" or "), selectors: each.len() }))
}

/// The query for when a signal's metrics were sampled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stamps {
    /// The query.
    pub(crate) query: String,
    /// How many series it gives where every metric is there.
    pub(crate) selectors: usize,
}

/// The selectors of an expression as PromQL, each once.
#[derive(Default)]
struct Selectors(BTreeSet<String>);

impl ExprVisitor for Selectors {
    type Error = Infallible;

    fn pre_visit(&mut self, expr: &Expr) -> Result<bool, Infallible> {
        let selector = match expr {
            Expr::VectorSelector(selector) => Some(selector),
            Expr::MatrixSelector(matrix) => Some(&matrix.vs),
            _ => None,
        };
        if let Some(selector) = selector {
            self.0.insert(VectorSelector { offset: None, at: None, ..selector.clone() }.to_string());
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_promql_or_no_number_is_refused_with_a_cure() {
        let said = |query: &str| check(query).map(|_| ()).unwrap_err();
        assert!(said("sum(rate(x[5m])").starts_with("is not PromQL: "), "{}", said("sum(rate(x[5m])"));
        assert_eq!(said("x[5m]"), "returns a range of samples, not one number: put a function around it, such as rate()");
        assert_eq!(said("\"x\""), "is a string, not a number: write PromQL that returns a number");
        for query in ["x", "1 + 1", "sum by (a) (rate(x{b=~\"c|d\"}[5m] offset 1h)) > 3", "vllm:num_requests_waiting"] {
            assert_eq!(check(query).map(|_| ()), Ok(()), "{query}");
        }
    }

    #[test]
    fn a_query_rests_on_each_metric_that_it_reads() {
        let query = |text: &str| stamps(text).unwrap();
        assert_eq!(query("vector(3) + 1"), None);
        let one = query("sum(rate(http_requests_total{job=\"a\"}[5m] offset 1h)) or vector(0)").unwrap();
        let stamp = "label_replace(max(timestamp(http_requests_total{job=\"a\"})), \"selector\", \"0\", \"\", \"\")";
        assert_eq!((one.query.as_str(), one.selectors), (stamp, 1));
        let two = query("sum(b) / sum(a) + sum(max_over_time(b[5m]))").unwrap();
        assert_eq!(two.selectors, 2);
        assert!(
            two.query.contains("timestamp(a)") && two.query.contains(" or ") && two.query.contains("\"1\""),
            "{}",
            two.query
        );
        // What is asked is PromQL itself, quotes and all.
        let quoted = query(r#"x{path="a\"b\\c"}"#).unwrap();
        assert!(parser::parse(&quoted.query).is_ok(), "{}", quoted.query);
    }
}
