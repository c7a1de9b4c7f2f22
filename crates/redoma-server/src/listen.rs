//! Connections: accepted up to a number (`connections.rs`), with time limits for clients that send slowly or do not read, and
//! an orderly end.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::Body;
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use hyper::body::{Frame, Incoming, SizeHint};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, Sleep};

use crate::App;
use crate::auth::Peer;
use crate::connections::{Busy, Connection, Connections};
use crate::front;
use crate::memory::NoRoom;
use crate::telemetry::Exporter;
use crate::websocket::{READ_BUFFER, Unfinished};

/// How long the head of a request may take.
const HEAD: Duration = Duration::from_secs(15);
/// How long a port may still be taken when a server starts.
const PORT: Duration = Duration::from_secs(2);
/// Bytes that wait in Linux to be sent on a connection. Without this bound they are 4 MiB for each client that does not read, of a
/// memory that all connections of the host share (`tcp_mem`); bytes on their way to a client that reads are not bounded by it.
const MAX_UNSENT: u32 = 128 << 10;
/// Pieces that are discarded in one go.
const MAX_DISCARDS: usize = 64;
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
        let proxies = app.config.trusted_proxies.clone();
        let connections = Connections::new(app.config.connections, proxies);
        let exporter = app.tracer.clone().map(Exporter::start);
        let mut stop = std::pin::pin!(stop);
        loop {
            let accepted = tokio::select! {
                () = &mut stop => break,
                accepted = async { connections.ready().await; self.listener.accept().await } => accepted,
            };
            let Ok((stream, peer)) = accepted else {
                // Out of descriptors, or a client that left already.
                tokio::time::sleep(Duration::from_millis(10)).await;
                continue;
            };
            let stream = Arc::new(stream);
            // One that there is no room for is closed.
            let Some(place) = connections.admit(peer.ip(), &stream) else { continue };
            let _ = stream.set_nodelay(true);
            let _ = SockRef::from(&*stream).set_tcp_notsent_lowat(MAX_UNSENT);
            let io = TokioIo::new(Impatient::new(stream, &place));
            let (router, app_of_answers) = (router.clone(), Arc::clone(&app));
            let of_answers = Arc::downgrade(&place);
            let service = hyper::service::service_fn(move |mut request: hyper::Request<Incoming>| {
                let busy = of_answers.upgrade().map(|connection| Busy::new(&connection));
                if let Some(busy) = &busy {
                    request.extensions_mut().insert(busy.clone());
                }
                let (router, app) = (router.clone(), Arc::clone(&app_of_answers));
                async move {
                    let answer = front::answer(&app, router, Peer(peer), request.map(Body::new)).await;
                    Ok::<_, Infallible>(answer.map(|body| BusyBody { body, _busy: busy }))
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
                let _place = place;
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
        let mut all_gone = std::pin::pin!(connections.all_gone());
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

/// The body of an answer; its connection is busy until it is sent.
struct BusyBody {
    body: Body,
    _busy: Option<Busy>,
}

impl hyper::body::Body for BusyBody {
    type Data = <Body as hyper::body::Body>::Data;
    type Error = <Body as hyper::body::Body>::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// The connection that a request came on, as long as it is open: for whoever wants to know that its other side is gone.
#[derive(Debug, Clone, Default)]
pub struct Line(pub Weak<TcpStream>);

impl<S: Sync> FromRequestParts<S> for Line {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(parts.extensions.get::<Busy>().map(|busy| Self(busy.0.line.clone())).unwrap_or_default())
    }
}

type Growing = Pin<Box<dyn Future<Output = Result<(), NoRoom>> + Send>>;

/// A connection that is given up when the other side does not read for too long. Waiting for a request or for a program
/// is no fault of the client's, so reading has no limit here; but a WebSocket is read only while there is room for what
/// comes. The stream is shared with those that want to know when the client leaves, so that it needs one descriptor.
struct Impatient {
    stream: Arc<TcpStream>,
    connection: Weak<Connection>,
    until: Option<Pin<Box<Sleep>>>,
    growing: Option<Growing>,
    /// What comes is not wanted any more.
    is_refused: bool,
}

impl Impatient {
    fn new(stream: Arc<TcpStream>, connection: &Arc<Connection>) -> Self {
        Self { stream, connection: Arc::downgrade(connection), until: None, growing: None, is_refused: false }
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

    /// Room for what is read next, if that has to be counted.
    fn poll_room(&mut self, context: &mut Context<'_>) -> Poll<Option<Arc<Unfinished>>> {
        let connection = self.connection.upgrade();
        let Some(unfinished) = connection.and_then(|connection| connection.unfinished.get().cloned()) else {
            return Poll::Ready(None);
        };
        if self.growing.is_none() && !self.is_refused && !unfinished.has_room() {
            self.growing = Some(Box::pin(Arc::clone(&unfinished).room()));
        }
        if let Some(growing) = &mut self.growing {
            let room = ready!(growing.as_mut().poll(context));
            self.growing = None;
            if room == Err(NoRoom) {
                // Its conversation was told, and ends.
                self.is_refused = true;
            }
        }
        Poll::Ready(Some(unfinished))
    }

    /// Reads what comes and forgets it: a client that is told to go hears it when it has said what it was about to say.
    fn poll_discard(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut scratch = [0; 4096];
        for _ in 0..MAX_DISCARDS {
            ready!(self.stream.poll_read_ready(context))?;
            match self.stream.try_read(&mut scratch) {
                Ok(0) => return Poll::Ready(Ok(())),
                Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Poll::Ready(Err(error)),
                Ok(_) | Err(_) => {}
            }
        }
        // Others want their turn too.
        context.waker().wake_by_ref();
        Poll::Pending
    }

    /// Tries again until it is done or has to wait.
    fn poll_write_with(
        &mut self,
        context: &mut Context<'_>,
        write: impl Fn(&TcpStream) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        let result = loop {
            match self.stream.poll_write_ready(context) {
                Poll::Pending => break Poll::Pending,
                Poll::Ready(Err(error)) => break Poll::Ready(Err(error)),
                Poll::Ready(Ok(())) => {}
            }
            match write(&self.stream) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                result => break Poll::Ready(result),
            }
        };
        self.limit(context, result)
    }
}

impl AsyncRead for Impatient {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let unfinished = ready!(self.poll_room(context));
        if self.is_refused {
            return self.poll_discard(context);
        }
        loop {
            ready!(self.stream.poll_read_ready(context))?;
            let free = buffer.initialize_unfilled();
            let most = if unfinished.is_some() { free.len().min(READ_BUFFER) } else { free.len() };
            match self.stream.try_read(&mut free[..most]) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
                Ok(count) => {
                    buffer.advance(count);
                    if let Some(unfinished) = unfinished {
                        unfinished.add(count);
                    }
                    return Poll::Ready(Ok(()));
                }
            }
        }
    }
}

impl AsyncWrite for Impatient {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_with(context, |stream| stream.try_write(bytes))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        let _ = rustix::net::shutdown(&*self.stream, rustix::net::Shutdown::Write);
        Poll::Ready(Ok(()))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_with(context, |stream| stream.try_write_vectored(pieces))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }
}
