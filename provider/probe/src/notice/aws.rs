//! AWS: spot interruption and rebalance recommendation, by version 2 of the instance metadata service, each a 404 while there is none.
//!
//! Facts: docs.aws.amazon.com/AWSEC2/latest/UserGuide, "Spot Instance interruption notices" (two minutes ahead, to be looked at every
//! 5 s) and "EC2 instance rebalance recommendations". From a pod the service answers only where its hop limit is 2 or the pod is on the
//! host's network.

use std::time::Duration;

use http::{Method, StatusCode};
use serde::Deserialize;
use stoker_proto::probe::interruption::Kind;

use super::http::{Answer, Fault, Service};
use super::{Notice, Source};

pub(super) const PERIOD: Duration = Duration::from_secs(5);
const PATIENCE: Duration = Duration::from_secs(2);
/// Six hours, the longest that the service grants.
const TOKEN_SECONDS: &str = "21600";

/// Something that is announced at a place of its own: one that does not answer hides nothing of the other.
pub(super) struct Key {
    path: &'static str,
    read: fn(&str) -> Result<Notice, serde_json::Error>,
}

pub(super) static INTERRUPTION: Key = Key {
    path: "/latest/meta-data/spot/instance-action",
    read: |text| {
        let Action { action, time } = serde_json::from_str(text)?;
        // The machine ends, even where nobody can read when.
        let deadline = time.parse().ok();
        Ok(Notice { kind: Kind::Reclaim, deadline, detail: format!("spot instance-action {action} at {time}") })
    },
};

pub(super) static REBALANCE: Key = Key {
    path: "/latest/meta-data/events/recommendations/rebalance",
    read: |text| {
        let Recommendation { notice_time } = serde_json::from_str(text)?;
        Ok(Notice { kind: Kind::Rebalance, deadline: None, detail: format!("rebalance recommendation of {notice_time}") })
    },
};

pub(super) struct Metadata {
    service: Service,
    key: &'static Key,
    token: Option<String>,
}

#[derive(Deserialize)]
struct Action {
    /// `terminate`, `stop` or `hibernate`.
    action: String,
    time: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Recommendation {
    notice_time: String,
}

impl Metadata {
    pub(super) fn new(service: Service, key: &'static Key) -> Self {
        Self { service, key, token: None }
    }
}

impl Source for Metadata {
    async fn standing(&mut self) -> Result<Vec<Notice>, Fault> {
        let Key { path, read } = self.key;
        let mut answer = self.ask(path).await?;
        if answer.status == StatusCode::UNAUTHORIZED {
            // The token has run out.
            self.token = None;
            answer = self.ask(path).await?;
        }
        if answer.status == StatusCode::NOT_FOUND {
            return Ok(Vec::new());
        }
        let notice = read(&answer.success()?).map_err(|error| Fault::Content(format!("{path}: {error}")))?;
        Ok(vec![notice])
    }
}

impl Metadata {
    async fn ask(&mut self, path: &str) -> Result<Answer, Fault> {
        let token = if let Some(token) = &self.token {
            token
        } else {
            let headers = [("x-aws-ec2-metadata-token-ttl-seconds", TOKEN_SECONDS)];
            let answer = self.service.ask(Method::PUT, "/latest/api/token", &headers, PATIENCE).await?;
            self.token.insert(answer.success()?)
        };
        self.service.ask(Method::GET, path, &[("x-aws-ec2-metadata-token", token)], PATIENCE).await
    }
}
