//! `derbent ctl`: what a running proxy knows of its destinations, and orders about them, over its admin listener. It orders once and
//! repeats nothing. Exit codes: 0 done, 1 the admin listener refused (its words are printed), 2 usage, 3 it cannot be reached.

use super::ctl_requests;
use super::ctl_status;
use super::duration::positive;
use super::get;
use super::print;
use super::target::Target;
use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method, Request, header};
use http_body_util::Full;
use serde_json::{Value, json};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;
use tokio::time::Instant;

const REFUSED: u8 = 1;
const USAGE: u8 = 2;
const UNREACHABLE: u8 = 3;

/// How long a successor is given to get the admin address, and how often that is looked at.
const SUCCESSOR: Duration = Duration::from_secs(5);
const LOOK: Duration = Duration::from_millis(20);

#[derive(Debug, clap::Args)]
pub struct CtlArgs {
    /// The admin address
    #[arg(long, global = true, value_name = "HOST:PORT", default_value = "127.0.0.1:5390")]
    admin: String,
    /// Holds the token that the admin listener wants
    #[arg(long, global = true, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// How long the answer may take; 10s, and 130s for upgrade, which waits for the successor
    #[arg(long, global = true, value_name = "DURATION", value_parser = positive)]
    timeout: Option<Duration>,
    #[command(subcommand)]
    command: CtlCommand,
}

#[derive(Debug, clap::Subcommand)]
enum CtlCommand {
    /// Every destination: its state, and why
    Status {
        /// Only this cluster
        cluster: Option<String>,
        /// Print the admin listener's JSON
        #[arg(long)]
        json: bool,
    },
    /// The last requests that took more than one attempt, or that no destination answered
    Requests {
        /// Print the admin listener's JSON
        #[arg(long)]
        json: bool,
    },
    /// Why a destination is as it is, what comes next, what led to it
    Explain {
        #[command(flatten)]
        place: PlaceArgs,
        /// Print the admin listener's JSON
        #[arg(long)]
        json: bool,
    },
    /// No new requests; probes go on. Without a cluster and a destination: the whole process takes its leave
    Drain(DrainArgs),
    /// As drain for so long, while its sessions stay; then as maint
    Leave {
        #[command(flatten)]
        place: PlaceArgs,
        /// Sessions go elsewhere after so long, 1s to 24h
        #[arg(long = "for", value_name = "DURATION", value_parser = lasting)]
        lasts: String,
    },
    /// The process reads its file again
    Reload,
    /// The process starts its successor, by the file it was started from, and drains once that is ready
    Upgrade,
    /// No new requests and no probes
    Maint(StateArgs),
    /// Ends drain, leave, maint and eject
    Ready(PlaceArgs),
    /// Out for a while, without --for as long as the detectors' first ejection
    Eject(StateArgs),
    /// Ends an ejection, the detectors' or the operator's
    Uneject(PlaceArgs),
    /// Another weight than the configured one
    Weight {
        #[command(flatten)]
        place: PlaceArgs,
        /// 0 to 1000, or `default`: the configured one
        #[arg(value_name = "N|default", value_parser = weight)]
        weight: Weight,
        /// The order ends after so long, 1s to 24h
        #[arg(long = "for", value_name = "DURATION", value_parser = lasting)]
        lasts: Option<String>,
    },
    /// Another share of the new requests for a cluster's canary than the configured one
    Canary(CanaryArgs),
}

#[derive(Debug, clap::Args)]
struct CanaryArgs {
    cluster: String,
    /// A share such as 5% or 0.5%, or `default`: the configured one
    #[arg(value_name = "PERCENT|default", value_parser = share)]
    percent: Share,
}

/// As it was written; `None`: the configured one.
#[derive(Debug, Clone)]
struct Share(Option<String>);

#[derive(Debug, clap::Args)]
struct PlaceArgs {
    cluster: String,
    destination: String,
}

#[derive(Debug, clap::Args)]
struct StateArgs {
    #[command(flatten)]
    place: PlaceArgs,
    /// The order ends after so long, 1s to 24h
    #[arg(long = "for", value_name = "DURATION", value_parser = lasting)]
    lasts: Option<String>,
}

