//! `stoker doctor`: which flags of a Cluster Autoscaler fight what the policy promises.

use std::path::{Path, PathBuf};

use clap::{ArgGroup, Args};
use serde::Serialize;

use super::args::OutputArg;
use super::exit::{CliError, Exit};
use super::out;
use crate::doctor::{self, CommandLine, Cure, Finding, NoCommandLine, Release, Severity, Wants};
use stoker_service::clock::Clock;
use stoker_service::files;
use stoker_service::needs::needs;
use stoker_service::price_tables::{self, EXAMPLE};
use stoker_service::print::{count, paragraph, table};

/// Shows which flags of your Cluster Autoscaler conflict with the policy's windows, floors and boot deadline, why, and what to write instead.
///
/// Exit code 3 when a flag must change: something promised is not kept, or the autoscaler would not start.
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("autoscaler").required(true).args(["autoscaler_args", "autoscaler_manifest"])))]
pub(super) struct DoctorArgs {
    /// The autoscaler's command line as one text, or @FILE to read it from a file (@- for standard input)
    #[arg(long, value_name = "FLAGS", allow_hyphen_values = true)]
    autoscaler_args: Option<String>,
    /// Manifest whose autoscaler is examined: a Deployment, a Pod, or a List of objects; - for standard input
    #[arg(long, value_name = "FILE")]
    autoscaler_manifest: Option<PathBuf>,
    /// Release of the autoscaler, e.g. 1.34 [default: from the manifest's image, else the newest known]
    #[arg(long, value_name = "RELEASE")]
    autoscaler_version: Option<Release>,
    /// Policy file [default: the built-in example]
    #[arg(long, env = "STOKER_POLICY", value_name = "FILE")]
    policy: Option<PathBuf>,
    /// Folder of price tables whose names the policy may use [default: the built-in ones]
    #[arg(long, env = "STOKER_PRICES_DIR", value_name = "DIR")]
    prices_dir: Option<PathBuf>,
    #[command(flatten)]
    output: OutputArg,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct DoctorReport {
    /// Release by which flags and defaults are judged.
    autoscaler_version: String,
    policy: String,
    errors: usize,
    warnings: usize,
    /// The gravest first.
    findings: Vec<Row>,
    /// What the policy needs of the service, whatever the autoscaler's flags.
    needs: Vec<String>,
    #[serde(skip)]
    assumed: bool,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Row {
    severity: Severity,
    flag: String,
    /// How it stands now.
    stands: String,
    why: String,
    cure: String,
    /// Flags to write, exactly; empty where the cure is another.
    write: Vec<String>,
}

/// Carries the command out.
pub(super) fn run(args: &DoctorArgs) -> Result<Exit, CliError> {
    let prices = price_tables::prices(args.prices_dir.as_deref(), Clock::system().now())?;
    let policy = price_tables::policy(args.policy.as_deref(), &prices)?;
    let CommandLine { words, release: by_image } = command_line(args)?;
    let told = args.autoscaler_version.or(by_image);
    let release = told.unwrap_or(Release::LAST);
    let findings = doctor::examine(&words, release, &Wants::of(&policy));
    let of = |severity| findings.iter().filter(|finding| finding.severity == severity).count();
    let report = DoctorReport {
        autoscaler_version: release.to_string(),
        policy: args.policy.as_ref().map_or_else(|| EXAMPLE.to_owned(), |path| path.display().to_string()),
        errors: of(Severity::Error),
        warnings: of(Severity::Warning),
        assumed: told.is_none(),
        findings: findings.into_iter().map(Row::from).collect(),
        needs: needs(&policy).iter().map(ToString::to_string).collect(),
    };
    out::print(args.output.format, &report, DoctorReport::table)?;
    Ok(if report.errors > 0 { Exit::BadFile } else { Exit::Done })
}

fn command_line(args: &DoctorArgs) -> Result<CommandLine, CliError> {
    let named = |place: &str| {
        let place = place.to_owned();
        move |error: NoCommandLine| CliError::Usage(format!("{place}: {error}"))
    };
    if let Some(path) = &args.autoscaler_manifest {
        return doctor::of_manifest(&text_of(path)?).map_err(named(&files::shown(path)));
    }
    let given = args.autoscaler_args.as_deref().unwrap_or_default();
    let (place, text) = match given.strip_prefix('@') {
        Some(path) => (path, text_of(Path::new(path))?),
        None => ("--autoscaler-args", given.to_owned()),
    };
    Ok(CommandLine { words: doctor::split(&text).map_err(named(place))?, release: None })
}

fn text_of(path: &Path) -> Result<String, CliError> {
    files::read_text_or_stdin(path).map_err(CliError::failed(format!("{} cannot be read", files::shown(path))))
}

impl From<Finding> for Row {
    fn from(Finding { severity, flag, stands, why, cure }: Finding) -> Self {
        let told = cure.to_string();
        let write = match cure {
            Cure::Write(flags) => flags,
            Cure::TakeOut | Cure::Do(_) => Vec::new(),
        };
        Self { severity, flag, stands, why, cure: told, write }
    }
}

impl DoctorReport {
    fn table(&self) -> String {
        let Self { autoscaler_version: release, policy, errors, warnings, findings, needs, assumed } = self;
        let needs: String = needs.iter().map(|need| paragraph("note:", need)).collect();
        let judged = if *assumed { " (the newest known; give yours with --autoscaler-version)" } else { "" };
        let head = format!("Cluster Autoscaler {release}{judged}, policy {policy}: ");
        if findings.is_empty() {
            return head + "nothing to change\n" + &needs;
        }
        let rows =
            findings.iter().map(|row| vec![row.severity.to_string(), row.stands.clone(), format!("{}: {}", row.why, row.cure)]);
        let rows = table(&["SEVERITY", "FLAG", "WHY, AND WHAT TO DO"], &[], rows.collect());
        format!("{head}{}, {}\n\n{rows}{needs}", count(*errors, "error"), count(*warnings, "warning"))
    }
}
