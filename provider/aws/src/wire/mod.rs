//! Calls to AWS: signed, bounded in time and size, and judged by the code of their error.
//!
//! A client of our own for the dozen calls that are needed. AWS's crate for EC2 alone takes ten minutes and 7 GB to build.

mod cure;
mod failure;
mod form;
mod keys;
mod no_keys;
mod transport;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use aws_sigv4::http_request::{SignableBody, SignableRequest, SigningSettings, sign};
use aws_sigv4::sign::v4;
use jiff::fmt::rfc2822;
use jiff::{SignedDuration, Timestamp};
use serde::de::DeserializeOwned;
use serde_json::Value;
use stoker_core::base::sabotage;
use stoker_core::base::text::with_causes;
use stoker_service::clock::Clock;
use stoker_service::suppliers::{Pace, Turns};
use tokio::time::{Instant, sleep};

pub(crate) use failure::{Class, Failure};
pub(crate) use form::Form;
pub(crate) use keys::{Keys, Role};
pub use transport::{Answer, NoAnswer, Transport, https};

/// How long one call that changes nothing may take.
const READ_WITHIN: Duration = Duration::from_secs(15);

/// How long a call that makes or ends machines may take.
const CHANGED_WITHIN: Duration = Duration::from_secs(30);

/// How often a call that changes nothing is tried, and the longest waits between.
const TRIES: u32 = 4;
const FIRST_WAIT: Duration = Duration::from_millis(200);
const LONGEST_WAIT: Duration = Duration::from_secs(5);

/// Calls a second, and at once after a pause, that change nothing: half of what EC2 gives an account in a region.
const READS: (f64, u32) = (10.0, 50);

/// Most pages of an answer.
pub(crate) const MOST_PAGES: usize = 100;

/// By how much the machine's clock may differ from AWS's: it refuses signatures that are five minutes off.
const SKEW: SignedDuration = SignedDuration::from_mins(4);

/// A service of AWS.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Service {
    /// Instances, subnets, reservations.
    Ec2,
    /// Who the credentials are.
    Sts,
    /// The cluster's endpoint and version.
    Eks,
    /// The newest images.
    Ssm,
    /// Notices.
    Sqs,
    /// List prices.
    Pricing,
    /// Quotas.
    ServiceQuotas,
    /// How much of quotas is used.
    CloudWatch,
    /// Savings plans.
    SavingsPlans,
}

impl Service {
    /// Each, by its key under `endpoints` in `aws.yaml`.
    pub(crate) const BY_KEY: [(&str, Self); 9] = [
        ("ec2", Self::Ec2),
        ("sts", Self::Sts),
        ("eks", Self::Eks),
        ("ssm", Self::Ssm),
        ("sqs", Self::Sqs),
        ("service-quotas", Self::ServiceQuotas),
        ("pricing", Self::Pricing),
        ("cloud-watch", Self::CloudWatch),
        ("savings-plans", Self::SavingsPlans),
    ];

    /// Its name in signatures.
    const fn signing_name(self) -> &'static str {
        match self {
            Self::Ec2 => "ec2",
            Self::Sts => "sts",
            Self::Eks => "eks",
            Self::Ssm => "ssm",
            Self::Sqs => "sqs",
            Self::Pricing => "pricing",
            Self::ServiceQuotas => "servicequotas",
            Self::CloudWatch => "monitoring",
            Self::SavingsPlans => "savingsplans",
        }
    }

    /// Its name in addresses.
    pub(crate) const fn host(self) -> &'static str {
        match self {
            Self::Pricing => "api.pricing",
            other => other.signing_name(),
        }
    }

    /// What its JSON calls begin with, and their version.
    const fn target(self) -> (&'static str, &'static str) {
        match self {
            Self::Ssm => ("AmazonSSM", "1.1"),
            Self::Sqs => ("AmazonSQS", "1.0"),
            Self::Pricing => ("AWSPriceListService", "1.1"),
            Self::ServiceQuotas => ("ServiceQuotasV20190624", "1.1"),
            Self::Ec2 | Self::Sts | Self::Eks | Self::CloudWatch | Self::SavingsPlans => ("", "1.1"),
        }
    }
}

/// Where services are reached that are not at their own address: endpoints of a VPC, and peers of tests.
pub type Endpoints = BTreeMap<Service, String>;

