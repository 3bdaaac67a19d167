//! `stoker` as it is shipped, for the tests: see `shipped-probe`.

fn main() -> std::process::ExitCode {
    stoker::cli::main()
}
