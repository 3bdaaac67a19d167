//! AWS: spot interruption and rebalance recommendation, by version 2 of the instance metadata service, each a 404 while there is none.
//!
//! Facts: docs.aws.amazon.com/AWSEC2/latest/UserGuide, "Spot Instance interruption notices" (two minutes ahead, to be looked at every
//! 5 s) and "EC2 instance rebalance recommendations". From a pod the service answers only where its hop limit is 2 or the pod is on the
//! host's network.

use std::time::Duration;

use http::{Method, StatusCode};
use jiff::Timestamp;
use serde::Deserialize;
use stoker_proto::probe::interruption::Kind;

use super::http::{Answer, Fault, Service};
use super::{Notice, Source};

pub(super) const PERIOD: Duration = Duration::from_secs(5);
const PATIENCE: Duration = Duration::from_secs(2);
/// Six hours, the longest that the service grants.
const TOKEN_SECONDS: &str = "21600";

pub(super) struct Metadata {
    service: Service,
    token: Option<String>,
}

#[derive(Deserialize)]
struct Action {
    /// `terminate`, `stop` or `hibernate`.
    action: String,
    time: Timestamp,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Recommendation {
    notice_time: Timestamp,
}

impl Metadata {
    pub(super) fn new(service: Service) -> Self {
        Self { service, token: None }
    }
}

impl Source for Metadata {
    async fn standing(&mut self) -> Result<Vec<Notice>, Fault> {
        let mut standing = Vec::new();
        if let Some(Action { action, time }) = self.get("/latest/meta-data/spot/instance-action").await? {
            standing.push(Notice {
                kind: Kind::Reclaim,
                deadline: Some(time),
                detail: format!("spot instance-action {action}"),
            });
        }
        if let Some(Recommendation { notice_time }) = self.get("/latest/meta-data/events/recommendations/rebalance").await? {
            standing.push(Notice {
                kind: Kind::Rebalance,
                deadline: None,
                detail: format!("rebalance recommendation of {notice_time}"),
            });
        }
        Ok(standing)
    }
}

impl Metadata {
    async fn get<T: for<'a> Deserialize<'a>>(&mut self, path: &str) -> Result<Option<T>, Fault> {
        let mut answer = self.ask(path).await?;
        if answer.status == StatusCode::UNAUTHORIZED {
            // The token has run out.
            self.token = None;
            answer = self.ask(path).await?;
        }
        if answer.status == StatusCode::NOT_FOUND {
            return Ok(None);
        }
        let text = answer.success()?;
        serde_json::from_str(&text).map(Some).map_err(|error| Fault::Content(format!("{path}: {error}")))
    }

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
