//! The listeners: who may connect, and how their certificates are read, checked and renewed.

mod accept;
mod connections;
mod open_files;
mod peer;
mod seldom;
mod shares;
mod tls;

#[cfg(test)]
mod tests;

pub use accept::{Conn, Listener, PlaintextRefused, Security, check_plaintext};
pub use connections::{CONNECTION_AGE, CONNECTION_GRACE, Limits};
pub use open_files::{Shares, raise_limit};
pub use peer::{PROBE_PREFIX, PeerInfo, require_identity};
pub use seldom::Seldom;
pub use shares::{Share, SharedByAddress};
pub use tls::{DialFiles, Loaded, Tls, TlsFault, TlsFaults, TlsFiles, install_crypto};
