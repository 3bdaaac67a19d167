//! A plain HTTP request, as an operator's curl makes it.

use std::io;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpStream, ToSocketAddrs};

/// The whole answer to a GET, with its head.
///
/// # Errors
/// Where nobody answers.
pub async fn get(addr: impl ToSocketAddrs, path: &str) -> io::Result<String> {
    let mut stream = TcpStream::connect(addr).await?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}

/// Whether an answer is 200.
pub fn is_ok(answer: &str) -> bool {
    answer.starts_with("HTTP/1.1 200")
}
