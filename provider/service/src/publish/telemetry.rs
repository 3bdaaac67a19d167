//! What Stoker tells of itself: logs, a span for each call, and metrics.

mod disk;
mod fleet;
mod labels;
mod metrics;
mod published;
mod rpc;

#[cfg(test)]
mod tests;

use std::io::IsTerminal as _;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

pub use disk::StateDisk;
pub use fleet::Fleet;
pub use labels::{
    Certificate, DecisionKind, DeleteRefusal, GpuUse, LaunchResult, Method, NodeState, OfferPrice, OrderResult, OrderSource,
    PassResult, ReclaimSource, RpcCode,
};
pub use metrics::{LEADER, Metrics};
pub use published::{Feed, GroupGauges, View};
pub use rpc::{RpcLayer, RpcService};

/// Why logging could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    /// The filter does not parse.
    #[error(
        "{origin}: {filter:?} is not a log filter: write a level (error, warn, info, debug, trace) or target=level, \
         separated by commas"
    )]
    Filter {
        /// Where it was given: the flag or the environment variable.
        origin: &'static str,
        /// What was given.
        filter: String,
        /// What the parser said.
        source: tracing_subscriber::filter::ParseError,
    },
    /// Logging is set up already.
    #[error("logging is set up already")]
    Twice(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// Sends logs to standard error: for people, or one JSON object a line.
///
/// What is logged: `filter` where given, else `RUST_LOG`, else `info`.
pub fn init(json: bool, filter: Option<&str>) -> Result<(), TelemetryError> {
    let filter = choose_filter(filter, std::env::var("RUST_LOG").ok())?;
    // Whoever reads the log may go: that costs lines, and must not end the service, as telling of it on the same stream would.
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).log_internal_errors(false);
    if json {
        builder.json().flatten_event(true).with_current_span(true).with_span_list(false).try_init()
    } else {
        builder.with_ansi(std::io::stderr().is_terminal()).try_init()
    }
    .map_err(TelemetryError::Twice)
}

fn choose_filter(flag: Option<&str>, env: Option<String>) -> Result<EnvFilter, TelemetryError> {
    let (origin, text) = match (flag, env.filter(|text| !text.trim().is_empty())) {
        (Some(text), _) => ("the log filter", text.to_owned()),
        (None, Some(text)) => ("RUST_LOG", text),
        (None, None) => ("the log filter", LevelFilter::INFO.to_string()),
    };
    // Each logs failed attempts of which whoever asked says more, and says it once; or that a table is there, which is no news.
    let noisy = [
        ("kube_client", "kube_client::client::builder"),
        ("aws_config", "aws_config::meta::credentials"),
        ("sqlx", "sqlx::postgres::notice"),
    ];
    let unasked = noisy.iter().filter(|(asked, _)| !text.contains(asked));
    let quiet = unasked.fold(text.clone(), |filter, (_, target)| format!("{filter},{target}=off"));
    EnvFilter::builder().parse(&quiet).map_err(|source| TelemetryError::Filter { origin, filter: text, source })
}
