//! The requests of http_desync_guardian's own tests, sent through a proxy. What the destination received is judged byte for
//! byte: every head there must be one that guardian calls compliant or acceptable, whole requests are as many as answers, and
//! nothing else arrives. Each request is sent alone and with another hidden behind it, where a reader of chunks and one of
//! lengths disagree.
//!
//! A body where none has a meaning (GET, HEAD, DELETE) guardian calls ambiguous, for there are servers that do not read it: it
//! may pass as the last request of its connection, where what is taken for the next one is nobody's.
//!
//! usage: desync DIRECTORY PROXY DESTINATION, where DESTINATION is the address to listen on.

use http_desync_guardian::ClassificationReason::{UndefinedContentLengthSemantics, UndefinedTransferEncodingSemantics};
use http_desync_guardian::RequestSafetyTier;
use http_desync_guardian::request_analyzer::HttpRequestData;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use yaml_rust2::{Yaml, YamlLoader};

const ANSWER: &str = "HTTP/1.1 200 OK\r\nx-from: destination\r\ncontent-length: 0\r\n\r\n";
const SILENT: Duration = Duration::from_secs(10);

/// What follows the head: nothing, and what is a whole request to one reader and a body to another.
const BODIES: [&str; 3] = ["", "0\r\n\r\n{hidden}", "5\r\nhello\r\n0\r\n\r\n{hidden}"];

/// Names the request that a head belongs to.
const MARK: &str = "x-case";

struct Case {
    name: String,
    /// Without the empty line.
    head: Vec<u8>,
}

/// What arrived at the destination.
#[derive(Clone)]
struct Arrived {
    head: Vec<u8>,
    /// With its body.
    whole: bool,
    /// Nothing came after it on its connection.
    last: bool,
}

type Received = Arc<Mutex<Vec<Arc<Mutex<Arrived>>>>>;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [directory, proxy, destination] = arguments.as_slice() else {
        eprintln!("usage: desync DIRECTORY PROXY DESTINATION");
        return ExitCode::from(2);
    };
    let received = Received::default();
    listen(destination, received.clone());
    let cases = read_cases(directory);
    let mut sent = Vec::new();
    for case in &cases {
        for body in BODIES {
            let mark = format!("{MARK}: {}\r\n", sent.len());
            let hidden = format!("GET /hidden HTTP/1.1\r\nHost: h\r\n{mark}\r\n");
            let rest = format!("{mark}\r\n{}", body.replace("{hidden}", &hidden));
            let bytes = [&case.head, rest.as_bytes()].concat();
            let answered = count(&send(proxy, &bytes), b"x-from: destination");
            sent.push((case, bytes, answered));
        }
    }
    // What was cut off may arrive a little later than the client was told.
    std::thread::sleep(Duration::from_secs(1));
    let arrived: Vec<Arrived> =
        received.lock().unwrap().iter().map(|arrived| arrived.lock().unwrap().clone()).collect();
    report(&sent, &arrived)
}

fn report(sent: &[(&Case, Vec<u8>, usize)], arrived: &[Arrived]) -> ExitCode {
    let (mut faults, mut passed, mut severe, mut known) = (0, 0, 0, 0);
    for (number, (case, bytes, answered)) in sent.iter().enumerate() {
        let wanted = Some(number.to_string());
        let ours: Vec<&Arrived> = arrived.iter().filter(|arrived| field(&arrived.head, MARK) == wanted).collect();
        known += ours.len();
        passed += usize::from(!ours.is_empty());
        let tier = HttpRequestData::analyze_raw_request(bytes).tier;
        severe += usize::from(tier == RequestSafetyTier::Severe && !ours.is_empty());
        for fault in judge(&ours, *answered) {
            faults += 1;
            println!("FAULT {}: {fault}\n  sent {}", case.name, bytes.escape_ascii());
        }
    }
    println!("{} requests sent: {passed} passed on, {} refused", sent.len(), sent.len() - passed);
    println!("{severe} passed on that guardian calls severe; {} pieces that belong to none", arrived.len() - known);
    println!("{faults} faults at the destination");
    ExitCode::from(u8::from(faults + severe + arrived.len() - known > 0 || sent.len() < 300 || passed < 50))
}

fn judge(arrived: &[&Arrived], answered: usize) -> Vec<String> {
    let mut faults = Vec::new();
    let whole = arrived.iter().filter(|arrived| arrived.whole).count();
    if whole != answered {
        faults.push(format!("{whole} whole requests arrived and {answered} were answered"));
    }
    for Arrived { head, last, .. } in arrived {
        let verdict = HttpRequestData::analyze_raw_request(head);
        let meaningless =
            matches!(verdict.reason, UndefinedContentLengthSemantics | UndefinedTransferEncodingSemantics);
        if verdict.tier > RequestSafetyTier::Acceptable && !(meaningless && *last) {
            faults.push(format!("{:?} ({:?}) arrived: {}", verdict.tier, verdict.reason, head.escape_ascii()));
        }
        if String::from_utf8_lossy(head).split("\r\n").any(|line| line.contains(['\r', '\n'])) {
            faults.push(format!("other line ends than CRLF arrived: {}", head.escape_ascii()));
        }
    }
    faults
}

fn send(proxy: &str, bytes: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(proxy).expect("the proxy listens");
    stream.set_read_timeout(Some(SILENT)).expect("a time above 0");
    // It may have answered and closed before all is sent.
    let _ = stream.write_all(bytes);
    let _ = stream.shutdown(Shutdown::Write);
    let mut answers = Vec::new();
    let _ = stream.read_to_end(&mut answers);
    answers
}

