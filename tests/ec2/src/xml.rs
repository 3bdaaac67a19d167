//! XML as EC2 writes it.

use std::fmt::Display;

use jiff::Timestamp;

use crate::region::Tags;

/// XML in the making.
#[derive(Debug, Default)]
pub(crate) struct Xml {
    text: String,
}

impl Xml {
    /// The text of what `write` writes.
    pub(crate) fn of(write: impl FnOnce(&mut Self)) -> String {
        let mut xml = Self::default();
        write(&mut xml);
        xml.text
    }

    /// An element with a text.
    pub(crate) fn text(&mut self, name: &str, value: impl Display) {
        let value = escaped(&value.to_string());
        self.text.extend(["<", name, ">", &value, "</", name, ">"]);
    }

    /// An element with a text, where there is one.
    pub(crate) fn some(&mut self, name: &str, value: Option<impl Display>) {
        if let Some(value) = value {
            self.text(name, value);
        }
    }

    /// An element with a time.
    pub(crate) fn time(&mut self, name: &str, at: Timestamp) {
        self.text(name, stamp(at));
    }

    /// An element with others in it.
    pub(crate) fn node(&mut self, name: &str, write: impl FnOnce(&mut Self)) {
        self.text.extend(["<", name, ">"]);
        write(self);
        self.text.extend(["</", name, ">"]);
    }

    /// An element with others in it, where there is something to write of.
    pub(crate) fn some_node<T>(&mut self, name: &str, value: Option<T>, write: impl FnOnce(&mut Self, T)) {
        if let Some(value) = value {
            self.node(name, |xml| write(xml, value));
        }
    }

    /// A list; an empty one closes itself.
    pub(crate) fn items<T>(&mut self, name: &str, items: impl IntoIterator<Item = T>, mut write: impl FnMut(&mut Self, T)) {
        let mut items = items.into_iter().peekable();
        if items.peek().is_none() {
            self.text.extend(["<", name, "/>"]);
            return;
        }
        self.node(name, |xml| items.for_each(|item| xml.node("item", |xml| write(xml, item))));
    }

    /// A list of texts.
    pub(crate) fn texts(&mut self, name: &str, items: impl IntoIterator<Item = impl Display>) {
        self.node(name, |xml| items.into_iter().for_each(|item| xml.text("item", item)));
    }

    /// Tags; nothing where there are none.
    pub(crate) fn tags(&mut self, tags: &Tags) {
        if !tags.is_empty() {
            self.items("tagSet", tags, |xml, (key, value)| {
                xml.text("key", key);
                xml.text("value", value);
            });
        }
    }
}

/// A time as EC2 writes it.
pub(crate) fn stamp(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%S.%3fZ").to_string()
}

pub(crate) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
