//! Where an autoscaler's command line comes from: one text, or the container of a manifest.

use serde_json::Value;

use super::release::Release;

/// A command line, word by word, and the release where the source tells it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandLine {
    /// Its words; the program's name may be the first.
    pub words: Vec<String>,
    /// The release by the image's tag.
    pub release: Option<Release>,
}

/// Why there is no command line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoCommandLine {
    /// A quotation mark has no partner.
    #[error("the quotation mark {0} is never closed: close it, or escape it with a backslash")]
    Unclosed(char),
    /// Not YAML.
    #[error("is not YAML: {0}")]
    NotYaml(String),
    /// No container of it runs an autoscaler.
    #[error(
        "no container here runs a Cluster Autoscaler: name the file of its Deployment, or give its flags with --autoscaler-args"
    )]
    NoContainer,
}

/// Splits a text into words as a shell does: at blanks, except in quotation marks and after a backslash. From `#` at a word's beginning
/// to the line's end is a comment.
///
/// # Errors
/// A quotation mark without a partner.
pub fn split(text: &str) -> Result<Vec<String>, NoCommandLine> {
    let (mut words, mut word) = (Vec::new(), None::<String>);
    let mut signs = text.chars();
    while let Some(sign) = signs.next() {
        match sign {
            '\'' | '"' => {
                let word = word.get_or_insert_default();
                loop {
                    match signs.next().ok_or(NoCommandLine::Unclosed(sign))? {
                        end if end == sign => break,
                        '\\' if sign == '"' => word.extend(signs.next()),
                        inner => word.push(inner),
                    }
                }
            }
            // At a line's end it only joins lines.
            '\\' => match signs.next() {
                Some('\n') => {}
                escaped => word.get_or_insert_default().extend(escaped),
            },
            '#' if word.is_none() => drop(signs.by_ref().take_while(|sign| *sign != '\n').count()),
            blank if blank.is_whitespace() => words.extend(word.take()),
            other => word.get_or_insert_default().push(other),
        }
    }
    words.extend(word);
    Ok(words)
}

/// The command line of the first container in a manifest that runs a Cluster Autoscaler: its `command` and `args`.
///
/// # Errors
/// When it is no YAML, or no container of it is one.
pub fn of_manifest(text: &str) -> Result<CommandLine, NoCommandLine> {
    let documents: Vec<Value> =
        serde_saphyr::from_multiple(text).map_err(|error| NoCommandLine::NotYaml(error.to_string().trim_end().to_owned()))?;
    documents.iter().find_map(autoscaler_in).ok_or(NoCommandLine::NoContainer)
}

/// Looks through all that a manifest holds: containers lie at different depths of a Pod, a Deployment and a List.
fn autoscaler_in(value: &Value) -> Option<CommandLine> {
    let mut containers = value.get("containers").and_then(Value::as_array).into_iter().flatten();
    let found = containers.find_map(command_line);
    found.or_else(|| match value {
        Value::Object(fields) => fields.values().find_map(autoscaler_in),
        Value::Array(items) => items.iter().find_map(autoscaler_in),
        _ => None,
    })
}

fn command_line(container: &Value) -> Option<CommandLine> {
    let texts = |field: &str| {
        let items = container.get(field).and_then(Value::as_array).into_iter().flatten();
        items.filter_map(|item| item.as_str().map(str::to_owned)).collect::<Vec<_>>()
    };
    let words = [texts("command"), texts("args")].concat();
    let image = container.get("image").and_then(Value::as_str).unwrap_or_default();
    let is_autoscaler = words.iter().any(|word| word.starts_with("--cloud-provider")) || image.contains("cluster-autoscaler");
    is_autoscaler.then(|| CommandLine { words, release: Release::of_image(image) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_split_as_a_shell_splits_it() {
        let text = "./cluster-autoscaler --a=b \\\n  --c 'd e' # not --f\n\t--g=\"h \\\"i\\\" 'j'\" k\\ l ''";
        let words = split(text).unwrap();
        assert_eq!(words, ["./cluster-autoscaler", "--a=b", "--c", "d e", "--g=h \"i\" 'j'", "k l", ""]);
        assert_eq!(split(" \n"), Ok(Vec::new()));
        assert_eq!(split("--a='b"), Err(NoCommandLine::Unclosed('\'')));
        assert_eq!(split("--a=b#c"), Ok(vec!["--a=b#c".to_owned()]));
    }

    #[test]
    fn a_manifest_gives_the_command_line_of_its_autoscaler() {
        let text = "kind: ConfigMap\n---\nkind: List\nitems:\n- spec: {template: {spec: {containers: [{name: side, image: nginx, args: [-x]}, \
                    {name: a, image: 'r/cluster-autoscaler:v1.34.2', command: [./cluster-autoscaler, --v=4], args: [--expander=grpc]}]}}}\n";
        let found = of_manifest(text).unwrap();
        assert_eq!(found.words, ["./cluster-autoscaler", "--v=4", "--expander=grpc"]);
        assert_eq!(found.release, Some(Release::minor(34)));
        let own = of_manifest("spec: {containers: [{image: mine, args: [--cloud-provider=externalgrpc]}]}").unwrap();
        assert_eq!(own.release, None);
        assert_eq!(of_manifest("kind: Pod"), Err(NoCommandLine::NoContainer));
        assert!(matches!(of_manifest("a: [b"), Err(NoCommandLine::NotYaml(_))));
    }
}
