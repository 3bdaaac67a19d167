//! `stoker ready`: whether the running service is ready.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use jiff::SignedDuration;
use stoker_core::base::text::with_causes;
use stoker_proto::expander::BestOptionsRequest;
use stoker_proto::expander::expander_client::ExpanderClient;
use stoker_service::files;
use tokio::time::Instant;
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint};

use super::args::duration;
use super::exit::{CliError, Exit};
use super::out;
use super::side_port::UrlArg;

/// How long the expander may take: as long as an autoscaler waits for it.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long it waits before it asks again.
const EVERY: Duration = Duration::from_secs(1);

/// Asks the running service whether it is ready, and its expander whether it answers. `helm test` does so after an install.
#[derive(Debug, Args)]
pub(super) struct ReadyArgs {
    #[command(flatten)]
    service: UrlArg,
    /// The expander [default: it is not asked]
    #[arg(long, value_name = "HOST:PORT", requires = "expander_ca")]
    expander: Option<String>,
    /// CA bundle for the expander's certificate, in PEM
    #[arg(long, value_name = "FILE", requires = "expander")]
    expander_ca: Option<PathBuf>,
    /// Ask again for so long before giving up
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = duration)]
    within: SignedDuration,
}

/// Carries the command out.
pub(super) async fn run(args: &ReadyArgs) -> Result<Exit, CliError> {
    let end = Instant::now() + args.within.unsigned_abs();
    loop {
        match ask(args).await {
            Ok(text) => return out::write(&text).map(|()| Exit::Done),
            // A command line that is wrong stays so.
            Err(error @ CliError::Usage(_)) => return Err(error),
            Err(error) if Instant::now() >= end => return Err(error),
            Err(_) => tokio::time::sleep(EVERY).await,
        }
    }
}

async fn ask(args: &ReadyArgs) -> Result<String, CliError> {
    let side_port = args.service.side_port()?;
    let (status, body) = side_port.get("/readyz").await?;
    let asked = format!("{}/readyz", side_port.shown());
    if !status.is_success() {
        let said = String::from_utf8_lossy(&body).trim().to_owned();
        return Err(CliError::Failed { doing: format!("{asked}: not ready"), source: said.into() });
    }
    let ready = format!("ready     {asked}\n");
    let (Some(address), Some(ca)) = (&args.expander, &args.expander_ca) else { return Ok(ready) };
    expander(address, ca).await?;
    Ok(format!("{ready}expander  {address} answers\n"))
}

/// Sends a request without options, which is answered and changes nothing.
async fn expander(address: &str, ca: &Path) -> Result<(), CliError> {
    let usage = |_| CliError::Usage(format!("{address:?} is not HOST:PORT, e.g. stoker.stoker.svc:8087"));
    let endpoint = Endpoint::from_shared(format!("https://{address}")).map_err(usage)?;
    let pem = files::read(ca).map_err(CliError::failed(format!("{}: cannot be read", ca.display())))?;
    let tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(pem));
    let failed = |why: String| CliError::Failed {
        doing: format!(
            "{address}: the expander does not answer; is it --expander-listen, with a certificate of this CA for that name?"
        ),
        source: why.into(),
    };
    let endpoint = endpoint.tls_config(tls).map_err(|error| failed(with_causes(&error)))?;
    let channel = endpoint.connect_timeout(PATIENCE).timeout(PATIENCE).connect_lazy();
    let answer = ExpanderClient::new(channel).best_options(BestOptionsRequest::default()).await;
    answer.map(drop).map_err(|status| failed(with_causes(&status)))
}
