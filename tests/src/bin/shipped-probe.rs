//! `stoker-probe` as it is shipped. Cargo tells a test where the programs of its own package are, and builds them with it; not those of
//! others.

fn main() -> std::process::ExitCode {
    stoker_probe::cli::main()
}
