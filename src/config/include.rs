//! From one path to one tree: reads the main file and those its `include` names, and merges their sections. The named
//! maps are merged by name; every other section stands in one file only. A name or section written twice is a fault
//! that names both places.
//!
//! Files are regular ones, which are read once each and to a bounded size; only what the command line names may be a pipe.
//! One that cannot be read or parsed is a fault of its own; since
//! whatever it defines is missing then, there is no tree to judge further.

use super::env::{self, Env};
use super::node::{Entries, Kind, quote};
use super::section::Section;
use super::watched::LookedFor;
use super::{Located, Node, Problems, Spot, yaml};
use rustix::fs::OFlags;
use rustix::io::{Errno, ioctl_fionbio};
use std::collections::{HashMap, VecDeque};
use std::fs::{File, FileType, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Sections that several files may add to.
const MERGED: [&str; 4] = ["listeners", "routes", "clusters", "services"];

/// Bytes of one file.
const LARGEST: u64 = 16 << 20;

/// Files of one configuration.
const MOST_FILES: usize = 1_000;

/// The merged tree of the file called `name` and all it includes; nothing when a file could not be read or parsed.
pub(super) fn gather(name: &str, bytes: &[u8], env: Env<'_>, problems: &mut Problems) -> Option<Node> {
    let mut gatherer = Gatherer {
        env,
        problems,
        included: HashMap::new(),
        pending: VecDeque::new(),
        sections: Vec::new(),
        places: HashMap::new(),
        whole: true,
    };
    let file: Arc<str> = name.into();
    gatherer.problems.add_looked_for(LookedFor::File(name.into()));
    if let Ok(path) = Path::new(name).canonicalize() {
        gatherer.included.insert(path, None);
    }
    gatherer.file(&file, bytes);
    while let Some(pattern) = gatherer.pending.pop_front() {
        gatherer.include(&pattern);
    }
    let Gatherer { sections, whole, .. } = gatherer;
    let at = Spot { file, line: 1, column: 1, path: String::new() };
    whole.then_some(Node { at, kind: Kind::Map(sections) })
}

/// A whole file that a configuration names. Never waits for whoever may write into it.
///
/// # Errors
/// That of opening or reading; `InvalidInput` for what is no regular file, `FileTooLarge` above 16 MiB.
pub fn read_file(path: &Path) -> io::Result<Vec<u8>> {
    let file = open(path)?;
    regular(file.metadata()?.file_type())?;
    read(file)
}

/// The file that was asked for on the command line, a pipe of the shell included, as it is in `-c <(…)` and `-c /dev/stdin`.
///
/// # Errors
/// As [`read_file`]; `InvalidInput` also for a pipe with nothing in it that nobody has open for writing.
pub(super) fn read_main(path: &Path) -> io::Result<Vec<u8>> {
    let file = open(path)?;
    let kind = file.metadata()?.file_type();
    if !kind.is_fifo() {
        regular(kind)?;
        return read(file);
    }
    ioctl_fionbio(&file, false)?;
    let bytes = read(file)?;
    if bytes.is_empty() {
        return Err(invalid("a pipe that nobody writes into"));
    }
    Ok(bytes)
}

/// Opened first and looked at then, so that nothing comes between; opening a pipe waits for its writer otherwise.
fn open(path: &Path) -> io::Result<File> {
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    let opened = OpenOptions::new().read(true).custom_flags(flags.bits() as i32).open(path);
    // Nobody can open a socket, or a device without a driver.
    opened.map_err(|error| {
        if error.raw_os_error() == Some(Errno::NXIO.raw_os_error()) { no_regular("a socket or device") } else { error }
    })
}

fn regular(kind: FileType) -> io::Result<()> {
    match kind {
        kind if kind.is_file() => Ok(()),
        kind if kind.is_dir() => Err(no_regular("a directory")),
        kind if kind.is_fifo() => Err(no_regular("a pipe")),
        _ => Err(no_regular("a device")),
    }
}

fn no_regular(what: &str) -> io::Error {
    invalid(&format!("{what} is no regular file"))
}

fn invalid(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, why)
}

fn read(file: File) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(LARGEST + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > LARGEST {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, "larger than 16 MiB"));
    }
    Ok(bytes)
}

