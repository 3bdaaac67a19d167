//! Requests as the protocols of AWS carry them: who asks which service of which region for what.

use std::collections::BTreeMap;

use http::request::Parts;
use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use serde_json::Value;

use crate::reply::Refusal;

/// How far a request's time may be from the peer's, in seconds.
const SKEW: i64 = 300;

/// Parameters of a call by name.
pub type Params = BTreeMap<String, String>;

/// How a service writes its answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Protocol {
    /// XML with EC2's errors.
    Ec2,
    /// XML with the errors of other query services.
    Query,
    /// JSON with the action in a header.
    Json,
    /// JSON with the action in the path.
    Rest,
}

/// A call as it came.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    pub(crate) protocol: Protocol,
    /// The access key id; empty without a signature.
    pub(crate) key: String,
    /// The account of the key, once it is known.
    pub(crate) account: String,
    pub(crate) service: String,
    pub(crate) region: String,
    pub(crate) action: String,
    pub(crate) params: Params,
    pub(crate) body: Value,
    /// When the request says that it was made.
    stamp: Option<Timestamp>,
    /// Whether the signature covers what it must.
    covers: bool,
}

impl Asked {
    pub(crate) fn read(parts: &Parts, body: &[u8]) -> Self {
        let header = |name: &str| parts.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let authorization = header("authorization").strip_prefix("AWS4-HMAC-SHA256 ").unwrap_or_default();
        let field = |name: &str| {
            let mut fields = authorization.split(',').map(str::trim);
            fields.find_map(|field| field.strip_prefix(name)).unwrap_or_default()
        };
        let mut scope = field("Credential=").split('/');
        let mut next = || scope.next().unwrap_or_default().to_owned();
        let (key, _date, region, service) = (next(), next(), next(), next());
        let covered: Vec<&str> = field("SignedHeaders=").split(';').collect();
        let covers = !field("Signature=").is_empty() && ["host", "x-amz-date"].iter().all(|name| covered.contains(name));
        let target = header("x-amz-target");
        let path = parts.uri.path();
        let (protocol, action, params, body) = if let Some((_, action)) = target.rsplit_once('.') {
            let body: Value = serde_json::from_slice(body).unwrap_or_default();
            (Protocol::Json, action.to_owned(), fields(&body), body)
        } else if matches!(service.as_str(), "eks" | "savingsplans") || path != "/" {
            let body: Value = serde_json::from_slice(body).unwrap_or_default();
            let (action, name) = match path.trim_start_matches('/').split_once('/') {
                Some(("clusters", name)) => ("DescribeCluster".to_owned(), Some(unescaped(name))),
                _ => (path.trim_start_matches('/').to_owned(), None),
            };
            let mut params = fields(&body);
            params.extend(name.map(|name| ("name".to_owned(), name)));
            (Protocol::Rest, action, params, body)
        } else {
            let mut params = form(&String::from_utf8_lossy(body));
            let action = params.remove("Action").unwrap_or_default();
            let protocol = if service == "ec2" || service.is_empty() { Protocol::Ec2 } else { Protocol::Query };
            (protocol, action, params, Value::Null)
        };
        let stamp = DateTime::strptime("%Y%m%dT%H%M%SZ", header("x-amz-date")).ok();
        let stamp = stamp.and_then(|stamp| stamp.to_zoned(TimeZone::UTC).ok()).map(|stamp| stamp.timestamp());
        Self { protocol, key, account: String::new(), service, region, action, params, body, stamp, covers }
    }

    /// Learns whose call it is; refuses one that is not signed, not of now or of nobody.
    pub(crate) fn authenticate(&mut self, accounts: &BTreeMap<String, String>, now: Timestamp) -> Result<(), Refusal> {
        let (protocol, refuse) = (self.protocol, |status, code, message| Err(Refusal::new(status, code, message)));
        let not_valid = "AWS was not able to validate the provided access credentials";
        if self.key.is_empty() {
            return match protocol {
                Protocol::Ec2 => refuse(401, "AuthFailure", not_valid),
                Protocol::Query | Protocol::Rest => refuse(403, "MissingAuthenticationToken", "Missing Authentication Token"),
                Protocol::Json => refuse(400, "MissingAuthenticationTokenException", "Missing Authentication Token"),
            };
        }
        let Some(account) = accounts.get(&self.key) else {
            return match protocol {
                Protocol::Ec2 => refuse(401, "AuthFailure", not_valid),
                Protocol::Query => {
                    refuse(403, "InvalidClientTokenId", "The security token included in the request is invalid.")
                }
                Protocol::Rest => {
                    refuse(403, "UnrecognizedClientException", "The security token included in the request is invalid.")
                }
                Protocol::Json => {
                    refuse(400, "UnrecognizedClientException", "The security token included in the request is invalid.")
                }
            };
        };
        self.account.clone_from(account);
        let late = self.stamp.map(|stamp| now.as_second() - stamp.as_second());
        match (protocol, late) {
            (_, Some(late)) if late.abs() <= SKEW && self.covers => Ok(()),
            (Protocol::Ec2, Some(late)) if late > SKEW => refuse(400, "RequestExpired", "Request has expired."),
            (Protocol::Ec2, _) => refuse(401, "AuthFailure", not_valid),
            (Protocol::Query, _) => refuse(403, "SignatureDoesNotMatch", "Signature expired or not yet current"),
            (Protocol::Rest, _) => refuse(403, "InvalidSignatureException", "Signature expired or not yet current"),
            (Protocol::Json, _) => refuse(400, "InvalidSignatureException", "Signature expired or not yet current"),
        }
    }

