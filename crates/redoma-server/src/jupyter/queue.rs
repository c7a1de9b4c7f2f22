//! What a kernel has to do, one after the other: cells, and whatever else asks on the shell channel, as Jupyter's own kernel
//! does it. What comes on the control channel has a queue of its own and overtakes.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use serde_json::json;
use tokio::sync::mpsc::UnboundedReceiver;

use super::kernel::{Kernel, Work};
use super::messages::Channel;
use super::{cell, requests};
use crate::App;

/// Works until the kernel is no more.
pub async fn work(app: Arc<App>, kernel: Arc<Kernel>, mut queue: UnboundedReceiver<Work>) {
    let mut gone = kernel.gone.subscribe();
    let mut waiting: VecDeque<Work> = VecDeque::new();
    loop {
        if waiting.is_empty() {
            let next = tokio::select! {
                biased;
                work = queue.recv() => work,
                _ = gone.wait_for(|gone| *gone) => None,
            };
            waiting.extend(next);
        }
        let Some(work) = waiting.pop_front() else { break };
        let is_late = work.epoch != kernel.epoch.load(Ordering::SeqCst) || kernel.is_gone();
        let is_cell = work.request.kind == "execute_request";
        if is_cell && (work.is_aborted || is_late) {
            abort(&kernel, &work).await;
        } else if is_cell {
            if cell::run(&app, &kernel, &work).await == cell::Ended::Badly {
                // What waits now does not run; what comes later does.
                waiting.extend(std::iter::from_fn(|| queue.try_recv().ok()));
                for work in &mut waiting {
                    work.is_aborted = true;
                }
            }
        } else {
            requests::answer(&app, &kernel, &work).await;
        }
    }
    kernel.ended.send_replace(true);
}

pub async fn work_urgently(app: Arc<App>, kernel: Arc<Kernel>, mut queue: UnboundedReceiver<Work>) {
    let mut gone = kernel.gone.subscribe();
    loop {
        let work = tokio::select! {
            biased;
            work = queue.recv() => work,
            _ = gone.wait_for(|gone| *gone) => None,
        };
        let Some(work) = work else { break };
        requests::answer(&app, &kernel, &work).await;
    }
}

/// Tells that a cell will not run.
async fn abort(kernel: &Kernel, work: &Work) {
    let parent = &work.request.header;
    kernel.publish_status(parent, "busy").await;
    let reply = kernel.message(Channel::Shell, "execute_reply", parent, &json!({ "status": "aborted" }));
    kernel.reply(&work.asker, &reply.with_metadata(&json!({ "status": "aborted" }))).await;
    kernel.publish_status(parent, "idle").await;
}
