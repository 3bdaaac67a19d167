//! The rights as a template of `CloudFormation`.

use std::fmt::Write as _;

use serde_json::json;

use super::events::{EVENTS, KEPT_FOR, SENDER};
use super::{Rights, Statement, VERSION, quoted};

/// The template. Where several regions have queues, it is for each of them, and looks up its queue's name by region.
pub(super) fn text(rights: &Rights) -> String {
    let Rights { statements, queues } = rights;
    let several = queues.len() > 1;
    let mut text = "AWSTemplateFormatVersion: \"2010-09-09\"\n\
                    Description: What Stoker may do in this account, and the queue of EC2's notices\n"
        .to_owned();
    if several {
        text += "\nParameters:\n  WithPolicy:\n    Type: String\n    AllowedValues: [\"true\", \"false\"]\n    Default: \"true\"\n    \
                 Description: The policy holds for all regions, so that one stack of the account makes it\n\
                 \nConditions:\n  WithPolicy: {\"Fn::Equals\": [{Ref: WithPolicy}, \"true\"]}\n\
                 \nMappings:\n  Queues:\n";
        for (region, queue) in queues {
            let _ = writeln!(text, "    {region}: {{Name: {}}}", quoted(queue));
        }
    }
    let condition = if several { "    Condition: WithPolicy\n" } else { "" };
    let _ = write!(
        text,
        "\nResources:\n  StokerPolicy:\n    Type: AWS::IAM::ManagedPolicy\n{condition}    Properties:\n      \
         Description: What Stoker may do\n      PolicyDocument:\n        Version: \"{VERSION}\"\n        Statement:\n"
    );
    for statement in statements {
        write_statement(&mut text, statement);
    }
    match queues.values().next() {
        None => {
            text +=
                "  # aws.yaml names no interruptionQueue, so there is none: the Spot requests are asked every ten seconds.\n"
        }
        Some(_) if several => write_queue(&mut text, "{\"Fn::FindInMap\": [Queues, {Ref: \"AWS::Region\"}, Name]}"),
        Some(queue) => write_queue(&mut text, &quoted(queue)),
    }
    let _ = write!(text, "\nOutputs:\n  PolicyArn:\n{condition}    Value: {{Ref: StokerPolicy}}\n");
    text
}

fn write_statement(text: &mut String, statement: &Statement) {
    let Statement { sid, why, effect, action, resource, condition } = statement;
    let indent = "        ";
    let _ = write!(text, "{indent}# {why}\n{indent}- Sid: {sid}\n{indent}  Effect: {effect}\n");
    for (key, values) in [("Action", action), ("Resource", resource)] {
        let _ = writeln!(text, "{indent}  {key}:");
        for value in &values.0 {
            let _ = writeln!(text, "{indent}  - {}", quoted(value));
        }
    }
    if !condition.is_empty() {
        let conditions = json!(statement)["Condition"].take();
        let _ = writeln!(text, "{indent}  Condition: {conditions}");
    }
}

fn write_queue(text: &mut String, name: &str) {
    let arn = "{\"Fn::GetAtt\": [StokerQueue, Arn]}";
    let rules = "arn:${AWS::Partition}:events:${AWS::Region}:${AWS::AccountId}:rule/*";
    let _ = write!(
        text,
        "
  StokerQueue:
    Type: AWS::SQS::Queue
    Properties:
      QueueName: {name}
      MessageRetentionPeriod: {KEPT_FOR}
      SqsManagedSseEnabled: true
  StokerQueuePolicy:
    Type: AWS::SQS::QueuePolicy
    Properties:
      Queues: [{{Ref: StokerQueue}}]
      PolicyDocument:
        Version: \"{VERSION}\"
        Statement:
        - Sid: EventsOfThisAccount
          Effect: Allow
          Principal: {{Service: {SENDER}}}
          Action: sqs:SendMessage
          Resource: {arn}
          Condition: {{ArnLike: {{\"aws:SourceArn\": {{\"Fn::Sub\": \"{rules}\"}}}}}}
"
    );
    for event in &EVENTS {
        let name = event.name.chars().enumerate().map(|(at, c)| if at == 0 { c.to_ascii_uppercase() } else { c });
        let name: String = name.collect();
        let (why, pattern) = (quoted(event.why), event.pattern());
        let _ = write!(
            text,
            "  StokerEvent{name}:
    Type: AWS::Events::Rule
    Properties:
      Description: {why}
      EventPattern: {pattern}
      Targets: [{{Id: stoker, Arn: {arn}}}]
"
        );
    }
}
