//! Client certificates that are refused although their authority signed them: a deny list of serial
//! numbers.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{CertificateError, DigitallySignedStruct, DistinguishedName, Error, SignatureScheme};
use rustls_pki_types::{CertificateDer, UnixTime};
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer as _;

use super::fault::TlsFault;

/// Longest serial number, in hexadecimal digits: RFC 5280 allows 20 bytes, and some authorities use
/// more.
const LONGEST: usize = 128;

/// Serial numbers in lower-case hexadecimal digits without zeros in front.
#[derive(Debug, Clone, Default)]
pub(in crate::listener) struct Denied(BTreeSet<String>);

impl Denied {
    /// Reads a file: one serial number a line, with or without colons or `0x` in front; `#` begins a comment. A line that is none is a
    /// fault, and the others count.
    pub(super) fn parse(path: &Path, bytes: &[u8], faults: &mut Vec<TlsFault>) -> Self {
        let text = String::from_utf8_lossy(bytes);
        let mut serials = BTreeSet::new();
        for (at, line) in text.lines().enumerate() {
            let written = line.split('#').next().unwrap_or_default().trim();
            if written.is_empty() {
                continue;
            }
            let written = written.strip_prefix("0x").or_else(|| written.strip_prefix("0X")).unwrap_or(written);
            let digits: String = written.chars().filter(|c| *c != ':').collect();
            if !digits.bytes().all(|b| b.is_ascii_hexdigit()) || !(1..=LONGEST).contains(&digits.len()) {
                faults.push(TlsFault::NoSerial { path: path.to_owned(), line: at + 1 });
                continue;
            }
            serials.insert(digits.trim_start_matches('0').to_ascii_lowercase());
        }
        Self(serials)
    }

    /// Those of both.
    pub(super) fn and(mut self, other: &Self) -> Self {
        self.0.extend(other.0.iter().cloned());
        self
    }

    /// Whether the certificate is on the list; so is one that cannot be read where there is a list.
    fn includes(&self, certificate: &CertificateDer<'_>) -> bool {
        !self.0.is_empty()
            && X509Certificate::from_der(certificate)
                .map_or(true, |(_, certificate)| self.0.contains(format!("{:x}", certificate.serial).trim_start_matches('0')))
    }
}

/// Verifies clients as another verifier does, but for those that are denied.
#[derive(Debug)]
pub(super) struct DenyingVerifier {
    pub(super) denied: Denied,
    pub(super) verifier: Arc<dyn ClientCertVerifier>,
}

impl ClientCertVerifier for DenyingVerifier {
    fn verify_client_cert(
        &self,
        own: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let verified = self.verifier.verify_client_cert(own, intermediates, now)?;
        if self.denied.includes(own) { Err(CertificateError::Revoked.into()) } else { Ok(verified) }
    }

    fn offer_client_auth(&self) -> bool {
        self.verifier.offer_client_auth()
    }

    fn client_auth_mandatory(&self) -> bool {
        self.verifier.client_auth_mandatory()
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.verifier.root_hint_subjects()
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verifier.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verifier.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.verifier.supported_verify_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> (Denied, Vec<String>) {
        let mut faults = Vec::new();
        let denied = Denied::parse(Path::new("denied.txt"), text.as_bytes(), &mut faults);
        (denied, faults.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn a_serial_is_hexadecimal_however_it_is_written() {
        let (denied, faults) = parse("# stolen in May\n0A:1B:00\n\n  7f  # a laptop\nFF\n0x0ABC\n");
        assert_eq!((denied.0, faults), (["a1b00", "7f", "ff", "abc"].map(str::to_owned).into(), Vec::new()));
        assert!(parse("").0.0.is_empty());
    }

    #[test]
    fn a_line_that_is_no_serial_is_a_fault_with_its_number_and_the_others_count() {
        for bad in ["serial=0A", "0x", "12 34", ":", &"f".repeat(LONGEST + 1)] {
            let (denied, faults) = parse(&format!("0a\n{bad}\n0b"));
            assert_eq!(denied.0, ["a", "b"].map(str::to_owned).into());
            assert!(faults.len() == 1 && faults[0].contains("denied.txt: line 2 is not the serial number"), "{faults:?}");
        }
    }
}
