//! The access log's way out. A request hands its line to a bounded queue and goes on; one thread takes lines from there, many
//! at a time, and writes them. What the queue or the file does not take is dropped and counted, told once in a row of losses,
//! and no request ever waits: not for a full disk, not for a pipe that nobody reads.
//!
//! The thread looks at the queue by itself, every [`TURN`], so that handing over a line wakes nobody and takes no lock. A file
//! that was moved away or removed is noticed within [`LOOK`], and opened anew under its name.

use crate::observe::access_log::{Entry, Format};
use crate::observe::{Metrics, event};
use crate::runtime::AccessPlan;
use std::fmt::Display;
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

/// A line is written this much after it was handed over, at the earliest possible; so often the thread wakes.
const TURN: Duration = Duration::from_millis(50);
/// How often it is asked whether the file is still there.
const LOOK: Duration = Duration::from_secs(1);
/// The queue's bounds: some 160,000 lines a second, and what a flood of the largest heads may hold.
const LINES: usize = 8192;
const BYTES: usize = 8 << 20;
/// Written at once, about.
const BATCH: usize = 64 << 10;
/// What a process that ends waits for its last lines.
const PATIENCE: Duration = Duration::from_secs(1);

/// Clones share one queue.
#[derive(Clone)]
pub struct AccessLog {
    format: Arc<Format>,
    sender: SyncSender<Message>,
    shared: Arc<Shared>,
}

enum Message {
    Line(Vec<u8>),
    /// Answered when all before it is written.
    Flush(SyncSender<()>),
}

struct Shared {
    /// What people know it by.
    name: String,
    metrics: Arc<Metrics>,
    /// Bytes of the lines in the queue.
    queued: AtomicUsize,
    /// Lines lost since it last took all.
    lost: AtomicU64,
}

impl AccessLog {
    /// Starts the thread. A file that cannot be opened is told and tried again, like one that takes no lines.
    pub fn start(plan: &AccessPlan, metrics: Arc<Metrics>) -> Self {
        let name = plan.path.as_ref().map_or_else(|| "-".to_owned(), |path| path.display().to_string());
        let shared = Arc::new(Shared { name, metrics, queued: AtomicUsize::new(0), lost: AtomicU64::new(0) });
        let (sender, queue) = sync_channel(LINES);
        let sink = Sink { path: plan.path.clone(), file: None, torn: false };
        let writer = Writer { queue, sink, batch: Vec::new(), shared: shared.clone(), wrote: false, dropped: 0 };
        // Without a thread the queue is closed, and every line is one that it does not take.
        let _ = thread::Builder::new().name("access-log".to_owned()).spawn(|| writer.run());
        AccessLog { format: Arc::new(plan.format.clone()), sender, shared }
    }

    /// Never waits.
    pub fn tell(&self, entry: &Entry<'_>) {
        let line = self.format.line(entry);
        let size = line.len();
        let before = self.shared.queued.fetch_add(size, Relaxed);
        if before + size > BYTES || self.sender.try_send(Message::Line(line)).is_err() {
            self.shared.queued.fetch_sub(size, Relaxed);
            self.shared.lose(1, "the queue takes no more");
        }
    }

    /// Comes back when all lines so far are written, or after [`PATIENCE`].
    pub fn flush(&self) {
        let end = Instant::now() + PATIENCE;
        let (done, written) = sync_channel(1);
        while self.sender.try_send(Message::Flush(done.clone())).is_err() {
            if Instant::now() >= end {
                return;
            }
            thread::sleep(TURN);
        }
        let _ = written.recv_timeout(end.saturating_duration_since(Instant::now()));
    }
}

impl Shared {
    fn lose(&self, lines: u64, why: impl Display) {
        let first = self.lost.fetch_add(lines, Relaxed) == 0;
        event::access_lines_dropped(&self.metrics, lines, first.then_some((self.name.as_str(), why)));
    }
}

struct Writer {
    queue: Receiver<Message>,
    sink: Sink,
    batch: Vec<u8>,
    shared: Arc<Shared>,
    /// Since the last look.
    wrote: bool,
    /// What was lost at the last look.
    dropped: u64,
}

impl Writer {
    /// Until nobody is left to hand lines over.
    fn run(mut self) {
        let mut looked = Instant::now();
        while self.turn() {
            if looked.elapsed() >= LOOK {
                looked = Instant::now();
                self.look();
            }
            thread::sleep(TURN);
        }
    }

    /// Writes all that waits. False: nothing more will come.
    fn turn(&mut self) -> bool {
        loop {
            match self.queue.try_recv() {
                Ok(Message::Line(line)) => {
                    self.shared.queued.fetch_sub(line.len(), Relaxed);
                    self.batch.extend(line);
                    if self.batch.len() >= BATCH {
                        self.write();
                    }
                }
                Ok(Message::Flush(done)) => {
                    self.write();
                    let _ = done.try_send(());
                }
                Err(end) => {
                    self.write();
                    return end == TryRecvError::Empty;
                }
            }
        }
    }

