//! What README.md shows of files: each is whole, and would start.

use derbent::{Config, Derbent};

#[test]
fn given_the_readme_when_its_files_are_checked_then_none_has_a_fault() {
    let readme = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/README.md")).unwrap();
    let files: Vec<&str> = readme.split("```yaml\n").skip(1).filter_map(|from| from.split("```").next()).collect();
    assert!(files.len() > 1, "README.md shows no files");
    for file in files {
        let config = Config::parse("README.md", file).unwrap_or_else(|faults| panic!("{faults}\n\n{file}"));
        if let Err(faults) = Derbent::from_config(config).check() {
            panic!("{faults}\n\n{file}");
        }
    }
}

#[test]
fn given_the_readme_when_it_names_files_of_the_repository_then_they_are_there() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let readme = std::fs::read_to_string(root.join("README.md")).unwrap();
    let targets = readme.split("](").skip(1).filter_map(|from| from.split(')').next());
    let (anchors, files): (Vec<&str>, Vec<&str>) =
        targets.filter(|target| !target.contains("://")).partition(|target| target.starts_with('#'));
    assert!(!files.is_empty() && !anchors.is_empty());
    let headings: Vec<String> = readme.lines().filter(|line| line.starts_with('#')).map(anchor).collect();
    let missing: Vec<&&str> = files.iter().filter(|file| !root.join(file).exists()).collect();
    let astray: Vec<&&str> = anchors.iter().filter(|target| !headings.iter().any(|known| known == *target)).collect();
    assert!(missing.is_empty() && astray.is_empty(), "files {missing:?}, headings {astray:?}");
}

#[test]
fn given_the_readme_when_its_table_of_contents_is_read_then_every_chapter_is_in_it() {
    let readme = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/README.md")).unwrap();
    let (contents, chapters) = readme.split_once("\n## ").unwrap();
    let headings: Vec<String> =
        format!("## {chapters}").lines().filter(|line| line.starts_with("## ")).map(anchor).collect();
    let absent: Vec<&String> = headings.iter().filter(|heading| !contents.contains(&format!("]({heading})"))).collect();
    assert!(headings.len() > 10 && absent.is_empty(), "{absent:?}");
}

/// `## Paths and precedence` is reached as `#paths-and-precedence`.
fn anchor(heading: &str) -> String {
    let text = heading.trim_start_matches('#').trim().to_lowercase();
    let kept: String = text.chars().filter(|c| c.is_alphanumeric() || " -".contains(*c)).collect();
    format!("#{}", kept.replace(' ', "-"))
}
