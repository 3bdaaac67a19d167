//! A set of certificates for trying Stoker out: a throw-away authority, a server, a client, and the autoscaler's configuration.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Write as _};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair, KeyUsagePurpose,
    SanType,
};

use crate::listener::PROBE_PREFIX;

pub mod in_cluster;

/// How long the certificates count.
const YEAR: Duration = Duration::from_hours(365 * 24);

/// How long before now they begin to count: the other machine's clock may be behind.
const SLACK: Duration = Duration::from_hours(1);

/// The names that reach a server on the same machine; always in its certificate.
const LOCAL_NAMES: [&str; 3] = ["localhost", "127.0.0.1", "::1"];

/// The address in `cloud-config.yaml` where none is given.
const DEFAULT_ADDRESS: &str = "localhost:8086";

/// What to make.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tryout<'a> {
    /// Where the files go; made if it is not there.
    pub dir: &'a Path,
    /// DNS names and IP addresses of the server, beside those of this machine.
    pub server_names: &'a [String],
    /// Whom the clients' certificates name, one each: a DNS name, e.g. `cluster-autoscaler`, or a URI. The first one's files are
    /// `client.crt` and `client.key`, the others bear the name.
    pub client_names: &'a [&'a str],
    /// Where the autoscaler finds the server, as `host:port`.
    pub address: &'a str,
    /// Whether files that are there are replaced.
    pub force: bool,
}

/// What was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Written {
    /// The authority that both sides trust. Its key is kept nowhere, so nobody can sign with it again.
    pub ca: PathBuf,
    /// The server's certificate.
    pub server_cert: PathBuf,
    /// The server's key.
    pub server_key: PathBuf,
    /// The clients', in the order of their names.
    pub clients: Vec<ClientFiles>,
    /// For the autoscaler's `--cloud-config`.
    pub cloud_config: PathBuf,
}

/// What a client shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientFiles {
    /// Whom its certificate names.
    pub name: String,
    /// Its certificate.
    pub cert: PathBuf,
    /// Its key.
    pub key: PathBuf,
}

impl ClientFiles {
    /// The files, in an absolute directory, of the client at that place among the names.
    fn of(dir: &Path, place: usize, name: &str) -> Self {
        let stem = stem(place, name);
        Self { name: name.to_owned(), cert: dir.join(format!("{stem}.crt")), key: dir.join(format!("{stem}.key")) }
    }

    /// The node whose probe it is; `None` where it is no probe.
    pub fn node(&self) -> Option<&str> {
        self.name.strip_prefix(PROBE_PREFIX)
    }
}

