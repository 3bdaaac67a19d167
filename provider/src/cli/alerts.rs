//! `stoker alerts` and `stoker dashboard`: what Prometheus and Grafana are given.

use clap::{Args, ValueEnum};
use jiff::SignedDuration;
use serde::Serialize;
use stoker_core::base::units::Percent;

use super::args::{duration, whole};
use super::exit::{CliError, Exit};
use super::out;
use crate::monitoring::{DASHBOARD, RuleFile, Thresholds, rules};

/// What the file says of where it comes from.
const HEAD: &str = "# Made by `stoker alerts`, whose options set the thresholds and print the file again: see its --help.\n";

/// Prints the alerting rules for Prometheus, with your thresholds.
///
/// As an object of the Prometheus operator, or with --plain as a rule file of Prometheus itself.
#[derive(Debug, Args)]
pub(super) struct AlertsArgs {
    /// How the rules are printed
    #[arg(short = 'o', long = "output", value_enum, default_value = "yaml", value_name = "FORMAT")]
    format: Format,
    /// A rule file of Prometheus itself rather than an object of the Prometheus operator
    #[arg(long, conflicts_with_all = ["namespace", "labels"])]
    plain: bool,
    /// Namespace of the object
    #[arg(long, value_name = "NAME", default_value = "stoker", value_parser = namespace)]
    namespace: String,
    /// A label of the object, by which your Prometheus selects rules, e.g. release=kube-prometheus-stack; repeatable
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = label)]
    labels: Vec<(String, String)>,
    /// Page that explains the alerts; each gets a link to its heading there as the annotation `runbook_url`
    #[arg(long, value_name = "URL")]
    runbook_url: Option<String>,
    #[command(flatten)]
    thresholds: ThresholdArgs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    Yaml,
    Json,
}

