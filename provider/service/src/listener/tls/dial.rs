//! Certificates of a client: Stoker's own, where it calls somebody on another machine.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::ClientConfig;
use rustls::crypto::ring;
use rustls::sign::SingleCertAndKey;

use super::fault::{TlsFault, TlsFaults};
use super::files::{certificates, client_roots, pair, private_key, unreadable};
use crate::files;

/// The files by which Stoker and whom it calls know each other, all in PEM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DialFiles {
    /// Who signs the other's certificate.
    pub ca: PathBuf,
    /// Stoker's certificate, then its intermediates.
    pub cert: PathBuf,
    /// The private key of the first.
    pub key: PathBuf,
}

impl DialFiles {
    /// Reads and checks the files: ready to call, by HTTP/2.
    ///
    /// # Errors
    /// Every fault of every file, each with its cure.
    pub fn load(&self) -> Result<Arc<ClientConfig>, TlsFaults> {
        let provider = Arc::new(ring::default_provider());
        let mut faults = Vec::new();
        let read = |path: &Path| files::read(path).map_err(unreadable(path));
        let chain = read(&self.cert).and_then(|bytes| certificates(&self.cert, &bytes, true));
        let key = read(&self.key).and_then(|bytes| private_key(&self.key, &bytes));
        let chain = chain.map_err(|fault| faults.push(fault)).ok();
        let key = key.map_err(|fault| faults.push(fault)).ok();
        let ca = read(&self.ca).map_err(|fault| faults.push(fault)).ok();
        let roots = ca.and_then(|bytes| client_roots(&self.ca, &bytes, &mut faults));
        let certified = match (chain, key) {
            (Some(chain), Some(key)) => pair(&provider, (&self.cert, chain), (&self.key, key), &mut faults),
            _ => None,
        };
        let (Some(certified), Some(roots), true) = (certified, roots, faults.is_empty()) else {
            return Err(TlsFaults(faults));
        };
        let refused =
            |error: rustls::Error| TlsFaults(vec![TlsFault::Refused { path: self.cert.clone(), detail: error.to_string() }]);
        let versions = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().map_err(refused)?;
        let resolver = Arc::new(SingleCertAndKey::from(certified));
        let mut config = versions.with_root_certificates(roots).with_client_cert_resolver(resolver);
        config.alpn_protocols = vec![b"h2".to_vec()];
        Ok(Arc::new(config))
    }
}
