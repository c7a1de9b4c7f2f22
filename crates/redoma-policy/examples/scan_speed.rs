//! How long scanning takes on two threads: `cargo run --release -p redoma-policy --example scan_speed -- FOLDER…`

#![expect(clippy::print_stdout, reason = "it is what an example is for")]

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use redoma_policy::scan::{scan_file, subject_of};

fn main() {
    let mut files = Vec::new();
    for folder in std::env::args().skip(1) {
        collect(Path::new(&folder), &mut files);
    }
    let start = Instant::now();
    let next = AtomicUsize::new(0);
    let totals = std::thread::scope(|scope| {
        let work = || {
            let (mut scanned, mut lines, mut bytes, mut risks, mut unread) = (0, 0, 0, 0, 0);
            while let Some(path) = files.get(next.fetch_add(1, Ordering::Relaxed)) {
                let name = path.to_string_lossy();
                let Ok(text) = std::fs::read(path) else { continue };
                let Some(subject) = subject_of(&name, &text[..text.len().min(1024)]) else { continue };
                let begun = Instant::now();
                let result = scan_file(&name, &text, subject);
                if begun.elapsed().as_millis() > 200 {
                    println!("{name}: {} bytes took {:?}", text.len(), begun.elapsed());
                }
                if let Some(why) = result.unread {
                    println!("{name}: {why:?}");
                }
                scanned += 1;
                lines += result.lines;
                bytes += text.len();
                risks += result.risks.len();
                unread += usize::from(result.unread.is_some());
            }
            [scanned, lines, bytes, risks, unread]
        };
        let workers = [scope.spawn(work), scope.spawn(work)];
        workers.map(|worker| worker.join().expect("scanning does not panic"))
    });
    let sum: Vec<usize> = (0..5).map(|at| totals.iter().map(|part| part[at]).sum()).collect();
    let took = start.elapsed();
    println!(
        "{} files, {} lines, {} bytes, {} findings, {} not read to their end, {took:.2?}",
        sum[0], sum[1], sum[2], sum[3], sum[4]
    );
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let Ok(kind) = entry.file_type() else { continue };
        if kind.is_dir() {
            collect(&entry.path(), files);
        } else if kind.is_file() && entry.metadata().is_ok_and(|metadata| metadata.len() <= 2 << 20) {
            files.push(entry.path());
        }
    }
}
