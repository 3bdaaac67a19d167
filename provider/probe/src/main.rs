//! `stoker-probe`: one on each GPU node.

fn main() -> std::process::ExitCode {
    stoker_probe::cli::main()
}