    /// A parameter that is not empty.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.params.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// The values of `name.1`, `name.2` and so on, by number.
    pub(crate) fn list(&self, name: &str) -> Vec<&str> {
        let numbered = self.params.iter().filter_map(|(key, value)| {
            let number: u32 = key.strip_prefix(name)?.strip_prefix('.')?.parse().ok()?;
            Some((number, value.as_str()))
        });
        let values: BTreeMap<u32, &str> = numbered.collect();
        values.into_values().collect()
    }

    /// The prefixes `name.1`, `name.2` and so on of a list of structures, by number.
    pub(crate) fn structures(&self, name: &str) -> Vec<String> {
        let numbers = self.params.keys().filter_map(|key| {
            let number = key.strip_prefix(name)?.strip_prefix('.')?.split_once('.')?.0;
            number.parse::<u32>().ok()
        });
        let numbers: std::collections::BTreeSet<u32> = numbers.collect();
        numbers.into_iter().map(|number| format!("{name}.{number}")).collect()
    }

    /// The filters by name, with their values.
    pub(crate) fn filters(&self) -> Vec<(String, Vec<String>)> {
        let filters = self.structures("Filter").into_iter().filter_map(|filter| {
            let values = self.list(&format!("{filter}.Value")).into_iter().map(ToOwned::to_owned).collect();
            Some((self.get(&format!("{filter}.Name"))?.to_owned(), values))
        });
        filters.collect()
    }

    /// Whether a parameter has a value. `Filter.NAME` means the values of that filter, joined with commas; an empty value matches what is
    /// not there, and a `*` at the end anything that begins so.
    pub(crate) fn has(&self, name: &str, wanted: &str) -> bool {
        let filter = name.strip_prefix("Filter.").and_then(|name| self.filters().into_iter().find(|(of, _)| of == name));
        let value = filter.map(|(_, values)| values.join(","));
        let value = value.or_else(|| self.get(name).map(ToOwned::to_owned)).unwrap_or_default();
        match wanted.strip_suffix('*') {
            Some(start) => !value.is_empty() && value.starts_with(start),
            None => value == wanted,
        }
    }

    /// Whether a parameter is `true`.
    pub(crate) fn is_true(&self, name: &str) -> bool {
        self.get(name) == Some("true")
    }
}

/// The top fields of a JSON body as text.
fn fields(body: &Value) -> Params {
    let fields = body.as_object().into_iter().flatten();
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), ToOwned::to_owned);
    fields.map(|(name, value)| (name.clone(), text(value))).collect()
}

/// A form's fields.
fn form(body: &str) -> Params {
    let pairs = body.trim().split('&').filter(|pair| !pair.is_empty());
    let pairs = pairs.map(|pair| pair.split_once('=').unwrap_or((pair, "")));
    pairs.map(|(name, value)| (unescaped(name), unescaped(value))).collect()
}

fn unescaped(text: &str) -> String {
    let mut bytes = text.bytes();
    let mut plain = Vec::with_capacity(text.len());
    while let Some(byte) = bytes.next() {
        match byte {
            b'+' => plain.push(b' '),
            b'%' => {
                let digit = |byte: Option<u8>| byte.and_then(|byte| char::from(byte).to_digit(16)).unwrap_or_default();
                let value = digit(bytes.next()) * 16 + digit(bytes.next());
                plain.push(u8::try_from(value).unwrap_or_default());
            }
            byte => plain.push(byte),
        }
    }
    String::from_utf8_lossy(&plain).into_owned()
}
