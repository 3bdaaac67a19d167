//! The listeners: who may connect, and how their certificates are read, checked and renewed.

mod accept;
mod peer;
mod seldom;
mod tls;

#[cfg(test)]
mod tests;

pub use accept::{Conn, Limits, Listener, PlaintextRefused, Security, check_plaintext};
pub use peer::{PROBE_PREFIX, PeerInfo, require_identity};
pub use seldom::Seldom;
pub use tls::{Loaded, Tls, TlsFault, TlsFaults, TlsFiles, install_crypto};