/// Why there are no certificates. Nothing was written.
#[derive(Debug, thiserror::Error)]
pub enum CertsError {
    /// Files are in the way.
    #[error("{} already there: {}; nothing was written: choose another directory or replace them with --force",
        if files.len() == 1 { "a file is" } else { "files are" },
        files.iter().map(|f| f.display().to_string()).collect::<Vec<_>>().join(", "))]
    Exists {
        /// The files.
        files: Vec<PathBuf>,
    },
    /// A name cannot stand in a certificate.
    #[error("{name:?} is not a valid certificate name: {cure}")]
    Name {
        /// The name.
        name: String,
        /// What would do.
        cure: &'static str,
    },
    /// The address is not `host:port`.
    #[error("{address:?} is not host:port: the autoscaler wants both, e.g. {DEFAULT_ADDRESS}")]
    Address {
        /// The address.
        address: String,
    },
    /// The host of the address is not among the server's names, so the autoscaler would refuse the server.
    #[error("the server's certificate would not name {host:?}, the host of the address: add it to the server names")]
    Unnamed {
        /// The host.
        host: String,
    },
    /// A certificate could not be made.
    #[error("the certificate of the {what} could not be created")]
    Make {
        /// Whose.
        what: &'static str,
        /// What the library said.
        source: rcgen::Error,
    },
    /// A file could not be written.
    #[error("{}: could not be written; nothing was changed", path.display())]
    Write {
        /// The file or directory.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

/// Makes the set in `dir` for a server on this machine's default address (`localhost:8086`); replaces nothing.
pub fn write_tryout(dir: &Path, server_names: &[String], client_name: &str) -> Result<Written, CertsError> {
    Tryout { dir, server_names, client_names: &[client_name], address: DEFAULT_ADDRESS, force: false }.write()
}

/// One file to be.
struct Output {
    name: String,
    text: String,
    secret: bool,
}

impl Tryout<'_> {
    /// Makes the set: all of it or nothing.
    pub fn write(&self) -> Result<Written, CertsError> {
        self.check_address()?;
        let dir = std::path::absolute(self.dir).map_err(failed(self.dir))?;
        let outputs = self.outputs(&dir)?;
        let there: Vec<PathBuf> =
            outputs.iter().map(|o| dir.join(&o.name)).filter(|path| path.symlink_metadata().is_ok()).collect();
        if !self.force && !there.is_empty() {
            return Err(CertsError::Exists { files: there });
        }
        fs::create_dir_all(&dir).map_err(failed(&dir))?;
        let staging = Staging::new(&dir)?;
        for output in &outputs {
            staging.stage(output)?;
        }
        staging.publish(&dir, &outputs, self.force)?;
        Ok(Written {
            ca: dir.join("ca.crt"),
            server_cert: dir.join("server.crt"),
            server_key: dir.join("server.key"),
            clients: self.clients(&dir),
            cloud_config: dir.join("cloud-config.yaml"),
        })
    }

    fn check_address(&self) -> Result<(), CertsError> {
        let split = self.address.rsplit_once(':').filter(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok());
        let Some((host, _)) = split else { return Err(CertsError::Address { address: self.address.to_owned() }) };
        let host = host.strip_prefix('[').and_then(|h| h.strip_suffix(']')).unwrap_or(host);
        let named = LOCAL_NAMES.contains(&host) || self.server_names.iter().any(|name| name == host);
        if named { Ok(()) } else { Err(CertsError::Unnamed { host: host.to_owned() }) }
    }

    fn outputs(&self, dir: &Path) -> Result<Vec<Output>, CertsError> {
        let mut outputs: Vec<Output> = Set::make(self.server_names, self.client_names)?.into_outputs().collect();
        outputs.push(Output { name: "cloud-config.yaml".to_owned(), text: self.cloud_config(dir), secret: false });
        Ok(outputs)
    }

    fn clients(&self, dir: &Path) -> Vec<ClientFiles> {
        self.client_names.iter().enumerate().map(|(place, name)| ClientFiles::of(dir, place, name)).collect()
    }

    fn cloud_config(&self, dir: &Path) -> String {
        // A JSON string is a YAML string, whatever is in the path.
        let quoted = |text: &str| serde_json::Value::from(text).to_string();
        let file = |path: &Path| quoted(&path.to_string_lossy());
        // A probe's certificate is refused there, so the autoscaler has the first one that is none.
        let clients = self.clients(dir);
        let client = clients.iter().find(|client| client.node().is_none()).or(clients.first());
        let client = client.map_or_else(|| ClientFiles::of(dir, 0, ""), Clone::clone);
        format!(
            "# For the autoscaler: --cloud-provider=externalgrpc --cloud-config=<this file>\n\
             # It reads the files once, at start. In a pod, name the paths where they are mounted.\n\
             address: {}\nkey: {}\ncert: {}\ncacert: {}\n",
            quoted(self.address),
            file(&client.key),
            file(&client.cert),
            file(&dir.join("ca.crt")),
        )
    }
}

/// Certificates and keys of one authority, in PEM. The authority's key is kept nowhere.
struct Set {
    ca: String,
    server: (String, String),
    /// By the stem of their files.
    clients: Vec<(String, (String, String))>,
}