/// One account in one region, as calls are made to it.
pub(crate) struct Api {
    transport: Transport,
    keys: Keys,
    region: String,
    endpoints: Endpoints,
    clock: Clock,
    reads: Turns,
    /// By how much AWS's clock was ahead of this machine's when it was last heard.
    skew: Mutex<SignedDuration>,
    /// Actions that IAM did not allow.
    denied: Mutex<BTreeSet<String>>,
}

/// A call, before it is signed.
struct Call<'a> {
    service: Service,
    region: &'a str,
    action: &'static str,
    method: http::Method,
    path: &'a str,
    headers: Vec<(&'static str, String)>,
    body: Vec<u8>,
    within: Duration,
}

impl Api {
    pub(crate) fn new(transport: Transport, keys: Keys, region: &str, endpoints: Endpoints, clock: Clock) -> Self {
        Self {
            transport,
            keys,
            region: region.to_owned(),
            endpoints,
            clock,
            reads: Turns::default(),
            skew: Mutex::default(),
            denied: Mutex::default(),
        }
    }

    /// The region.
    pub(crate) fn region(&self) -> &str {
        &self.region
    }

    /// The time by this machine.
    pub(crate) fn now(&self) -> Timestamp {
        self.clock.times().wall.0
    }

    /// The access key that calls are signed with now.
    pub(crate) async fn access_key(&self) -> Result<String, Failure> {
        let credentials = self.keys.now().await.map_err(Failure::NoCredentials)?;
        Ok(credentials.access_key_id().to_owned())
    }

    /// By how much AWS's clock is ahead of this machine's, where calls fail by it.
    fn skew(&self) -> Option<SignedDuration> {
        let skew = *self.skew.lock().unwrap_or_else(PoisonError::into_inner);
        (skew.abs() > SKEW).then_some(skew)
    }

    /// That this machine's clock differs from AWS's, where calls fail by it.
    pub(crate) fn clock_fault(&self) -> Option<String> {
        let skew = self.skew()?;
        let side = if skew.is_negative() { "behind" } else { "ahead of" };
        let seconds = skew.as_secs().abs();
        Some(format!("AWS's clock is {seconds} s {side} this machine's: set it, as calls are refused for it"))
    }

    /// A question to EC2 whose answer may have several pages: `take` takes each, and says what the next is called. Pages beyond
    /// [`MOST_PAGES`] go round in circles.
    pub(crate) async fn pages<T: DeserializeOwned>(
        &self,
        all: &Form,
        mut take: impl FnMut(T) -> Option<String>,
    ) -> Result<(), Failure> {
        let mut page = all.clone();
        for _ in 0..MOST_PAGES {
            let Some(next) = take(self.ask(Service::Ec2, &page).await?) else { break };
            page = all.clone().with("NextToken", next);
        }
        Ok(())
    }

    /// A call of the query protocol that changes nothing, tried again where that helps.
    pub(crate) async fn ask<T: DeserializeOwned>(&self, service: Service, form: &Form) -> Result<T, Failure> {
        let answer = self.read(&self.query(service, form, READ_WITHIN)).await?;
        parsed(form.action, &answer)
    }

    /// A call of EC2 that makes or ends machines, once. Where the credentials did not count, once more with new ones.
    pub(crate) async fn change<T: DeserializeOwned>(&self, form: &Form) -> Result<T, Failure> {
        let call = self.query(Service::Ec2, form, CHANGED_WITHIN);
        let answer = match self.once(&call).await {
            Err(Failure::Said(said)) if said.status >= 500 && sabotage::on("aws-retry-on-500") => self.once(&call).await,
            answer => answer,
        };
        parsed(form.action, &answer?)
    }

    /// A call of a JSON protocol that changes nothing, tried again where that helps.
    pub(crate) async fn ask_json<T: DeserializeOwned>(
        &self,
        service: Service,
        action: &'static str,
        body: &Value,
    ) -> Result<T, Failure> {
        let answer = self.read(&self.json(service, action, body, READ_WITHIN)).await?;
        parsed_json(action, &answer)
    }

