//! TLS towards clients and destinations: who is believed, by which name, and what is told when not.

use crate::support::{
    Call, DEADLINE, Edge, GrpcHealth, H2Client, H2Origin, Origin, eventually, free_port, in_time, loopback,
};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, Issuer, KeyPair, SanType, date_time_ymd,
};
use rustls::crypto::ring::default_provider;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig, SupportedProtocolVersion};
use std::io::Result;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::client::TlsStream;
use tokio_rustls::{TlsAcceptor, TlsConnector};

#[tokio::test(flavor = "multi_thread")]
async fn given_a_listener_with_a_certificate_when_asked_over_tls_then_it_serves_https() {
    let authority = Authority::new("listener authority");
    let server = authority.issue(&["shop.example"]);
    let directory = TempDir::new().unwrap();
    server.write(&directory, "shop");
    let origin = TlsOrigin::start(&authority.issue(&["catalog.internal"]), None).await;
    authority.write(&directory, "ca.pem");
    let address = loopback(free_port());
    let yaml = format!(
        "listeners: {{ web: {{ address: \"{address}\", tls: {{ certificates: [{{ cert: shop.pem, key: shop.key }}] }} }} }}\n{}",
        cluster(&origin, "", "ca: ca.pem, server_name: catalog.internal")
    );
    let edge = Edge::start_in(directory, &yaml, &[]).await;
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        let answer = https_get(address, "shop.example", &authority, version).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("secret"), "{version:?}: {answer}");
    }
    assert!(
        origin.seen()[0].head.contains("X-Forwarded-Proto: https\r\n")
            || origin.seen()[0].head.contains("x-forwarded-proto: https\r\n"),
        "{}",
        origin.seen()[0].head
    );
    https_get(address, "other.example", &authority, &rustls::version::TLS13).await.expect_err("not its name");
    let stranger = Authority::new("another");
    https_get(address, "shop.example", &stranger, &rustls::version::TLS13).await.expect_err("not its authority");
    // One that speaks no TLS is sent away and harms nobody.
    let mut plain = TcpStream::connect(address).await.unwrap();
    plain.write_all(b"GET / HTTP/1.1\r\nhost: h\r\n\r\n").await.unwrap();
    let mut rest = Vec::new();
    let _ = in_time("the end of a plain connection", plain.read_to_end(&mut rest)).await;
    assert!(!rest.starts_with(b"HTTP"), "{rest:?}");
    https_get(address, "shop.example", &authority, &rustls::version::TLS13).await.unwrap();
    edge.counts("derbent_downstream_connections{listener=\"web\"}", 0.0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_certificate_when_its_files_are_replaced_then_the_next_handshake_gets_the_new_one() {
    let (before, after) = (Authority::new("before"), Authority::new("after"));
    let directory = TempDir::new().unwrap();
    before.issue(&["shop.example"]).write(&directory, "shop");
    let new = TempDir::new_in(directory.path()).unwrap();
    after.issue(&["shop.example"]).write(&new, "shop");
    let address = loopback(free_port());
    let yaml = format!(
        "server: {{ reload: {{ watch: true }} }}\nlisteners: {{ web: {{ address: \"{address}\", tls: {{ certificates: [{{ cert: shop.pem, key: shop.key }}] }} }} }}\n\
         routes: {{ all: {{ respond: {{}} }} }}\n"
    );
    let edge = Edge::start_in(directory, &yaml, &[]).await;
    let version = &rustls::version::TLS13;
    https_get(address, "shop.example", &before, version).await.unwrap();
    https_get(address, "shop.example", &after, version).await.expect_err("not yet");
    for file in ["shop.key", "shop.pem"] {
        std::fs::rename(new.path().join(file), edge.directory().join(file)).unwrap();
    }
    eventually(DEADLINE, "the new certificate", async || {
        https_get(address, "shop.example", &after, version).await.is_ok()
    })
    .await;
    https_get(address, "shop.example", &before, version).await.expect_err("no more");
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_destination_of_our_authority_when_its_name_is_right_then_it_is_believed() {
    let authority = Authority::new("internal");
    let origin = TlsOrigin::start(&authority.issue(&["catalog.internal", "127.0.0.1"]), None).await;
    let own_host = origin.address.to_string();
    for (destination, tls, sni, host) in [
        ("", "ca: ca.pem", None, own_host.as_str()),
        ("", "ca: ca.pem, server_name: catalog.internal", Some("catalog.internal"), own_host.as_str()),
        ("host: catalog.internal", "ca: ca.pem", Some("catalog.internal"), "catalog.internal"),
        ("host: \"catalog.internal:8443\"", "ca: ca.pem", Some("catalog.internal"), "catalog.internal:8443"),
        ("host: shop.internal", "ca: ca.pem, server_name: catalog.internal", Some("catalog.internal"), "shop.internal"),
    ] {
        let edge = edge(&origin, destination, tls, &[("ca.pem", &authority)]).await;
        assert_eq!(edge.get("/").await.text(), "secret", "{destination} {tls}");
        let seen = origin.seen().pop().unwrap();
        assert_eq!(seen.server_name.as_deref(), sni, "{destination} {tls}");
        let host = format!("host: {host}\r\n");
        assert!(seen.head.to_lowercase().contains(&host), "{host} {}", seen.head);
        assert!(!edge.stderr().iter().any(|line| line.contains("WARN")), "{:?}", edge.stderr());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_destination_that_cannot_be_believed_when_asked_then_502_tls_and_it_sees_no_request() {
    let authority = Authority::new("internal");
    let stranger = Authority::new("stranger");
    let good = TlsOrigin::start(&authority.issue(&["catalog.internal"]), None).await;
    let expired = TlsOrigin::start(&authority.issue_expired(&["catalog.internal"]), None).await;
    for (origin, tls) in [
        (&good, "ca: ca.pem"),
        (&good, "ca: ca.pem, server_name: other.internal"),
        (&good, "ca: ca.pem, server_name: internal"),
        (&good, "ca: stranger.pem, server_name: catalog.internal"),
        (&good, "server_name: catalog.internal"),
        (&expired, "ca: ca.pem, server_name: catalog.internal"),
    ] {
        let edge = edge(origin, "", tls, &[("ca.pem", &authority), ("stranger.pem", &stranger)]).await;
        assert_eq!(edge.get("/").await.status, 502, "{tls}");
        edge.counts(&errors("tls"), 1.0).await;
        edge.logged(&["WARN", "of cluster app failed (tls): TLS failed"]).await;
        assert!(origin.seen().is_empty(), "{tls}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn given_verify_false_when_started_then_it_warns_and_believes_anyone() {
    let stranger = Authority::new("stranger");
    let origin = TlsOrigin::start(&stranger.issue(&["elsewhere.example"]), None).await;
    for _ in 0..2 {
        let edge = edge(&origin, "", "verify: false", &[]).await;
        assert_eq!(edge.get("/").await.text(), "secret");
        edge.logged(&["WARN", "cluster app does not verify its upstreams' certificates"]).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_destination_that_asks_for_a_certificate_when_connected_then_the_configured_one_is_shown() {
    let authority = Authority::new("internal");
    let client = authority.issue(&["gateway.internal"]);
    let origin = TlsOrigin::start(&authority.issue(&["127.0.0.1"]), Some(&authority)).await;
    let directory = TempDir::new().unwrap();
    authority.write(&directory, "ca.pem");
    client.write(&directory, "gw");
    let yaml = cluster(&origin, "", "ca: ca.pem, client_cert: gw.pem, client_key: gw.key");
    let with = Edge::start_in(directory, &yaml, &[]).await;
    assert_eq!(with.get("/").await.text(), "secret");
    assert_eq!(origin.seen()[0].client_certificate.as_deref(), Some(client.der.as_ref()));
    let without = edge(&origin, "", "ca: ca.pem", &[("ca.pem", &authority)]).await;
    assert_eq!(without.get("/").await.status, 502);
    assert_eq!(origin.seen().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn given_clusters_of_different_trust_when_one_has_a_connection_then_the_other_does_not_get_it() {
    let authority = Authority::new("internal");
    let stranger = Authority::new("stranger");
    let origin = TlsOrigin::start(&authority.issue(&["127.0.0.1"]), None).await;
    let directory = TempDir::new().unwrap();
    authority.write(&directory, "ca.pem");
    stranger.write(&directory, "stranger.pem");
    let cluster = |name: &str, tls: &str| {
        let url = origin.url();
        format!("  {name}: {{ destinations: [\"{url}\"], connection: {{ tls: {{ {tls} }} }} }}\n")
    };
    let clusters =
        [cluster("lax", "verify: false"), cluster("trusting", "ca: ca.pem"), cluster("strict", "ca: stranger.pem")];
    let routes = ["lax", "trusting", "strict"]
        .map(|name| format!("  {name}: {{ match: {{ path: /{name} }}, cluster: {name} }}\n"));
    let yaml = format!("routes:\n{}clusters:\n{}", routes.concat(), clusters.concat());
    let edge = Edge::start_in(directory, &yaml, &[]).await;
    for _ in 0..3 {
        assert_eq!(edge.get("/lax").await.status, 200);
        assert_eq!(edge.get("/trusting").await.status, 200);
        assert_eq!(edge.get("/strict").await.status, 502);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn given_probes_over_tls_when_the_certificate_is_not_believed_then_the_destination_is_out() {
    let authority = Authority::new("internal");
    let stranger = Authority::new("stranger");
    let origin = TlsOrigin::start(&authority.issue(&["127.0.0.1"]), None).await;
    for (ca, state) in [("ca.pem", "healthy"), ("stranger.pem", "unhealthy")] {
        let directory = TempDir::new().unwrap();
        authority.write(&directory, "ca.pem");
        stranger.write(&directory, "stranger.pem");
        let yaml = format!(
            "routes: {{ all: {{ cluster: app }} }}\n\
             clusters: {{ app: {{ destinations: {{ one: \"{}\" }}, connection: {{ tls: {{ ca: {ca} }} }},\n\
             \x20 health: {{ active: {{ type: http, interval: 100ms, unhealthy_after: 1 }} }} }} }}\n",
            origin.url()
        );
        let edge = Edge::start_in(directory, &yaml, &[]).await;
        eventually(DEADLINE, state, async || edge.destination("app", "one").await["state"] == state).await;
    }
}

/// What Apigee's monitors cannot do: a probe shows the certificate that requests show.
#[tokio::test(flavor = "multi_thread")]
async fn given_a_probe_when_it_has_tls_of_its_own_or_not_then_names_trust_and_certificates_are_as_written() {
    let authority = Authority::new("internal");
    let client = authority.issue(&["gateway.internal"]);
    let names = authority.issue(&["catalog.internal", "shop.example", "127.0.0.1"]);
    let origin = TlsOrigin::start(&names, Some(&authority)).await;
    let stranger = TlsOrigin::start(&Authority::new("stranger").issue(&["elsewhere.example"]), None).await;
    let plain = Origin::named("plain").await;
    let shown = "client_cert: gw.pem, client_key: gw.key";
    let (ours, theirs, port) = (origin.url(), stranger.url(), plain.address().port());
    let as_http = ours.replace("https", "http");
    for (address, check, state, name) in [
        (&ours, String::new(), "healthy", Some("catalog.internal")),
        (&ours, "host: shop.example".into(), "healthy", Some("shop.example")),
        (&ours, "host: other.example".into(), "unhealthy", None),
        (&ours, "tls: on, host: \"shop.example:1\"".into(), "healthy", Some("shop.example")),
        (&as_http, "tls: on".into(), "healthy", Some("catalog.internal")),
        (&as_http, String::new(), "unhealthy", None),
        (&ours, format!("tls: {{ ca: ca.pem, {shown}, server_name: shop.example }}"), "healthy", Some("shop.example")),
        // Nothing is taken over from the cluster: neither the certificate to show nor whom to trust.
        (&ours, "tls: { ca: ca.pem, server_name: shop.example }".into(), "unhealthy", None),
        (&ours, format!("tls: {{ {shown}, server_name: shop.example }}"), "unhealthy", None),
        (&theirs, String::new(), "unhealthy", None),
        (&theirs, "tls: { verify: false }".into(), "healthy", None),
        (&ours, "tls: off".into(), "unhealthy", None),
        (&ours, format!("tls: off, port: {port}"), "healthy", None),
    ] {
        let directory = TempDir::new().unwrap();
        authority.write(&directory, "ca.pem");
        client.write(&directory, "gw");
        let yaml = format!(
            "routes: {{ all: {{ cluster: app }} }}\n\
             clusters:\n  app:\n    destinations: {{ one: \"{address}\" }}\n    \
             connection: {{ tls: {{ ca: ca.pem, {shown}, server_name: catalog.internal }} }}\n    \
             health: {{ active: {{ type: http, interval: 100ms, unhealthy_after: 1, {check} }} }}\n"
        );
        let before = origin.seen().len();
        let edge = Edge::start_in(directory, &yaml, &[]).await;
        eventually(DEADLINE, &format!("{state}: {address} {check}"), async || {
            edge.destination("app", "one").await["state"] == state
        })
        .await;
        let seen = origin.seen();
        if let Some(name) = name {
            assert_eq!(seen[before].server_name.as_deref(), Some(name), "{check}");
            assert_eq!(seen[before].client_certificate.as_deref(), Some(client.der.as_ref()), "{check}");
        }
        assert_eq!(seen.len() > before, name.is_some(), "{check}");
    }
    assert!(!plain.requests().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_grpc_check_over_tls_when_http2_is_agreed_on_then_it_is_asked_else_it_fails_and_says_so() {
    let authority = Authority::new("internal");
    let identity = authority.issue(&["127.0.0.1"]);
    let http1 = TlsOrigin::start(&identity, None).await;
    let server = GrpcHealth::start(Call::Status(1), Some(http2_acceptor(&identity))).await;
    let server_url = format!("https://{}", server.address());
    for (url, state, cause) in
        [(&server_url, "healthy", "SERVING"), (&http1.url(), "unhealthy", "HTTP/2 is not agreed on")]
    {
        let directory = TempDir::new().unwrap();
        authority.write(&directory, "ca.pem");
        let yaml = format!(
            "routes: {{ all: {{ cluster: app }} }}\n\
             clusters:\n  app:\n    destinations: {{ one: \"{url}\" }}\n    connection: {{ tls: {{ ca: ca.pem }} }}\n    \
             health: {{ active: {{ type: grpc, interval: 100ms, unhealthy_after: 1 }} }}\n"
        );
        let edge = Edge::start_in(directory, &yaml, &[]).await;
        eventually(DEADLINE, state, async || edge.destination("app", "one").await["state"] == state).await;
        assert_eq!(edge.destination("app", "one").await["last_probe"], cause);
    }
    assert_eq!(server.seen()[0].head.uri.scheme_str(), Some("https"));
}

#[tokio::test(flavor = "multi_thread")]
async fn given_several_certificates_when_a_name_is_asked_for_then_its_own_is_shown_and_http2_agreed_on() {
    let authorities = ["first", "second", "third"].map(Authority::new);
    let names = [&["shop.example"][..], &["*.eu.example", "api.example"], &["de.eu.example"]];
    let directory = TempDir::new().unwrap();
    let mut certificates = Vec::new();
    for (number, (authority, names)) in authorities.iter().zip(names).enumerate() {
        authority.issue(names).write(&directory, &format!("c{number}"));
        certificates.push(format!("{{ cert: c{number}.pem, key: c{number}.key }}"));
    }
    let origin = Origin::named("one").await;
    let (address, http2_only) = (loopback(free_port()), loopback(free_port()));
    let tls = format!("tls: {{ certificates: [{}] }}", certificates.join(", "));
    let yaml = format!(
        "listeners:\n  web: {{ address: \"{address}\", {tls} }}\n  \
         two: {{ address: \"{http2_only}\", protocols: [http2], {tls} }}\n\
         routes: {{ all: {{ cluster: app }} }}\nclusters: {{ app: {{ destinations: [\"{}\"] }} }}\n",
        origin.url()
    );
    let _edge = Edge::start_in(directory, &yaml, &[]).await;
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        for (name, issuer) in [("shop.example", 0), ("fr.eu.example", 1), ("api.example", 1), ("de.eu.example", 2)] {
            let stream = connect(address, name, &authorities[issuer], version, "h2").await.expect(name);
            let answer = H2Client::over(stream).await.get(&format!("https://{name}/")).await.unwrap();
            assert_eq!(answer.text(), "one");
            assert_eq!(origin.requests().pop().unwrap().header("x-forwarded-proto").as_deref(), Some("https"));
            https_get(address, name, &authorities[issuer], version).await.expect("HTTP/1.1 is agreed on too");
        }
    }
    // Nobody's name gets the first, which its client does not believe.
    let refused = connect(address, "unknown.example", &authorities[0], &rustls::version::TLS13, "h2").await;
    assert!(refused.unwrap_err().to_string().contains("not valid for name"));
    connect(http2_only, "shop.example", &authorities[0], &rustls::version::TLS13, "h2").await.unwrap();
    https_get(http2_only, "shop.example", &authorities[0], &rustls::version::TLS13).await.expect_err("HTTP/2 alone");
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_mirror_over_tls_when_copies_go_then_its_cluster_s_authorities_or_the_system_s_are_believed() {
    let authority = Authority::new("internal");
    let plain = Origin::named("plain").await;
    for (tls, system, result) in [
        ("{ ca: ca.pem }", false, "ok"),
        ("{ server_name: \"127.0.0.1\" }", true, "ok"),
        ("{ server_name: \"127.0.0.1\" }", false, "failed"),
    ] {
        let mirror = TlsOrigin::start(&authority.issue(&["127.0.0.1"]), None).await;
        let directory = TempDir::new().unwrap();
        authority.write(&directory, "ca.pem");
        let file = directory.path().join("ca.pem").to_str().unwrap().to_owned();
        let yaml = format!(
            "routes: {{ all: {{ cluster: app }} }}\n\
             clusters:\n  app: {{ destinations: [\"{}\"], mirror: {{ percent: 100%, cluster: next }} }}\n\
             \x20 next: {{ destinations: {{ n: \"{}\" }}, connection: {{ tls: {tls} }} }}\n",
            plain.url(),
            mirror.url(),
        );
        let environment = [("SSL_CERT_FILE", file.as_str())];
        let edge = Edge::start_in(directory, &yaml, if system { &environment } else { &[] }).await;
        assert_eq!(edge.get("/").await.text(), "plain");
        let copies = format!("derbent_mirror_requests_total{{cluster=\"app\",result=\"{result}\"}}");
        edge.counts(&copies, 1.0).await;
        assert_eq!(mirror.seen().len(), usize::from(result == "ok"), "{tls} {system}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_mirror_of_http2_over_tls_when_a_copy_was_answered_then_the_next_takes_its_connection() {
    let authority = Authority::new("internal");
    let (plain, mirror) =
        (Origin::named("plain").await, H2Origin::over_tls(http2_acceptor(&authority.issue(&["127.0.0.1"]))).await);
    let directory = TempDir::new().unwrap();
    authority.write(&directory, "ca.pem");
    let yaml = format!(
        "routes: {{ all: {{ cluster: app }} }}\n\
         clusters:\n  app: {{ destinations: [\"{}\"], mirror: {{ percent: 100%, cluster: next }} }}\n\
         \x20 next: {{ destinations: {{ n: \"https://{}\" }}, connection: {{ tls: {{ ca: ca.pem }} }} }}\n",
        plain.url(),
        mirror.address(),
    );
    let edge = Edge::start_in(directory, &yaml, &[]).await;
    for sent in 1..=5 {
        assert_eq!(edge.get("/").await.text(), "plain");
        edge.counts("derbent_mirror_requests_total{cluster=\"app\",result=\"ok\"}", f64::from(sent)).await;
    }
    assert_eq!((mirror.seen().len(), mirror.connections()), (5, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn given_destinations_over_tls_when_asked_then_the_version_is_agreed_on_or_not_by_the_policy() {
    let authority = Authority::new("internal");
    let identity = authority.issue(&["127.0.0.1"]);
    let http1 = TlsOrigin::start(&identity, None).await;
    let http2 = H2Origin::over_tls(http2_acceptor(&identity)).await;
    let (http1_url, http2_url) = (http1.url(), format!("https://{}", http2.address()));
    for (url, request, status, told) in [
        (&http2_url, "{}", 200, "HTTP/2.0 asked, HTTP/2.0 received"),
        (&http2_url, "{ version_policy: Exact }", 200, "HTTP/2.0 asked, HTTP/2.0 received"),
        (&http2_url, "{ version: 1.1, version_policy: OrHigher }", 200, "HTTP/2.0 asked, HTTP/2.0 received"),
        (&http2_url, "{ version: 1.1 }", 502, "failed (tls): TLS failed"),
        (&http1_url, "{}", 200, "HTTP/2.0 asked, HTTP/1.1 received"),
        (&http1_url, "{ version: 1.1 }", 200, "HTTP/1.1 asked, HTTP/1.1 received"),
        (&http1_url, "{ version_policy: Exact }", 502, "failed (protocol): HTTP/2 is not agreed on"),
    ] {
        let directory = TempDir::new().unwrap();
        authority.write(&directory, "ca.pem");
        let yaml = format!(
            "routes: {{ all: {{ cluster: app }} }}\n\
             clusters:\n  app:\n    destinations: {{ one: \"{url}\" }}\n    request: {request}\n    \
             connection: {{ tls: {{ ca: ca.pem }} }}\n    \
             health: {{ active: {{ type: http, interval: 100ms, unhealthy_after: 1 }} }}\n"
        );
        let before = http1.seen().len() + http2.seen().len();
        let edge = Edge::start_in(directory, &yaml, &[]).await;
        assert_eq!(edge.get("/").await.status, status, "{url} {request}");
        edge.logged(&[told]).await;
        let state = if status == 200 { "healthy" } else { "unhealthy" };
        eventually(DEADLINE, state, async || edge.destination("app", "one").await["state"] == state).await;
        if status == 502 {
            assert_eq!(http1.seen().len() + http2.seen().len(), before, "{url} {request}");
        }
    }
}

/// An authority that issues certificates.
struct Authority {
    pem: String,
    der: CertificateDer<'static>,
    issuer: Issuer<'static, KeyPair>,
}

/// A certificate and its key.
struct Identity {
    pem: String,
    key_pem: String,
    der: CertificateDer<'static>,
    key: PrivateKeyDer<'static>,
}

impl Authority {
    fn new(name: &str) -> Authority {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        Authority { pem: certificate.pem(), der: certificate.der().clone(), issuer: Issuer::new(params, key) }
    }

    /// For DNS names and IP addresses.
    fn issue(&self, names: &[&str]) -> Identity {
        self.sign(CertificateParams::new(names.iter().map(|name| name.to_string()).collect::<Vec<_>>()).unwrap())
    }

    fn issue_expired(&self, names: &[&str]) -> Identity {
        let mut params = CertificateParams::default();
        params.subject_alt_names = names.iter().map(|name| SanType::DnsName((*name).try_into().unwrap())).collect();
        params.not_before = date_time_ymd(2020, 1, 1);
        params.not_after = date_time_ymd(2021, 1, 1);
        self.sign(params)
    }

    fn sign(&self, params: CertificateParams) -> Identity {
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        Identity {
            pem: certificate.pem(),
            key_pem: key.serialize_pem(),
            der: certificate.der().clone(),
            key: PrivatePkcs8KeyDer::from(key.serialize_der()).into(),
        }
    }

    fn write(&self, directory: &TempDir, file: &str) {
        std::fs::write(directory.path().join(file), &self.pem).unwrap();
    }

    fn roots(&self) -> Arc<RootCertStore> {
        let mut roots = RootCertStore::empty();
        roots.add(self.der.clone()).unwrap();
        Arc::new(roots)
    }
}

impl Identity {
    /// As `NAME.pem` and `NAME.key`.
    fn write(&self, directory: &TempDir, name: &str) {
        std::fs::write(directory.path().join(format!("{name}.pem")), &self.pem).unwrap();
        std::fs::write(directory.path().join(format!("{name}.key")), &self.key_pem).unwrap();
    }
}

/// One request of a [`TlsOrigin`].
#[derive(Debug, Clone)]
struct Seen {
    head: String,
    server_name: Option<String>,
    client_certificate: Option<Vec<u8>>,
}

/// Answers every GET over TLS with `secret`.
struct TlsOrigin {
    address: SocketAddr,
    seen: Arc<Mutex<Vec<Seen>>>,
}

impl TlsOrigin {
    /// `clients`: whose certificates it wants to see.
    async fn start(identity: &Identity, clients: Option<&Authority>) -> TlsOrigin {
        let provider = Arc::new(default_provider());
        let builder =
            ServerConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions().unwrap();
        let builder = match clients {
            Some(authority) => builder.with_client_cert_verifier(
                WebPkiClientVerifier::builder_with_provider(authority.roots(), provider).build().unwrap(),
            ),
            None => builder.with_no_client_auth(),
        };
        let config = builder.with_single_cert(vec![identity.der.clone()], identity.key.clone_key()).unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind(loopback(free_port())).await.unwrap();
        let origin = TlsOrigin { address: listener.local_addr().unwrap(), seen: Arc::default() };
        let seen = origin.seen.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(acceptor.clone(), stream, seen.clone()));
            }
        });
        origin
    }

    fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }
}

async fn serve(acceptor: TlsAcceptor, stream: TcpStream, seen: Arc<Mutex<Vec<Seen>>>) -> Result<()> {
    let mut stream = acceptor.accept(stream).await?;
    let mut head = Vec::new();
    loop {
        while !head.ends_with(b"\r\n\r\n") {
            if stream.read_buf(&mut head).await? == 0 {
                return Ok(());
            }
        }
        let connection = stream.get_ref().1;
        let seen_now = Seen {
            head: String::from_utf8_lossy(&head).into_owned(),
            server_name: connection.server_name().map(str::to_owned),
            client_certificate: connection.peer_certificates().map(|chain| chain[0].to_vec()),
        };
        seen.lock().unwrap().push(seen_now);
        head.clear();
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nsecret").await?;
        stream.flush().await?;
    }
}

/// Of a server that agrees on HTTP/2 and nothing else.
fn http2_acceptor(identity: &Identity) -> TlsAcceptor {
    let mut config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![identity.der.clone()], identity.key.clone_key())
        .unwrap();
    config.alpn_protocols = vec![b"h2".to_vec()];
    TlsAcceptor::from(Arc::new(config))
}

/// A client that speaks `protocol` alone.
async fn connect(
    address: SocketAddr,
    name: &str,
    authority: &Authority,
    version: &'static SupportedProtocolVersion,
    protocol: &str,
) -> Result<TlsStream<TcpStream>> {
    let mut config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_protocol_versions(&[version])
        .unwrap()
        .with_root_certificates(authority.roots())
        .with_no_client_auth();
    config.alpn_protocols = vec![protocol.into()];
    let stream = TcpStream::connect(address).await?;
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let stream = in_time("the handshake", TlsConnector::from(Arc::new(config)).connect(name, stream)).await?;
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(protocol.as_bytes()));
    Ok(stream)
}

async fn https_get(
    address: SocketAddr,
    name: &str,
    authority: &Authority,
    version: &'static SupportedProtocolVersion,
) -> Result<String> {
    let mut stream = connect(address, name, authority, version, "http/1.1").await?;
    stream.write_all(b"GET / HTTP/1.1\r\nhost: shop.example\r\nconnection: close\r\n\r\n").await?;
    let mut answer = String::new();
    in_time("the answer", stream.read_to_string(&mut answer)).await?;
    Ok(answer)
}

fn cluster(origin: &TlsOrigin, destination: &str, tls: &str) -> String {
    format!(
        "routes: {{ all: {{ cluster: app }} }}\n\
         clusters:\n  app:\n    destinations: {{ one: {{ address: \"{}\", {destination} }} }}\n    \
         connection: {{ tls: {{ {tls} }} }}\n    retry: off\n",
        origin.url()
    )
}

/// With the authorities in files of the names given.
async fn edge(origin: &TlsOrigin, destination: &str, tls: &str, authorities: &[(&str, &Authority)]) -> Edge {
    let directory = TempDir::new().unwrap();
    authorities.iter().for_each(|(file, authority)| authority.write(&directory, file));
    Edge::start_in(directory, &cluster(origin, destination, tls), &[]).await
}

fn errors(reason: &str) -> String {
    format!("derbent_upstream_errors_total{{cluster=\"app\",destination=\"one\",reason=\"{reason}\"}}")
}
