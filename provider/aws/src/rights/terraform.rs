//! The rights as Terraform's HCL.

use std::fmt::Write as _;

use super::events::{EVENTS, KEPT_FOR, SENDER};
use super::{Condition, Rights, Statement, Texts};

/// The file. Where several regions have queues, each has a provider of its own.
pub(super) fn text(rights: &Rights) -> String {
    let Rights { statements, queues } = rights;
    let mut text = "# What Stoker may do in this account, and the queues of EC2's notices.\n".to_owned();
    let several = queues.len() > 1;
    if several {
        let providers = queues.keys().map(|region| format!("aws.{} ({region})", alias(region.as_str())));
        let _ = writeln!(text, "# Needs these providers: {}.", providers.collect::<Vec<_>>().join(", "));
    }
    text += "\ndata \"aws_iam_policy_document\" \"stoker\" {\n";
    let written: Vec<String> = statements.iter().map(statement).collect();
    text += &written.join("\n");
    text += "}\n\nresource \"aws_iam_policy\" \"stoker\" {\n  name_prefix = \"stoker-\"\n  \
             description = \"What Stoker may do\"\n  policy      = data.aws_iam_policy_document.stoker.json\n}\n\n\
             output \"stoker_policy_arn\" {\n  value = aws_iam_policy.stoker.arn\n}\n";
    if queues.is_empty() {
        text += "\n# aws.yaml names no interruptionQueue, so there is none: the Spot requests are asked every ten seconds.\n";
        return text;
    }
    text += "\nlocals {\n  stoker_events = {\n";
    for event in &EVENTS {
        let pattern = hcl(&event.pattern().to_string());
        let _ = writeln!(text, "    # {}.\n    {} = {pattern}", event.why, event.name);
    }
    text += "  }\n}\n";
    for (region, queue) in queues {
        let name = if several { format!("stoker_{}", alias(region.as_str())) } else { "stoker".to_owned() };
        let provider = if several { format!("  provider = aws.{}\n\n", alias(region.as_str())) } else { String::new() };
        write_queue(&mut text, &name, queue, &provider);
    }
    text
}

/// A region as a name in HCL.
fn alias(region: &str) -> String {
    region.replace('-', "_")
}

fn statement(statement: &Statement) -> String {
    let Statement { sid, why, effect, action, resource, condition } = statement;
    let mut text = format!(
        "  # {why}\n  statement {{\n    sid       = \"{sid}\"\n    effect    = \"{effect}\"\n    actions   = {}\n    resources = {}\n",
        list(action, "    "),
        list(resource, "    "),
    );
    for Condition { test, variable, values } in condition {
        let _ = write!(
            text,
            "    condition {{\n      test     = \"{test}\"\n      variable = {}\n      values   = {}\n    }}\n",
            string(variable),
            list(values, "      "),
        );
    }
    text + "  }\n"
}

fn write_queue(text: &mut String, name: &str, queue: &str, provider: &str) {
    let queue = string(queue);
    let _ = write!(
        text,
        "
resource \"aws_sqs_queue\" \"{name}\" {{
{provider}  name                      = {queue}
  message_retention_seconds = {KEPT_FOR}
  sqs_managed_sse_enabled   = true
}}

data \"aws_iam_policy_document\" \"{name}_queue\" {{
  statement {{
    sid       = \"EventsOfThisAccount\"
    actions   = [\"sqs:SendMessage\"]
    resources = [aws_sqs_queue.{name}.arn]
    principals {{
      type        = \"Service\"
      identifiers = [\"{SENDER}\"]
    }}
    condition {{
      test     = \"ArnEquals\"
      variable = \"aws:SourceArn\"
      values   = [for rule in aws_cloudwatch_event_rule.{name} : rule.arn]
    }}
  }}
}}

resource \"aws_sqs_queue_policy\" \"{name}\" {{
{provider}  queue_url = aws_sqs_queue.{name}.id
  policy    = data.aws_iam_policy_document.{name}_queue.json
}}

resource \"aws_cloudwatch_event_rule\" \"{name}\" {{
{provider}  for_each      = local.stoker_events
  name_prefix   = \"stoker-${{each.key}}-\"
  event_pattern = jsonencode(each.value)
}}

resource \"aws_cloudwatch_event_target\" \"{name}\" {{
{provider}  for_each = aws_cloudwatch_event_rule.{name}
  rule     = each.value.name
  arn      = aws_sqs_queue.{name}.arn
}}
"
    );
}

/// One text on its line, several on lines of their own.
fn list(texts: &Texts, indent: &str) -> String {
    match texts.0.as_slice() {
        [one] => format!("[{}]", string(one)),
        several => {
            let lines: Vec<String> = several.iter().map(|text| format!("{indent}  {},", string(text))).collect();
            format!("[\n{}\n{indent}]", lines.join("\n"))
        }
    }
}

/// A text in quotes.
fn string(text: &str) -> String {
    hcl(&super::quoted(text))
}

/// JSON as HCL takes it, which reads `${` and `%{` within texts as templates.
fn hcl(json: &str) -> String {
    json.replace("${", "$${").replace("%{", "%%{")
}