    /// A call of a JSON protocol, once, which may take that long.
    pub(crate) async fn json_once<T: DeserializeOwned>(
        &self,
        service: Service,
        action: &'static str,
        body: &Value,
        within: Duration,
    ) -> Result<T, Failure> {
        let answer = self.once(&self.json(service, action, body, within)).await?;
        parsed_json(action, &answer)
    }

    /// A call of a REST service in a region of its own, which reads what is at `path`.
    pub(crate) async fn get<T: DeserializeOwned>(
        &self,
        service: Service,
        action: &'static str,
        region: &str,
        path: &str,
    ) -> Result<T, Failure> {
        let call = Call {
            service,
            region,
            action,
            method: http::Method::GET,
            path,
            headers: Vec::new(),
            body: Vec::new(),
            within: READ_WITHIN,
        };
        parsed_json(action, &self.read(&call).await?)
    }

    /// A call of a REST service that is one for all regions, which reads by a body at the path of its action.
    pub(crate) async fn ask_rest<T: DeserializeOwned>(
        &self,
        service: Service,
        action: &'static str,
        body: &Value,
    ) -> Result<T, Failure> {
        let headers = vec![("content-type", "application/json".to_owned())];
        let (path, body) = (format!("/{action}"), body.to_string().into_bytes());
        let (region, method) = ("us-east-1", http::Method::POST);
        let call = Call { service, region, action, method, path: &path, headers, body, within: READ_WITHIN };
        parsed_json(action, &self.read(&call).await?)
    }

    fn query(&self, service: Service, form: &Form, within: Duration) -> Call<'_> {
        let headers = vec![("content-type", "application/x-www-form-urlencoded; charset=utf-8".to_owned())];
        let (region, action, body) = (self.region.as_str(), form.action, form.encoded());
        Call { service, region, action, method: http::Method::POST, path: "/", headers, body, within }
    }

    fn json(&self, service: Service, action: &'static str, body: &Value, within: Duration) -> Call<'_> {
        let (target, version) = service.target();
        let headers =
            vec![("content-type", format!("application/x-amz-json-{version}")), ("x-amz-target", format!("{target}.{action}"))];
        // List prices are kept in few regions, for all of them.
        let region = if service == Service::Pricing { "us-east-1" } else { &self.region };
        let body = body.to_string().into_bytes();
        Call { service, region, action, method: http::Method::POST, path: "/", headers, body, within }
    }

    /// Tries a call that changes nothing, with growing waits between.
    async fn read(&self, call: &Call<'_>) -> Result<Vec<u8>, Failure> {
        let mut tried = 1;
        loop {
            if call.service == Service::Ec2 {
                self.reads.wait(Pace::per_second(READS.0, READS.1)).await;
            }
            let failure = match self.once(call).await {
                Ok(answer) => return Ok(answer),
                Err(failure) => failure,
            };
            if tried == TRIES || !matches!(failure.class(), Class::Throttled | Class::Transient) {
                return Err(failure);
            }
            let most = FIRST_WAIT.saturating_mul(1 << tried).min(LONGEST_WAIT);
            sleep(jitter(most)).await;
            tried += 1;
        }
    }

    /// Makes a call once; with new credentials once more where AWS did not take them.
    async fn once(&self, call: &Call<'_>) -> Result<Vec<u8>, Failure> {
        let first = self.signed(call).await;
        match first {
            Err(Failure::Said(said)) if said.class() == Class::Credentials => {
                self.keys.forget();
                self.signed(call).await
            }
            other => other,
        }
    }

    /// Actions that IAM did not allow so far.
    pub(crate) fn denied(&self) -> BTreeSet<String> {
        self.denied.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    async fn signed(&self, call: &Call<'_>) -> Result<Vec<u8>, Failure> {
        let credentials = self.keys.now().await.map_err(Failure::NoCredentials)?;
        let request = self.request(call, credentials).map_err(|why| Failure::NotSent { action: call.action, why })?;
        let begun = Instant::now();
        let answer = (self.transport)(request, call.within).await.map_err(|NoAnswer { sent, why }| {
            let action = call.action;
            if sent { Failure::NoAnswer { action, why } } else { Failure::NotSent { action, why } }
        })?;
        self.look_at_the_clock(&answer, begun.elapsed());
        if answer.status().is_success() {
            return Ok(answer.into_body());
        }
        let failure = failure::of_answer(call.action, &answer);
        self.denied.lock().unwrap_or_else(PoisonError::into_inner).extend(failure.denied());
        Err(failure)
    }

    fn request(
        &self,
        call: &Call<'_>,
        credentials: aws_credential_types::Credentials,
    ) -> Result<http::Request<Vec<u8>>, String> {
        let region = call.region;
        let address = self.endpoints.get(&call.service).cloned().unwrap_or_else(|| {
            let suffix = if region.starts_with("cn-") { "amazonaws.com.cn" } else { "amazonaws.com" };
            let host = call.service.host();
            // One for all regions.
            if call.service == Service::SavingsPlans {
                format!("https://{host}.{suffix}")
            } else {
                format!("https://{host}.{region}.{suffix}")
            }
        });
        let mut request = http::Request::builder().method(&call.method).uri(format!("{address}{}", call.path));
        for (name, value) in &call.headers {
            request = request.header(*name, value);
        }
        let mut request = request.body(call.body.clone()).map_err(|error| error.to_string())?;
        let identity = credentials.into();
        let params = v4::SigningParams::builder()
            .identity(&identity)
            .region(region)
            .name(call.service.signing_name())
            .time(SystemTime::from(self.now()))
            .settings(SigningSettings::default())
            .build()
            .map_err(|error| with_causes(&error))?;
        let headers = request.headers().iter().filter_map(|(name, value)| Some((name.as_str(), value.to_str().ok()?)));
        let uri = request.uri().to_string();
        let signable = SignableRequest::new(call.method.as_str(), uri, headers, SignableBody::Bytes(&call.body));
        let signed = signable.and_then(|signable| sign(signable, &params.into())).map_err(|error| with_causes(&error))?;
        let (instructions, _) = signed.into_parts();
        instructions.apply_to_request_http1x(&mut request);
        Ok(request)
    }

    /// Compares AWS's clock with this machine's: the answer was written while the call ran.
    fn look_at_the_clock(&self, answer: &http::Response<Vec<u8>>, took: Duration) {
        let date = answer.headers().get(http::header::DATE).and_then(|date| date.to_str().ok());
        let Some(theirs) = date.and_then(|date| rfc2822::parse(date).ok()) else { return };
        let ahead = theirs.timestamp().duration_since(self.now());
        let took = SignedDuration::try_from(took).unwrap_or(SignedDuration::MAX);
        let skew = if ahead < SignedDuration::ZERO { (ahead + took).min(SignedDuration::ZERO) } else { ahead };
        *self.skew.lock().unwrap_or_else(PoisonError::into_inner) = skew;
    }
}

impl std::fmt::Debug for Api {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Api").field(&self.region).finish()
    }
}

