//! How single values of `aws.yaml` are written.

use std::ops::RangeInclusive;

use ipnet::IpNet;
use stoker_core::base::text::quoted;

use super::{Family, LEAST_DISK};

type Checked = Result<(), String>;

/// Longest name of a queue.
const LONGEST_QUEUE: usize = 80;

/// Longest name of an instance profile.
const LONGEST_PROFILE: usize = 128;

/// Operations a second of a disk of kind gp3: the least is what one has that asks for none.
pub(super) const GP3_IOPS: RangeInclusive<u32> = 3_000..=80_000;

/// Its throughput, in MiB a second.
pub(super) const GP3_THROUGHPUT: RangeInclusive<u32> = 125..=2_000;

fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

fn holds(is_so: bool, otherwise: impl FnOnce() -> String) -> Checked {
    if is_so { Ok(()) } else { Err(otherwise()) }
}

/// A region of AWS.
pub(super) fn region(text: &str) -> Checked {
    let is_part = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    let parts: Vec<&str> = text.split('-').collect();
    let is_region = |last: &str| parts.len() > 2 && parts.iter().all(|part| is_part(part)) && is_digits(last);
    let last = parts.last().copied().unwrap_or_default();
    let is_letter = |c: char| c.is_ascii_lowercase();
    if let Some(of_zone) = text.strip_suffix(is_letter)
        && last.strip_suffix(is_letter).is_some_and(is_region)
    {
        // A local zone has its city after the region.
        let region = match parts.iter().position(|part| is_digits(part)) {
            Some(at) => parts.iter().take(at + 1).copied().collect::<Vec<_>>().join("-"),
            None => of_zone.to_owned(),
        };
        return Err(format!("{} is a zone: write its region, {region}", quoted(text)));
    }
    holds(is_region(last), || format!("{} is no region: write it like us-east-1", quoted(text)))
}

/// Throughput of a disk of kind gp3, in MiB a second: at most a quarter of its operations.
pub(super) fn throughput(throughput: Option<u32>, iops: Option<u32>) -> Checked {
    let (Some(throughput), iops) = (throughput, iops.unwrap_or(*GP3_IOPS.start())) else { return Ok(()) };
    let needed = throughput.saturating_mul(4);
    holds(needed <= iops || !GP3_IOPS.contains(&iops) || !GP3_THROUGHPUT.contains(&throughput), || {
        format!("is {throughput}, and gp3 gives {} for {iops} iops: write iops: {needed}", iops / 4)
    })
}

/// Operations of a disk of kind gp3: at most 500 a GiB.
pub(super) fn iops(iops: Option<u32>, gib: u32) -> Checked {
    let (Some(iops), most) = (iops, gib.saturating_mul(500)) else { return Ok(()) };
    holds(iops <= most || !GP3_IOPS.contains(&iops) || gib < LEAST_DISK, || {
        format!("is {iops}, and gp3 gives {most} for {gib} GiB: write sizeGiB: {}", iops.div_ceil(500))
    })
}

/// The name of a parameter of SSM: one with a path begins with a slash, and of another account its ARN is given.
pub(super) fn parameter(text: &str) -> Checked {
    let is_name = !text.is_empty() && (text.starts_with('/') || text.starts_with("arn:") || !text.contains('/'));
    holds(is_name, || format!("{} is no name of a parameter: write it with / first", quoted(text)))
}

/// A release of the image that AWS makes for a family.
pub(super) fn release(family: Family, text: &str) -> Checked {
    if text == "latest" {
        return Err("is latest: leave it out for the newest when Stoker starts".to_owned());
    }
    let is_dated = text.strip_prefix('v').is_some_and(|day| day.len() == 8 && is_digits(day));
    let is_numbered = text.split('.').count() == 3 && text.split('.').all(is_digits);
    match family {
        Family::Al2023 => holds(is_dated, || format!("{} is no release of AL2023: write it like v20260714", quoted(text))),
        Family::Bottlerocket => {
            holds(is_numbered, || format!("{} is no release of Bottlerocket: write it like 1.46.0", quoted(text)))
        }
        // It has an id or a parameter, and no release.
        Family::Custom => Ok(()),
    }
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
