//! Why there are no credentials, and what to do about it.

use std::env;
use std::path::Path;

/// A profile that needs a program which Stoker does not have in it.
const SSO: &str = "profiles by SSO are not supported: run `eval $(aws configure export-credentials --format env)`";

/// What any machine can be given.
const ANY: &str = "set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY; in a pod, give its service account a role by Pod \
                   Identity or IRSA";

/// Files of tokens, by the variable that names each, and who mounts it.
const TOKENS: [(&str, &str); 2] =
    [("AWS_WEB_IDENTITY_TOKEN_FILE", "IRSA"), ("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", "Pod Identity")];

/// Why AWS's own ways found none: `said` is all that they said, and `is_sure` that one of them was meant and failed.
///
/// What the environment asks for is looked at first. The last way is the instance's metadata, and most machines have none: its failure
/// alone says that nothing was given.
pub(super) fn why_none(said: &str, is_sure: bool) -> String {
    let set = |name: &str| env::var(name).ok().filter(|value| !value.trim().is_empty());
    let half = match [set("AWS_ACCESS_KEY_ID"), set("AWS_SECRET_ACCESS_KEY")] {
        [Some(_), None] => Some(("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")),
        [None, Some(_)] => Some(("AWS_SECRET_ACCESS_KEY", "AWS_ACCESS_KEY_ID")),
        _ => None,
    };
    if let Some((given, missing)) = half {
        return format!("{given} is set without {missing}: set both, or neither");
    }
    if said.contains("cargo feature(s) enabled: sso") || said.contains("resolve an access token instead of credentials") {
        return SSO.to_owned();
    }
    if let Some((source, profile)) = missing_source(said) {
        return format!(
            "source_profile of profile {profile} is {source}, and there is no such profile in ~/.aws/config or ~/.aws/credentials: \
             correct it, or write that profile"
        );
    }
    let has_no_file = |name: &str| set(name).filter(|file| !Path::new(file).is_file());
    let missing = TOKENS.iter().find_map(|(name, by)| Some((name, by, has_no_file(name)?)));
    if let Some((name, by, file)) = missing {
        return format!("{name} names {file}, which does not exist: unset it outside a pod, and in one set up {by} again");
    }
    if let Some(profile) = set("AWS_PROFILE").filter(|_| !is_sure) {
        return format!(
            "AWS_PROFILE is {profile}, and no profile of that name has credentials in ~/.aws/config or ~/.aws/credentials: correct it, \
             or write that profile"
        );
    }
    let of_metadata = said.rsplit("Ec2InstanceMetadata: ").next().unwrap_or(said);
    if of_metadata.contains("received 404 from IMDS") {
        return format!("{ANY}; this instance has no role: attach an instance profile, where it is to be that one's");
    }
    let was_asked = of_metadata.contains("IMDS") && !of_metadata.contains("IMDS disabled");
    match is_sure && !was_asked {
        true => said.to_owned(),
        false if was_asked => {
            let why = of_metadata.rsplit(": ").next().unwrap_or(of_metadata);
            format!(
                "{ANY}; the instance's metadata cannot be read either ({why}): for a pod that is to use it set its hop limit to 2"
            )
        }
        false => ANY.to_owned(),
    }
}

/// The profile that another names as its source, and that one, where it is missing.
fn missing_source(said: &str) -> Option<(&str, &str)> {
    let (_, named) = said.split_once("could not find source profile ")?;
    let (source, from) = named.split_once(" referenced from ")?;
    let from = from.lines().next()?;
    (from != "the root profile").then_some((source, from))
}