#[derive(Debug, clap::Args)]
struct DrainArgs {
    #[arg(requires = "destination")]
    cluster: Option<String>,
    destination: Option<String>,
    /// The order ends after so long, 1s to 24h
    #[arg(long = "for", value_name = "DURATION", value_parser = lasting, requires = "destination")]
    lasts: Option<String>,
}

#[derive(Debug, Clone, Copy)]
struct Weight(Option<u32>);

/// What is asked, and what is made of the answer.
struct Asked {
    method: Method,
    path: String,
    body: Option<Value>,
    show: fn(&str) -> String,
}

pub fn run(args: CtlArgs) -> ExitCode {
    let told = match exchange(&args) {
        Ok(told) => told,
        Err((fault, code)) => {
            eprintln!("{}", printable(fault.trim_end()));
            return ExitCode::from(code);
        }
    };
    print(printable(&told));
    ExitCode::SUCCESS
}

fn exchange(args: &CtlArgs) -> Result<String, (String, u8)> {
    let asked = asked(&args.command);
    let url = format!("http://{}{}", args.admin, asked.path);
    let target: Target = url.parse().map_err(|fault| (format!("{url}: {fault}"), USAGE))?;
    let token = args.token_file.as_deref().map(read_token).transpose()?;
    let request = request(&asked, token);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|fault| (format!("no runtime: {fault}"), UNREACHABLE))?;
    let patience = match args.command {
        CtlCommand::Upgrade => Duration::from_secs(130),
        _ => Duration::from_secs(10),
    };
    let deadline = Instant::now() + args.timeout.unwrap_or(patience);
    let answer = runtime.block_on(get::ask(&target, request, deadline));
    let (status, body) = answer.map_err(|failure| (format!("http://{}: {failure}", args.admin), UNREACHABLE))?;
    if status.is_success() && matches!(args.command, CtlCommand::Upgrade) {
        runtime.block_on(successor_answers(&args.admin));
    }
    let body = String::from_utf8_lossy(&body);
    match status.is_success() {
        true => Ok((asked.show)(&body)),
        false if body.trim().is_empty() => Err((format!("{url}: {status}"), REFUSED)),
        false => Err((body.into_owned(), REFUSED)),
    }
}

/// The admin address passes from one process to the other, and what follows in a script may want to ask there. The one that drains
/// is not ready. A successor that has another address by its file is not waited for any longer.
async fn successor_answers(admin: &str) {
    let Ok(target) = format!("http://{admin}/ready").parse::<Target>() else { return };
    let deadline = Instant::now() + SUCCESSOR;
    while Instant::now() < deadline {
        match get::ask(&target, Request::default(), deadline).await {
            Ok((status, _)) if status.is_success() => return,
            _ => tokio::time::sleep(LOOK).await,
        }
    }
}

fn asked(command: &CtlCommand) -> Asked {
    let get = |path, show| Asked { method: Method::GET, path, body: None, show };
    let state = |word: &str, place: &PlaceArgs, lasts: Option<&String>| Asked {
        method: Method::POST,
        path: format!("{}/state", of(place)),
        body: Some(order("state", json!(word), lasts)),
        show: obeyed,
    };
    let bare =
        |word: &str, show| Asked { method: Method::POST, path: format!("/api/v1/{word}"), body: Some(json!({})), show };
    match command {
        CtlCommand::Status { cluster, json } => {
            let show = if *json { str::to_string } else { ctl_status::table };
            let one = cluster.as_ref().map_or(String::new(), |name| format!("/{}", segment(name)));
            get(format!("/api/v1/clusters{one}"), show)
        }
        CtlCommand::Requests { json } => {
            get("/api/v1/requests".to_string(), if *json { str::to_string } else { ctl_requests::list })
        }
        CtlCommand::Explain { place, json } => {
            let (cluster, destination) = (segment(&place.cluster), segment(&place.destination));
            let format = if *json { "json" } else { "text" };
            get(format!("/api/v1/explain/{cluster}/{destination}?format={format}"), str::to_string)
        }
        CtlCommand::Reload => bare("reload", told),
        CtlCommand::Upgrade => bare("upgrade", told),
        CtlCommand::Drain(DrainArgs { cluster: Some(cluster), destination: Some(destination), lasts }) => {
            let place = PlaceArgs { cluster: cluster.clone(), destination: destination.clone() };
            state("drain", &place, lasts.as_ref())
        }
        CtlCommand::Drain(_) => bare("drain", drains),
        CtlCommand::Leave { place, lasts } => state("leave", place, Some(lasts)),
        CtlCommand::Maint(StateArgs { place, lasts }) => state("maint", place, lasts.as_ref()),
        CtlCommand::Eject(StateArgs { place, lasts }) => state("eject", place, lasts.as_ref()),
        CtlCommand::Ready(place) => state("ready", place, None),
        CtlCommand::Uneject(place) => state("uneject", place, None),
        CtlCommand::Weight { place, weight, lasts } => Asked {
            method: Method::PUT,
            path: format!("{}/weight", of(place)),
            body: Some(order("weight", json!(weight.0), lasts.as_ref())),
            show: obeyed,
        },
        CtlCommand::Canary(CanaryArgs { cluster, percent }) => Asked {
            method: Method::PUT,
            path: format!("/api/v1/clusters/{}/canary", segment(cluster)),
            body: Some(json!({ "percent": percent.0 })),
            show: ctl_status::table,
        },
    }
}