impl Set {
    fn make<N: AsRef<str>>(server_names: &[String], client_names: &[N]) -> Result<Self, CertsError> {
        let ca = authority().map_err(made("authority"))?;
        let names = all_server_names(server_names).map(host_name).collect::<Result<Vec<_>, _>>()?;
        let server = signed(&ca, "stoker", names, ExtendedKeyUsagePurpose::ServerAuth).map_err(made("server"))?;
        let (mut clients, mut seen) = (Vec::new(), BTreeSet::new());
        for (place, name) in client_names.iter().map(AsRef::as_ref).enumerate() {
            let san = client_name(name)?;
            let stem = stem(place, name);
            // Where the names differ, the file system may still take the files for the same.
            let twice = client_names.iter().take(place).any(|before| before.as_ref() == name);
            if twice || !seen.insert(stem.to_ascii_lowercase()) {
                return Err(CertsError::Name {
                    name: name.to_owned(),
                    cure: "its files would overwrite those of another client; give each name once",
                });
            }
            let client = signed(&ca, name, vec![san], ExtendedKeyUsagePurpose::ClientAuth).map_err(made("client"))?;
            clients.push((stem, client));
        }
        Ok(Self { ca: ca.pem(), server, clients })
    }

    /// Its files: the authority's, the server's, then the clients'.
    fn into_outputs(self) -> impl Iterator<Item = Output> {
        let pair = |stem: String, (cert, key)| {
            [
                Output { name: format!("{stem}.crt"), text: cert, secret: false },
                Output { name: format!("{stem}.key"), text: key, secret: true },
            ]
        };
        let ca = Output { name: "ca.crt".to_owned(), text: self.ca, secret: false };
        let server = pair("server".to_owned(), self.server);
        let clients = self.clients.into_iter().flat_map(move |(stem, client)| pair(stem, client));
        [ca].into_iter().chain(server).chain(clients)
    }
}

/// The names of this machine, and the others that the server is to have.
fn all_server_names(others: &[String]) -> impl Iterator<Item = &str> {
    LOCAL_NAMES.into_iter().chain(others.iter().map(String::as_str).filter(|name| !LOCAL_NAMES.contains(name)))
}

/// What a client's files are called: the first one's as where there is no other.
fn stem(place: usize, name: &str) -> String {
    let sign = |sign: char| if sign.is_ascii_alphanumeric() || "-_.".contains(sign) { sign } else { '-' };
    if place == 0 { "client".to_owned() } else { format!("client-{}", name.chars().map(sign).collect::<String>()) }
}

fn made(what: &'static str) -> impl FnOnce(rcgen::Error) -> CertsError {
    move |source| CertsError::Make { what, source }
}

fn failed(path: &Path) -> impl FnOnce(io::Error) -> CertsError {
    let path = path.to_owned();
    move |source| CertsError::Write { path, source }
}

fn params(common_name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    let now = SystemTime::now();
    params.not_before = (now - SLACK).into();
    params.not_after = (now + YEAR).into();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, common_name);
    params
}

fn authority() -> Result<CertifiedIssuer<'static, KeyPair>, rcgen::Error> {
    let mut params = params("stoker try-out CA");
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    CertifiedIssuer::self_signed(params, KeyPair::generate()?)
}

/// A certificate and its key, both in PEM.
fn signed(
    ca: &CertifiedIssuer<'_, KeyPair>,
    common_name: &str,
    names: Vec<SanType>,
    usage: ExtendedKeyUsagePurpose,
) -> Result<(String, String), rcgen::Error> {
    let key = KeyPair::generate()?;
    let mut params = params(common_name);
    params.subject_alt_names = names;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![usage];
    params.use_authority_key_identifier_extension = true;
    Ok((params.signed_by(&key, ca)?.pem(), key.serialize_pem()))
}

fn host_name(name: &str) -> Result<SanType, CertsError> {
    const CURE: &str = "give a DNS name (letters, digits, dots and hyphens) or an IP address, without a port";
    match name.parse::<IpAddr>() {
        Ok(address) => Ok(SanType::IpAddress(address)),
        Err(_) => dns_name(name, CURE),
    }
}

