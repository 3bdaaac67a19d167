//! `stoker`: supplies GPU nodes to a Kubernetes cluster.

fn main() -> std::process::ExitCode {
    stoker::cli::main()
}
