//! Parameters of the query protocol.

/// Parameters of a call: `Action`, `Version` and lists as `Name.1.Sub`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Form {
    pub(crate) action: &'static str,
    fields: Vec<(String, String)>,
}

impl Form {
    /// The parameters of an action of EC2.
    pub(crate) fn ec2(action: &'static str) -> Self {
        Self::new(action, "2016-11-15")
    }

    /// The parameters of an action of a version of another service.
    pub(crate) fn new(action: &'static str, version: &str) -> Self {
        Self { action, fields: vec![("Action".into(), action.into()), ("Version".into(), version.into())] }
    }

    /// Sets a parameter.
    pub(crate) fn set(&mut self, name: impl Into<String>, value: impl Into<String>) {
        self.fields.push((name.into(), value.into()));
    }

    /// The same with a parameter set.
    #[must_use]
    pub(crate) fn with(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.set(name, value);
        self
    }

    /// The same with all of these set.
    #[must_use]
    pub(crate) fn with_all(mut self, fields: impl IntoIterator<Item = (String, String)>) -> Self {
        self.fields.extend(fields);
        self
    }

    /// The same with a list of values.
    #[must_use]
    pub(crate) fn with_list<T: AsRef<str>>(mut self, name: &str, values: impl IntoIterator<Item = T>) -> Self {
        for (at, value) in values.into_iter().enumerate() {
            self.set(format!("{name}.{}", at + 1), value.as_ref());
        }
        self
    }

    /// The same with one more filter: one of `values`.
    #[must_use]
    pub(crate) fn filter<T: AsRef<str>>(mut self, name: &str, values: impl IntoIterator<Item = T>) -> Self {
        let before = self.fields.iter().filter(|(name, _)| name.starts_with("Filter.") && name.ends_with(".Name")).count();
        let filter = format!("Filter.{}", before + 1);
        self.set(format!("{filter}.Name"), name);
        self.with_list(&format!("{filter}.Value"), values)
    }

    /// The body of the call.
    pub(crate) fn encoded(&self) -> Vec<u8> {
        form_urlencoded::Serializer::new(String::new()).extend_pairs(&self.fields).finish().into_bytes()
    }

    /// The value of a parameter, for tests.
    #[cfg(test)]
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_and_lists_are_numbered_from_one() {
        let form = Form::ec2("DescribeInstances").filter("tag:a", ["x+y", "ü&"]).filter("instance-state-name", ["pending"]);
        let body = String::from_utf8(form.encoded()).unwrap();
        assert_eq!(
            body,
            "Action=DescribeInstances&Version=2016-11-15&Filter.1.Name=tag%3Aa&Filter.1.Value.1=x%2By&Filter.1.Value.2=%C3%BC%26\
             &Filter.2.Name=instance-state-name&Filter.2.Value.1=pending"
        );
    }
}