/// Some part of `most`, so that many who failed together do not come again together.
fn jitter(most: Duration) -> Duration {
    let mut part = [u8::MAX];
    // Without chance they come together.
    let _ = getrandom::fill(&mut part);
    most.mul_f64(f64::from(part[0]) / f64::from(u8::MAX))
}

/// An answer that cannot be read is none: nobody knows what it said.
fn parsed<T: DeserializeOwned>(action: &'static str, answer: &[u8]) -> Result<T, Failure> {
    let text = std::str::from_utf8(answer).map_err(|_| unreadable(action, &"not UTF-8"))?;
    // A page of a proxy would be read as an answer in which everything is missing.
    let expected = format!("{action}Response");
    let root = text.split('<').find(|part| part.starts_with(|c: char| c.is_ascii_alphabetic())).unwrap_or_default();
    if !root.starts_with(&expected) {
        return Err(unreadable(action, &format!("not {expected}, but {:?}", root.chars().take(40).collect::<String>())));
    }
    quick_xml::de::from_str(text).map_err(|error| unreadable(action, &error))
}

fn parsed_json<T: DeserializeOwned>(action: &'static str, answer: &[u8]) -> Result<T, Failure> {
    // Some answers without content have no body.
    let answer = if answer.is_empty() { b"{}" } else { answer };
    serde_json::from_slice(answer).map_err(|error| unreadable(action, &error))
}

fn unreadable(action: &'static str, why: &dyn std::fmt::Display) -> Failure {
    Failure::NoAnswer { action, why: format!("the answer cannot be read: {why}") }
}

#[cfg(test)]
mod tests;
