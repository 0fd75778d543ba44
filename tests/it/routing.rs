//! Which route a request takes, as its client sees it: every route answers with its own name.

use crate::support::Edge;

const ROUTES: &str = r#"
routes:
  plain: { match: { path: /a }, respond: { body: plain } }
  far: { match: { path: /a, client_ip: [10.0.0.0/8, "::1"] }, order: -1, respond: { body: far } }
  near: { match: { path: /near, client_ip: 127.0.0.0/8 }, respond: { body: near } }
  elsewhere: { match: { path: /near }, respond: { body: elsewhere } }
  preview: { match: { path: /a, query: [{ name: preview, mode: Exists }] }, respond: { body: preview } }
  tenant: { match: { path: /a, headers: [{ name: X-Tenant, values: [acme] }] }, respond: { body: tenant } }
  both:
    match: { path: /a, headers: [{ name: x-tenant, values: [acme] }, { name: Cookie, mode: Prefix, values: ["beta="] }] }
    respond: { body: both }
  word: { match: { path: /a, query: [{ name: q, values: ["a b"] }, { name: r, values: ["1"] }] }, respond: { body: word } }
"#;

#[tokio::test(flavor = "multi_thread")]
async fn given_routes_with_matchers_when_asked_then_the_most_specific_that_fits_answers() {
    let edge = Edge::start(ROUTES).await;
    let mut client = edge.connect().await;
    for (target, headers, expected) in [
        ("/a", "", "plain"),
        ("/a?preview", "", "plain"),
        ("/a?preview=1", "", "preview"),
        ("/a?q=a+b&r=1", "", "word"),
        ("/a?r=1&Q=a%20b&preview=1", "", "word"),
        ("/a?q=a+b", "", "plain"),
        ("/a?preview=1", "x-tenant: other, \"ACME\"\r\n", "tenant"),
        ("/a?preview=1", "x-tenant: acme , other\r\n", "preview"),
        ("/a", "x-tenant: other\r\nx-tenant: acme\r\n", "tenant"),
        ("/a", "cookie: a=1; beta=2\r\nx-tenant: acme\r\n", "both"),
        ("/a", "cookie: beta=2\r\n", "plain"),
        ("/near", "", "near"),
    ] {
        let response = client.get(target, headers).await.expect("an answer");
        assert_eq!((response.status, response.text().as_str()), (200, expected), "{target} {headers}");
    }
}
