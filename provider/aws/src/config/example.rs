//! The example, and the schema that editors read it by.

use super::Config;

/// The file that is shown.
pub(crate) const EXAMPLE: &str = include_str!("../../../../manifests/examples/aws.yaml");

/// Its lines that are off, each put where it belongs.
fn with_every_field() -> String {
    let on = |line: &str| match line.trim_start().strip_prefix("# ") {
        Some(field)
            if line.starts_with(['#', ' ']) && field.contains(": {")
                || ["placementGroup", "account"].iter().any(|name| field.starts_with(name)) =>
        {
            format!("{}  {field}", &line[..line.len() - line.trim_start().len()])
        }
        _ => line.to_owned(),
    };
    let (head, body) = EXAMPLE.split_once("apiVersion").unwrap();
    let body: Vec<String> = body.lines().map(on).collect();
    format!("{head}apiVersion{}\n", body.join("\n"))
}

#[test]
fn the_example_is_sound_with_its_comments_and_without() {
    for text in [EXAMPLE.to_owned(), with_every_field()] {
        let config = Config::parse("aws.yaml", &text).unwrap_or_else(|faults| unreachable!("{faults}\n{text}"));
        assert_eq!(config.classes.len(), 2);
    }
    let all = Config::parse("aws.yaml", &with_every_field()).unwrap();
    assert!(all.regions.values().all(|region| region.role.is_some() && region.account.is_some()));
    assert!(all.classes.values().any(|class| class.placement_group.is_some()));
}

#[test]
fn editors_are_told_every_field_of_the_file() {
    let schema = Config::schema();
    assert_eq!(schema["title"], "Stoker's file for AWS");
    let fields = schema["properties"].as_object().unwrap();
    let names: Vec<&str> = fields.keys().map(String::as_str).collect();
    assert_eq!(names, ["apiVersion", "cluster", "kind", "nodeClasses", "regions"]);
    assert_eq!(schema["additionalProperties"], false);
    let class = &schema["$defs"]["RawNodeClass"];
    assert_eq!(class["required"], serde_json::json!(["instanceProfile"]));
}
