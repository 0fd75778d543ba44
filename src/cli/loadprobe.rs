//! `derbent loadprobe`: a closed loop of workers, each with one kept connection, that counts who answered. It shows how
//! a load is spread and what fails; it is no benchmark: a worker waits for its answer before it asks again, so a slow
//! server is asked less.
//!
//! Deliberately not here: TLS, other methods, rates. Exit codes: 0 every request got an answer (of whatever status), 1 some did not, 2 usage.

use super::duration::positive;
use super::get::Client;
use super::tally::{Summary, Tally};
use super::target::Target;
use http::HeaderName;
use indicatif::ProgressBar;
use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::Instant;

/// Send GETs over kept connections and count who answered
#[derive(Debug, Clone, clap::Args)]
pub struct LoadprobeArgs {
    /// http://HOST[:PORT][/PATH]
    pub url: Target,
    /// 1 to 10,000,000, all workers together
    #[arg(default_value_t = 600, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    pub requests: u32,
    /// Workers, each with one connection; 1 to 10,000
    #[arg(default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub concurrency: u32,
    /// Answers are counted by the value of this header
    #[arg(long, value_name = "NAME", default_value = "X-Catalog-Instance")]
    pub header: HeaderName,
    /// How long a request may take, connecting included
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = positive)]
    pub timeout: Duration,
    /// Print one JSON object instead of lines
    #[arg(long)]
    pub json: bool,
}

/// Prints the summary to stdout; shows a progress bar on stderr when that is a terminal.
pub fn run(args: LoadprobeArgs) -> ExitCode {
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(fault) => {
            eprintln!("no runtime: {fault}");
            return ExitCode::FAILURE;
        }
    };
    let bar = match std::io::stderr().is_terminal() {
        true => ProgressBar::new(args.requests.into()),
        false => ProgressBar::hidden(),
    };
    let summary = runtime.block_on(probe(&args, &bar));
    bar.finish_and_clear();
    let text = match args.json {
        true => format!("{}\n", summary.json()),
        false => summary.to_string(),
    };
    match std::io::stdout().write_all(text.as_bytes()) {
        Ok(()) if summary.all_answered() => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}

/// All the requests of `args`; returns when each has ended. Needs a tokio runtime.
pub async fn probe(args: &LoadprobeArgs, bar: &ProgressBar) -> Summary {
    let round = Arc::new(Round {
        args: args.clone(),
        asked: AtomicU32::new(0),
        tally: Mutex::new(Tally::default()),
        bar: bar.clone(),
    });
    let begin = Instant::now();
    let mut workers = JoinSet::new();
    for _ in 0..args.concurrency.min(args.requests) {
        workers.spawn(work(round.clone()));
    }
    while workers.join_next().await.is_some() {}
    let tally = std::mem::take(&mut *round.tally.lock().unwrap_or_else(PoisonError::into_inner));
    tally.summary(args.concurrency, begin.elapsed())
}

/// What the workers of one run share.
struct Round {
    args: LoadprobeArgs,
    asked: AtomicU32,
    tally: Mutex<Tally>,
    bar: ProgressBar,
}

async fn work(round: Arc<Round>) {
    let args = &round.args;
    let mut client = Client::new(&args.url);
    // Each worker passes the mark at most once, so the count stays far from its end.
    while round.asked.fetch_add(1, Ordering::Relaxed) < args.requests {
        let begin = Instant::now();
        let answer = client.get(begin + args.timeout).await;
        let took = begin.elapsed();
        let mut tally = round.tally.lock().unwrap_or_else(PoisonError::into_inner);
        match answer {
            Ok((status, headers)) => tally.answered(status, headers.get(&args.header), took),
            Err(failure) => tally.failed(failure),
        }
        drop(tally);
        round.bar.inc(1);
    }
}

#[cfg(test)]
mod tests {
    use super::super::get::Failure;
    use super::*;
    use crate::demo::Instance;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Command {
        #[command(flatten)]
        args: LoadprobeArgs,
    }

    fn args(line: &str) -> Result<LoadprobeArgs, clap::Error> {
        Command::try_parse_from(line.split(' ')).map(|command| command.args)
    }

    #[tokio::test]
    async fn given_a_catalog_when_probed_then_every_request_is_counted_under_its_name() {
        let catalog = Instance::start("catalog-7", 0, Duration::ZERO).await.unwrap();
        let args = args(&format!("loadprobe http://localhost:{}/books 200 8", catalog.port())).unwrap();
        let bar = ProgressBar::hidden();
        let summary = probe(&args, &bar).await;
        assert_eq!(summary.instances(), [("catalog-7", 200)]);
        assert_eq!(summary.statuses().iter().collect::<Vec<_>>(), [(&200, &200)]);
        assert!(summary.all_answered() && summary.percentile(50).is_some());
        assert_eq!(bar.position(), 200);
    }

    #[tokio::test]
    async fn given_a_catalog_without_the_header_and_path_when_probed_then_none_and_404_are_counted() {
        let catalog = Instance::start("catalog-7", 0, Duration::ZERO).await.unwrap();
        let line = format!("loadprobe --header X-Other http://127.0.0.1:{}/nothing 5", catalog.port());
        let summary = probe(&args(&line).unwrap(), &ProgressBar::hidden()).await;
        assert_eq!(summary.instances(), [("(none)", 5)]);
        assert_eq!(summary.statuses()[&404], 5);
        assert!(summary.all_answered());
    }

    #[tokio::test]
    async fn given_a_port_where_nobody_listens_when_probed_then_all_are_refused() {
        let taken = tokio::net::TcpSocket::new_v4().unwrap();
        taken.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let line = format!("loadprobe http://{}/ 30 4", taken.local_addr().unwrap());
        let summary = probe(&args(&line).unwrap(), &ProgressBar::hidden()).await;
        assert_eq!(summary.failures().iter().collect::<Vec<_>>(), [(&Failure::Refused, &30)]);
        assert!(!summary.all_answered());
    }

    #[test]
    fn given_wrong_arguments_when_read_then_usage_is_told_by_exit_code_2() {
        for line in [
            "loadprobe",
            "loadprobe localhost:5300",
            "loadprobe https://localhost/",
            "loadprobe http://a/ 0",
            "loadprobe http://a/ 10000001",
            "loadprobe http://a/ 1 0",
            "loadprobe http://a/ 1 10001",
            "loadprobe http://a/ --timeout 0s",
            "loadprobe http://a/ --header a:b",
        ] {
            assert_eq!(args(line).unwrap_err().exit_code(), 2, "{line}");
        }
        let defaults = args("loadprobe http://a/").unwrap();
        assert_eq!((defaults.requests, defaults.concurrency), (600, 20));
    }
}