fn client_name(name: &str) -> Result<SanType, CertsError> {
    const CURE: &str =
        "give a DNS name, e.g. cluster-autoscaler, a URI, e.g. spiffe://cluster/autoscaler, or for a node's probe probe:<node>";
    let bad = || CertsError::Name { name: name.to_owned(), cure: CURE };
    if name.contains("://") || name.starts_with(PROBE_PREFIX) {
        if name.chars().any(|c| c.is_whitespace() || c.is_control()) {
            return Err(bad());
        }
        return name.try_into().map(SanType::URI).map_err(|_| bad());
    }
    dns_name(name, CURE)
}

fn dns_name(name: &str, cure: &'static str) -> Result<SanType, CertsError> {
    let bad = || CertsError::Name { name: name.to_owned(), cure };
    let label = |label: &str| {
        !label.is_empty() && label.len() <= 63 && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
    };
    let rest = name.strip_prefix("*.").unwrap_or(name);
    if name.len() > 253 || !rest.split('.').all(label) {
        return Err(bad());
    }
    name.try_into().map(SanType::DnsName).map_err(|_| bad())
}

/// A directory beside the files to be, where they are written first; gone when dropped.
struct Staging {
    new: PathBuf,
    old: PathBuf,
    root: PathBuf,
}

impl Staging {
    fn new(dir: &Path) -> Result<Self, CertsError> {
        let root = dir.join(format!(".stoker-certs-{}", std::process::id()));
        let staging = Self { new: root.join("new"), old: root.join("old"), root };
        for path in [&staging.root, &staging.new, &staging.old] {
            fs::create_dir(path).map_err(failed(path))?;
        }
        Ok(staging)
    }

    fn stage(&self, output: &Output) -> Result<(), CertsError> {
        let path = self.new.join(&output.name);
        let mut options = fs::OpenOptions::new();
        options.write(true).create_new(true);
        #[cfg(unix)]
        {
            use std::os::unix::fs::OpenOptionsExt as _;
            options.mode(if output.secret { 0o600 } else { 0o644 });
        }
        let write = || {
            let mut file = options.open(&path)?;
            file.write_all(output.text.as_bytes())?;
            file.sync_all()
        };
        write().map_err(failed(&path))
    }

    /// Moves the files into place; where one cannot be, puts back what was there.
    fn publish(&self, dir: &Path, outputs: &[Output], force: bool) -> Result<(), CertsError> {
        let mut done: Vec<&str> = Vec::new();
        for output in outputs {
            let target = dir.join(&output.name);
            if let Err(source) = self.place(&output.name, &target, force) {
                for name in done {
                    self.put_back(name, &dir.join(name));
                }
                self.put_back_old(&output.name, &target);
                return Err(if source.kind() == io::ErrorKind::AlreadyExists {
                    CertsError::Exists { files: vec![target] }
                } else {
                    CertsError::Write { path: target, source }
                });
            }
            done.push(&output.name);
        }
        Ok(())
    }

    fn place(&self, name: &str, target: &Path, force: bool) -> io::Result<()> {
        if force && target.symlink_metadata().is_ok() {
            fs::rename(target, self.old.join(name))?;
        }
        // A link, not a rename: it fails where a file came to be meanwhile.
        fs::hard_link(self.new.join(name), target)
    }

    fn put_back(&self, name: &str, target: &Path) {
        if let Err(error) = fs::remove_file(target) {
            tracing::error!(path = %target.display(), %error, "could not be undone");
        }
        self.put_back_old(name, target);
    }

    fn put_back_old(&self, name: &str, target: &Path) {
        let old = self.old.join(name);
        if old.symlink_metadata().is_ok()
            && let Err(error) = fs::rename(&old, target)
        {
            tracing::error!(path = %target.display(), %error, "could not be put back");
        }
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.root) {
            tracing::warn!(path = %self.root.display(), %error, "could not be removed; it is safe to remove by hand");
        }
    }
}

#[cfg(test)]
mod tests;
