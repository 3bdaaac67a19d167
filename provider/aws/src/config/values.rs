//! How single values of `aws.yaml` are written.

use ipnet::IpNet;
use stoker_core::base::text::quoted;

type Checked = Result<(), String>;

/// Longest name of a queue.
const LONGEST_QUEUE: usize = 80;

/// Longest name of an instance profile.
const LONGEST_PROFILE: usize = 128;

fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

fn holds(is_so: bool, otherwise: impl FnOnce() -> String) -> Checked {
    if is_so { Ok(()) } else { Err(otherwise()) }
}

/// A region of AWS.
pub(super) fn region(text: &str) -> Checked {
    let is_part = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    let is_region = text.split('-').count() > 2 && text.split('-').all(is_part);
    holds(is_region, || format!("{} is no region: write it like us-east-1", quoted(text)))
}

/// A version of Kubernetes, as images are named by.
pub(super) fn version(text: &str) -> Checked {
    let is_version = text.split_once('.').is_some_and(|(major, minor)| is_digits(major) && is_digits(minor));
    holds(is_version, || format!("{} is no version of Kubernetes: write it like \"1.33\"", quoted(text)))
}

/// A network, of whose addresses the tenth is taken for the DNS of the cluster.
pub(super) fn cidr(text: &str) -> Checked {
    let Ok(network) = text.parse::<IpNet>() else {
        return Err(format!("{} is no CIDR: write it like 10.100.0.0/16", quoted(text)));
    };
    let first = network.trunc();
    holds(network == first, || format!("{} is an address within its network: write {first}", quoted(text)))
}

/// Where a service is reached. Other machines are reached over TLS only, as calls make machines.
pub(super) fn address(text: &str) -> Checked {
    let after = |start: &str| text.strip_prefix(start).filter(|rest| !rest.is_empty());
    let host = ["https://", "http://127.0.0.1:", "http://[::1]:"].iter().find_map(|start| after(start));
    let is_host = |host: &str| !host.contains(|c: char| c == '/' || c.is_whitespace());
    holds(host.is_some_and(is_host), || {
        format!("{} is no address: write https://host without a path, as calls make machines", quoted(text))
    })
}

/// A role that can be assumed.
pub(super) fn role(text: &str) -> Checked {
    let is_role = text.starts_with("arn:") && text.contains(":role/");
    holds(is_role, || format!("{} is no ARN of a role: write it like arn:aws:iam::222222222222:role/stoker", quoted(text)))
}

/// The name of a queue of SQS.
pub(super) fn queue(text: &str) -> Checked {
    let name = last(text);
    if name != text {
        return Err(format!("{} is an address or ARN: write the queue's name, {name}", quoted(text)));
    }
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    let is_name = !text.is_empty() && text.strip_suffix(".fifo").unwrap_or(text).bytes().all(is_allowed);
    holds(is_name && text.len() <= LONGEST_QUEUE, || {
        format!("{} is no name of a queue: write up to {LONGEST_QUEUE} letters, digits, '-' and '_'", quoted(text))
    })
}

/// The name of an instance profile.
pub(super) fn instance_profile(text: &str) -> Checked {
    let name = last(text);
    if name != text {
        return Err(format!("{} is an ARN or has a path: write the profile's name, {name}", quoted(text)));
    }
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"+=,.@_-".contains(&byte);
    holds(!text.is_empty() && text.len() <= LONGEST_PROFILE && text.bytes().all(is_allowed), || {
        format!("{} is no name of an instance profile: write up to {LONGEST_PROFILE} letters, digits and +=,.@_-", quoted(text))
    })
}

/// What follows the path of an ARN or an address; the whole of a name.
fn last(text: &str) -> &str {
    text.rsplit(['/', ':']).next().unwrap_or(text)
}

/// A key of KMS, in the forms that EC2 takes.
pub(super) fn kms_key(text: &str) -> Checked {
    let is_id = |id: &str| {
        let id = id.strip_prefix("mrk-").unwrap_or(id);
        matches!(id.len(), 32 | 36) && id.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-')
    };
    let is_alias = |text: &str| text.strip_prefix("alias/").is_some_and(|name| !name.is_empty() && !name.contains(' '));
    let is_key = match text.split(':').collect::<Vec<_>>()[..] {
        ["arn", _, "kms", _, _, named] => is_alias(named) || named.strip_prefix("key/").is_some_and(is_id),
        _ => is_alias(text) || is_id(text),
    };
    holds(is_key, || {
        let forms = "alias/NAME, the key's id, or arn:aws:kms:REGION:ACCOUNT:key/ID";
        format!("{} is no key of KMS: write {forms}", quoted(text))
    })
}
