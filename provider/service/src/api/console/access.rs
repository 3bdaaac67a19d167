//! Who may read the console: anyone on this machine where it listens on loopback, else who shows the token or a certificate.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use axum::http::{HeaderMap, header};
use blake3::Hash;
use stoker_core::base::text::with_causes;

use crate::clock::Clock;
use crate::files::{self, read_text};
use crate::listener::{PeerInfo, TlsFiles};

/// The cookie of a browser that has shown the token.
const COOKIE: &str = "stoker_console";

/// How long a browser need not show it again, in seconds: a working day.
const SESSION: i64 = 10 * 3_600;

/// Shortest token: nobody guesses so many characters over a network.
const SHORTEST: usize = 16;

/// Why the console is not served.
#[derive(Debug, thiserror::Error)]
pub enum NoAccess {
    /// Whoever reaches the port could read it.
    #[error(
        "--console: it listens on {0}, which other machines reach: give --console-token-file FILE, or \
         --console-listen with --console-client-ca, or listen on 127.0.0.1 (--http-listen)"
    )]
    Open(SocketAddr),
    /// The token cannot be read.
    #[error("--console-token-file {}: cannot be read", files::shown(.0))]
    Read(PathBuf, #[source] std::io::Error),
    /// The token is none.
    #[error(
        "--console-token-file {}: a token is one line of at least {SHORTEST} printable characters without spaces: \
         `head -c 24 /dev/urandom | base64` makes one",
        files::shown(.0)
    )]
    Weak(PathBuf),
    /// Sessions cannot be signed.
    #[error("--console: the system gives no random bytes to sign sessions with: {0}")]
    Random(String),
}

/// Who may read.
#[derive(Debug)]
pub(crate) struct Access {
    rule: Rule,
    /// Whom certificates must name, where they are asked for; empty is anyone.
    clients: Option<Arc<[String]>>,
    /// Signs the sessions of this process: after a restart browsers show the token again.
    key: [u8; blake3::KEY_LEN],
    /// Whether sessions go over TLS alone.
    is_tls: bool,
    /// Why the token could not be read when it was last needed.
    fault: Mutex<Option<String>>,
    clock: Clock,
}

#[derive(Debug)]
enum Rule {
    /// Whoever asks this machine by its own name.
    ThisMachine,
    /// Whoever shows the token of that file.
    Token(PathBuf),
    /// Whoever has a certificate.
    Certificate,
}

/// What a request may see.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Admission {
    /// All of it.
    Granted,
    /// Nothing until the token is shown.
    TokenMissing,
    /// Nothing: another token was shown.
    TokenWrong,
    /// Nothing: the certificate names none of those who may read.
    OtherClient,
    /// Nothing: a name of another machine leads here, as a web page could arrange.
    OtherHost,
    /// Nothing: the token cannot be read; says why.
    Unknown(String),
}

impl Access {
    /// The rule for a console that listens there, over TLS with such files, for such clients, where it has some.
    ///
    /// # Errors
    /// Where anyone could read it, or the token is none.
    pub(crate) fn open(
        token_file: Option<&Path>,
        listen: SocketAddr,
        tls: Option<(&TlsFiles, &[String])>,
        clock: Clock,
    ) -> Result<Self, NoAccess> {
        let clients = tls.filter(|(files, _)| files.client_ca.is_some()).map(|(_, clients)| Arc::from(clients));
        let rule = match token_file {
            Some(file) => {
                token(file)?;
                Rule::Token(file.to_owned())
            }
            None if clients.is_some() => Rule::Certificate,
            None if listen.ip().to_canonical().is_loopback() => Rule::ThisMachine,
            None => return Err(NoAccess::Open(listen)),
        };
        let mut key = [0; blake3::KEY_LEN];
        getrandom::fill(&mut key).map_err(|error| NoAccess::Random(error.to_string()))?;
        Ok(Self { rule, clients, key, is_tls: tls.is_some(), fault: Mutex::default(), clock })
    }

