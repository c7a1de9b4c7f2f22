//! A multipart body whose parts have heads of a sane size. The parser keeps what it has not understood yet, and looks through
//! all of it again with each piece that comes: a head without an end would take all memory, and a core.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use axum::body::{Body, BodyDataStream, Bytes};
use axum::extract::{FromRequest, Request};
use axum::http::header;
use futures_core::Stream;

use crate::App;
use crate::failure::Failure;

/// Bytes that the parser may take without giving anything back. A part's head has a name in it, hardly more.
const LONGEST_HEAD: usize = 64 << 10;

/// The parts of a request's body.
#[derive(Debug)]
pub struct Multipart {
    parser: multer::Multipart<'static>,
    /// What the parser has taken since it last gave something back.
    taken: Arc<AtomicUsize>,
}

/// One part.
#[derive(Debug)]
pub struct Part {
    field: multer::Field<'static>,
    taken: Arc<AtomicUsize>,
}

impl FromRequest<Arc<App>> for Multipart {
    type Rejection = Failure;

    async fn from_request(request: Request, _: &Arc<App>) -> Result<Self, Failure> {
        let kind = request.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
        let boundary = multer::parse_boundary(kind.unwrap_or_default()).map_err(|_| {
            Failure::bad_request("an upload is a multipart/form-data body with its files in the field `file`")
        })?;
        Ok(Self::new(request.into_body(), boundary))
    }
}

impl Multipart {
    fn new(body: Body, boundary: String) -> Self {
        let taken = Arc::new(AtomicUsize::new(0));
        let source = Source { body: body.into_data_stream(), taken: Arc::clone(&taken), has_given: false };
        Self { parser: multer::Multipart::new(source, boundary), taken }
    }

    pub async fn next_part(&mut self) -> Result<Option<Part>, Failure> {
        let field = self.parser.next_field().await.map_err(|error| malformed(&error))?;
        self.taken.store(0, Ordering::Relaxed);
        Ok(field.map(|field| Part { field, taken: Arc::clone(&self.taken) }))
    }
}

impl Part {
    pub fn name(&self) -> &str {
        self.field.name().unwrap_or_default()
    }

    pub fn file_name(&self) -> Option<&str> {
        self.field.file_name()
    }

    pub async fn next_piece(&mut self) -> Result<Option<Bytes>, Failure> {
        let piece = self.field.chunk().await.map_err(|error| malformed(&error))?;
        self.taken.store(0, Ordering::Relaxed);
        Ok(piece)
    }
}

fn malformed(error: &multer::Error) -> Failure {
    Failure::bad_request(format!("the upload is malformed: {error}"))
}

/// The body on its way to the parser.
struct Source {
    body: BodyDataStream,
    taken: Arc<AtomicUsize>,
    /// Whether the parser has a piece that it has not looked at yet. Left to itself it takes all that is there first.
    has_given: bool,
}

impl Stream for Source {
    type Item = Result<Bytes, Box<dyn std::error::Error + Send + Sync>>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if std::mem::take(&mut self.has_given) {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        let next = std::task::ready!(Pin::new(&mut self.body).poll_next(context));
        self.has_given = true;
        Poll::Ready(next.map(|piece| {
            let piece = piece?;
            let taken = self.taken.fetch_add(piece.len(), Ordering::Relaxed);
            // One piece may be large by itself; what has come before it may not.
            if taken > LONGEST_HEAD {
                return Err("a part's head is too long".into());
            }
            Ok(piece)
        }))
    }
}
