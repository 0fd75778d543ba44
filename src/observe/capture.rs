//! A logger for tests: each thread reads back what it logged itself.

use log::{Level, LevelFilter, Log, Metadata, Record};
use std::cell::RefCell;
use std::sync::Once;

type Lines = Vec<(Level, String)>;

thread_local! {
    static SEEN: RefCell<Option<(LevelFilter, Lines)>> = const { RefCell::new(None) };
}

/// The lines that `run` logs from this thread up to `level`; those above it are dropped unformatted, as a real logger does.
pub(crate) fn lines(level: LevelFilter, run: impl FnOnce()) -> Lines {
    install();
    SEEN.set(Some((level, Vec::new())));
    run();
    SEEN.take().map(|(_, lines)| lines).unwrap_or_default()
}

fn install() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        log::set_logger(&Capture).expect("no test installs another logger");
        log::set_max_level(LevelFilter::Trace);
    });
}

struct Capture;

impl Log for Capture {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &Record<'_>) {
        SEEN.with_borrow_mut(|seen| {
            if let Some((level, lines)) = seen
                && record.level() <= *level
            {
                assert_eq!(record.target(), "derbent");
                lines.push((record.level(), record.args().to_string()));
            }
        });
    }

    fn flush(&self) {}
}
