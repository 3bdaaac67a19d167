//! Where the provider is, and how it knows this node.

use std::fmt;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::Args;
use stoker_proto::PROBE_PERIODS_MS;
use tonic::transport::Uri;

use super::backoff::Backoff;

/// How often the certificate's files are compared with those in use: renewals come hours before the end.
const LOOK_EVERY: Duration = Duration::from_secs(30);

/// Tells one boot of a machine from another.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// Flags of the stream.
#[derive(Debug, Clone, Default, Args)]
pub struct StreamArgs {
    /// Where the provider takes readings, e.g. `https://stoker.stoker.svc:8089`; without it, only metrics are served
    #[arg(long, env = "STOKER_PROBE_PROVIDER", value_name = "URL", help_heading = "Provider")]
    pub provider: Option<String>,
    /// CA bundle for the provider's certificate, in PEM
    #[arg(long, env = "STOKER_PROBE_PROVIDER_CA", value_name = "FILE", help_heading = "Provider")]
    pub provider_ca: Option<PathBuf>,
    /// Certificate of this node, naming `probe:<node>`, in PEM; read again when it changes
    #[arg(long, env = "STOKER_PROBE_TLS_CERT", value_name = "FILE", help_heading = "Provider")]
    pub tls_cert: Option<PathBuf>,
    /// Private key of that certificate, in PEM
    #[arg(long, env = "STOKER_PROBE_TLS_KEY", value_name = "FILE", help_heading = "Provider")]
    pub tls_key: Option<PathBuf>,
    /// `ServiceAccount` token of this pod, for the audience `stoker-probe`; in place of a certificate, and read for each stream
    #[arg(long, env = "STOKER_PROBE_TOKEN_FILE", value_name = "FILE", help_heading = "Provider")]
    pub token_file: Option<PathBuf>,
    /// Connect without TLS to a provider on another machine: anyone on the network path can read and change the data
    #[arg(long, env = "STOKER_PROBE_ALLOW_PLAINTEXT", help_heading = "Provider")]
    pub allow_plaintext: bool,
}

/// What proves which node this is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Access {
    /// Nothing.
    Plaintext,
    /// A certificate.
    Certificate {
        /// Who signs the provider's.
        ca: PathBuf,
        /// Ours.
        cert: PathBuf,
        /// Its key.
        key: PathBuf,
    },
    /// A `ServiceAccount` token.
    Token {
        /// Who signs the provider's certificate.
        ca: PathBuf,
        /// The token.
        token: PathBuf,
    },
}

/// A stream that can be opened.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Where the provider is.
    pub provider: Uri,
    /// This node's name in the cluster.
    pub node: String,
    /// The machine's boot.
    pub boot_id: String,
    /// This process: nanoseconds since the epoch at its start.
    pub session: u64,
    /// How often a round is due.
    pub period: Duration,
    /// What proves which node this is.
    pub access: Access,
    /// How long to wait between tries.
    pub backoff: Backoff,
    /// How often the certificate's files are compared with those in use.
    pub look_every: Duration,
}

/// What is wrong with the flags, all at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SettingsFaults(pub Vec<String>);

impl fmt::Display for SettingsFaults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join("; "))
    }
}

impl std::error::Error for SettingsFaults {}

impl StreamArgs {
    /// The stream of the node with that name; `None` where no provider is named.
    ///
    /// # Errors
    /// Everything that is wrong, each with its cure.
    pub fn settings(&self, node: &str, period: Duration) -> Result<Option<Settings>, SettingsFaults> {
        let Some(provider) = &self.provider else { return Ok(None) };
        let mut faults = Vec::new();
        // Every fault of the connection names the provider: a password in it would be shown, and none is asked for.
        let plain = |uri: &Uri| uri.authority().is_some_and(|at| !at.host().is_empty() && !at.as_str().contains('@'));
        let uri = provider.parse::<Uri>().ok().filter(plain);
        let access = match uri.as_ref().and_then(Uri::scheme_str) {
            Some("https") => self.over_tls(&mut faults),
            Some("http") => {
                self.over_plaintext(uri.as_ref(), &mut faults);
                Some(Access::Plaintext)
            }
            _ => {
                faults.push("--provider is not a URL, or holds a user: give https://host:port".to_owned());
                None
            }
        };
        let millis = |bound: &u32| Duration::from_millis(u64::from(*bound));
        if !(millis(PROBE_PERIODS_MS.start())..=millis(PROBE_PERIODS_MS.end())).contains(&period) {
            faults.push(format!("--period {}: the provider refuses it: give 0.1 to 60 seconds", period.as_secs_f64()));
        }
        if node.is_empty() {
            faults.push(
                "--node is missing: give the Node's name, in a pod as NODE_NAME by the downward API (spec.nodeName)".to_owned(),
            );
        }
        let boot_id = boot_id(Path::new(BOOT_ID)).map_err(|fault| faults.push(fault)).ok();
        match (uri, access, boot_id) {
            (Some(provider), Some(access), Some(boot_id)) if faults.is_empty() => Ok(Some(Settings {
                provider,
                node: node.to_owned(),
                boot_id,
                session: session(),
                period,
                access,
                backoff: Backoff::default(),
                look_every: LOOK_EVERY,
            })),
            _ => Err(SettingsFaults(faults)),
        }
    }

