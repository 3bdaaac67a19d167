//! Releases of the Cluster Autoscaler, as far as they differ: by their minor number.

use std::fmt;
use std::str::FromStr;

/// A release line, such as 1.36. Of one line all patches have the same flags and defaults.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Release(u16);

impl Release {
    /// The first with the external gRPC provider.
    pub const FIRST: Self = Self(25);
    /// The last whose flags are known here.
    pub const LAST: Self = Self(36);

    /// The line 1.`minor`.
    pub const fn minor(minor: u16) -> Self {
        Self(minor)
    }

    /// The release of an image such as `registry.k8s.io/autoscaling/cluster-autoscaler:v1.36.1`; `None` where its tag names none.
    pub fn of_image(image: &str) -> Option<Self> {
        let name = image.split_once('@').map_or(image, |(name, _digest)| name);
        let (_, tag) = name.rsplit_once('/').unwrap_or(("", name)).1.split_once(':')?;
        tag.parse().ok()
    }
}

impl FromStr for Release {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut numbers = text.strip_prefix('v').unwrap_or(text).split('.');
        let minor = (numbers.next() == Some("1")).then(|| numbers.next()?.parse().ok()).flatten();
        minor.map(Self).ok_or_else(|| "not a release: write it like 1.36 or v1.36.1".to_owned())
    }
}

impl fmt::Display for Release {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "1.{}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_is_told_by_its_minor_number() {
        for text in ["1.36", "v1.36", "1.36.1", "v1.36.0-rc.1"] {
            assert_eq!(text.parse(), Ok(Release::LAST), "{text}");
        }
        for text in ["", "36", "2.36", "1", "1.x", "latest"] {
            assert!(text.parse::<Release>().is_err(), "{text}");
        }
        assert!(Release::minor(9) < Release::FIRST);
    }

    #[test]
    fn an_image_names_its_release_by_its_tag() {
        let of = |image| Release::of_image(image).map(|release| release.to_string());
        assert_eq!(of("registry.k8s.io/autoscaling/cluster-autoscaler:v1.34.2").as_deref(), Some("1.34"));
        assert_eq!(of("localhost:5000/cluster-autoscaler:v1.30.7@sha256:00").as_deref(), Some("1.30"));
        for image in ["localhost:5000/cluster-autoscaler", "cluster-autoscaler:latest", "cluster-autoscaler@sha256:00", ""] {
            assert_eq!(of(image), None, "{image}");
        }
    }
}
