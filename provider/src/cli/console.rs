//! `stoker serve --console`: what its pages say of the journal and the policy, in the words of the other commands.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use futures::FutureExt as _;
use jiff::Timestamp;
use stoker_core::base::ids::DecisionId;
use stoker_core::market::price::PriceBook;
use stoker_core::policy::Policy;
use stoker_journal::{Reader, StoredDecision};
use stoker_service::api::console::{Answer, ConsoleOptions, ConsoleText, Decision, Money};
use stoker_service::listener::TlsFiles;

use super::exit::CliError;
use super::{explain, out, policy, report};

/// Decisions looked through for those that say something: most take in what was observed, and do nothing.
const LOOKED_THROUGH: u32 = 200;

/// Decisions shown: a few screens.
const SHOWN: usize = 60;

/// Where a word ends and what it says begins, in a line of `stoker explain`.
const WORD: (usize, usize) = (2, 11);

/// Whether the console is served, and to whom.
#[derive(Debug, Args)]
pub(super) struct ConsoleArgs {
    /// Serve the read-only console under /console, on the side port or at --console-listen
    #[arg(long, env = "STOKER_CONSOLE", help_heading = "Addresses")]
    console: bool,
    /// File with the token that opens the console, of at least 16 characters, read again for each request; needed beyond loopback where no
    /// certificate is asked for [default: none, only this machine may read]
    #[arg(long, env = "STOKER_CONSOLE_TOKEN_FILE", value_name = "FILE", requires = "console", help_heading = "Addresses")]
    console_token_file: Option<PathBuf>,
    /// Listen address of the console over TLS [default: none, it is on the side port]
    #[arg(
        long,
        env = "STOKER_CONSOLE_LISTEN",
        value_name = "ADDR",
        requires_all = ["console", "console_cert"],
        help_heading = "Addresses"
    )]
    console_listen: Option<SocketAddr>,
    /// Certificate of the console, in PEM
    #[arg(long, env = "STOKER_CONSOLE_CERT", value_name = "FILE", requires_all = ["console_key", "console_listen"], help_heading = "TLS")]
    console_cert: Option<PathBuf>,
    /// Private key of that certificate, in PEM
    #[arg(long, env = "STOKER_CONSOLE_KEY", value_name = "FILE", requires = "console_cert", help_heading = "TLS")]
    console_key: Option<PathBuf>,
    /// CA bundle for client certificates of browsers, in PEM; without one of them nobody connects [default: the token is asked for]
    #[arg(long, env = "STOKER_CONSOLE_CLIENT_CA", value_name = "FILE", requires = "console_cert", help_heading = "TLS")]
    console_client_ca: Option<PathBuf>,
    /// Name in a certificate that opens the console; repeatable [default: any but a probe's]
    #[arg(
        long = "console-client",
        env = "STOKER_CONSOLE_CLIENT",
        value_name = "NAME",
        value_delimiter = ',',
        requires = "console_client_ca",
        help_heading = "TLS"
    )]
    console_clients: Vec<String>,
}

impl ConsoleArgs {
    /// Whether clients show certificates.
    pub(super) const fn checks_clients(&self) -> bool {
        self.console_client_ca.is_some()
    }

    /// How it is served; `None` where it is not. `files` are those of a certificate, a key and an authority of clients.
    pub(super) fn options(
        self,
        book: &Arc<PriceBook>,
        files: impl Fn(Option<PathBuf>, Option<PathBuf>, Option<PathBuf>) -> Option<TlsFiles>,
    ) -> Result<Option<ConsoleOptions>, CliError> {
        let Self {
            console,
            console_token_file: token_file,
            console_listen,
            console_cert,
            console_key,
            console_client_ca,
            console_clients,
        } = self;
        let clients = console_clients.into();
        let listener = match (console_listen, files(console_cert, console_key, console_client_ca)) {
            (Some(addr), Some(files)) => Some((addr, files)),
            (None, None) => None,
            // Options that need each other say so; the side port must not stand in for an address with TLS.
            _ => {
                return Err(CliError::Usage(
                    "--console-listen needs --console-cert and --console-key, and they need it".to_owned(),
                ));
            }
        };
        Ok(console.then(|| ConsoleOptions { token_file, listener, clients, text: console_text(Arc::clone(book)) }))
    }
}

