//! TLS towards clients: 1.2 and 1.3 by rustls, the protocol by ALPN, the certificate by the name asked for. The certificates
//! were loaded and judged by `runtime::compile`; they come through a resolver because Pingora would otherwise load files
//! itself, and panic on a bad one.

use crate::config::Protocols;
use crate::runtime::{Runtime, Served};
use pingora::Result;
use pingora::listeners::tls::TlsSettings;
use pingora::protocols::ALPN;
use rustls::SignatureScheme;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use std::fmt;
use std::sync::Arc;

/// Settings of the listener at `index`, which has at least one certificate. Each handshake sees those in force.
pub fn settings(runtime: Arc<Runtime>, index: usize, protocols: Protocols) -> Result<TlsSettings> {
    let mut settings = TlsSettings::intermediate("", "")?;
    settings.set_cert_resolver(Arc::new(InForce { runtime, index }));
    settings.set_alpn(match (protocols.http2, protocols.http1) {
        (true, true) => ALPN::H2H1,
        (true, false) => ALPN::H2,
        _ => ALPN::H1,
    });
    Ok(settings)
}

struct InForce {
    runtime: Arc<Runtime>,
    index: usize,
}

impl fmt::Debug for InForce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the certificates of listener {}", self.index)
    }
}

impl ResolvesServerCert for InForce {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let snapshot = self.runtime.pin();
        let schemes: &[SignatureScheme] = hello.signature_schemes();
        let name = hello.server_name().unwrap_or_default().to_ascii_lowercase();
        // A reload keeps the listeners and their order.
        let served = ByName(&snapshot.listeners.get(self.index)?.certificates);
        let picked = served.pick(&name, |served| served.key.key.choose_scheme(schemes).is_some());
        picked.map(|served| served.key.clone())
    }
}

/// The first certificate that has the very name, else the first whose wildcard covers it, else the first of all. Of several with
/// a name, as of different kinds of keys, it is one that the client can verify.
struct ByName<'a>(&'a [Served]);

impl<'a> ByName<'a> {
    fn pick(&self, name: &str, can_verify: impl Fn(&Served) -> bool) -> Option<&'a Served> {
        let parent = name.split_once('.').map(|(_, parent)| parent);
        let exactly = |served: &&Served| served.names.iter().any(|own| own == name);
        let widely = |served: &&Served| {
            let covers = |own: &String| own.strip_prefix("*.").is_some_and(|own| Some(own) == parent);
            served.names.iter().any(covers)
        };
        let all = || self.0.iter();
        let verifiable = |served: &&Served| can_verify(served);
        (all().filter(exactly).find(verifiable))
            .or_else(|| all().find(exactly))
            .or_else(|| all().filter(widely).find(verifiable))
            .or_else(|| all().find(widely))
            .or_else(|| self.0.first())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustls::crypto::ring;
    use rustls::pki_types::PrivatePkcs8KeyDer;

    fn served(names: &[&str]) -> Served {
        let rcgen::CertifiedKey { cert, signing_key } = rcgen::generate_simple_self_signed(vec![]).unwrap();
        let key = PrivatePkcs8KeyDer::from(signing_key.serialize_der());
        let key = CertifiedKey::from_der(vec![cert.der().clone()], key.into(), &ring::default_provider()).unwrap();
        Served { names: names.iter().map(|name| name.to_string()).collect(), key: Arc::new(key) }
    }

    #[test]
    fn given_certificates_when_a_name_is_asked_for_then_exact_before_wildcard_before_the_first() {
        let certificates = [
            served(&["shop.example"]),
            served(&["*.shop.example", "other.example"]),
            served(&["eu.shop.example"]),
            served(&["eu.shop.example"]),
        ];
        let all = ByName(&certificates);
        for (name, position) in [
            ("shop.example", 0),
            ("us.shop.example", 1),
            ("other.example", 1),
            ("eu.shop.example", 2),
            ("a.us.shop.example", 0),
            ("unknown.example", 0),
            ("example", 0),
            ("", 0),
        ] {
            let picked = all.pick(name, |_| true).unwrap();
            assert!(std::ptr::eq(picked, &all.0[position]), "{name}");
        }
        let last = all.pick("eu.shop.example", |served| std::ptr::eq(served, &all.0[3])).unwrap();
        assert!(std::ptr::eq(last, &all.0[3]));
        assert!(all.pick("eu.shop.example", |_| false).is_some());
    }
}