/// A file's bytes as text, which faults are shown with from then on; a fault when they are none.
pub(super) fn text_of<'b>(file: &Arc<str>, bytes: &'b [u8], problems: &mut Problems) -> Option<&'b str> {
    match std::str::from_utf8(bytes) {
        Ok(text) => {
            problems.add_source(file, text);
            Some(text)
        }
        Err(error) => {
            let (line, column) = line_and_column(&bytes[..error.valid_up_to()]);
            let at = Spot { file: file.clone(), line, column, path: String::new() };
            problems.push(&at, "not a text file: YAML is read as UTF-8, and this byte is not");
            None
        }
    }
}

struct Gatherer<'x> {
    env: Env<'x>,
    problems: &'x mut Problems,
    /// Where each file was included; the main file nowhere.
    included: HashMap<PathBuf, Option<Spot>>,
    /// Patterns not yet looked for; a queue, so that no chain of includes is too long.
    pending: VecDeque<Located<String>>,
    sections: Entries,
    /// Where in `sections` each name is.
    places: HashMap<String, usize>,
    whole: bool,
}

impl Gatherer<'_> {
    fn file(&mut self, file: &Arc<str>, bytes: &[u8]) {
        let Some(mut root) = self.parse(file, bytes) else {
            self.whole = false;
            return;
        };
        env::expand(&mut root, self.env, self.problems);
        let patterns = Section::of_map(&root, self.problems).words("include");
        if let Kind::Map(entries) = root.kind {
            for (key, node) in entries.into_iter().filter(|(key, _)| key.value != "include") {
                self.merge(key, node);
            }
        }
        self.pending.extend(patterns);
    }

    fn parse(&mut self, file: &Arc<str>, bytes: &[u8]) -> Option<Node> {
        let text = text_of(file, bytes, self.problems)?;
        let root = yaml::read(file, text, self.problems)?;
        let message = match &root.kind {
            Kind::Map(_) => return Some(root),
            Kind::Null => "the file is empty; expected sections such as listeners, routes and clusters".to_owned(),
            _ => format!("expected sections such as listeners, routes and clusters; {}", root.found()),
        };
        self.problems.push(&root.at, message);
        None
    }

    fn merge(&mut self, key: Located<String>, node: Node) {
        let Some(&at) = self.places.get(&key.value) else {
            self.places.insert(key.value.clone(), self.sections.len());
            self.sections.push((key, node));
            return;
        };
        let (first, present) = &mut self.sections[at];
        match (&mut present.kind, node.kind) {
            (Kind::Map(entries), Kind::Map(more)) if MERGED.contains(&key.value.as_str()) => {
                add_named(entries, more, self.problems);
            }
            _ => {
                let message = format!("section written twice; first at {}:{}", first.at.file, first.at.line);
                self.problems.push(&key.at, message);
            }
        }
    }

    fn include(&mut self, pattern: &Located<String>) {
        let at = &pattern.at;
        let directory = Path::new(&*at.file).parent().unwrap_or(Path::new(""));
        if !pattern.value.contains(['*', '?', '[']) {
            let path = directory.join(&pattern.value);
            self.problems.add_looked_for(LookedFor::File(path.clone()));
            return self.include_file(&path, at);
        }
        let escaped = glob::Pattern::escape(&directory.to_string_lossy());
        let whole = Path::new(&escaped).join(&pattern.value).to_string_lossy().into_owned();
        self.problems.add_looked_for(LookedFor::Pattern(whole.clone()));
        match glob::glob(&whole) {
            Err(error) => {
                self.problems.push(at, format!("{} is no file pattern: {}", quote(&pattern.value), error.msg))
            }
            Ok(found) => {
                for entry in found.take(MOST_FILES + 1) {
                    match entry {
                        Ok(path) => self.include_file(&path, at),
                        Err(error) => self.unreadable(error.path(), error.error(), at),
                    }
                }
            }
        }
    }

    fn include_file(&mut self, path: &Path, at: &Spot) {
        let identity = match path.canonicalize() {
            Ok(identity) => identity,
            Err(error) => return self.unreadable(path, &error, at),
        };
        if self.included.len() >= MOST_FILES {
            return self.problems.push(at, format!("includes more than {MOST_FILES} files"));
        }
        let shown = path.to_string_lossy();
        match self.included.get(&identity) {
            Some(Some(first)) => {
                let message = format!("{shown} is included twice; first at {}:{}", first.file, first.line);
                return self.problems.push(at, message);
            }
            Some(None) => {
                return self
                    .problems
                    .push(at, format!("{shown} includes itself: it is the file that was started from"));
            }
            None => {}
        }
        self.included.insert(identity, Some(at.clone()));
        match read_file(path) {
            Ok(bytes) => self.file(&shown.into(), &bytes),
            Err(error) => self.unreadable(path, &error, at),
        }
    }

    fn unreadable(&mut self, path: &Path, error: &io::Error, at: &Spot) {
        self.whole = false;
        self.problems.push(at, format!("cannot read {}: {error}", path.display()));
    }
}