/// What the console says, in the words of `stoker explain`, `stoker report` and `stoker policy show`; reports are made with these prices.
pub fn console_text(book: Arc<PriceBook>) -> Arc<dyn ConsoleText> {
    Arc::new(Text { book })
}

/// The words of `explain`, `report` and `policy show`.
struct Text {
    book: Arc<PriceBook>,
}

impl ConsoleText for Text {
    fn decisions(&self, journal: Reader, node: Option<String>) -> Answer<Vec<Decision>> {
        async move {
            let mut found = match &node {
                Some(node) => {
                    let mut found = journal.last_of_node(node, SHOWN).await.map_err(|error| full(&error))?;
                    found.reverse();
                    found
                }
                None => journal.recent(LOOKED_THROUGH).await.map_err(|error| full(&error))?,
            };
            let says = |of: &StoredDecision| !(of.actions.is_empty() && of.notes.is_empty() && of.explanations.is_empty());
            found.retain(|decision| node.is_some() || says(decision));
            found.truncate(SHOWN);
            Ok(found.iter().map(shown).collect())
        }
        .boxed()
    }

    fn decision(&self, journal: Reader, id: DecisionId) -> Answer<Option<String>> {
        async move {
            match explain::text_of(&id.to_string(), &journal).await {
                Ok(text) => Ok(Some(text)),
                Err(CliError::NotFound(_)) => Ok(None),
                Err(error) => Err(full(&error)),
            }
        }
        .boxed()
    }

    fn money(&self, journal: Reader, policy: Arc<Policy>, now: Timestamp) -> Answer<Money> {
        let book = Arc::clone(&self.book);
        // It sums up a month between its reads: nobody else's work may wait for that.
        let made = tokio::task::spawn_blocking(move || {
            let made = report::money(&journal, (policy, book), now);
            tokio::runtime::Handle::current().block_on(made)
        });
        async move { made.await.map_err(|error| full(&error))?.map_err(|error| full(&error)) }.boxed()
    }

    fn policy(&self, policy: &Policy) -> Result<String, String> {
        out::yaml(&policy::effective(policy)).map_err(|error| full(&error))
    }
}

/// An error with its sources.
fn full(error: &dyn std::error::Error) -> String {
    let sources = std::iter::successors(error.source(), |source| source.source());
    // Some say their source themselves.
    let mut said = BTreeSet::new();
    let parts = std::iter::once(error.to_string()).chain(sources.map(ToString::to_string));
    parts.filter(|part| said.insert(part.clone())).collect::<Vec<_>>().join(": ")
}

/// A decision, line by line.
fn shown(decision: &StoredDecision) -> Decision {
    // The first line is its number and time.
    let lines = explain::brief_text(decision).lines().skip(1).map(in_two).collect();
    Decision { id: decision.id, at: decision.at, lines }
}

/// A line's word, and what it says.
fn in_two(line: &str) -> (String, String) {
    let (from, to) = WORD;
    match (line.get(from..to), line.get(to..)) {
        (Some(word), Some(rest)) => (word.trim().to_owned(), rest.trim().to_owned()),
        _ => (String::new(), line.trim().to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_a_decision_are_told_apart_from_their_words() {
        let said = |word: &str, rest: &str| (word.to_owned(), rest.to_owned());
        assert_eq!(in_two("  asked    order o1: 2 nodes"), said("asked", "order o1: 2 nodes"));
        assert_eq!(in_two("           and 3 more"), said("", "and 3 more"));
        assert_eq!(in_two("short"), said("", "short"));
        assert_eq!(
            in_two("\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}"),
            said("", "\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}")
        );
    }
}
