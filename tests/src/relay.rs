//! Connections that break.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// Stands between probes and the service; its connections can be cut, and it can lead elsewhere or nowhere.
pub struct Relay {
    /// Where it listens.
    pub addr: SocketAddr,
    to: watch::Sender<Option<SocketAddr>>,
    cut: watch::Sender<u32>,
    opened: Arc<AtomicUsize>,
    _serving: JoinSet<()>,
}

impl Relay {
    /// One that leads nowhere.
    ///
    /// # Errors
    /// When there is no port for it.
    pub async fn start() -> std::io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let addr = listener.local_addr()?;
        let (to, leads) = watch::channel(None::<SocketAddr>);
        let (cut, cuts) = watch::channel(0);
        let opened = Arc::<AtomicUsize>::default();
        let count = Arc::clone(&opened);
        let mut serving = JoinSet::new();
        serving.spawn(async move {
            let mut open = JoinSet::new();
            loop {
                let Ok((mut near, _)) = listener.accept().await else { continue };
                count.fetch_add(1, Ordering::Relaxed);
                let (to, mut cuts) = (*leads.borrow(), cuts.clone());
                cuts.mark_unchanged();
                open.spawn(async move {
                    let Some(to) = to else { return };
                    let Ok(mut far) = TcpStream::connect(to).await else { return };
                    tokio::select! {
                        _ = tokio::io::copy_bidirectional(&mut near, &mut far) => {}
                        _ = cuts.changed() => {}
                    }
                });
            }
        });
        Ok(Self { addr, to, cut, opened, _serving: serving })
    }

    /// Leads new connections there from now on, or nowhere.
    pub fn lead(&self, to: Option<SocketAddr>) {
        self.to.send_replace(to);
    }

    /// Cuts those that there are.
    pub fn cut(&self) {
        self.cut.send_modify(|cut| *cut += 1);
    }

    /// How many connections were opened so far.
    pub fn opened(&self) -> usize {
        self.opened.load(Ordering::Relaxed)
    }
}
