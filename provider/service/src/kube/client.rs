//! How the API server is reached.

use std::error::Error;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::Duration;

use kube::config::{InClusterError, KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::{Client, Config};

use crate::files;

/// How long a connection may be silent in mid answer. Above the time after which the server ends a quiet watch.
const READ_TIMEOUT: Duration = Duration::from_secs(90);
/// How long it may take to connect.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Why there is no client.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The kubeconfig cannot be used.
    #[error("cannot use the kubeconfig {}", .path.display())]
    Kubeconfig {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        source: Box<KubeconfigError>,
    },
    /// No kubeconfig is named, and this is not a pod with a service account.
    #[error("no kubeconfig is given, and the pod's own access cannot be used: outside of a cluster, give --kubeconfig FILE")]
    InCluster(#[source] Box<InClusterError>),
    /// The TLS part of the configuration is bad.
    #[error("cannot make a Kubernetes client")]
    Build(#[source] Box<kube::Error>),
}

/// Whether this process runs in a pod of a cluster: every container of one has the API server's address in its environment.
pub fn in_cluster() -> bool {
    std::env::var_os("KUBERNETES_SERVICE_HOST").is_some_and(|host| !host.is_empty())
}

/// A client with the access of `kubeconfig`, or where none is named with that of the pod that this process runs in.
///
/// Nothing is sent yet: a server that cannot be reached shows in the first request.
///
/// # Errors
/// See [`ClientError`].
pub async fn connect(kubeconfig: Option<&Path>) -> Result<Client, ClientError> {
    crate::listener::install_crypto();
    let mut config = match kubeconfig {
        Some(path) => {
            let bad = |source| ClientError::Kubeconfig { path: path.to_owned(), source: Box::new(source) };
            // Read beforehand within the bounds of all files; what it names is found by its place.
            files::read(path).map_err(|source| bad(KubeconfigError::ReadConfig(source, path.to_owned())))?;
            let file = Kubeconfig::read_from(path).map_err(bad)?;
            Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await.map_err(bad)?
        }
        None => Config::incluster().map_err(|source| ClientError::InCluster(Box::new(source)))?,
    };
    config.connect_timeout = Some(CONNECT_TIMEOUT);
    config.read_timeout = Some(READ_TIMEOUT);
    // Else a connection's idle time in the pool would count against its next answer.
    config.reset_reader_on_write = true;
    Client::try_from(config).map_err(|source| ClientError::Build(Box::new(source)))
}

/// A failed request in words: what the server answered, and what the system said where it was not reached at all, as the client's own
/// message leaves that out.
pub fn in_words(error: &(dyn Error + 'static)) -> String {
    let causes = || std::iter::successors(Some(error), |cause| (*cause).source());
    let answered = causes().find_map(|cause| match cause.downcast_ref::<kube::Error>()? {
        kube::Error::Api(status) => Some(&status.message).filter(|message| !message.is_empty()),
        _ => None,
    });
    if let Some(message) = answered {
        return message.clone();
    }
    let Some(of_system) = causes().filter_map(|cause| cause.downcast_ref::<io::Error>()).last() else {
        return error.to_string();
    };
    let why = match of_system.kind() {
        ErrorKind::ConnectionRefused => "connection refused".to_owned(),
        ErrorKind::ConnectionReset => "connection reset".to_owned(),
        ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable => "no route to its address".to_owned(),
        ErrorKind::TimedOut => "it did not answer in time".to_owned(),
        _ => of_system.to_string(),
    };
    format!("the API server cannot be reached: {why}")
}

#[cfg(test)]
mod tests {

    use super::*;

    #[test]
    fn an_answer_of_the_server_is_told_by_its_message_alone() {
        let message = "nodes is forbidden: User \"u\" cannot list resource \"nodes\"";
        let status = kube::core::Status::failure(message, "Forbidden").with_code(403);
        assert_eq!(in_words(&kube::Error::Api(Box::new(status))), message);
    }

    #[tokio::test]
    async fn a_bad_kubeconfig_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config");
        let error = connect(Some(&path)).await.err().unwrap();
        assert!(error.to_string().ends_with(&path.display().to_string()), "{error}");
        std::fs::write(&path, "apiVersion: v1\nkind: Config\ncurrent-context: absent\n").unwrap();
        let error = connect(Some(&path)).await.err().unwrap();
        assert!(error.source().unwrap().to_string().contains("absent"), "{error:?}");
    }

    #[tokio::test]
    async fn a_good_kubeconfig_makes_a_client() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config");
        let text = "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
                    contexts: [{name: c, context: {cluster: k, user: u}}]\n\
                    clusters: [{name: k, cluster: {server: 'https://127.0.0.1:1', insecure-skip-tls-verify: true}}]\n\
                    users: [{name: u, user: {token: t}}]\n";
        std::fs::write(&path, text).unwrap();
        assert!(connect(Some(&path)).await.is_ok());
    }
}