fn add_named(entries: &mut Entries, more: Entries, problems: &mut Problems) {
    let mut places: HashMap<String, Spot> =
        entries.iter().map(|(name, _)| (name.value.clone(), name.at.clone())).collect();
    for (name, node) in more {
        match places.get(&name.value) {
            Some(first) => {
                let message = format!("name written twice; first at {}:{}", first.file, first.line);
                problems.push(&name.at, message);
            }
            None => {
                places.insert(name.value.clone(), name.at.clone());
                entries.push((name, node));
            }
        }
    }
}

fn line_and_column(before: &[u8]) -> (u32, u32) {
    let lines = before.iter().filter(|byte| **byte == b'\n').count() + 1;
    let line = before.rsplit(|byte| *byte == b'\n').next().unwrap_or_default();
    let column = String::from_utf8_lossy(line).chars().count() + 1;
    let number = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    (number(lines), number(column))
}

#[cfg(test)]
mod tests {
    use crate::config::{Config, LoadError};
    use std::fs;
    use std::io::Write;
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixListener;
    use std::path::Path;

    /// Files by name in a directory of their own; the first one is loaded.
    fn load(files: &[(&str, &str)]) -> Result<Config, LoadError> {
        let directory = tempfile::tempdir().expect("a directory");
        for (name, text) in files {
            let path = directory.path().join(name);
            fs::create_dir_all(path.parent().expect("a parent")).expect("created");
            fs::write(path, text).expect("written");
        }
        Config::load_with(&directory.path().join(files[0].0), &|_| None)
    }

    fn load_faults(files: &[(&str, &str)]) -> Vec<String> {
        let Err(LoadError::Faults(problems)) = load(files) else { panic!("no faults in {files:?}") };
        let short = |problem: &crate::config::Problem| {
            let name = Path::new(&*problem.at.file).file_name().map(|name| name.to_string_lossy().into_owned());
            format!("{}:{} {}", name.unwrap_or_default(), problem.at.line, problem.message)
        };
        problems.iter().map(short).collect()
    }

    #[test]
    fn given_includes_when_loaded_then_named_sections_merge_in_sorted_order() {
        let config = load(&[
            ("main.yaml", "include: [conf.d/*.yaml, none/*.yaml]\nlisteners: { web: 0.0.0.0:1 }\n"),
            ("conf.d/b.yaml", "routes: { b: { cluster: c } }\ninclude: ../more.yaml\n"),
            ("conf.d/a.yaml", "routes: { a: { cluster: c } }\nadmin: { address: 127.0.0.1:2, token_file: t }\n"),
            ("more.yaml", "clusters: { c: { destinations: [\"http://a\"] } }\n"),
        ])
        .unwrap_or_else(|error| panic!("{error}"));
        let routes: Vec<_> = config.routes.iter().map(|route| route.name.value.as_str()).collect();
        assert_eq!(routes, ["a", "b"]);
        assert_eq!(config.clusters.len(), 1);
        let token = config.admin.expect("on").token_file.expect("given");
        assert!(token.value.ends_with("conf.d/t"), "{token:?}");
    }

