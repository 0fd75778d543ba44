//! Cookie fields of any kind against session affinity: no panic, the last key of several counts, and one that is withheld is gone.
#![no_main]

use derbent::affinity::{Answer, Recall};
use derbent::model::RequestView;
use derbent::runtime::Snapshot;
use derbent::{Config, Derbent};
use http::{HeaderMap, HeaderValue, Method, header};
use libfuzzer_sys::fuzz_target;
use std::sync::LazyLock;
use std::time::UNIX_EPOCH;

const FILE: &str = r#"
listeners: { web: "127.0.0.1:1" }
routes: { all: { cluster: hash } }
clusters:
  hash: { destinations: { a: "http://127.0.0.1:2", b: "http://127.0.0.1:3" }, session_affinity: { key_name: Sid } }
  arr: { destinations: { a: "http://127.0.0.1:2", b: "http://127.0.0.1:3" }, session_affinity: { policy: ArrCookie, key_name: Arr } }
"#;

static SNAPSHOT: LazyLock<Snapshot> = LazyLock::new(|| {
    let config = Config::parse("fuzz.yaml", FILE).expect("a faultless file");
    Derbent::from_config(config).check().ok().expect("it compiles")
});

// Each line is a field.
fuzz_target!(|bytes: &[u8]| {
    let fields = bytes.split(|&byte| byte == b'\n').filter_map(|line| HeaderValue::from_bytes(line).ok());
    let headers: HeaderMap = fields.map(|field| (header::COOKIE, field)).collect();
    for cluster in &SNAPSHOT.clusters {
        let policy = &cluster.sessions.as_ref().expect("is configured").policy;
        let recall = |headers: &HeaderMap| policy.recall(&view(headers));
        let left = policy.withhold(&headers);
        assert!(recall(&headers) == Recall::Unset || left.is_some());
        if let Some((name, rest)) = left {
            let rest: HeaderMap = rest.into_iter().map(|rest| (name.clone(), rest)).collect();
            assert_eq!(recall(&rest), Recall::Unset);
            assert!(policy.withhold(&rest).is_none());
        }
        let answer = Answer { secure: true, now: UNIX_EPOCH };
        let (_, line) = policy.remember(1, &answer).expect("a destination");
        let pair = line.to_str().expect("text").split(';').next().expect("a pair");
        let mut more = headers.clone();
        more.append(header::COOKIE, pair.parse().expect("a value"));
        assert_eq!(recall(&more), Recall::Bound(1));
    }
});

fn view(headers: &HeaderMap) -> RequestView<'_> {
    RequestView { method: &Method::GET, host: "h", port: None, path: "/", query: None, headers, client_ip: None }
}
