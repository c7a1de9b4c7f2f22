//! Connections: accepted up to a number, with time limits for those who send slowly or do not read, and an orderly end.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd as _, OwnedFd};
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::Body;
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, Sleep};

use crate::App;
use crate::auth::Peer;
use crate::front;
use crate::telemetry::Exporter;

/// How long the head of a request may take.
const HEAD: Duration = Duration::from_secs(15);
/// How long a port may still be taken when a server starts.
const PORT: Duration = Duration::from_secs(2);
/// How long a client may leave what is sent to it unread.
const UNREAD: Duration = Duration::from_mins(1);

#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    #[error("can't listen on {address}: {source}; is another server running there? (--listen)")]
    Listen { address: SocketAddr, source: io::Error },
    #[error(
        "{address} can be reached from outside of this host, and without keys anybody could run programs there; \
             listen on 127.0.0.1 or use keys"
    )]
    OpenToAll { address: SocketAddr },
}

/// A server that was killed while it made a sandbox out of a copy of itself leaves a copy that has the port for a moment.
async fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let give_up = Instant::now() + PORT;
    loop {
        match TcpListener::bind(address).await {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && Instant::now() < give_up => {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            bound => return bound,
        }
    }
}

/// A server that has its port.
#[derive(Debug)]
pub struct Listening {
    listener: TcpListener,
    address: SocketAddr,
}

impl Listening {
    pub async fn on(address: SocketAddr, app: &App) -> Result<Self, ServeError> {
        if app.config.is_open && !address.ip().is_loopback() {
            return Err(ServeError::OpenToAll { address });
        }
        let failed = |source| ServeError::Listen { address, source };
        let listener = bind(address).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        Ok(Self { listener, address })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until `stop` comes; then nobody new is let in, what runs may go on for the grace period, and what still
    /// runs then is cancelled.
    pub async fn serve(self, app: Arc<App>, stop: impl Future<Output = ()>) {
        let router = crate::router(&app);
        let connections = Arc::new(Semaphore::new(app.config.connections));
        let exporter = app.tracer.clone().map(Exporter::start);
        let mut stop = std::pin::pin!(stop);
        loop {
            let room = Arc::clone(&connections).acquire_owned();
            let accepted = tokio::select! {
                () = &mut stop => break,
                accepted = async { (room.await, self.listener.accept().await) } => accepted,
            };
            let (Ok(room), Ok((stream, peer))) = accepted else {
                // Out of descriptors, or somebody who left already.
                tokio::time::sleep(Duration::from_millis(10)).await;
                continue;
            };
            let _ = stream.set_nodelay(true);
            let line = stream.as_fd().try_clone_to_owned().ok().map(Arc::new);
            let io = TokioIo::new(Impatient::new(stream));
            let (router, app_of_answers) = (router.clone(), Arc::clone(&app));
            let room = Arc::new(room);
            let place = Arc::clone(&room);
            let service = hyper::service::service_fn(move |mut request: hyper::Request<Incoming>| {
                let extensions = request.extensions_mut();
                extensions.insert(Connection(Arc::clone(&place)));
                extensions.insert(Line(line.as_ref().map(Arc::downgrade).unwrap_or_default()));
                let (router, app) = (router.clone(), Arc::clone(&app_of_answers));
                async move {
                    let proxies = &app.config.trusted_proxies;
                    let answer = front::answer(router, Peer(peer), proxies, request.map(Body::new));
                    Ok::<_, Infallible>(answer.await)
                }
            });
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEAD)
                .max_buf_size(64 << 10)
                .serve_connection(io, service)
                .with_upgrades();
            let mut is_stopping = app.stopping.subscribe();
            tokio::spawn(async move {
                let _room = room;
                let mut connection = std::pin::pin!(connection);
                tokio::select! {
                    _ = connection.as_mut() => return,
                    _ = is_stopping.changed() => connection.as_mut().graceful_shutdown(),
                }
                let _ = connection.await;
            });
        }
        drop(self.listener);
        app.stopping.send_replace(true);
        let running = app.interpreter.count_running();
        tracing::info!(running, "stopping; what runs may finish");
        let all = u32::try_from(app.config.connections).unwrap_or(u32::MAX);
        let mut all_gone = std::pin::pin!(connections.acquire_many(all));
        if tokio::time::timeout(app.config.grace, &mut all_gone).await.is_err() {
            let cancelled = app.interpreter.cancel_all();
            tracing::warn!(cancelled, "the grace period is over; what still ran has been cancelled");
            let _ = tokio::time::timeout(Duration::from_secs(5), all_gone).await;
        }
        // Those that wait for an answer of a tool have no connection to wait for.
        app.interpreter.cancel_all();
        if let Some(exporter) = exporter {
            exporter.finish().await;
        }
    }
}

/// A connection's place among those that may be open, for what goes on when it is no HTTP connection any more.
#[derive(Debug, Clone)]
pub struct Connection(#[expect(dead_code, reason = "it is only held")] Arc<OwnedSemaphorePermit>);

/// The connection that a request came on, as long as it is open: for whoever wants to know that its other side is gone.
#[derive(Debug, Clone, Default)]
pub struct Line(pub Weak<OwnedFd>);

impl<S: Sync> FromRequestParts<S> for Line {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(parts.extensions.get().cloned().unwrap_or_default())
    }
}

/// A connection that is given up when the other side does not read for too long. Waiting for a request or for a program
/// is no fault of the client's, so reading has no limit here.
#[derive(Debug)]
struct Impatient {
    stream: TcpStream,
    until: Option<Pin<Box<Sleep>>>,
}

impl Impatient {
    fn new(stream: TcpStream) -> Self {
        Self { stream, until: None }
    }

    fn limit<T>(&mut self, context: &mut Context<'_>, result: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if result.is_ready() {
            self.until = None;
            return result;
        }
        let until =
            self.until.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(Instant::now() + UNREAD)));
        ready!(until.as_mut().poll(context));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client does not read")))
    }
}

impl AsyncRead for Impatient {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Impatient {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.limit(context, result)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.stream).poll_flush(context);
        self.limit(context, result)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write_vectored(context, pieces);
        self.limit(context, result)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
