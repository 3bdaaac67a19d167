//! GCP: preemption and host maintenance. Both are asked by a question that the service holds back until the value changes.
//!
//! Facts: cloud.google.com/compute/docs, "Preemptible VM instances" (`preempted` turns `TRUE` 30 s ahead), "Monitor and plan for a host
//! maintenance event" (a machine with GPUs is told an hour ahead), "Querying VM metadata" (`wait_for_change`, `last_etag`).

use std::time::Duration;

use http::Method;
use stoker_proto::probe::interruption::Kind;

use super::http::{Fault, Service};
use super::{Notice, Source};

/// How long the service holds a question back, in seconds.
const HELD: u64 = 60;
/// How long is waited for the answer.
const PATIENCE: Duration = Duration::from_secs(HELD + 10);
/// Two answers closer than this are the service's fault: it does not hold the question back.
const APART: Duration = Duration::from_secs(1);

/// A value that is followed.
pub(super) struct Key {
    path: &'static str,
    read: fn(&str) -> Result<Option<Kind>, Fault>,
}

pub(super) static PREEMPTED: Key = Key {
    path: "/computeMetadata/v1/instance/preempted",
    read: |text| match text {
        "TRUE" => Ok(Some(Kind::Reclaim)),
        "FALSE" => Ok(None),
        other => Err(Fault::Content(other.to_owned())),
    },
};

pub(super) static MAINTENANCE: Key = Key {
    path: "/computeMetadata/v1/instance/maintenance-event",
    read: |text| match text {
        "NONE" => Ok(None),
        "MIGRATE_ON_HOST_MAINTENANCE" | "TERMINATE_ON_HOST_MAINTENANCE" => Ok(Some(Kind::Maintenance)),
        other => Err(Fault::Content(other.to_owned())),
    },
};

pub(super) struct Hanging {
    service: Service,
    key: &'static Key,
    /// Of the last value; the first question is answered at once.
    etag: Option<String>,
    asked: Option<tokio::time::Instant>,
}

impl Hanging {
    pub(super) fn new(service: Service, key: &'static Key) -> Self {
        Self { service, key, etag: None, asked: None }
    }
}

impl Source for Hanging {
    async fn standing(&mut self) -> Result<Vec<Notice>, Fault> {
        if let Some(asked) = self.asked {
            tokio::time::sleep_until(asked + APART).await;
        }
        self.asked = Some(tokio::time::Instant::now());
        let path = match &self.etag {
            Some(etag) => format!("{}?wait_for_change=true&timeout_sec={HELD}&last_etag={etag}", self.key.path),
            None => self.key.path.to_owned(),
        };
        let answer = self.service.ask(Method::GET, &path, &[("metadata-flavor", "Google")], PATIENCE).await?;
        let etag = answer.etag.clone();
        let text = answer.success()?;
        let text = text.trim();
        let kind = (self.key.read)(text)?;
        self.etag = etag;
        let detail = format!("{} {text}", self.key.path.rsplit('/').next().unwrap_or_default());
        Ok(kind.map(|kind| Notice { kind, deadline: None, detail }).into_iter().collect())
    }
}
