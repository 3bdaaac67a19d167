//! Prometheus's text format, version 0.0.4. The client library appends `_total` to counters, which DCGM's names do not have.

use std::fmt::{Display, Write};

/// A page being written, a family at a time.
#[derive(Debug, Default)]
pub struct Page(String);

impl Page {
    /// Begins a gauge.
    pub fn gauge(&mut self, name: &str, help: &str) -> Family<'_> {
        self.family(name, "gauge", help)
    }

    /// Begins a counter.
    pub fn counter(&mut self, name: &str, help: &str) -> Family<'_> {
        self.family(name, "counter", help)
    }

    fn family(&mut self, name: &str, kind: &'static str, help: &str) -> Family<'_> {
        Family { page: self, head: Some((kind, help.to_owned())), name: name.to_owned() }
    }

    pub(super) fn into_text(self) -> String {
        self.0
    }
}

/// The series of one name. A family without any is not written.
#[derive(Debug)]
pub struct Family<'a> {
    page: &'a mut Page,
    head: Option<(&'static str, String)>,
    name: String,
}

impl Family<'_> {
    /// Adds a series.
    pub fn add(&mut self, labels: &[(&str, &str)], value: impl Display) -> &mut Self {
        let Self { page, head, name } = self;
        let text = &mut page.0;
        if let Some((kind, help)) = head.take() {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
        }
        text.push_str(name);
        for (number, (label, content)) in labels.iter().enumerate() {
            let _ = write!(text, "{}{label}=\"", if number == 0 { '{' } else { ',' });
            for sign in content.chars() {
                match sign {
                    '\\' => text.push_str("\\\\"),
                    '"' => text.push_str("\\\""),
                    '\n' => text.push_str("\\n"),
                    other => text.push(other),
                }
            }
            text.push('"');
        }
        let _ = writeln!(text, "{} {value}", if labels.is_empty() { "" } else { "}" });
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_family_has_its_head_once_and_none_without_series() {
        let mut page = Page::default();
        page.gauge("a", "Of a.").add(&[], 1).add(&[("k", "v\"\\\n"), ("l", "")], 2.5);
        page.counter("b", "Of b.");
        assert_eq!(page.into_text(), "# HELP a Of a.\n# TYPE a gauge\na 1\na{k=\"v\\\"\\\\\\n\",l=\"\"} 2.5\n");
    }
}