    #[test]
    fn given_a_name_or_section_in_two_files_when_loaded_then_a_fault_that_names_both_places() {
        let found = load_faults(&[
            ("main.yaml", "include: [b.yaml]\nlog: {}\nlisteners:\n  web: 0.0.0.0:1\nroutes: { r: { cluster: c } }\n"),
            ("b.yaml", "log: {}\nlisteners:\n\n  web: 0.0.0.0:2\n"),
        ]);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].starts_with("b.yaml:1 section written twice; first at ") && found[0].ends_with("main.yaml:2"));
        assert!(found[1].starts_with("b.yaml:4 name written twice; first at ") && found[1].ends_with("main.yaml:4"));
    }

    #[test]
    fn given_broken_includes_when_loaded_then_faults_at_the_include_or_in_the_included_file() {
        for (include, other, fault) in [
            ("include: other.yaml", "routes: { r: {} }\n", "other.yaml:1 needs one of"),
            ("include: other.yaml", "routes:\n\tr: {}\n", "other.yaml:2 a tab cannot indent"),
            ("include: other.yaml", "", "other.yaml:1 the file is empty"),
            ("include: other.yaml", "include: main.yaml\n", "includes itself"),
            ("include: [other.yaml, '*r.yaml']", "log: {}", "main.yaml:1 "),
            ("include: missing.yaml", "log: {}", "main.yaml:1 cannot read "),
            ("include: '***'", "log: {}", "main.yaml:1 \"***\" is no file pattern"),
            ("include: {a: b}", "log: {}", "main.yaml:1 expected text; found a section of keys"),
            ("include: .", "log: {}", "main.yaml:1 cannot read "),
        ] {
            let main = format!("{include}\nlisteners: {{ web: 0.0.0.0:1 }}\nroutes: {{ a: {{ cluster: c }} }}\n");
            let found = load_faults(&[("main.yaml", &main), ("other.yaml", other)]);
            assert!(found.len() == 1 && found[0].contains(fault), "{include} {other}\n{found:?}");
        }
    }

    #[test]
    fn given_a_binary_file_when_loaded_then_a_fault_at_the_first_bad_byte() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("t.yaml");
        for (bytes, place) in [(b"log: {}\na: \xff\xfe".as_slice(), ":2:4: "), (b"\x7fELF\x80", ":1:5: ")] {
            fs::write(&path, bytes).expect("written");
            let error = Config::load_with(&path, &|_| None).expect_err("binary").to_string();
            assert!(error.contains(place) && error.contains("not a text file"), "{error}");
        }
    }

    #[test]
    fn given_a_path_that_cannot_be_read_when_loaded_then_an_io_error() {
        let directory = tempfile::tempdir().expect("a directory");
        let at = |name: &str| directory.path().join(name);
        mkfifo(&at("pipe"));
        let _socket = UnixListener::bind(at("socket")).expect("bound");
        for (path, why) in [
            (at("missing.yaml"), "No such file"),
            (directory.path().to_owned(), "a directory is no regular file"),
            (at("socket"), "a socket or device is no regular file"),
            ("/dev/zero".into(), "a device is no regular file"),
            (at("pipe"), "a pipe that nobody writes into"),
        ] {
            let error = Config::load(&path).expect_err("no file");
            assert!(matches!(&error, LoadError::Io { path: named, .. } if *named == path), "{error}");
            let told = error.to_string();
            assert!(told.starts_with("cannot read ") && told.contains(why), "{told}");
        }
    }

    #[test]
    fn given_a_pipe_of_a_shell_when_loaded_then_it_is_read_to_its_end_and_never_again() {
        let (reader, mut writer) = std::io::pipe().expect("a pipe");
        let pipe = format!("/dev/fd/{}", reader.as_raw_fd());
        let pipe = Path::new(&pipe);
        writer.write_all(b"listeners: { web: 0.0.0.0:1 }\n").expect("room in the pipe");
        let again = Config::draft_again(pipe, &|_| None).expect_err("no file");
        assert!(again.to_string().ends_with("a pipe is no regular file"), "{again}");
        let late = std::thread::spawn(move || writer.write_all(b"routes: { all: { respond: {} } }\n"));
        let config = Config::load(pipe).unwrap_or_else(|error| panic!("{error}"));
        late.join().expect("no panic").expect("a reader");
        assert_eq!(config.routes.len(), 1);
        let error = Config::load(pipe).expect_err("all was taken");
        assert!(error.to_string().ends_with("a pipe that nobody writes into"), "{error}");
    }

    fn mkfifo(path: &Path) {
        rustix::fs::mknodat(rustix::fs::CWD, path, rustix::fs::FileType::Fifo, 0o600.into(), 0).expect("made");
    }
}
