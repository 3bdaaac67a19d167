//! Azure: scheduled events. The list is of all machines of a scale set or availability set, so the machine's own name is asked first.
//!
//! Facts: learn.microsoft.com/azure/virtual-machines/linux/scheduled-events (a preemption 30 s ahead, others five to fifteen minutes).

use std::time::Duration;

use http::Method;
use jiff::fmt::rfc2822::DateTimeParser;
use serde::Deserialize;
use stoker_proto::probe::interruption::Kind;

use super::http::{Fault, Service};
use super::{Notice, Source};

pub(super) const PERIOD: Duration = Duration::from_secs(5);
const PATIENCE: Duration = Duration::from_secs(5);

pub(super) struct Metadata {
    service: Service,
    name: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Document {
    events: Vec<Scheduled>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Scheduled {
    event_id: String,
    event_type: String,
    resources: Vec<String>,
    /// As in mail: `Mon, 19 Sep 2016 18:29:47 GMT`. Empty once it has begun.
    #[serde(default)]
    not_before: String,
}

impl Metadata {
    pub(super) fn new(service: Service) -> Self {
        Self { service, name: None }
    }
}

impl Source for Metadata {
    async fn standing(&mut self) -> Result<Vec<Notice>, Fault> {
        let name = if let Some(name) = &self.name {
            name.clone()
        } else {
            let name = self.get("/metadata/instance/compute/name?api-version=2021-02-01&format=text").await?;
            self.name.insert(name.trim().to_owned()).clone()
        };
        let text = self.get("/metadata/scheduledevents?api-version=2020-07-01").await?;
        read(&text, &name)
    }
}

impl Metadata {
    async fn get(&self, path: &str) -> Result<String, Fault> {
        self.service.ask(Method::GET, path, &[("metadata", "true")], PATIENCE).await?.success()
    }
}

fn read(text: &str, name: &str) -> Result<Vec<Notice>, Fault> {
    let document: Document = serde_json::from_str(text).map_err(|error| Fault::Content(error.to_string()))?;
    let own = document.events.into_iter().filter(|event| event.resources.iter().any(|resource| resource == name));
    let notices = own.map(|event| {
        let kind = match event.event_type.as_str() {
            "Preempt" | "Terminate" => Kind::Reclaim,
            // Reboot, Redeploy, Freeze, and what may come.
            _ => Kind::Maintenance,
        };
        // What is announced is so even where nobody can read when it will be.
        let deadline = DateTimeParser::new().parse_timestamp(&event.not_before).ok();
        Notice { kind, deadline, detail: format!("{} {}", event.event_type, event.event_id) }
    });
    Ok(notices.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOCUMENT: &str = r#"{"DocumentIncarnation": 3, "Events": [
        {"EventId": "A", "EventType": "Preempt", "ResourceType": "VirtualMachine", "Resources": ["gpu_0"], "EventStatus": "Scheduled",
         "NotBefore": "Mon, 19 Sep 2016 18:29:47 GMT", "Description": "", "EventSource": "Platform"},
        {"EventId": "B", "EventType": "Freeze", "Resources": ["gpu_1", "gpu_0"], "NotBefore": ""},
        {"EventId": "C", "EventType": "Terminate", "Resources": ["gpu_1"], "NotBefore": ""}]}"#;

    #[test]
    fn only_this_machine_s_events_are_read() -> Result<(), Fault> {
        let told: Vec<_> =
            read(DOCUMENT, "gpu_0")?.into_iter().map(|notice| (notice.kind, notice.deadline, notice.detail)).collect();
        let at = jiff::Timestamp::new(1_474_309_787, 0).ok();
        assert_eq!(told, [(Kind::Reclaim, at, "Preempt A".to_owned()), (Kind::Maintenance, None, "Freeze B".to_owned())]);
        assert_eq!(read(DOCUMENT, "gpu_2")?, []);
        Ok(())
    }

    #[test]
    fn what_cannot_be_read_announces_nothing_and_withdraws_nothing() {
        assert!(read("{}", "gpu_0").is_err());
        // A time that cannot be read takes nothing but itself.
        let told = read(&DOCUMENT.replace("Mon, 19", "19th"), "gpu_0").unwrap_or_default();
        assert_eq!(
            told.iter().map(|notice| (notice.kind, notice.deadline)).collect::<Vec<_>>(),
            [(Kind::Reclaim, None), (Kind::Maintenance, None)]
        );
    }
}