fn share(text: &str) -> Result<Share, String> {
    match text {
        "default" => Ok(Share(None)),
        text => crate::config::permille(text).map(|_| Share(Some(text.to_string()))),
    }
}

fn of(place: &PlaceArgs) -> String {
    format!("/api/v1/clusters/{}/destinations/{}", segment(&place.cluster), segment(&place.destination))
}

fn order(key: &str, value: Value, lasts: Option<&String>) -> Value {
    let mut order = json!({ key: value });
    if let Some(lasts) = lasts {
        order["for"] = json!(lasts);
    }
    order
}

fn request(asked: &Asked, token: Option<HeaderValue>) -> Request<Full<Bytes>> {
    let body = asked.body.as_ref().map_or(Bytes::new(), |body| Bytes::from(body.to_string()));
    let mut request = Request::new(Full::new(body));
    *request.method_mut() = asked.method.clone();
    let mut set = |name: HeaderName, value| request.headers_mut().insert(name, value);
    if asked.body.is_some() {
        set(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    }
    if let Some(token) = token {
        set(header::AUTHORIZATION, token);
    }
    request
}

fn read_token(path: &Path) -> Result<HeaderValue, (String, u8)> {
    let told = |fault: &dyn std::fmt::Display| (format!("cannot use {}: {fault}", path.display()), UNREACHABLE);
    let token = std::fs::read_to_string(path).map_err(|fault| told(&fault))?;
    let mut token = HeaderValue::from_str(&format!("Bearer {}", token.trim())).map_err(|fault| told(&fault))?;
    token.set_sensitive(true);
    Ok(token)
}

/// What an obeyed order left: one line, and one for each order that holds.
fn obeyed(body: &str) -> String {
    let destination: Value = serde_json::from_str(body).unwrap_or_default();
    let word = |value: &Value| value.as_str().unwrap_or("?").to_string();
    let mut text = format!("{} is {}\n", word(&destination["id"]), word(&destination["state"]));
    for held in destination["overrides"].as_array().into_iter().flatten() {
        let until = held["until"].as_str().unwrap_or("another order");
        text += &format!("  {}, by {}, until {until}\n", word(&held["order"]), word(&held["by"]));
    }
    text
}

/// The line that the log has too.
fn told(body: &str) -> String {
    let answer: Value = serde_json::from_str(body).unwrap_or_default();
    format!("{}\n", answer["told"].as_str().unwrap_or("?"))
}

/// What the process said of its own drain, in one line.
fn drains(body: &str) -> String {
    let told: Value = serde_json::from_str(body).unwrap_or_default();
    let word = |value: &Value| value.as_str().unwrap_or("?").to_string();
    let left = |key: &str| told["left"][key].as_i64().unwrap_or_default();
    format!(
        "draining ({}): listeners close at {}, gone by {}; {} connections, {} requests in flight, {} WebSockets among them\n",
        word(&told["why"]),
        word(&told["listeners_close"]),
        word(&told["ends_by"]),
        left("connections"),
        left("requests_in_flight"),
        left("tunnels")
    )
}

/// Percent-encoded, but for what stands for itself everywhere.
fn segment(name: &str) -> String {
    let mut encoded = String::new();
    for byte in name.bytes() {
        match byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            true => encoded.push(char::from(byte)),
            // Writing into a text cannot fail.
            false => drop(write!(encoded, "%{byte:02X}")),
        }
    }
    encoded
}