    /// Why nobody is let in, as it was when somebody last asked.
    pub(crate) fn fault(&self) -> Option<String> {
        self.fault.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Reads the token; a fault is logged once.
    fn token(&self, file: &Path) -> Result<Hash, String> {
        let read = token(file).map_err(|error| with_causes(&error));
        let mut fault = self.fault.lock().unwrap_or_else(PoisonError::into_inner);
        let now = read.as_ref().err().cloned();
        if let Some(why) = now.as_ref().filter(|_| *fault != now) {
            tracing::warn!(why, "nobody is let into the console");
        }
        *fault = now;
        drop(fault);
        read
    }

    /// Whether browsers show a token.
    pub(crate) const fn has_token(&self) -> bool {
        matches!(self.rule, Rule::Token(_))
    }

    /// Whether a request may ask for anything at all.
    pub(crate) fn host(&self, headers: &HeaderMap, peer: Option<&PeerInfo>) -> Admission {
        if self.clients.as_ref().is_some_and(|clients| !is_client(clients, peer)) {
            return Admission::OtherClient;
        }
        match self.rule {
            Rule::ThisMachine if !is_this_machine(headers) => Admission::OtherHost,
            Rule::ThisMachine | Rule::Token(_) | Rule::Certificate => Admission::Granted,
        }
    }

    /// What a request may see, by what it shows. Reads a file.
    pub(crate) fn admit(&self, headers: &HeaderMap, peer: Option<&PeerInfo>) -> Admission {
        let file = match (self.host(headers, peer), &self.rule) {
            (Admission::Granted, Rule::Token(file)) => file,
            (admission, _) => return admission,
        };
        let token = match self.token(file) {
            Ok(token) => token,
            Err(why) => return Admission::Unknown(why),
        };
        let shown = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok()?.split_once(' '));
        let shown = shown.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer")).map(|(_, token)| token);
        let is_token = shown.is_some_and(|shown| blake3::hash(shown.trim().as_bytes()) == token);
        if is_token || cookies(headers).any(|session| self.is_session(session, token)) {
            Admission::Granted
        } else if shown.is_some() {
            Admission::TokenWrong
        } else {
            Admission::TokenMissing
        }
    }

    /// The cookie for a browser that shows this token; `None` where it is another. Reads a file.
    ///
    /// # Errors
    /// Where the token cannot be read; says why.
    pub(crate) fn session(&self, shown: &str, headers: &HeaderMap) -> Result<Option<String>, String> {
        let Rule::Token(file) = &self.rule else { return Ok(None) };
        let token = self.token(file)?;
        // Hashes are compared in a time that tells nothing.
        if blake3::hash(shown.trim().as_bytes()) != token {
            return Ok(None);
        }
        let until = self.clock.now().as_second().saturating_add(SESSION);
        let session = format!("{until}.{}", self.signature(until, token).to_hex());
        Ok(Some(self.cookie(&session, SESSION, headers)))
    }

    /// The cookie that ends a session.
    pub(crate) fn ended(&self, headers: &HeaderMap) -> String {
        self.cookie("", 0, headers)
    }

    /// A script cannot read it, and no other site's page sends it.
    fn cookie(&self, value: &str, seconds: i64, headers: &HeaderMap) -> String {
        // What a proxy in front says of itself can only make the cookie stricter.
        let is_secure = self.is_tls || headers.get("x-forwarded-proto").is_some_and(|proto| proto == "https");
        let secure = if is_secure { "; Secure" } else { "" };
        format!("{COOKIE}={value}; Path=/console; Max-Age={seconds}; HttpOnly; SameSite=Strict{secure}")
    }

    fn is_session(&self, session: &str, token: Hash) -> bool {
        let Some((until, signature)) = session.split_once('.') else { return false };
        let (Ok(until), Ok(signature)) = (until.parse::<i64>(), Hash::from_hex(signature)) else { return false };
        until > self.clock.now().as_second() && signature == self.signature(until, token)
    }

