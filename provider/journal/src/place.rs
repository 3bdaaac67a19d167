//! Where a journal is kept, and what messages call it.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use url::Url;

/// Where a journal is kept.
#[derive(Debug, Clone)]
pub enum Place {
    /// In SQLite's files in a state directory, for one replica.
    Directory(PathBuf),
    /// In a PostgreSQL database, which two replicas share.
    Database(DatabaseUrl),
}

impl From<&Path> for Place {
    fn from(dir: &Path) -> Self {
        Self::Directory(dir.to_owned())
    }
}

impl From<&PathBuf> for Place {
    fn from(dir: &PathBuf) -> Self {
        Self::Directory(dir.clone())
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Directory(dir) => write!(f, "{}", dir.display()),
            Self::Database(url) => write!(f, "{url}"),
        }
    }
}

/// The address of a PostgreSQL database: `postgres://ROLE:PASSWORD@HOST:PORT/DATABASE?OPTIONS`. It is shown without its password
/// and its options.
#[derive(Clone, PartialEq, Eq)]
pub struct DatabaseUrl(Url);

/// Parameters that an address may have: the driver warns of others with their values, and goes on.
const PARAMETERS: [&str; 9] = ["sslmode", "sslrootcert", "sslcert", "sslkey", "options", "user", "password", "host", "port"];

/// Why a text is no address of a database.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}: write postgres://ROLE:PASSWORD@HOST/DATABASE")]
pub struct DatabaseUrlError(String);

impl DatabaseUrl {
    /// All of it, for the driver alone.
    pub(crate) const fn with_password(&self) -> &Url {
        &self.0
    }
}

impl FromStr for DatabaseUrl {
    type Err = DatabaseUrlError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        // The text may hold a password, and is in no message.
        let wrong = |why: String| Err(DatabaseUrlError(why));
        if text.is_empty() {
            return wrong("the journal's address is empty".to_owned());
        }
        if !text.contains("://") {
            return wrong("the journal's address is a path, and --state-dir is what keeps it in a directory".to_owned());
        }
        let escaped = "a /, ?, # or @ of the password is written %2F, %3F, %23 or %40";
        let url: Url = match text.parse() {
            Ok(url) => url,
            Err(why) => return wrong(format!("the journal's address cannot be read ({why}; {escaped})")),
        };
        if !matches!(url.scheme(), "postgres" | "postgresql") {
            return wrong(format!("the journal's address begins with {}, which is not PostgreSQL", url.scheme()));
        }
        if url.path().trim_matches('/').is_empty() {
            return wrong("the journal's address names no database".to_owned());
        }
        // Else a part of the password would be taken for the host, and shown.
        if url.path().contains('@') || url.query().is_some_and(|query| query.contains('@')) || url.fragment().is_some() {
            return wrong(format!("the journal's address has an @ or # after its host ({escaped})"));
        }
        if let Some((unknown, _)) = url.query_pairs().find(|(name, _)| !PARAMETERS.contains(&&**name)) {
            return wrong(format!(
                "the journal's address has a parameter {unknown:?}, which is none of {}",
                PARAMETERS.join(", ")
            ));
        }
        Ok(Self(url))
    }
}

impl fmt::Display for DatabaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("postgres://")?;
        if !self.0.username().is_empty() {
            write!(f, "{}@", self.0.username())?;
        }
        f.write_str(self.0.host_str().unwrap_or_default())?;
        if let Some(port) = self.0.port() {
            write!(f, ":{port}")?;
        }
        f.write_str(self.0.path())
    }
}

impl fmt::Debug for DatabaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DatabaseUrl({self})")
    }
}

/// What a message calls a journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Location {
    /// Its file.
    File(PathBuf),
    /// Its database, without the password.
    Database(String),
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "{}", path.display()),
            Self::Database(name) => f.write_str(name),
        }
    }
}

impl Location {
    /// How to give Stoker another journal.
    pub(crate) const fn another(&self) -> &'static str {
        match self {
            Self::File(_) => "another state directory",
            Self::Database(_) => "a database of its own",
        }
    }

    /// How to begin with an empty journal.
    pub(crate) const fn start_afresh(&self) -> &'static str {
        match self {
            Self::File(_) => "move it and its -wal file away",
            Self::Database(_) => "give an empty database",
        }
    }

    /// What to check where it cannot be opened.
    pub(crate) const fn check_access(&self) -> &'static str {
        match self {
            Self::File(_) => "check that this user may write to it and its directory, and that the disk has room",
            Self::Database(_) => "check that PostgreSQL runs there, and the address, the role and its password",
        }
    }

    /// What to check where it cannot be written.
    pub(crate) const fn check_disk(&self) -> &'static str {
        match self {
            Self::File(_) => "check that the disk works and has free space",
            Self::Database(_) => "check that PostgreSQL answers, and that its disk has free space",
        }
    }

    /// What needs a larger volume where the disk is full.
    pub(crate) const fn volume_of(&self) -> &'static str {
        match self {
            Self::File(_) => "the state directory",
            Self::Database(_) => "PostgreSQL",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_shown_nowhere() {
        let url: DatabaseUrl =
            "postgres://stoker:hunter2@db.example:5433/stoker?password=hunter3&sslmode=require".parse().unwrap();
        assert_eq!(url.to_string(), "postgres://stoker@db.example:5433/stoker");
        assert!(!format!("{url:?} {:?}", Place::Database(url.clone())).contains("hunter"));
        assert_eq!(url.with_password().password(), Some("hunter2"));
    }

    #[test]
    fn what_is_no_database_is_refused_with_the_cure_and_without_its_password() {
        for (text, why) in [
            ("mysql://a:hunter2@b/c", "begins with mysql"),
            ("postgres://a:hunter2@b/", "names no database"),
            ("postgres://a:hunter2@b:port/c", "cannot be read"),
            ("/var/lib/stoker", "--state-dir"),
            ("", "is empty"),
            ("postgres://a:123/hunter2@b/c", "after its host"),
            ("postgres://a:hunter2@b/c?pasword=hunter3", "a parameter \"pasword\""),
        ] {
            let error = text.parse::<DatabaseUrl>().unwrap_err().to_string();
            assert!(error.contains(why) && error.contains("write postgres://") && !error.contains("hunter"), "{error}");
        }
    }
}
