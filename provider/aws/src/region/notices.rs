//! Notices: which machines EC2 takes back, and when. From a queue where there is one, else from the Spot requests.

use std::sync::Weak;
use std::time::Duration;

use futures::future::join_all;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use stoker_core::catalogue::template::CLUSTER_LABEL;
use tokio::time::{Instant, sleep};

use super::RegionSupplier;
use super::facts::moment;
use crate::answers::{Event, Message, Messages, QueueUrl, SpotRequests};
use crate::wire::{Failure, Form, Service};

/// How long EC2 leaves a spot machine after its notice.
const SPOT_LEAVES: SignedDuration = SignedDuration::from_secs(120);

/// How long a queue holds a question that has no answer yet, in seconds: the longest that SQS takes.
const HELD: u32 = 20;

/// How long the answer to such a question may take.
const ANSWERED_WITHIN: Duration = Duration::from_secs(30);

/// Messages of an answer: the most that SQS gives.
const MESSAGES: u32 = 10;

/// How often the Spot requests are asked where there is no queue.
const POLLED_EVERY: Duration = Duration::from_secs(10);

/// How long to leave a queue alone that cannot be read.
const AGAIN_AFTER: Duration = Duration::from_secs(10);

/// How long after its moment an event still says anything.
const LATE: SignedDuration = SignedDuration::from_secs(60);

/// How long before AWS's people take a machine for maintenance it is emptied.
pub(super) const MAINTENANCE_AHEAD: SignedDuration = SignedDuration::from_mins(15);

/// How many moments are remembered: far more than machines that go at once.
const MOST_RECLAIMS: usize = 20_000;

/// A machine that will be taken back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Reclaim {
    pub(super) at: Timestamp,
    /// When it begins to count: work is not driven off days before.
    pub(super) from: Timestamp,
}

/// Follows notices as long as there is a region to tell.
pub(super) async fn follow(region: Weak<RegionSupplier>) {
    let mut queue = None;
    loop {
        let Some(region) = region.upgrade() else { return };
        let pause = if let Some(name) = &region.config.queue {
            if let Err(failure) = region.receive(name, &mut queue).await {
                let is_new = region.known().notices_failed.is_none();
                let fault = format!("queue {name} cannot be read, so the Spot requests are asked: {}", failure.with_cure());
                if is_new {
                    tracing::warn!(region = %region.name, "{fault}");
                }
                queue = None;
                region.known().notices_failed = Some(fault);
                let _ = region.poll().await;
                AGAIN_AFTER
            } else {
                region.known().notices_failed = None;
                Duration::ZERO
            }
        } else {
            let polled = region.poll().await;
            region.known().notices_failed = polled.err().map(|failure| format!("the Spot requests cannot be asked: {failure}"));
            POLLED_EVERY
        };
        // Not held while it sleeps: the region may end.
        drop(region);
        sleep(pause).await;
    }
}

impl RegionSupplier {
    /// Takes what a queue has, and deletes it once it is told.
    async fn receive(&self, name: &str, queue: &mut Option<String>) -> Result<(), Failure> {
        // What is taken from another account's queue is gone there.
        self.account().await?;
        let url = if let Some(url) = queue {
            url.clone()
        } else {
            let found: QueueUrl = self.api.ask_json(Service::Sqs, "GetQueueUrl", &json!({ "QueueName": name })).await?;
            queue.insert(found.url).clone()
        };
        let asked =
            json!({ "QueueUrl": url, "MaxNumberOfMessages": MESSAGES, "WaitTimeSeconds": HELD, "VisibilityTimeout": HELD });
        let begun = Instant::now();
        let Messages { messages } = self.api.json_once(Service::Sqs, "ReceiveMessage", &asked, ANSWERED_WITHIN).await?;
        if messages.is_empty() && begun.elapsed() < Duration::from_secs(1) {
            // A queue that does not hold questions would be asked without end.
            sleep(Duration::from_secs(1)).await;
        }
        for message in &messages {
            match serde_json::from_str(&message.body) {
                Ok(event) => self.take(&event),
                Err(error) => tracing::warn!(region = %self.name, %error, "a message of the queue is no event; it is deleted"),
            }
        }
        // At once: where many machines are taken back, the next messages wait for this.
        join_all(messages.iter().map(|message| self.delete(&url, message))).await;
        Ok(())
    }