macro_rules! thresholds {
    ($($(#[doc = $help:literal])* $arg:ident: $type:ty = $name:literal by $parser:expr => $field:ident),* $(,)?) => {
        /// From when on operators are told.
        #[derive(Debug, Args)]
        #[command(next_help_heading = "Thresholds")]
        struct ThresholdArgs {
            $($(#[doc = $help])* #[arg(long, value_name = $name, value_parser = $parser)] $arg: Option<$type>),*
        }

        impl ThresholdArgs {
            /// What is not named keeps its default.
            fn apply(self, thresholds: &mut Thresholds) {
                $(if let Some(value) = self.$arg { thresholds.$field = value; })*
            }
        }
    };
}

thresholds! {
    /// A GPU is idle for this long [default: 30m]
    gpu_idle: SignedDuration = "TIME" by span => idle_for,
    /// A GPU is idle below this utilization [default: 5%]
    gpu_idle_below: Percent = "PERCENT" by share => idle_below,
    /// A pool's mean utilization is low below this [default: 40%]
    utilization_low: Percent = "PERCENT" by share => low,
    /// ... for this long [default: 30m]
    utilization_low_for: SignedDuration = "TIME" by span => low_for,
    /// A pool's mean utilization of a day is low below this [default: 30%]
    utilization_low_day: Percent = "PERCENT" by share => low_day,
    /// A pool should grow above this, except for training and batch [default: 85%]
    utilization_busy: Percent = "PERCENT" by share => busy,
    /// A pool's GPUs are saturated above this, except for training and batch [default: 95%]
    utilization_high: Percent = "PERCENT" by share => high,
    /// ... for this long [default: 1h]
    utilization_high_for: SignedDuration = "TIME" by span => high_for,
    /// A GPU's memory is nearly full above this [default: 85%]
    memory_high: Percent = "PERCENT" by share => memory,
    /// A GPU is hot above this many degrees Celsius [default: 83]
    temperature_high: u8 = "CELSIUS" by whole(1_u8..) => hot_celsius,
    /// A GPU draws much above this share of its enforced power limit [default: 90%]
    power_high: Percent = "PERCENT" by share => power,
    /// A GPU above --utilization-busy draws little below this share of its enforced power limit [default: 60%]
    power_low: Percent = "PERCENT" by share => power_low,
    /// Training keeps too few multiprocessors at work below this [default: 50%]
    training_sm_low: Percent = "PERCENT" by share => training_sm,
    /// Too many of a day's GPU-hours are idle above this [default: 20%]
    idle_hours_high: Percent = "PERCENT" by share => idle_hours,
    /// Too few of training's GPUs are spot below this; 0% never fires [default: 30%]
    training_spot_low: Percent = "PERCENT" by percent => training_spot,
    /// A busy GPU-hour may get this much more expensive in a week [default: 20%]
    unit_cost_rise: u16 = "PERCENT" by rise => unit_cost_rise,
    /// A quota is nearly full above this [default: 90%]
    quota_high: Percent = "PERCENT" by share => quota,
    /// A day may spend this share of a budget [default: 80%]
    spend_pace: Percent = "PERCENT" by share => pace,
    /// A list price may be this old [default: 90d]
    price_age: SignedDuration = "TIME" by span => price_age,
    /// A node may send no GPU readings for this long [default: 10m]
    probes_silent: SignedDuration = "TIME" by span => silent_for,
    /// A floor may be unmet for this long [default: 15m]
    floor_unmet: SignedDuration = "TIME" by span => floor_for,
}

/// An object of the Prometheus operator.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct PrometheusRule {
    api_version: &'static str,
    kind: &'static str,
    metadata: Metadata,
    spec: RuleFile,
}

#[derive(Debug, Serialize)]
struct Metadata {
    name: &'static str,
    namespace: String,
    labels: std::collections::BTreeMap<String, String>,
}

/// Carries the command out.
pub(super) fn run(args: AlertsArgs) -> Result<Exit, CliError> {
    out::write(&text(args)?).map(|()| Exit::Done)
}

fn text(args: AlertsArgs) -> Result<String, CliError> {
    let AlertsArgs { format, plain, namespace, labels, runbook_url, thresholds } = args;
    let mut wanted = Thresholds::default();
    thresholds.apply(&mut wanted);
    if wanted.low > wanted.high {
        let (low, high) = (wanted.low.0, wanted.high.0);
        return Err(CliError::Usage(format!("--utilization-low {low}% is above --utilization-high {high}%: lower it")));
    }
    let mut spec = rules(&wanted);
    if let Some(page) = runbook_url {
        spec.link(page.trim_end_matches('#'));
    }
    if plain {
        return written(format, &spec);
    }
    let own = [("app.kubernetes.io/name".to_owned(), "stoker".to_owned())];
    let metadata = Metadata { name: "stoker", namespace, labels: own.into_iter().chain(labels).collect() };
    written(format, &PrometheusRule { api_version: "monitoring.coreos.com/v1", kind: "PrometheusRule", metadata, spec })
}

fn written<T: Serialize>(format: Format, value: &T) -> Result<String, CliError> {
    match format {
        Format::Yaml => Ok(format!("{HEAD}{}", out::yaml(value)?)),
        Format::Json => out::json(value),
    }
}

/// Prints the Grafana dashboard as JSON: cost, use of GPUs, quotas, budgets, decisions. Import it, or give it to Grafana's provisioning.
#[derive(Debug, Args)]
pub(super) struct DashboardArgs {}

/// Carries the command out.
pub(super) fn dashboard(_: &DashboardArgs) -> Result<Exit, CliError> {
    out::write(DASHBOARD).map(|()| Exit::Done)
}

/// A share of a whole: `85%` or `85`.
fn percent(text: &str) -> Result<Percent, String> {
    let number = text.strip_suffix('%').unwrap_or(text);
    let share = number.parse().ok().filter(|share| *share <= 100);
    share.map(Percent).ok_or_else(|| "not a whole share of a hundred: write it like 85%".to_owned())
}

/// A share below or above which something is: of nothing, that tells always or never.
fn share(text: &str) -> Result<Percent, String> {
    percent(text)
        .and_then(|share| if share.0 == 0 { Err("must be greater than zero: write it like 85%".to_owned()) } else { Ok(share) })
}

/// How much more than before, which may be many times as much: a pool whose work ebbs for a week costs the more for each hour of it.
fn rise(text: &str) -> Result<u16, String> {
    let number = text.strip_suffix('%').unwrap_or(text).parse().ok().filter(|rise| (1..=10_000).contains(rise));
    number.ok_or_else(|| "not whole percents of 1 to 10000: write it like 20%".to_owned())
}

/// What Prometheus can look back on, in whole seconds.
fn span(text: &str) -> Result<SignedDuration, String> {
    const YEAR: SignedDuration = SignedDuration::from_hours(365 * 24);
    duration(text).and_then(|span| {
        if (SignedDuration::from_secs(1)..=YEAR).contains(&span) { Ok(span) } else { Err("between 1s and 365d".to_owned()) }
    })
}

/// By the rules of Kubernetes: an RFC 1123 label.
fn namespace(text: &str) -> Result<String, String> {
    let sign = |sign: u8| sign.is_ascii_lowercase() || sign.is_ascii_digit() || sign == b'-';
    if (1..=63).contains(&text.len()) && text.bytes().all(sign) && !text.starts_with('-') && !text.ends_with('-') {
        Ok(text.to_owned())
    } else {
        Err("invalid namespace name: use at most 63 lower-case letters, digits and inner hyphens".to_owned())
    }
}

/// By the rules of Kubernetes: letters, digits and, inside, `-_.`; a key may have a DNS name and a slash before it, a value be empty.
fn label(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("write it like release=prometheus")?;
    let word = |text: &str| {
        let outer = |sign: Option<char>| sign.is_some_and(|sign| sign.is_ascii_alphanumeric());
        let inner = |sign: char| sign.is_ascii_alphanumeric() || "-_.".contains(sign);
        text.len() <= 63 && text.chars().all(inner) && outer(text.chars().next()) && outer(text.chars().next_back())
    };
    let domain = |text: &str| text.len() <= 253 && text.split('.').all(|part| namespace(part).is_ok());
    let (before, name) = key.split_once('/').map_or((None, key), |(before, name)| (Some(before), name));
    if before.is_none_or(domain) && word(name) && (value.is_empty() || word(value)) {
        Ok((key.to_owned(), value.to_owned()))
    } else {
        Err("invalid Kubernetes label: use at most 63 letters, digits and inner -_. on each side, as in release=prometheus"
            .to_owned())
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        alerts: AlertsArgs,
    }

    fn printed(line: &[&str]) -> String {
        text(Line::try_parse_from([&["alerts"], line].concat()).unwrap().alerts).unwrap()
    }

    #[test]
    fn the_manifest_is_what_the_defaults_print() {
        let rules = include_str!("../../../manifests/monitoring/rules.yaml");
        assert!(printed(&[]) == rules, "write it anew: stoker alerts > manifests/monitoring/rules.yaml");
    }

    #[test]
    fn options_set_thresholds_and_where_the_rules_go() {
        let text = printed(&["--gpu-idle", "2h", "--temperature-high", "75", "--label", "release=kps", "--namespace", "watch"]);
        for part in ["for: 2h", "above 75 C", "release: kps", "namespace: watch", "kind: PrometheusRule"] {
            assert!(text.contains(part), "{part} in\n{text}");
        }
        let plain = printed(&["--plain", "--memory-high", "70%"]);
        assert!(plain.contains("> 0.70") && !plain.contains("PrometheusRule"), "{plain}");
        assert!(Line::try_parse_from(["alerts", "--plain", "--label", "a=b"]).is_err());
    }

    #[test]
    fn shares_and_labels_read_as_people_write_them() {
        assert_eq!((percent("85%"), percent("0"), percent("100%")), (Ok(Percent(85)), Ok(Percent(0)), Ok(Percent(100))));
        for text in ["", "%", "101%", "8.5%", "-1", "85 %"] {
            assert!(percent(text).is_err(), "{text}");
        }
        assert_eq!(label("a.b/c=d"), Ok(("a.b/c".to_owned(), "d".to_owned())));
        for text in ["a", "=b", "a=b=c", "a=b c", "-a=b", "/a=b", "A.b/c=d"] {
            assert!(label(text).is_err(), "{text}");
        }
    }

    #[test]
    fn thresholds_that_nobody_can_use_are_refused() {
        assert_eq!((rise("400%"), share("1%"), span("365d").is_ok()), (Ok(400), Ok(Percent(1)), true));
        assert!(rise("0").is_err() && rise("10001").is_err() && share("0%").is_err());
        for text in ["366d", "500ms", "0s"] {
            assert!(span(text).is_err(), "{text}");
        }
        for text in ["", "Watch", "-a", "a.b", "a b"] {
            assert!(namespace(text).is_err(), "{text}");
        }
        let crossed = ["alerts", "--utilization-low", "96%"];
        assert!(text(Line::try_parse_from(crossed).unwrap().alerts).is_err());
        assert!(printed(&["--unit-cost-rise", "400%"]).contains("1 + 4.00"));
    }
}
