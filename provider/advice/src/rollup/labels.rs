//! A pod's labels, as far as they tell whose it is.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// Most labels that are kept of a pod.
const MOST: usize = 16;
/// Most bytes of them together: a pod's labels are written down with each of its hours, which take 1,600 bytes a node without.
const MOST_BYTES: usize = 512;

/// Labels that controllers make up for each pod or each version of its template: they tell whose it is no better than its owner does, and
/// are as many as there are pods. So is every label of the domains below.
const MADE_UP: [&str; 5] =
    ["pod-template-hash", "controller-revision-hash", "pod-template-generation", "controller-uid", "job-name"];
/// Domains of controllers whose labels are of that kind.
const MADE_UP_BY: [&str; 3] = ["batch.kubernetes.io/", "statefulset.kubernetes.io/", "apps.kubernetes.io/"];

/// Labels of a pod: at most 16 of them and 512 bytes, those without a domain first, and none that controllers make up.
///
/// They are one text, `app=recs,team=vision`, as a cluster has tens of thousands of GPU pods.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PodLabels(Option<Arc<str>>);

impl PodLabels {
    /// What is kept of a pod's labels.
    pub fn of<'a>(all: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        // Names and values have neither of these signs, by the rules of Kubernetes; one that has would be taken for two.
        let plain = |text: &str| !text.contains([',', '=']);
        let made_up = |key: &str| MADE_UP.contains(&key) || MADE_UP_BY.iter().any(|domain| key.starts_with(domain));
        let mut kept: Vec<(&str, &str)> =
            all.into_iter().filter(|(key, value)| !made_up(key) && plain(key) && plain(value)).collect();
        kept.sort_unstable_by_key(|(key, _)| (key.contains('/'), *key));
        let mut text = String::new();
        for (key, value) in kept.into_iter().take(MOST) {
            if text.len() + key.len() + value.len() + 2 > MOST_BYTES {
                break;
            }
            text.extend([if text.is_empty() { "" } else { "," }, key, "=", value]);
        }
        Self::from_text(&text)
    }

    /// What [`as_str`](Self::as_str) gave.
    pub fn from_text(text: &str) -> Self {
        Self((!text.is_empty()).then(|| Arc::from(text)))
    }

    /// The labels as one text; empty where there are none.
    pub fn as_str(&self) -> &str {
        self.0.as_deref().unwrap_or_default()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Each label and its value.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.as_str().split(',').filter_map(|label| label.split_once('='))
    }

    /// The value of a label; `None` without it.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.iter().find(|(known, _)| *known == key).map(|(_, value)| value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_people_wrote_is_kept_and_what_controllers_made_up_is_not() {
        let labels = PodLabels::of([
            ("app.kubernetes.io/name", "recs"),
            ("team", "vision"),
            ("pod-template-hash", "7d4b9c5f6d"),
            ("batch.kubernetes.io/job-name", "nightly"),
            ("empty", ""),
            ("odd,key", "x"),
        ]);
        assert_eq!(labels.as_str(), "empty=,team=vision,app.kubernetes.io/name=recs");
        assert_eq!([labels.get("team"), labels.get("empty"), labels.get("tea")], [Some("vision"), Some(""), None]);
        assert!(PodLabels::of([]).is_empty() && PodLabels::of([("job-name", "x")]).is_empty());
        assert_eq!(PodLabels::from_text(labels.as_str()), labels);
    }

    #[test]
    fn they_are_bounded_and_those_without_a_domain_stay_longest() {
        let domains: Vec<String> = (0..30).map(|n| format!("a.example/{n:02}")).collect();
        let many = || domains.iter().map(|key| (key.as_str(), "v")).chain([("zone-of-team", "vision")]);
        assert_eq!((PodLabels::of(many()).iter().count(), PodLabels::of(many()).get("zone-of-team")), (16, Some("vision")));
        let long = "v".repeat(63);
        let labels = PodLabels::of(domains.iter().map(|key| (key.as_str(), long.as_str())));
        // A domain, a number, a value, and the signs between: 12 + 63 + 2 are 77 bytes, and 6 of them 462.
        assert_eq!(labels.iter().count(), 6);
    }
}