/// No terminal obeys what comes over the network.
fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() && c != '\n' { '\u{fffd}' } else { c }).collect()
}

fn weight(text: &str) -> Result<Weight, String> {
    match text.parse() {
        _ if text == "default" => Ok(Weight(None)),
        Ok(weight @ 0..=1000) => Ok(Weight(Some(weight))),
        _ => Err("expected a whole number from 0 to 1000, or default".to_string()),
    }
}

fn lasting(text: &str) -> Result<String, String> {
    let (least, most) = (Duration::from_secs(1), Duration::from_secs(86_400));
    match crate::config::duration(text)? {
        lasts if (least..=most).contains(&lasts) => Ok(text.to_string()),
        _ => Err("expected a duration from 1s to 24h".to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Command {
        #[command(flatten)]
        args: CtlArgs,
    }

    fn args(line: &str) -> Result<CtlArgs, clap::Error> {
        Command::try_parse_from(line.split(' ')).map(|command| command.args)
    }

    #[test]
    fn given_commands_when_read_then_method_path_and_body_are_what_the_listener_takes() {
        for (line, method, path, body) in [
            ("ctl status", "GET", "/api/v1/clusters", ""),
            ("ctl status odd/name", "GET", "/api/v1/clusters/odd%2Fname", ""),
            ("ctl requests", "GET", "/api/v1/requests", ""),
            ("ctl explain app [::1]:80", "GET", "/api/v1/explain/app/%5B%3A%3A1%5D%3A80?format=text", ""),
            ("ctl explain app a --json", "GET", "/api/v1/explain/app/a?format=json", ""),
            ("ctl drain app a", "POST", "/api/v1/clusters/app/destinations/a/state", r#"{"state":"drain"}"#),
            (
                "ctl maint app a --for 1m30s",
                "POST",
                "/api/v1/clusters/app/destinations/a/state",
                r#"{"state":"maint","for":"1m30s"}"#,
            ),
            (
                "ctl leave app a --for 10m",
                "POST",
                "/api/v1/clusters/app/destinations/a/state",
                r#"{"state":"leave","for":"10m"}"#,
            ),
            ("ctl ready app a", "POST", "/api/v1/clusters/app/destinations/a/state", r#"{"state":"ready"}"#),
            ("ctl upgrade", "POST", "/api/v1/upgrade", "{}"),
            ("ctl reload", "POST", "/api/v1/reload", "{}"),
            ("ctl canary app 0.5%", "PUT", "/api/v1/clusters/app/canary", r#"{"percent":"0.5%"}"#),
            ("ctl canary app default", "PUT", "/api/v1/clusters/app/canary", r#"{"percent":null}"#),
            ("ctl drain", "POST", "/api/v1/drain", "{}"),
            ("ctl weight app a default", "PUT", "/api/v1/clusters/app/destinations/a/weight", r#"{"weight":null}"#),
            (
                "ctl weight app a 5 --for 10m",
                "PUT",
                "/api/v1/clusters/app/destinations/a/weight",
                r#"{"weight":5,"for":"10m"}"#,
            ),
        ] {
            let asked = asked(&args(line).unwrap().command);
            let sent = asked.body.map_or(String::new(), |body| body.to_string());
            assert_eq!((asked.method.as_str(), asked.path.as_str(), sent.as_str()), (method, path, body), "{line}");
        }
    }

    #[test]
    fn given_wrong_arguments_when_read_then_usage_is_told_by_exit_code_2() {
        for line in [
            "ctl",
            "ctl explain app",
            "ctl drain app",
            "ctl drain --for 10m",
            "ctl leave app a",
            "ctl drain app a --for 10",
            "ctl drain app a --for 25h",
            "ctl drain app a --for 500ms",
            "ctl ready app a --for 10m",
            "ctl canary app 5",
            "ctl canary app 101%",
            "ctl weight app a",
            "ctl weight app a 1001",
            "ctl weight app a -1",
            "ctl weight app a 1.5",
        ] {
            assert_eq!(args(line).unwrap_err().exit_code(), 2, "{line}");
        }
    }

    #[test]
    fn given_control_characters_in_an_answer_when_printed_then_no_terminal_obeys_them() {
        assert_eq!(printable("a\u{1b}[2J\nb"), "a\u{fffd}[2J\nb");
    }
}