    /// Holds for one token: with another, sessions of the old one end.
    fn signature(&self, until: i64, token: Hash) -> Hash {
        blake3::keyed_hash(&self.key, format!("{until} {token}").as_bytes())
    }
}

/// The hash of the token of a file.
fn token(file: &Path) -> Result<Hash, NoAccess> {
    let text = read_text(file).map_err(|source| NoAccess::Read(file.to_owned(), source))?;
    let token = text.trim();
    if token.len() < SHORTEST || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(NoAccess::Weak(file.to_owned()));
    }
    Ok(blake3::hash(token.as_bytes()))
}

fn cookies(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let cookies = headers.get_all(header::COOKIE).into_iter().filter_map(|value| value.to_str().ok());
    cookies.flat_map(|value| value.split(';')).filter_map(|one| one.trim().strip_prefix(COOKIE)?.strip_prefix('='))
}

/// Whether a connection's certificate names one of those who may read. Every node has the key of a probe: that is nobody.
fn is_client(clients: &[String], peer: Option<&PeerInfo>) -> bool {
    let is_probe = peer.is_some_and(PeerInfo::is_probe);
    !is_probe && (clients.is_empty() || peer.is_some_and(|peer| peer.is_one_of(clients)))
}

/// Whether a request names this machine as a person at it does: a page of another site can have its own name lead here, and would then be
/// let read the answers.
fn is_this_machine(headers: &HeaderMap) -> bool {
    let mut hosts = headers.get_all(header::HOST).into_iter();
    let (Some(host), None) = (hosts.next(), hosts.next()) else { return false };
    let Ok(host) = host.to_str() else { return false };
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    ["localhost", "127.0.0.1", "[::1]"].iter().any(|known| name.eq_ignore_ascii_case(known))
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;
    use jiff::{SignedDuration, Timestamp};
    use tempfile::TempDir;

    use super::*;
    use crate::clock::VirtualClock;

    const TOKEN: &str = "correct-horse-battery";

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.parse().unwrap(), HeaderValue::from_str(value).unwrap())).collect()
    }

    fn addr(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    fn with_token(text: &str) -> (TempDir, PathBuf) {
        let dir = TempDir::new().unwrap();
        let file = dir.path().join("token");
        std::fs::write(&file, text).unwrap();
        (dir, file)
    }

    #[test]
    fn it_starts_on_loopback_or_with_a_token_and_nowhere_else() {
        for loopback in ["127.0.0.1:8088", "[::1]:8088", "[::ffff:127.0.0.1]:8088"] {
            assert!(
                Access::open(None, addr(loopback), None, Clock::system()).is_ok_and(|access| !access.has_token()),
                "{loopback}"
            );
        }
        for open in ["0.0.0.0:8088", "[::]:8088", "10.0.0.7:8088"] {
            let refused = Access::open(None, addr(open), None, Clock::system()).unwrap_err().to_string();
            assert!(refused.contains(open) && refused.contains("--console-token-file"), "{refused}");
        }
        let (_dir, file) = with_token(&format!("{TOKEN}\n"));
        assert!(Access::open(Some(&file), addr("0.0.0.0:8088"), None, Clock::system()).is_ok_and(|access| access.has_token()));
        for weak in ["", "short\n", "two words of a sentence\n", "sixteen-or-more-\u{e9}\u{e9}\u{e9}"] {
            let (_dir, file) = with_token(weak);
            let refused = Access::open(Some(&file), addr("127.0.0.1:0"), None, Clock::system()).unwrap_err().to_string();
            assert!(refused.contains("at least 16 printable characters"), "{weak}: {refused}");
        }
        // A certificate does for a token, and who cannot be asked for one is asked for the token.
        let files = |client_ca: Option<&str>| TlsFiles {
            cert: "tls.crt".into(),
            key: "tls.key".into(),
            client_ca: client_ca.map(Into::into),
            denied_serials: None,
        };
        let access = Access::open(None, addr("0.0.0.0:8088"), Some((&files(Some("ca.crt")), &[])), Clock::system()).unwrap();
        assert_eq!((access.has_token(), access.admit(&HeaderMap::new(), None)), (false, Admission::Granted));
        assert!(Access::open(None, addr("0.0.0.0:8088"), Some((&files(None), &[])), Clock::system()).is_err());
        let over_tls = Access::open(Some(&file), addr("0.0.0.0:8088"), Some((&files(None), &[])), Clock::system()).unwrap();
        assert!(over_tls.session(TOKEN, &HeaderMap::new()).unwrap().unwrap().ends_with("; Secure"));
        assert_eq!(over_tls.admit(&HeaderMap::new(), None), Admission::TokenMissing);
        let missing = Access::open(Some(Path::new("/nowhere/token")), addr("127.0.0.1:0"), None, Clock::system());
        assert!(matches!(missing, Err(NoAccess::Read(..))));
    }

    /// Any certificate of the authority, or one that names somebody; never a probe's. With a token, both are asked for.
    #[test]
    fn certificates_open_it_by_the_names_that_may_read() {
        let files =
            TlsFiles { cert: "tls.crt".into(), key: "tls.key".into(), client_ca: Some("ca.crt".into()), denied_serials: None };
        let peer = |names: &[&str]| {
            let mut peer = PeerInfo::in_process(addr("10.0.0.7:1"));
            peer.identities = names.iter().map(|name| (*name).to_owned()).collect();
            peer
        };
        let (_dir, file) = with_token(TOKEN);
        let open = |token: Option<&Path>, clients: &[String]| {
            Access::open(token, addr("0.0.0.0:8443"), Some((&files, clients)), Clock::system()).unwrap()
        };
        let admit = |access: &Access, names: &[&str]| access.admit(&HeaderMap::new(), Some(&peer(names)));
        let anyone = open(None, &[]);
        assert_eq!([admit(&anyone, &["ops"]), admit(&anyone, &[])], [Admission::Granted, Admission::Granted]);
        assert_eq!(admit(&anyone, &["ops", "probe:node-1"]), Admission::OtherClient);
        let named = open(None, &["ops".to_owned(), "oncall".to_owned()]);
        assert_eq!([admit(&named, &["x", "oncall"]), admit(&named, &["ops"])], [Admission::Granted, Admission::Granted]);
        assert_eq!([admit(&named, &["ops2"]), admit(&named, &[])], [Admission::OtherClient, Admission::OtherClient]);
        assert_eq!(named.admit(&HeaderMap::new(), None), Admission::OtherClient);
        let both = open(Some(&file), &["ops".to_owned()]);
        let shown = headers(&[("authorization", &format!("Bearer {TOKEN}"))]);
        assert_eq!(both.admit(&shown, Some(&peer(&["ops"]))), Admission::Granted);
        assert_eq!(both.admit(&shown, Some(&peer(&["x"]))), Admission::OtherClient);
        assert_eq!(admit(&both, &["ops"]), Admission::TokenMissing);
    }

    #[test]
    fn on_loopback_only_names_of_this_machine_are_answered() {
        let access = Access::open(None, addr("127.0.0.1:8088"), None, Clock::system()).unwrap();
        for host in ["localhost", "localhost:8088", "LOCALHOST:1", "127.0.0.1:8088", "[::1]:8088", "[::1]"] {
            assert_eq!(access.admit(&headers(&[("host", host)]), None), Admission::Granted, "{host}");
        }
        for host in ["evil.example", "evil.example:8088", "localhost.evil.example", "127.0.0.1.evil.example:8088", "", "::1"] {
            assert_eq!(access.admit(&headers(&[("host", host)]), None), Admission::OtherHost, "{host}");
        }
        assert_eq!(access.admit(&HeaderMap::new(), None), Admission::OtherHost);
        let mut two = headers(&[("host", "localhost")]);
        two.append("host", HeaderValue::from_static("evil.example"));
        assert_eq!(access.admit(&two, None), Admission::OtherHost);
        // It has no sessions.
        assert_eq!(access.session(TOKEN, &HeaderMap::new()), Ok(None));
    }

    #[test]
    fn a_token_or_a_session_of_it_is_let_in_and_nothing_else() {
        let (_dir, file) = with_token(&format!("{TOKEN}\n"));
        let moved = VirtualClock::new(Timestamp::UNIX_EPOCH);
        let clock = Clock::Virtual(Arc::clone(&moved));
        let access = Access::open(Some(&file), addr("0.0.0.0:8088"), None, clock.clone()).unwrap();
        let admit = |pairs: &[(&'static str, &str)]| access.admit(&headers(pairs), None);
        assert_eq!(admit(&[("host", "stoker.example")]), Admission::TokenMissing);
        for scheme in ["Bearer", "bearer"] {
            assert_eq!(admit(&[("authorization", &format!("{scheme} {TOKEN}"))]), Admission::Granted);
        }
        for wrong in [format!("Bearer {TOKEN}x"), "Bearer ".to_owned()] {
            assert_eq!(admit(&[("authorization", &wrong)]), Admission::TokenWrong, "{wrong}");
        }
        for none in [TOKEN.to_owned(), format!("Basic {TOKEN}")] {
            assert_eq!(admit(&[("authorization", &none)]), Admission::TokenMissing, "{none}");
        }

        assert_eq!(access.session("another-token-of-16", &HeaderMap::new()), Ok(None));
        let set = access.session(&format!(" {TOKEN}\n"), &HeaderMap::new()).unwrap().unwrap();
        assert!(set.contains("; HttpOnly; SameSite=Strict") && set.contains("Path=/console;") && !set.contains(TOKEN), "{set}");
        assert!(!set.contains("Secure"), "{set}");
        let behind = access.session(TOKEN, &headers(&[("x-forwarded-proto", "https")])).unwrap().unwrap();
        assert!(behind.ends_with("; Secure"), "{behind}");
        let session = set.split(';').next().unwrap();
        assert_eq!(admit(&[("cookie", session)]), Admission::Granted);
        assert_eq!(admit(&[("cookie", &format!("a=b; {session}; c=d"))]), Admission::Granted);
        let (until, signature) = session.split_once('.').unwrap();
        let late = format!("{COOKIE}=99999999999.{signature}");
        for forged in [until, &format!("{until}.{}", "0".repeat(64)), &late, &format!("other={session}"), "stoker_console="] {
            assert_eq!(admit(&[("cookie", forged)]), Admission::TokenMissing, "{forged}");
        }
        // Another process signs with another key.
        let other = Access::open(Some(&file), addr("0.0.0.0:8088"), None, clock.clone()).unwrap();
        assert_eq!(other.admit(&headers(&[("cookie", session)]), None), Admission::TokenMissing);

        // A session ends, and a new token ends those of the old one.
        moved.advance_to(Timestamp::UNIX_EPOCH + SignedDuration::from_secs(SESSION - 1));
        assert_eq!(admit(&[("cookie", session)]), Admission::Granted);
        std::fs::write(&file, "a-new-token-of-today").unwrap();
        assert_eq!(admit(&[("cookie", session)]), Admission::TokenMissing);
        std::fs::write(&file, TOKEN).unwrap();
        moved.advance_to(Timestamp::UNIX_EPOCH + SignedDuration::from_secs(SESSION));
        assert_eq!(admit(&[("cookie", session)]), Admission::TokenMissing);

        std::fs::remove_file(&file).unwrap();
        assert_eq!(access.fault(), None);
        let Admission::Unknown(why) = admit(&[("cookie", session)]) else { panic!("nobody is let in without a token") };
        assert_eq!(access.fault().as_ref(), Some(&why));
        assert!(why.contains("--console-token-file") && why.contains("cannot be read: "), "{why}");
    }
}