    fn write(&mut self) {
        if self.batch.is_empty() {
            return;
        }
        match self.sink.write(&self.batch) {
            Ok(()) => self.wrote = true,
            Err((lost, error)) => {
                self.wrote = false;
                self.shared.lose(lost, error);
            }
        }
        self.batch.clear();
        self.batch.shrink_to(2 * BATCH);
    }

    fn look(&mut self) {
        self.sink.follow_name();
        let lost = self.shared.lost.load(Relaxed);
        if lost > 0 && lost == self.dropped && std::mem::take(&mut self.wrote) {
            event::access_log_caught_up(&self.shared.name, self.shared.lost.swap(0, Relaxed));
        }
        self.wrote = false;
        self.dropped = self.shared.lost.load(Relaxed);
    }
}

/// A file, or standard output.
struct Sink {
    path: Option<PathBuf>,
    file: Option<File>,
    /// The last write ended within a line.
    torn: bool,
}

impl Sink {
    /// All of `lines`, or how many were not written whole, and why.
    fn write(&mut self, lines: &[u8]) -> Result<(), (u64, io::Error)> {
        let mut left = lines;
        let written = self.write_all(&mut left);
        written.map_err(|error| {
            let lost = left.iter().filter(|byte| **byte == b'\n').count();
            (lost as u64, error)
        })
    }

    /// Takes off `left` what is written.
    fn write_all(&mut self, left: &mut &[u8]) -> io::Result<()> {
        let mut file = match self.file.take() {
            Some(file) => file,
            None => self.open()?,
        };
        if self.torn {
            patiently(|| file.write(b"\n"))?;
            self.torn = false;
        }
        while !left.is_empty() {
            let count = patiently(|| file.write(left))?;
            self.torn = count > 0 && left[count - 1] != b'\n';
            *left = &left[count..];
        }
        self.file = Some(file);
        Ok(())
    }

    fn open(&self) -> io::Result<File> {
        match &self.path {
            Some(path) => OpenOptions::new().append(true).create(true).open(path),
            None => Ok(File::from(io::stdout().as_fd().try_clone_to_owned()?)),
        }
    }

    /// Lets go of a file that is no longer the one of its name.
    fn follow_name(&mut self) {
        let (Some(path), Some(file)) = (&self.path, &self.file) else { return };
        let is = |it: io::Result<std::fs::Metadata>| it.map(|it| (it.dev(), it.ino())).ok();
        if is(std::fs::metadata(path)) != is(file.metadata()) {
            self.file = None;
            self.torn = false;
        }
    }
}

/// Again where a signal came between, and, of a pipe that is not to be waited for, a while later.
fn patiently(mut write: impl FnMut() -> io::Result<usize>) -> io::Result<usize> {
    loop {
        match write() {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => thread::sleep(TURN),
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            result => return result,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{read_to_string, rename};

    fn sink(path: &std::path::Path) -> Sink {
        Sink { path: Some(path.to_owned()), file: None, torn: false }
    }

    #[test]
    fn given_a_file_when_it_is_moved_away_then_the_next_lines_are_in_a_new_one() {
        let directory = tempfile::tempdir().expect("a directory");
        let (path, moved) = (directory.path().join("access"), directory.path().join("access.1"));
        let mut sink = sink(&path);
        sink.write(b"1\n").expect("written");
        sink.follow_name();
        sink.write(b"2\n").expect("written");
        rename(&path, &moved).expect("moved");
        sink.write(b"3\n").expect("written");
        sink.follow_name();
        sink.write(b"4\n").expect("written");
        assert_eq!(
            (read_to_string(moved).expect("1"), read_to_string(path).expect("2")),
            ("1\n2\n3\n".into(), "4\n".into())
        );
    }

    #[test]
    fn given_a_full_disk_when_written_to_then_every_line_is_told_as_lost() {
        let mut sink = sink("/dev/full".as_ref());
        for _ in 0..2 {
            let (lost, error) = sink.write(b"1\n2\n3\n").expect_err("full");
            assert_eq!((lost, error.kind()), (3, ErrorKind::StorageFull));
        }
    }

    #[test]
    fn given_a_directory_that_is_not_there_when_it_comes_then_lines_are_written() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("logs/access");
        let mut sink = sink(&path);
        assert_eq!(sink.write(b"1\n").expect_err("no directory").0, 1);
        std::fs::create_dir(directory.path().join("logs")).expect("made");
        sink.write(b"2\n").expect("written");
        assert_eq!(read_to_string(path).expect("a file"), "2\n");
    }

    #[test]
    fn given_a_line_that_was_cut_when_written_to_again_then_the_next_one_begins_a_line() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("access");
        let mut sink = sink(&path);
        sink.write(b"1\nha").expect("written");
        sink.file = None;
        sink.write(b"2\n").expect("written");
        assert_eq!(read_to_string(path).expect("a file"), "1\nha\n2\n");
    }
}
