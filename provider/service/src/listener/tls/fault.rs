//! What can be wrong with certificate files: each fault names the file and the cure.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// One thing that is wrong with one file.
#[derive(Debug, thiserror::Error)]
pub enum TlsFault {
    /// The file cannot be read.
    #[error("{}: cannot be read: {}", path.display(), reading(.source))]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The file is not PEM, or its PEM is broken.
    #[error("{}: not readable as PEM: {detail}", path.display())]
    Pem {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        detail: String,
    },
    /// The file holds no certificate.
    #[error("{}: no certificate found: expects PEM blocks \"BEGIN CERTIFICATE\"{}; {found}", path.display(), order(*.chain))]
    NoCertificate {
        /// The file.
        path: PathBuf,
        /// Whether the file should hold a chain, its own certificate first.
        chain: bool,
        /// What the file holds instead.
        found: Found,
    },
    /// A certificate cannot be used.
    #[error("{}: certificate {number} cannot be used: {detail}: reissue it as X.509 version 3", path.display())]
    Certificate {
        /// The file.
        path: PathBuf,
        /// Which certificate of the file, from 1.
        number: usize,
        /// What is wrong with it.
        detail: String,
    },
    /// The server certificate names no host.
    #[error(
        "{}: the certificate has no DNS name or IP address among its subject alternative names, and clients do not read the common name: \
         issue it with the host that clients connect to as SAN", path.display()
    )]
    NoSan {
        /// The file.
        path: PathBuf,
    },
    /// The server certificate is for another use.
    #[error("{}: the certificate is not for servers: issue it with the extended key usage serverAuth", path.display())]
    NotForServers {
        /// The file.
        path: PathBuf,
    },
    /// The file holds no private key.
    #[error("{}: no private key found: expects PEM PKCS#8 (\"BEGIN PRIVATE KEY\"), or PKCS#1 or SEC1; {found}", path.display())]
    NoKey {
        /// The file.
        path: PathBuf,
        /// What the file holds instead.
        found: Found,
    },
    /// The private key needs a passphrase.
    #[error("{}: the private key is encrypted: decrypt it with `openssl pkey -in {0} -out {0}.plain` and name that file", path.display())]
    EncryptedKey {
        /// The file.
        path: PathBuf,
    },
    /// The private key is of a kind that is not supported.
    #[error("{}: the private key cannot be used: {detail}: make an ECDSA P-256 or P-384, Ed25519 or RSA (2048 bits or more) key", path.display())]
    Key {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        detail: String,
    },
    /// Key and certificate do not belong together.
    #[error(
        "{}: the key does not match the first certificate of {}: name the pair that was issued together{}",
        key.display(), cert.display(), misplaced(*.matches)
    )]
    Mismatch {
        /// The key's file.
        key: PathBuf,
        /// The certificate's file.
        cert: PathBuf,
        /// The certificate of the file that the key does match, from 1.
        matches: Option<usize>,
    },
    /// A line of the deny list is no serial number.
    #[error(
        "{}: line {line} is not the serial number of a certificate: write it in hexadecimal, as `openssl x509 -noout -serial -in FILE` \
         prints it after the equals sign", path.display()
    )]
    NoSerial {
        /// The file.
        path: PathBuf,
        /// Which line of it, from 1.
        line: usize,
    },
    /// The TLS library refuses the files for another reason.
    #[error("{}: {detail}", path.display())]
    Refused {
        /// The file.
        path: PathBuf,
        /// What it said.
        detail: String,
    },
}

impl TlsFault {
    pub(super) fn pem(path: &Path, detail: impl Into<String>) -> Self {
        Self::Pem { path: path.to_owned(), detail: detail.into() }
    }
}

fn reading(source: &io::Error) -> String {
    match source.kind() {
        io::ErrorKind::NotFound => "there is no such file; check the path, and that the Secret is mounted".to_owned(),
        io::ErrorKind::PermissionDenied => {
            "permission denied; make it readable for the user that this process runs as".to_owned()
        }
        _ => source.to_string(),
    }
}

const fn order(chain: bool) -> &'static str {
    if chain { ", the server's own certificate first" } else { "" }
}

fn misplaced(matches: Option<usize>) -> String {
    matches.map_or_else(String::new, |n| format!(" (it matches certificate {n}: put that one first)"))
}

/// What a file holds, for the message that says what it lacks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// Nothing.
    Empty,
    /// Bytes that are no text: most often DER.
    Binary,
    /// Text without a PEM block.
    Text,
    /// PEM blocks with these headings.
    Blocks(Vec<String>),
}

impl Found {
    /// Looks at a file's content.
    pub(super) fn in_file(bytes: &[u8]) -> Self {
        if bytes.is_empty() {
            return Self::Empty;
        }
        let Ok(text) = std::str::from_utf8(bytes) else { return Self::Binary };
        let heading = |line: &str| line.trim().strip_prefix("-----BEGIN ")?.strip_suffix("-----").map(str::to_owned);
        let mut blocks: Vec<String> = text.lines().filter_map(heading).collect();
        blocks.dedup();
        if blocks.is_empty() { Self::Text } else { Self::Blocks(blocks) }
    }

    /// Whether a block with that heading is there.
    pub(super) fn has(&self, heading: &str) -> bool {
        matches!(self, Self::Blocks(blocks) if blocks.iter().any(|b| b == heading))
    }
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("the file is empty"),
            Self::Binary => f.write_str("the file is binary (convert DER with `openssl … -inform der -outform pem`)"),
            Self::Text => f.write_str("the file is text without a PEM block"),
            Self::Blocks(blocks) => write!(f, "the file contains {}", blocks.join(", ")),
        }
    }
}

/// Everything that is wrong with a set of files, at once.
#[derive(Debug)]
pub struct TlsFaults(pub Vec<TlsFault>);

impl fmt::Display for TlsFaults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, fault) in self.0.iter().enumerate() {
            let separator = if at == 0 { "" } else { "; " };
            write!(f, "{separator}{fault}")?;
        }
        Ok(())
    }
}

impl std::error::Error for TlsFaults {}
