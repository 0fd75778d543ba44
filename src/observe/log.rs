//! The log: env_logger to stderr, one record one line, as text or JSON. Deliberately not here: files, rotation and
//! queues; who runs the process has stderr collected. A line that stderr does not take is lost, and nothing else is.

use super::escape::Escaped;
use super::throttle::{HeldBack, Throttle};
use env_logger::{Builder, Target};
use log::{LevelFilter, Log, Metadata, Record};
use serde::Serialize;
use std::fmt::Display;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Write};
use std::time::Instant;

/// Sets the log up for the whole process; `server` is the instance's name and stands in every line, with the process's id: during
/// an upgrade two of them write to one stream. A logger that is there already stays.
///
/// Our own lines are shown up to `level`. Of the libraries, warnings are shown (information at `debug`, everything at
/// `trace`), but of what Pingora says about single requests, probes and handshakes nothing below `debug`: we tell it ourselves, and
/// limited; of what else they say each line of their code is shown once a second.
/// `RUST_LOG`, when set and not empty, replaces all this.
pub fn init(level: LevelFilter, json: bool, server: &str) {
    let rust_log = std::env::var("RUST_LOG").ok().filter(|filters| !filters.trim().is_empty());
    let mut builder = filtered(level, rust_log.as_deref());
    builder.target(Target::Stderr);
    let by = By { server: server.to_owned(), pid: std::process::id() };
    if json {
        builder.format(move |out, record| write_json(out.timestamp_millis(), &by, record, out));
    } else {
        builder.format(move |out, record| {
            let style = out.default_level_style(record.level());
            let level = format_args!("{style}{}{style:#}", record.level());
            write_text(out.timestamp_millis(), level, &by, record, out)
        });
    }
    let logger = builder.build();
    let most = logger.filter();
    // An embedding program may have chosen its own.
    if log::set_boxed_logger(Box::new(Limited::new(logger, rust_log.is_none() && level < LevelFilter::Debug))).is_ok() {
        log::set_max_level(most);
    }
}

/// Keeps the libraries' lines to one a second for each place in their code: what they say at every request or connection
/// would be anyone's means to fill the log. Our own are limited where they are made.
struct Limited<L> {
    logger: L,
    /// Places share one where their hashes do; none = unlimited.
    places: Vec<Throttle>,
}

const PLACES: usize = 64;

impl<L> Limited<L> {
    fn new(logger: L, limited: bool) -> Self {
        let born = Instant::now();
        let places = if limited { PLACES } else { 0 };
        Limited { logger, places: (0..places).map(|_| Throttle::new(born)).collect() }
    }

    /// How many like it were held back, where this one may pass.
    fn admit(&self, record: &Record<'_>, now: Instant) -> Option<u64> {
        if self.places.is_empty() || record.target().starts_with("derbent") {
            return Some(0);
        }
        let mut hash = DefaultHasher::new();
        (record.target(), record.line()).hash(&mut hash);
        self.places[hash.finish() as usize % PLACES].admit(now)
    }
}

impl<L: Log> Log for Limited<L> {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        self.logger.enabled(metadata)
    }

    fn log(&self, record: &Record<'_>) {
        if !self.enabled(record.metadata()) {
            return;
        }
        match self.admit(record, Instant::now()) {
            None => {}
            Some(0) => self.logger.log(record),
            Some(more) => {
                let (metadata, more) = (record.metadata().clone(), HeldBack(more));
                let mut told = Record::builder();
                told.metadata(metadata).line(record.line());
                self.logger.log(&told.args(format_args!("{}{more}", record.args())).build());
            }
        }
    }

    fn flush(&self) {
        self.logger.flush();
    }
}

fn filtered(level: LevelFilter, rust_log: Option<&str>) -> Builder {
    let mut builder = Builder::new();
    if let Some(filters) = rust_log.filter(|filters| !filters.trim().is_empty()) {
        builder.parse_filters(filters);
        return builder;
    }
    let libraries = match level {
        LevelFilter::Debug => LevelFilter::Info,
        LevelFilter::Info => LevelFilter::Warn,
        level => level,
    };
    builder.filter_level(libraries).filter_module("derbent", level);
    if level < LevelFilter::Debug {
        for told_by_us in ["pingora_proxy", "pingora_load_balancing", "pingora_core::connectors"] {
            builder.filter_module(told_by_us, LevelFilter::Off);
        }
        // A line for each failed TLS handshake: any client could fill the log.
        builder.filter_module("pingora_core::services", LevelFilter::Off);
    }
    builder
}

/// Whose lines they are.
struct By {
    server: String,
    pid: u32,
}

/// `2026-11-30T02:15:00.123Z WARN gw-1[4711] derbent message`
fn write_text(
    time: impl Display,
    level: impl Display,
    By { server, pid }: &By,
    record: &Record<'_>,
    out: &mut impl Write,
) -> io::Result<()> {
    writeln!(out, "{time} {level} {server}[{pid}] {} {}", record.target(), Escaped(record.args()))
}

/// `{"ts":"2026-11-30T02:15:00.123Z","level":"WARN","server":"gw-1","pid":4711,"target":"derbent","msg":"message"}`
fn write_json(time: impl Display, by: &By, record: &Record<'_>, out: &mut impl Write) -> io::Result<()> {
    let line = Line {
        ts: time.to_string(),
        level: record.level().as_str(),
        server: &by.server,
        pid: by.pid,
        target: record.target(),
        msg: record.args().to_string(),
    };
    serde_json::to_writer(&mut *out, &line)?;
    out.write_all(b"\n")
}