    fn over_tls(&self, faults: &mut Vec<String>) -> Option<Access> {
        let Some(ca) = self.provider_ca.clone() else {
            faults.push("--provider-ca is missing: give the CA file that signs the provider's certificate".to_owned());
            return None;
        };
        match (&self.tls_cert, &self.tls_key, &self.token_file) {
            (Some(cert), Some(key), None) => Some(Access::Certificate { ca, cert: cert.clone(), key: key.clone() }),
            (None, None, Some(token)) => Some(Access::Token { ca, token: token.clone() }),
            _ => {
                faults.push(
                    "the provider must know which node this is: give --tls-cert with --tls-key, or --token-file, and not both"
                        .to_owned(),
                );
                None
            }
        }
    }

    fn over_plaintext(&self, provider: Option<&Uri>, faults: &mut Vec<String>) {
        let host = provider.and_then(Uri::host).unwrap_or_default();
        if !self.allow_plaintext && !is_loopback(host) {
            faults.push(format!(
                "--provider: plaintext to {host} could be overheard and changed: give https://, or accept the risk with --allow-plaintext"
            ));
        }
        if self.provider_ca.is_some() || self.tls_cert.is_some() || self.tls_key.is_some() {
            faults.push("--provider is http://, and certificates are for https://: change it, or omit them".to_owned());
        }
        if self.token_file.is_some() {
            faults.push(
                "--token-file: over http:// anybody can read the token, so it proves nothing: give https://, or omit it"
                    .to_owned(),
            );
        }
    }
}

fn is_loopback(host: &str) -> bool {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || bare.parse::<IpAddr>().is_ok_and(|address| address.to_canonical().is_loopback())
}

fn boot_id(path: &Path) -> Result<String, String> {
    let text = std::fs::read_to_string(path).map_err(|error| format!("{}: cannot be read: {error}", path.display()))?;
    Ok(text.trim().to_owned())
}

/// Nanoseconds since the epoch. A clock before it, or centuries after, gives the least session, which any later one supersedes.
fn session() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(provider: &str) -> StreamArgs {
        StreamArgs { provider: Some(provider.to_owned()), ..StreamArgs::default() }
    }

    fn settings(args: &StreamArgs) -> Result<Access, Vec<String>> {
        let settings = args.settings("node-a", Duration::from_secs(5)).map_err(|faults| faults.0)?;
        Ok(settings.unwrap().access)
    }

    #[test]
    fn plaintext_goes_to_this_machine_only_unless_told_otherwise() {
        for provider in ["http://127.0.0.1:8089", "http://[::1]:8089", "http://localhost:8089", "http://[::ffff:127.0.0.1]:1"] {
            assert_eq!(settings(&args(provider)), Ok(Access::Plaintext), "{provider}");
        }
        for provider in ["http://10.0.0.1:8089", "http://stoker:8089", "http://localhost.example:1"] {
            assert!(settings(&args(provider)).unwrap_err()[0].contains("--allow-plaintext"), "{provider}");
            assert_eq!(settings(&StreamArgs { allow_plaintext: true, ..args(provider) }), Ok(Access::Plaintext));
        }
    }

    #[test]
    fn tls_wants_an_authority_and_one_proof_of_the_node() {
        let path = |name: &str| Some(PathBuf::from(name));
        let tls = StreamArgs { provider_ca: path("ca"), ..args("https://stoker:8089") };
        let cert = StreamArgs { tls_cert: path("crt"), tls_key: path("key"), ..tls.clone() };
        let token = StreamArgs { token_file: path("token"), ..tls.clone() };
        assert!(matches!(settings(&cert), Ok(Access::Certificate { .. })));
        assert!(matches!(settings(&token), Ok(Access::Token { .. })));
        for bad in [tls.clone(), StreamArgs { tls_key: None, ..cert.clone() }, StreamArgs { token_file: path("t"), ..cert }] {
            assert!(settings(&bad).unwrap_err()[0].contains("not both"), "{bad:?}");
        }
        let no_authority = StreamArgs { provider_ca: None, ..token };
        assert!(settings(&no_authority).unwrap_err()[0].contains("--provider-ca"));
    }

    #[test]
    fn a_token_is_not_sent_in_clear() {
        for provider in ["http://127.0.0.1:8089", "http://stoker:8089"] {
            let bad = StreamArgs { token_file: Some("token".into()), allow_plaintext: true, ..args(provider) };
            let faults = settings(&bad).unwrap_err();
            assert!(faults.len() == 1 && faults[0].contains("--token-file"), "{faults:?}");
        }
    }

    #[test]
    fn a_period_that_the_provider_would_refuse_is_refused_here() {
        let of = |millis| args("http://127.0.0.1:8089").settings("node-a", Duration::from_millis(millis)).map(|_| ());
        for period in [100, 5_000, 60_000] {
            assert_eq!(of(period), Ok(()), "{period}");
        }
        for period in [99, 60_001] {
            assert!(of(period).unwrap_err().0[0].contains("--period"), "{period}");
        }
        // Metrics alone may be as old as one likes.
        assert!(StreamArgs::default().settings("node-a", Duration::from_mins(5)).unwrap().is_none());
    }

    #[test]
    fn every_fault_is_told_at_once() {
        let bad = args("stoker:8089").settings("", Duration::from_secs(5)).unwrap_err();
        assert_eq!(bad.0.len(), 2, "{bad}");
        assert!(StreamArgs::default().settings("", Duration::from_secs(5)).unwrap().is_none());
    }
}
