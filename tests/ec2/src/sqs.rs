//! Queues: messages that are received, hidden for a while, and deleted.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::Peer;
use crate::region::{Message, Queue};
use crate::reply::Refusal;
use crate::request::Asked;
use crate::world::World;

/// How often a long poll looks for messages that are hidden no more.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// How long a received message is hidden unless the call says otherwise, in seconds.
const HIDDEN: u64 = 30;

impl Queue {
    /// Messages that a receiver sees.
    fn visible(&self, now: Timestamp) -> impl Iterator<Item = &Message> {
        let kept = self.messages.iter().filter(move |message| message.sent + self.retention > now);
        kept.filter(move |message| message.hidden_until <= now)
    }
}

impl World {
    /// Puts a message on every queue of that name, in whichever region of the home account.
    fn send(&mut self, queue: &str, body: &str) {
        let now = self.now();
        let id = format!("00000000-0000-4000-9000-{:012x}", self.next_number());
        let message = Message { id, body: body.to_owned(), sent: now, hidden_until: now, receipt: None };
        let of_home = self.regions.iter_mut().filter(|((account, _), _)| *account == self.account);
        for queue in of_home.filter_map(|(_, region)| region.queues.get_mut(queue)) {
            queue.messages.push(message.clone());
        }
    }

    fn queue(&mut self, asked: &Asked) -> Result<&mut Queue, Refusal> {
        let url = asked.get("QueueUrl").or(asked.get("QueueName")).unwrap_or_default();
        let name = url.rsplit('/').next().unwrap_or_default();
        let region = self.regions.get_mut(&(asked.account.clone(), asked.region.clone()));
        let queue = region.and_then(|region| region.queues.get_mut(name));
        queue.ok_or_else(|| Refusal::bad("QueueDoesNotExist", "The specified queue does not exist."))
    }

    /// Does a call to SQS.
    pub(crate) fn sqs(&mut self, asked: &Asked, now: Timestamp) -> Result<Value, Refusal> {
        match asked.action.as_str() {
            "GetQueueUrl" => {
                self.queue(asked)?;
                let name = asked.get("QueueName").unwrap_or_default();
                Ok(json!({ "QueueUrl": format!("https://sqs.{}.amazonaws.com/{}/{name}", asked.region, asked.account) }))
            }
            "ReceiveMessage" => self.receive(asked, now),
            "DeleteMessage" => {
                let receipt = asked.get("ReceiptHandle").map(ToOwned::to_owned);
                let queue = self.queue(asked)?;
                if receipt.is_none() {
                    return Err(Refusal::bad("ReceiptHandleIsInvalid", "The input receipt handle is invalid."));
                }
                queue.messages.retain(|message| message.receipt != receipt);
                Ok(json!({}))
            }
            action => Err(Refusal::bad("UnsupportedOperation", format!("The peer does not know {action}"))),
        }
    }

    fn receive(&mut self, asked: &Asked, now: Timestamp) -> Result<Value, Refusal> {
        let most = asked.body["MaxNumberOfMessages"].as_u64().unwrap_or(1);
        let wait = asked.body["WaitTimeSeconds"].as_u64().unwrap_or(0);
        if !(1..=10).contains(&most) || wait > 20 {
            return Err(Refusal::bad("InvalidParameterValue", "at most 10 messages and 20 seconds"));
        }
        let hidden = asked.body["VisibilityTimeout"].as_u64().unwrap_or(HIDDEN);
        let number = self.next_number();
        let queue = self.queue(asked)?;
        let most = usize::try_from(most).unwrap_or(1);
        let ids: Vec<String> = queue.visible(now).take(most).map(|message| message.id.clone()).collect();
        let mut received = Vec::new();
        for message in queue.messages.iter_mut().filter(|message| ids.contains(&message.id)) {
            message.hidden_until = now + Duration::from_secs(hidden);
            let receipt = format!("receipt-{number}-{}", message.id);
            received.push(json!({ "MessageId": message.id, "ReceiptHandle": receipt, "Body": message.body }));
            message.receipt = Some(receipt);
        }
        Ok(if received.is_empty() { json!({}) } else { json!({ "Messages": received }) })
    }
}

impl Peer {
    /// Puts a message on a queue, and wakes whoever waits for one.
    pub fn send(&self, queue: &str, body: &str) {
        self.world().send(queue, body);
        self.shared.sent.notify_waiters();
    }

    /// Waits until there is a message to receive, or the time that the call gives is over.
    pub(crate) async fn wait_for_message(&self, asked: &Asked) {
        let seconds = asked.body["WaitTimeSeconds"].as_u64().unwrap_or(0).min(20);
        let until = tokio::time::Instant::now() + Duration::from_secs(seconds);
        loop {
            let sent = self.shared.sent.notified();
            tokio::pin!(sent);
            sent.as_mut().enable();
            let now = self.now();
            let is_over = match self.world().queue(asked) {
                Ok(queue) => queue.visible(now).next().is_some(),
                Err(_) => true,
            };
            let left = until.saturating_duration_since(tokio::time::Instant::now());
            if is_over || left.is_zero() {
                return;
            }
            drop(tokio::time::timeout(left.min(LOOK_AGAIN), sent).await);
        }
    }
}
