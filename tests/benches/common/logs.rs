//! Logs that cost what they cost the service, and are not seen.

use anyhow::{Context as _, Result, anyhow};
use tracing_subscriber::EnvFilter;

/// Logs as the service does by default, but to nowhere: what making a line takes counts, what a terminal takes does not.
pub(crate) fn to_nowhere() -> Result<()> {
    let filter = EnvFilter::try_new("info").context("the log filter")?;
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::sink).try_init().map_err(|error| anyhow!(error))
}
