//! TLS towards clients: 1.2 and 1.3 by rustls, HTTP/1.1 by ALPN. The certificate was loaded and judged by
//! `runtime::compile`; it comes through a resolver because Pingora would otherwise load files itself, and panic on a bad one.

use pingora::Result;
use pingora::listeners::tls::TlsSettings;
use pingora::protocols::ALPN;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use std::sync::Arc;

/// Settings of a listener with one certificate.
pub fn settings(certificate: Arc<CertifiedKey>) -> Result<TlsSettings> {
    let mut settings = TlsSettings::intermediate("", "")?;
    settings.set_cert_resolver(Arc::new(Single(certificate)));
    settings.set_alpn(ALPN::H1);
    Ok(settings)
}

#[derive(Debug)]
struct Single(Arc<CertifiedKey>);

impl ResolvesServerCert for Single {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.clone())
    }
}