    /// Deletes a message. What is not deleted comes again, and says the same.
    async fn delete(&self, url: &str, message: &Message) {
        let done = json!({ "QueueUrl": url, "ReceiptHandle": message.receipt_handle });
        let deleted = self.api.json_once::<Value>(Service::Sqs, "DeleteMessage", &done, ANSWERED_WITHIN).await;
        if let Err(failure) = deleted {
            tracing::warn!(region = %self.name, %failure, "a message cannot be deleted; it comes again");
        }
    }

    /// Takes an event. One of a kind that says nothing of machines is left.
    pub(super) fn take(&self, event: &Event) {
        let now = self.api.now();
        let at = event.time.as_deref().and_then(moment).unwrap_or(now);
        let after = |at: Timestamp, wait| at.saturating_add(wait).unwrap_or(at);
        match event.detail_type.as_str() {
            "EC2 Spot Instance Interruption Warning" => self.reclaimed(event.text("instance-id"), after(at, SPOT_LEAVES)),
            "EC2 Capacity Reservation Instance Interruption Warning" => {
                let ends = event.text("instance-termination-time").and_then(moment).unwrap_or_else(|| after(at, SPOT_LEAVES));
                self.reclaimed(event.text("instance-id"), ends);
            }
            "AWS Health Event" => self.take_health(event),
            "EC2 Instance State-change Notification" => self.known().stale_since = Some(Instant::now()),
            // A rebalance recommendation: most such machines stay. A block that ends: the clock says so too.
            _ => {}
        }
    }

    /// Maintenance that AWS has planned: the machine goes at its start.
    fn take_health(&self, event: &Event) {
        if event.text("service") != Some("EC2") || event.text("eventTypeCategory") != Some("scheduledChange") {
            return;
        }
        let begins = event
            .text("startTime")
            .and_then(|at| moment(at).or_else(|| jiff::fmt::rfc2822::parse(at).ok().map(|zoned| zoned.timestamp())));
        let Some(begins) = begins else { return };
        let from = begins.saturating_sub(MAINTENANCE_AHEAD).unwrap_or(begins);
        let affected = event.detail.get("affectedEntities").and_then(|all| all.as_array());
        for entity in affected.into_iter().flatten() {
            self.reclaimed_from(entity.get("entityValue").and_then(|id| id.as_str()), Reclaim { at: begins, from });
        }
    }

    /// A machine is taken back at a moment, and nothing is to begin on it any more.
    fn reclaimed(&self, id: Option<&str>, at: Timestamp) {
        self.reclaimed_from(id, Reclaim { at, from: Timestamp::MIN });
    }

    /// A machine is taken back. The earliest word holds; the listing tells whose it is.
    fn reclaimed_from(&self, id: Option<&str>, reclaim: Reclaim) {
        let now = self.api.now();
        let Some(id) = id.filter(|_| now.duration_since(reclaim.at) <= LATE) else { return };
        let mut known = self.known();
        known.reclaims.retain(|_, reclaim| now.duration_since(reclaim.at) <= SignedDuration::from_mins(10));
        if known.reclaims.get(id).is_some_and(|before| before.at <= reclaim.at) || known.reclaims.len() >= MOST_RECLAIMS {
            return;
        }
        known.reclaims.insert(id.to_owned(), reclaim);
        drop(known);
        self.changed.notify_one();
    }

    /// Asks the Spot requests which machines are taken back. They say that a machine has ended while it still has its two minutes.
    async fn poll(&self) -> Result<(), Failure> {
        self.account().await?;
        let codes = ["instance-terminated-no-capacity", "instance-terminated-by-price", "marked-for-termination"];
        let all = Form::ec2("DescribeSpotInstanceRequests")
            .filter(&format!("tag:{CLUSTER_LABEL}"), [self.cluster.as_str()])
            .filter("status-code", codes)
            .with("MaxResults", "1000");
        let take = |page: SpotRequests| {
            for request in page.spot_instance_request_set {
                let marked = request.status.update_time.as_deref().and_then(moment).unwrap_or_else(|| self.api.now());
                self.reclaimed(request.instance_id.as_deref(), marked.saturating_add(SPOT_LEAVES).unwrap_or(marked));
            }
            page.next_token
        };
        self.api.pages(&all, take).await
    }
}
