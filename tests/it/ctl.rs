//! `derbent ctl` as a shell sees it: what it prints, what it does, and its exit codes.

use crate::support::{Answer, Edge, Gate, Origin, Step, derbent, free_port};
use derbent::explain::{Explanation, replay};
use tempfile::TempDir;

/// Exit code, standard output and standard error.
async fn ctl(edge: &Edge, arguments: &[&str]) -> (i32, String, String) {
    let admin = edge.admin().to_string();
    told(&[&["ctl", "--admin", &admin][..], arguments].concat()).await
}

async fn told(arguments: &[&str]) -> (i32, String, String) {
    let output = derbent(arguments).await;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code().expect("no signal"), text(&output.stdout), text(&output.stderr))
}

fn yaml(origin: &Origin) -> String {
    format!(
        "routes: {{ all: {{ cluster: app }} }}\nclusters:\n  app: {{ destinations: {{ a: \"{0}\", \"b/[1]\": \"{0}/b\" }} }}\n  other: {{ destinations: [\"{0}\"] }}\n",
        origin.url()
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn given_orders_when_given_by_ctl_then_they_hold_and_status_and_explain_show_them() {
    let origin = Origin::named("a").await;
    let edge = Edge::start(&yaml(&origin)).await;
    let (code, out, err) = ctl(&edge, &["status"]).await;
    assert_eq!((code, err.as_str()), (0, ""));
    let lines: Vec<&str> = out.lines().collect();
    assert_eq!(lines[0], "app: 2 of 2 available");
    assert!(lines[1].starts_with("  DESTINATION  STATE    SINCE  IN FLIGHT  WEIGHT  WHY"), "{out}");
    assert!(lines[2].starts_with("  a            unknown  -      0          1"), "{out}");
    assert!(lines.contains(&"other: 1 of 1 available"), "{out}");

    let (code, out, err) = ctl(&edge, &["drain", "app", "b/[1]", "--for", "10m"]).await;
    assert_eq!((code, err.as_str()), (0, ""));
    assert!(out.starts_with("b/[1] is draining\n  drain, by 127.0.0.1:") && out.contains(", until 20"), "{out}");
    let (code, out, _) = ctl(&edge, &["weight", "app", "a", "5"]).await;
    assert!(
        code == 0 && out.contains("\n  weight 5, by 127.0.0.1:") && out.ends_with(", until another order\n"),
        "{out}"
    );
    let (code, out, _) = ctl(&edge, &["status", "app"]).await;
    let row =
        |begin: &str| out.lines().find(|line| line.starts_with(begin)).unwrap_or_else(|| panic!("{begin} in\n{out}"));
    assert_eq!((code, out.lines().next()), (0, Some("app: 1 of 2 available")));
    assert!(row("  a  ").ends_with("5       weight 5 (operator)"), "{out}");
    assert!(row("  b/[1]  ").contains("draining") && row("  b/[1]  ").contains("drain, by 127.0.0.1:"), "{out}");

    let (code, out, _) = ctl(&edge, &["explain", "app", "b/[1]"]).await;
    assert!(code == 0 && out.starts_with("b/[1] of cluster app is draining since "), "{out}");
    let (code, out, _) = ctl(&edge, &["explain", "app", "b/[1]", "--json"]).await;
    let told: serde_json::Value = serde_json::from_str(&out).expect("JSON");
    let step: Explanation = serde_json::from_value(told["history"][0].clone()).expect("an Explanation");
    assert_eq!((code, replay(&step)), (0, Some(step.decision)));

    for (order, state) in
        [("ready", "unknown"), ("maint", "maintenance"), ("eject", "unhealthy"), ("uneject", "unknown")]
    {
        let (code, out, err) = ctl(&edge, &[order, "app", "b/[1]"]).await;
        assert_eq!((code, err.as_str(), out.lines().next()), (0, "", Some(format!("b/[1] is {state}").as_str())));
        assert_eq!(edge.destination("app", "b/[1]").await["state"], state);
    }
    let (code, out, _) = ctl(&edge, &["weight", "app", "a", "default"]).await;
    assert_eq!((code, out.as_str()), (0, "a is unknown\n"));
    let (code, out, _) = ctl(&edge, &["status", "--json"]).await;
    let told: serde_json::Value = serde_json::from_str(&out).expect("JSON");
    assert_eq!((code, &told["clusters"][1]["name"]), (0, &"other".into()));
}

#[tokio::test(flavor = "multi_thread")]
async fn given_ctl_when_refused_misused_or_alone_then_its_code_tells() {
    let origin = Origin::named("a").await;
    let edge = Edge::start(&yaml(&origin)).await;
    let (code, out, err) = ctl(&edge, &["drain", "app", "aa"]).await;
    assert_eq!((code, out.as_str()), (1, ""));
    assert!(err.starts_with("cluster app: unknown destination \"aa\"; did you mean \"a\"?"), "{err}");
    assert_eq!(ctl(&edge, &["explain", "ap", "a"]).await.0, 1);
    assert_eq!(ctl(&edge, &["status", "nobody"]).await.0, 1);
    for usage in [
        &["drain", "app"][..],
        &["weight", "app", "a", "many"],
        &["drain", "app", "a", "--for", "10"],
        &["ready", "app", "a", "--for", "10m"],
        &["restart", "app", "a"],
        &["status", "--admin", "nowhere:port"],
    ] {
        assert_eq!(ctl(&edge, usage).await.0, 2, "{usage:?}");
    }
    assert_eq!(edge.destination("app", "a").await["overrides"], serde_json::json!([]));
    let nobody = format!("127.0.0.1:{}", free_port());
    let (code, out, err) = told(&["ctl", "--admin", &nobody, "status"]).await;
    assert_eq!((code, out.as_str(), err), (3, "", format!("http://{nobody}: refused\n")));
    let silent = Origin::start(|_| Answer::script([Step::Wait(Gate::closed())])).await;
    let admin = silent.address().to_string();
    assert_eq!(told(&["ctl", "--admin", &admin, "--timeout", "100ms", "status"]).await.0, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_token_when_ctl_has_its_file_then_it_is_let_in_and_else_refused() {
    let origin = Origin::named("a").await;
    let (directory, port) = (TempDir::new().unwrap(), free_port());
    let token = directory.path().join("token");
    std::fs::write(&token, "s3cret\n").unwrap();
    let token = token.display().to_string();
    let admin = format!("admin: {{ address: \"127.0.0.1:{port}\", token_file: token }}\n");
    let _edge = Edge::launch(directory, &(admin + &yaml(&origin)), &[]);
    let address = format!("127.0.0.1:{port}");
    crate::support::eventually(crate::support::DEADLINE, "ready", async || {
        told(&["healthcheck", "--admin", &address]).await.0 == 0
    })
    .await;
    let (code, _, err) = told(&["ctl", "--admin", &address, "status"]).await;
    assert_eq!((code, err.as_str()), (1, "send the token as Authorization: Bearer …\n"));
    let (code, out, _) = told(&["ctl", "drain", "app", "a", "--admin", &address, "--token-file", &token]).await;
    assert!(code == 0 && out.starts_with("a is draining\n"), "{out}");
    assert_eq!(told(&["ctl", "--admin", &address, "--token-file", "/nonexistent", "status"]).await.0, 3);
}
