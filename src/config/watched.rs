//! What a configuration was read from, to tell whether it would read differently now.

use super::include::read_file;
use super::problem::Sources;
use super::{Certificate, Config, LoadError, Located};
use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Files, and patterns whose files may come and go.
#[derive(Debug, Clone, Default)]
pub struct Watched {
    sources: Sources,
    /// Certificates, keys and authorities.
    beside: BTreeSet<PathBuf>,
}

/// What files look like from outside: of each one that is there its device and number, size, and last changes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Looks(Vec<(PathBuf, [i64; 7])>);

/// Stands for what the files hold. Two of the same process can be compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Content(u64);

impl Config {
    pub fn watched(&self) -> Watched {
        let certificates = self.listeners.iter().flat_map(|listener| &listener.tls).flat_map(|tls| &tls.certificates);
        let of_clusters = self.clusters.iter().flat_map(|cluster| &cluster.connection.tls.client_certificate);
        let pair = |of: &Certificate| [of.cert.value.clone(), of.key.value.clone()];
        let authorities = self.clusters.iter().flat_map(|cluster| &cluster.connection.tls.ca);
        let authorities = authorities.map(|Located { value, .. }| value.clone());
        Watched {
            sources: self.problems().sources().clone(),
            beside: certificates.chain(of_clusters).flat_map(pair).chain(authorities).collect(),
        }
    }
}

impl LoadError {
    /// What was looked at before the fault was found.
    pub fn watched(&self) -> Watched {
        match self {
            LoadError::Io { .. } => Watched::default(),
            LoadError::Faults(faults) => Watched { sources: faults.sources().clone(), beside: BTreeSet::new() },
        }
    }
}

impl Watched {
    /// These and the files of another attempt, which knew of less because it failed.
    pub fn and(mut self, other: Watched) -> Watched {
        self.sources.look_for_too(&other.sources);
        self.beside.extend(other.beside);
        self
    }

    pub fn is_of_the_files_of(&self, other: &Watched) -> bool {
        self.beside == other.beside && self.sources.looked_for().eq(other.sources.looked_for())
    }

    pub fn looks(&self) -> Looks {
        let look = |path: PathBuf| {
            let of = std::fs::metadata(&path).ok()?;
            let numbers = [of.dev() as i64, of.ino() as i64, of.size() as i64];
            let [dev, ino, size] = numbers;
            Some((path, [dev, ino, size, of.mtime(), of.mtime_nsec(), of.ctime(), of.ctime_nsec()]))
        };
        Looks(self.files().into_iter().filter_map(look).collect())
    }

    /// Of the texts that were read; of what lies beside them, as it is now.
    pub fn content(&self) -> Content {
        let texts = self.sources.texts().map(|(name, text)| (Path::new(name).to_owned(), text.as_bytes().to_vec()));
        let beside = self.beside.iter().cloned().filter_map(readable);
        content(texts.chain(beside).collect())
    }

    /// Of what is there now.
    pub fn content_now(&self) -> Content {
        content(self.files().into_iter().filter_map(readable).collect())
    }

    /// Those that are there.
    fn files(&self) -> BTreeSet<PathBuf> {
        let mut files = self.beside.clone();
        for looked in self.sources.looked_for() {
            match looked {
                LookedFor::File(path) => drop(files.insert(path.clone())),
                LookedFor::Pattern(pattern) => {
                    files.extend(glob::glob(pattern).into_iter().flatten().filter_map(Result::ok));
                }
            }
        }
        files
    }
}

/// What an `include`, or the command line, asks for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum LookedFor {
    File(PathBuf),
    Pattern(String),
}

fn readable(path: PathBuf) -> Option<(PathBuf, Vec<u8>)> {
    let bytes = read_file(&path).ok()?;
    Some((path, bytes))
}

fn content(files: BTreeSet<(PathBuf, Vec<u8>)>) -> Content {
    let mut hasher = DefaultHasher::new();
    for (path, bytes) in files {
        let text = bytes.strip_prefix("\u{feff}".as_bytes()).unwrap_or(&bytes);
        (path, text).hash(&mut hasher);
    }
    Content(hasher.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    const REST: &str = "listeners: { web: \"127.0.0.1:1\" }\n";
    const ROUTE: &str = "routes: { all: { respond: {} } }\n";

    fn write(path: &Path, text: &str) {
        std::fs::write(path, text).expect("a temporary file");
    }

    #[test]
    fn given_files_when_they_stay_change_come_or_go_then_content_and_looks_tell() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let (main, parts) = (directory.path().join("main.yaml"), directory.path().join("parts"));
        std::fs::create_dir(&parts).expect("a directory");
        write(&main, &format!("\u{feff}include: [parts/*.yaml, ./plain.yaml]\n{REST}"));
        write(&directory.path().join("plain.yaml"), ROUTE);
        let config = Config::load(&main).unwrap_or_else(|faults| panic!("{faults}"));
        let watched = config.watched();
        let (content, looks) = (watched.content(), watched.looks());
        assert_eq!((watched.content_now(), watched.looks()), (content, looks.clone()), "nothing happened");
        write(&parts.join("more.yaml"), "clusters: { c: { destinations: [\"http://a\"] } }\n");
        assert_ne!(watched.content_now(), content, "a file came");
        assert_ne!(watched.looks(), looks);
        std::fs::remove_file(parts.join("more.yaml")).expect("it is there");
        assert_eq!(watched.content_now(), content, "and went");
        std::fs::rename(&main, directory.path().join("old")).expect("it is there");
        assert_ne!(watched.content_now(), content, "the main file went");
        write(&main, &format!("\u{feff}include: [parts/*.yaml, ./plain.yaml]\n{REST}"));
        assert_eq!(watched.content_now(), content, "the same again");
        assert_ne!(watched.looks(), looks, "in another file");
    }

    #[test]
    fn given_a_fault_when_only_part_of_it_was_read_then_what_was_known_before_is_watched_still() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let main = directory.path().join("main.yaml");
        write(&main, &format!("include: part.yaml\n{REST}"));
        write(&directory.path().join("part.yaml"), ROUTE);
        let good = Config::load(&main).unwrap_or_else(|faults| panic!("{faults}")).watched();
        write(&main, "include: [\n");
        let faulty = Config::load(&main).expect_err("no YAML").watched();
        let both = good.clone().and(faulty.clone());
        assert_ne!(faulty.content(), good.content());
        let before = both.content_now();
        write(&directory.path().join("part.yaml"), "routes: {}\n");
        assert_eq!(faulty.content_now(), faulty.content(), "it knows nothing of the part");
        assert_ne!(both.content_now(), before);
    }
}
