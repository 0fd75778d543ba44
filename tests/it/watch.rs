//! Files that change are followed without a signal, and the order to read them again tells what is wrong with them.

use crate::support::{DEADLINE, Edge, Origin, derbent, eventually, one_destination};
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use tempfile::TempDir;

const WATCH: &str = "server: { reload: { watch: true } }\n";
const SUCCESS: &str = "derbent_config_reloads_total{result=\"success\"}";
const REJECTED: &str = "derbent_config_reloads_total{result=\"rejected\"}";

async fn answers(edge: &Edge, text: &str) {
    eventually(DEADLINE, text, async || edge.get("/").await.text() == text).await;
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).expect("the configuration")
}

async fn ctl_reload(edge: &Edge) -> (Option<i32>, String, String) {
    let output = derbent(["ctl", "reload", "--admin", &edge.admin().to_string()]).await;
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_config_map_when_its_link_is_swapped_then_the_new_file_is_in_force_and_kept_connections_stay() {
    let (one, two) = (Origin::named("one").await, Origin::named("two").await);
    let directory = TempDir::new().unwrap();
    let root = directory.path().to_owned();
    std::fs::create_dir(root.join("..v1")).unwrap();
    symlink("..v1", root.join("..data")).unwrap();
    symlink("..data/derbent.yaml", root.join("derbent.yaml")).unwrap();
    let edge = Edge::start_in(directory, &(WATCH.to_owned() + &one_destination(&one.url(), "")), &[]).await;
    let mut client = edge.connect().await;
    assert_eq!(client.get("/", "").await.unwrap().text(), "one");
    let next = read(&root.join("derbent.yaml")).replace(&one.url(), &two.url());
    std::fs::create_dir(root.join("..v2")).unwrap();
    std::fs::write(root.join("..v2/derbent.yaml"), next).unwrap();
    symlink("..v2", root.join("..new")).unwrap();
    std::fs::rename(root.join("..new"), root.join("..data")).unwrap();
    answers(&edge, "two").await;
    assert_eq!(client.get("/", "").await.unwrap().text(), "two");
    assert_eq!(edge.metric(SUCCESS).await, Some(1.0));
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_faulty_file_when_it_is_touched_and_mended_then_the_fault_is_told_once_and_the_mended_one_taken() {
    let (one, two) = (Origin::named("one").await, Origin::named("two").await);
    let edge = Edge::start(&(WATCH.to_owned() + &one_destination(&one.url(), ""))).await;
    let file = edge.directory().join("derbent.yaml");
    let good = read(&file);
    // As far as an editor got.
    let half = &good[..good.len() - 5];
    std::fs::write(&file, half).unwrap();
    edge.counts(REJECTED, 1.0).await;
    std::fs::write(&file, half).unwrap();
    // Time to be wrong in: nothing is to happen.
    tokio::time::sleep(Duration::from_millis(1_600)).await;
    assert_eq!(edge.get("/").await.text(), "one");
    std::fs::write(&file, good.replace(&one.url(), &two.url())).unwrap();
    answers(&edge, "two").await;
    assert_eq!((edge.metric(REJECTED).await, edge.metric(SUCCESS).await), (Some(1.0), Some(1.0)));
    edge.logged(&["ERROR", "configuration not reloaded, the one before stays in force: "]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_directory_that_is_included_when_files_come_and_go_then_so_do_their_routes() {
    let one = Origin::named("one").await;
    let directory = TempDir::new().unwrap();
    let parts = directory.path().join("parts");
    std::fs::create_dir(&parts).unwrap();
    let yaml = format!("include: parts/*.yaml\n{WATCH}{}", one_destination(&one.url(), ""));
    let edge = Edge::start_in(directory, &yaml, &[]).await;
    let gone = async |status: u16| {
        eventually(DEADLINE, &format!("/gone is {status}"), async || edge.get("/gone").await.status == status).await;
    };
    gone(200).await;
    let part = parts.join("gone.yaml");
    std::fs::write(&part, "routes: { gone: { match: { path: /gone }, respond: { status: 410 } } }\n").unwrap();
    gone(410).await;
    std::fs::remove_file(part).unwrap();
    gone(200).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn given_the_order_to_reload_when_the_file_is_good_or_faulty_then_what_changed_or_all_faults_are_told() {
    let (one, two) = (Origin::named("one").await, Origin::named("two").await);
    let edge = Edge::start(&one_destination(&one.url(), "")).await;
    edge.write(&one_destination(&two.url(), ""));
    let (code, out, err) = ctl_reload(&edge).await;
    assert!(code == Some(0) && out.starts_with("configuration reloaded (") && out.contains("1 reset"), "{out}{err}");
    assert_eq!(edge.get("/").await.text(), "two");
    edge.write("routes: { all: { cluster: ap } }\nclusters: { app: { load_balancing: RoundRobbin, destinations: [\"http://127.0.0.1:1\"] } }\n");
    let (code, out, err) = ctl_reload(&edge).await;
    assert_eq!((code, out.as_str()), (Some(1), ""));
    for told in ["routes.all.cluster: unknown cluster \"ap\"", "policy \"RoundRobbin\"", "2 faults"] {
        assert!(err.contains(told), "{err}");
    }
    assert_eq!(edge.get("/").await.text(), "two");
    assert_eq!((edge.metric(REJECTED).await, edge.metric(SUCCESS).await), (Some(1.0), Some(1.0)));
    std::fs::remove_file(edge.directory().join("derbent.yaml")).unwrap();
    let (code, _, err) = ctl_reload(&edge).await;
    assert!(code == Some(1) && err.contains("cannot read "), "{err}");
}

#[tokio::test(flavor = "multi_thread")]
async fn given_what_is_no_file_in_the_place_of_one_when_watched_then_it_is_told_and_a_good_file_is_taken_after_it() {
    let (one, two) = (Origin::named("one").await, Origin::named("two").await);
    let directory = TempDir::new().unwrap();
    let part = |url: &str| one_destination(url, "");
    let (main, included) = (directory.path().join("derbent.yaml"), directory.path().join("part.yaml"));
    std::fs::write(&included, part(&one.url())).unwrap();
    let edge = Edge::start_in(directory, &format!("include: part.yaml\n{WATCH}"), &[]).await;
    let text = read(&main);
    let next = edge.directory().join("next");
    let put = |path: &Path| std::fs::rename(&next, path).unwrap();
    let mut rejected = 0.0;
    for kind in ["pipe", "socket", "device"] {
        for (path, good) in [(&main, text.clone()), (&included, part(&two.url()))] {
            let _socket = match kind {
                "pipe" => {
                    assert!(Command::new("mkfifo").arg(&next).status().unwrap().success());
                    None
                }
                "socket" => Some(UnixListener::bind(&next).unwrap()),
                _ => {
                    symlink("/dev/zero", &next).unwrap();
                    None
                }
            };
            put(path);
            rejected += 1.0;
            edge.counts(REJECTED, rejected).await;
            // Asked for, it is told again, and nobody waits for it.
            let (code, _, err) = ctl_reload(&edge).await;
            rejected += 1.0;
            let told = err.contains("cannot read ") && err.contains("is no regular file");
            assert!(code == Some(1) && told, "{kind} at {}: {err}", path.display());
            let before = edge.metric(SUCCESS).await.unwrap();
            std::fs::write(&next, good).unwrap();
            put(path);
            edge.counts(SUCCESS, before + 1.0).await;
        }
        answers(&edge, "two").await;
    }
    assert_eq!(edge.metric(REJECTED).await, Some(rejected), "each is told once without being asked for");
}
