//! Starting, interrupting, restarting and ending kernels. Each is carried through when the client that asked has gone.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use redoma_engine::interpreter::InterpreterError;
use redoma_model::{Principal, Role};

use super::kernel::{Kernel, KernelSession};
use super::messages::Parent;
use super::queue;
use super::specs::Spec;
use crate::App;
use crate::executing::blocking;
use crate::failure::Failure;
use crate::rates::Wanted;

/// How long a cell that was told to end may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// Work that goes on when nobody waits for it any more.
async fn carried_through<T: Send + 'static>(
    work: impl Future<Output = Result<T, Failure>> + Send + 'static,
) -> Result<T, Failure> {
    tokio::spawn(work).await.unwrap_or_else(|error| Err(Failure::internal(&error)))
}

async fn open_session(app: &Arc<App>, principal: &Principal) -> Result<KernelSession, Failure> {
    let _permit = app.permit(principal, Wanted::Session)?;
    let (app, principal) = (Arc::clone(app), principal.clone());
    let name = "jupyter".parse().ok();
    let (session, spared) = blocking(move || app.interpreter.open_kernel_session(&principal, name)).await?;
    Ok(KernelSession::new(session.id, Some(spared)))
}

pub async fn start(
    app: &Arc<App>,
    principal: Principal,
    spec: &'static Spec,
) -> Result<Arc<Kernel>, Failure> {
    let app = Arc::clone(app);
    carried_through(async move {
        let session = open_session(&app, &principal).await?;
        let (kernel, queues) =
            Kernel::new(spec, principal.owner.clone(), session).map_err(|error| Failure::internal(&error))?;
        let replaced = match app.jupyter.registry.add(&kernel) {
            Ok(replaced) => replaced,
            Err(failure) => {
                remove_session(&app, &kernel).await;
                return Err(failure);
            }
        };
        bury(&app, replaced);
        tokio::spawn(queue::work(Arc::clone(&app), Arc::clone(&kernel), queues.shell));
        tokio::spawn(queue::work_urgently(Arc::clone(&app), Arc::clone(&kernel), queues.control));
        Ok(kernel)
    })
    .await
}

/// Ends those that have been forgotten.
pub fn bury(app: &Arc<App>, kernels: Vec<Arc<Kernel>>) {
    for kernel in kernels {
        let app = Arc::clone(app);
        tokio::spawn(async move { finish(&app, &kernel).await });
    }
}

/// Ends a kernel, with what runs in it. Its session stays if it has files.
pub async fn end(app: &Arc<App>, kernel: &Arc<Kernel>) -> Result<(), Failure> {
    if !app.jupyter.registry.remove(kernel) {
        return Err(Failure::not_found("kernel"));
    }
    let (app, kernel) = (Arc::clone(app), Arc::clone(kernel));
    carried_through(async move {
        finish(&app, &kernel).await;
        Ok(())
    })
    .await
}

async fn finish(app: &Arc<App>, kernel: &Arc<Kernel>) {
    kernel.gone.send_replace(true);
    kernel.cancel_current();
    stop(app, kernel).await;
    let mut ended = kernel.ended.subscribe();
    let _ = tokio::time::timeout(PATIENCE, ended.wait_for(|ended| *ended)).await;
    kernel.disconnect_all();
    remove_session(app, kernel).await;
}

/// Whoever the kernel belongs to, for what is done without them.
fn owner(kernel: &Kernel) -> Principal {
    Principal::without_key(Role::Client, kernel.owner.clone(), true)
}

/// Ends the engine's part of it; whether its session is still there.
async fn stop(app: &Arc<App>, kernel: &Arc<Kernel>) -> bool {
    let (app, kernel) = (Arc::clone(app), Arc::clone(kernel));
    let stopped = blocking(move || match app.interpreter.stop_kernel(&owner(&kernel), &kernel.session()) {
        Ok(()) => Ok(true),
        Err(InterpreterError::NotFound(_)) => Ok(false),
        Err(error) => Err(error),
    });
    stopped.await.unwrap_or(true)
}

/// Removes the session, unless it has files: those can still be downloaded until its time is over.
async fn remove_session(app: &Arc<App>, kernel: &Arc<Kernel>) {
    let (app, kernel) = (Arc::clone(app), Arc::clone(kernel));
    let removed = blocking(move || {
        let (owner, session) = (owner(&kernel), kernel.session());
        if app.interpreter.session(&owner, &session, None)?.files > 0 {
            return Ok(());
        }
        app.interpreter.remove_session(&owner, &session)
    });
    // One that is not there any more, or in use by somebody else, needs no removal by us.
    let _ = removed.await;
}

/// Interrupts the cell that runs.
pub async fn interrupt(app: &Arc<App>, principal: Principal, kernel: &Arc<Kernel>) -> Result<(), Failure> {
    kernel.interrupted.notify_waiters();
    let (app, session) = (Arc::clone(app), kernel.session());
    carried_through(blocking(move || app.interpreter.interrupt(&principal, &session))).await
}

/// Ends what runs and waits, and all variables; the kernel goes on under the same id.
pub async fn restart(app: &Arc<App>, principal: Principal, kernel: &Arc<Kernel>) -> Result<(), Failure> {
    let (app, kernel) = (Arc::clone(app), Arc::clone(kernel));
    carried_through(async move {
        kernel.epoch.fetch_add(1, Ordering::SeqCst);
        kernel.cancel_current();
        if !stop(&app, &kernel).await {
            // Its time was over; files are gone too.
            kernel.set_session(open_session(&app, &principal).await?);
        }
        let quiet = async {
            while kernel.is_busy() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let _ = tokio::time::timeout(PATIENCE, quiet).await;
        kernel.forget_cells();
        for state in ["starting", "idle"] {
            kernel.publish_status(&Parent::none(), state).await;
        }
        Ok(())
    })
    .await
}
