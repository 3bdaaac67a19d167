//! What every bench ends with: its figures, each beside its bar.

/// Whether the short form was asked for: less of everything, for ratios within seconds.
pub(crate) fn is_short() -> bool {
    std::env::args().any(|argument| argument == "--short")
}

/// The verdicts of a bench. A bar that is missed is said, and fails nothing: a shared machine is no judge.
pub(crate) struct Report {
    bench: &'static str,
    lines: Vec<String>,
    ratios: Vec<String>,
}

impl Report {
    /// A report of that bench; says how busy the machine is.
    pub(crate) fn new(bench: &'static str) -> Self {
        println!("bench {bench}: load before {}", load());
        Self { bench, lines: Vec::new(), ratios: Vec::new() }
    }

    /// A figure beside its bar, and whether it meets it.
    pub(crate) fn judge(&mut self, what: &str, figure: f64, unit: &str, bar: &str, met: bool) {
        let verdict = if met { "ok" } else { "MISSED" };
        self.lines.push(format!("bench {}: {what} {} {unit} (bar {bar}) {verdict}", self.bench, short(figure)));
    }

    /// A figure over its bound in the same run. Machines differ in it little, so `tests/benches.sh` compares it with the record.
    pub(crate) fn ratio(&mut self, what: &str, ratio: f64) {
        self.ratios.push(format!("ratio {} {what} {ratio:.3}", self.bench));
    }

    /// Prints the verdicts, and the ratios for programs to read.
    pub(crate) fn print(&self) {
        println!("bench {}: load after {}", self.bench, load());
        for line in self.lines.iter().chain(&self.ratios) {
            println!("{line}");
        }
    }
}

/// A number with three digits that matter.
pub(crate) fn short(figure: f64) -> String {
    let digits = match figure.abs() {
        0.0 => 0,
        x if x < 10.0 => 2,
        x if x < 100.0 => 1,
        _ => 0,
    };
    format!("{figure:.digits$}")
}

/// The system's load, where it tells.
fn load() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().filter(|load| !load.is_empty()).unwrap_or("unknown").to_owned()
}