/// Answers every request as it is framed and keeps what came.
fn listen(address: &str, received: Received) {
    let listener = TcpListener::bind(address).expect("a free address");
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let received = received.clone();
            std::thread::spawn(move || serve(stream, &received));
        }
    });
}

fn serve(mut stream: TcpStream, received: &Received) {
    let mut unread = Vec::new();
    let keep = |head: Vec<u8>| {
        let arrived = Arc::new(Mutex::new(Arrived { head, whole: false, last: true }));
        received.lock().unwrap().push(arrived.clone());
        arrived
    };
    while let Some(head) = take_until(&mut stream, &mut unread, b"\r\n\r\n") {
        let arrived = keep(head.clone());
        let whole = match (field(&head, "content-length"), field(&head, "transfer-encoding")) {
            (Some(length), None) => take(&mut stream, &mut unread, length.parse().unwrap_or(0)).is_some(),
            (None, Some(_)) => take_chunks(&mut stream, &mut unread).is_some(),
            _ => true,
        };
        arrived.lock().unwrap().whole = whole;
        if !whole || stream.write_all(ANSWER.as_bytes()).is_err() {
            return;
        }
        if !unread.is_empty() || fill(&mut stream, &mut unread).is_some() {
            arrived.lock().unwrap().last = false;
        }
    }
    // What is no whole head is a part of one that should not be there.
    if !unread.is_empty() {
        keep(unread);
    }
}

fn take_chunks(stream: &mut TcpStream, unread: &mut Vec<u8>) -> Option<()> {
    loop {
        let line = take_until(stream, unread, b"\r\n")?;
        let line = String::from_utf8_lossy(&line).into_owned();
        let size = usize::from_str_radix(line.trim_end().split(';').next()?, 16).ok()?;
        take(stream, unread, size)?;
        take_until(stream, unread, b"\r\n")?;
        if size == 0 {
            return Some(());
        }
    }
}

fn take(stream: &mut TcpStream, unread: &mut Vec<u8>, length: usize) -> Option<Vec<u8>> {
    while unread.len() < length {
        fill(stream, unread)?;
    }
    Some(unread.drain(..length).collect())
}

fn take_until(stream: &mut TcpStream, unread: &mut Vec<u8>, end: &[u8]) -> Option<Vec<u8>> {
    loop {
        if let Some(at) = unread.windows(end.len()).position(|window| window == end) {
            return Some(unread.drain(..at + end.len()).collect());
        }
        fill(stream, unread)?;
    }
}

fn fill(stream: &mut TcpStream, unread: &mut Vec<u8>) -> Option<()> {
    let mut buffer = [0; 65_536];
    match stream.read(&mut buffer) {
        Ok(read @ 1..) => unread.extend_from_slice(&buffer[..read]),
        _ => return None,
    }
    Some(())
}

fn field(head: &[u8], name: &str) -> Option<String> {
    let text = String::from_utf8_lossy(head).into_owned();
    let fields = text.split("\r\n").skip(1).filter_map(|line| line.split_once(": "));
    fields.filter(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value.to_owned()).next()
}

fn read_cases(directory: &str) -> Vec<Case> {
    let mut files: Vec<_> =
        std::fs::read_dir(directory).expect("a directory").flatten().map(|file| file.path()).collect();
    files.sort();
    let yaml = files.iter().filter(|file| file.extension().is_some_and(|extension| extension == "yaml"));
    let documents = yaml.flat_map(|file| {
        let text = std::fs::read_to_string(file).expect("a readable file");
        YamlLoader::load_from_str(&text).expect("YAML")
    });
    documents.flat_map(|document| document.into_vec().unwrap_or_default()).map(|case| read_case(&case)).collect()
}

fn read_case(case: &Yaml) -> Case {
    let mut head = Vec::new();
    let words = ["method", "uri", "version"].map(|key| bytes(&case[key]));
    head.extend(words.iter().filter(|word| !word.is_empty()).cloned().collect::<Vec<_>>().join(&b' '));
    head.extend(b"\r\n");
    let headers = case["headers"].as_vec().cloned().unwrap_or_default();
    if !headers.iter().any(|header| bytes(&header["name"]).eq_ignore_ascii_case(b"host")) {
        head.extend(b"Host: h\r\n");
    }
    for header in &headers {
        head.extend(bytes(&header["name"]));
        head.extend(b": ");
        head.extend(bytes(&header["value"]));
        head.extend(b"\r\n");
    }
    Case { name: case["name"].as_str().unwrap_or_default().to_owned(), head }
}

/// A character is a byte; `\xff`, `\t` and the like may be escaped once more.
fn bytes(value: &Yaml) -> Vec<u8> {
    let text = match value {
        Yaml::Integer(number) => number.to_string(),
        Yaml::Real(text) | Yaml::String(text) => text.clone(),
        _ => String::new(),
    };
    let mut characters = text.chars();
    let mut bytes = Vec::new();
    while let Some(character) = characters.next() {
        let escaped = if character == '\\' { characters.next() } else { None };
        bytes.push(match escaped {
            Some('x') => {
                let digits: String = characters.by_ref().take(2).collect();
                u8::from_str_radix(&digits, 16).expect("two hex digits after \\x")
            }
            Some('r') => b'\r',
            Some('n') => b'\n',
            Some('t') => b'\t',
            Some(other) => other as u8,
            None => character as u8,
        });
    }
    bytes
}

fn count(bytes: &[u8], what: &[u8]) -> usize {
    bytes.windows(what.len()).filter(|window| *window == what).count()
}