#[derive(Serialize)]
struct Line<'a> {
    ts: String,
    level: &'static str,
    server: &'a str,
    pid: u32,
    target: &'a str,
    msg: String,
}

#[cfg(test)]
mod tests {
    use super::*;
    use log::Level;

    const TIME: &str = "2026-11-30T02:15:00.123Z";

    #[test]
    fn given_a_record_when_written_as_text_then_it_is_one_line() {
        let line = written(|record, out| write_text(TIME, record.level(), &by(), record, out));
        assert_eq!(line, format!("{TIME} WARN gw-1[4711] derbent say \"no\"\\nINFO forged \\u{{1b}}\n"));
    }

    #[test]
    fn given_a_record_when_written_as_json_then_it_is_one_object_a_line() {
        let line = written(|record, out| write_json(TIME, &by(), record, out));
        assert_eq!(line.matches('\n').count(), 1);
        let object: serde_json::Value = serde_json::from_str(&line).expect("JSON");
        let expected = serde_json::json!({
            "ts": TIME, "level": "WARN", "server": "gw-1", "pid": 4711, "target": "derbent", "msg": "say \"no\"\nINFO forged \u{1b}"
        });
        assert_eq!(object, expected);
    }

    #[test]
    fn given_a_level_when_no_rust_log_is_set_then_ours_follow_it_and_the_libraries_are_quieter() {
        use Level::{Debug, Error, Info, Trace, Warn};
        let cases = [
            (LevelFilter::Error, Some(Error), Some(Error), None),
            (LevelFilter::Warn, Some(Warn), Some(Warn), None),
            (LevelFilter::Info, Some(Info), Some(Warn), None),
            (LevelFilter::Debug, Some(Debug), Some(Info), Some(Info)),
            (LevelFilter::Trace, Some(Trace), Some(Trace), Some(Trace)),
            (LevelFilter::Off, None, None, None),
        ];
        for (level, ours, libraries, proxy) in cases {
            for rust_log in [None, Some(""), Some(" ")] {
                assert_eq!(most_verbose(level, rust_log, "derbent"), ours, "{level}");
                assert_eq!(most_verbose(level, rust_log, "pingora_core::server"), libraries, "{level}");
                assert_eq!(most_verbose(level, rust_log, "pingora_proxy::proxy_h1"), proxy, "{level}");
            }
        }
    }

    #[test]
    fn given_rust_log_when_set_then_it_wins() {
        let rust_log = Some("error,pingora_proxy=debug");
        assert_eq!(most_verbose(LevelFilter::Trace, rust_log, "derbent"), Some(Level::Error));
        assert_eq!(most_verbose(LevelFilter::Info, rust_log, "pingora_proxy"), Some(Level::Debug));
    }

    #[test]
    fn given_a_logger_when_init_is_called_twice_then_the_logger_stays() {
        let lines = super::super::capture::lines(LevelFilter::Info, || {
            init(LevelFilter::Off, false, "gw-1");
            init(LevelFilter::Off, true, "gw-1");
            log::info!(target: "derbent", "still here");
        });
        assert_eq!(lines, [(Level::Info, "still here".to_owned())]);
    }

    #[test]
    fn given_a_library_that_floods_when_limited_then_each_of_its_lines_comes_once_a_second() {
        let limited = Limited::new(filtered(LevelFilter::Info, None).build(), true);
        let now = Instant::now();
        let admitted = |target, line, ms| {
            let record = Record::builder().target(target).line(Some(line)).build();
            limited.admit(&record, now + std::time::Duration::from_millis(ms))
        };
        assert_eq!([0, 10, 20, 1100].map(|ms| admitted("pingora_core::apps", 1, ms)), [Some(0), None, None, Some(2)]);
        assert_eq!(admitted("pingora_core::apps", 2, 0), Some(0));
        assert_eq!([0, 0].map(|ms| admitted("derbent", 1, ms)), [Some(0); 2]);
        let unlimited = Limited::new(filtered(LevelFilter::Debug, None).build(), false);
        let record = Record::builder().target("pingora_core::apps").line(Some(1)).build();
        assert_eq!([now, now].map(|now| unlimited.admit(&record, now)), [Some(0); 2]);
    }

    fn by() -> By {
        By { server: "gw-1".to_owned(), pid: 4711 }
    }

    fn written(write: impl FnOnce(&Record<'_>, &mut Vec<u8>) -> io::Result<()>) -> String {
        let mut out = Vec::new();
        let args = format_args!("say \"no\"\nINFO forged \u{1b}");
        let record = Record::builder().level(Level::Warn).target("derbent").args(args).build();
        write(&record, &mut out).expect("a Vec takes all");
        String::from_utf8(out).expect("UTF-8")
    }

    fn most_verbose(level: LevelFilter, rust_log: Option<&str>, target: &str) -> Option<Level> {
        let logger = filtered(level, rust_log).build();
        let shown = |level: &Level| {
            let metadata = log::Metadata::builder().level(*level).target(target).build();
            log::Log::enabled(&logger, &metadata)
        };
        Level::iter().filter(shown).last()
    }
}
