//! Connections of a rehearsal: TCP, and TLS where the address says so.

use super::loss::Loss;
use crate::cli::target::Target;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, lookup_host};
use tokio_rustls::TlsConnector;

pub trait Wire: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Wire for T {}

/// Which certificates are good.
#[derive(Debug, Clone)]
pub enum Trust {
    /// Those that these roots vouch for.
    Roots(Arc<RootCertStore>),
    Any,
}

impl Trust {
    /// The roots of a PEM file.
    pub fn roots(file: &Path) -> Result<Trust, String> {
        let named = |fault: &dyn std::fmt::Display| format!("{}: {fault}", file.display());
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_file_iter(file).map_err(|fault| named(&fault))? {
            roots.add(certificate.map_err(|fault| named(&fault))?).map_err(|fault| named(&fault))?;
        }
        match roots.is_empty() {
            true => Err(named(&"no certificate in it")),
            false => Ok(Trust::Roots(Arc::new(roots))),
        }
    }
}

/// A server, and the protocol that its connections are for.
#[derive(Clone)]
pub struct Server {
    pub target: Target,
    tls: Option<(TlsConnector, ServerName<'static>)>,
}

impl Server {
    /// `protocol` as ALPN names it.
    pub fn new(target: Target, trust: Option<&Trust>, protocol: &[u8]) -> Result<Server, String> {
        if !target.tls {
            return Ok(Server { target, tls: None });
        }
        let trust = trust.ok_or("https:// needs --ca FILE or --insecure")?;
        let name = ServerName::try_from(target.host.clone()).map_err(|fault| format!("{target}: {fault}"))?;
        let provider = Arc::new(ring::default_provider());
        let versions = ClientConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions();
        let builder = versions.map_err(|fault| fault.to_string())?;
        let mut config = match trust {
            Trust::Roots(roots) => builder.with_root_certificates(roots.clone()).with_no_client_auth(),
            Trust::Any => {
                builder.dangerous().with_custom_certificate_verifier(Arc::new(Any(provider))).with_no_client_auth()
            }
        };
        config.alpn_protocols = vec![protocol.to_vec()];
        Ok(Server { target, tls: Some((TlsConnector::from(Arc::new(config)), name)) })
    }

    /// `from` becomes this side's address, as soon as there is a connection.
    pub async fn connect(&self, from: &mut Option<SocketAddr>) -> Result<Box<dyn Wire>, Loss> {
        *from = None;
        let (host, port) = (self.target.host.as_str(), self.target.port);
        let addresses: Vec<_> = lookup_host((host, port)).await.map_err(|_| Loss::Local)?.collect();
        let of_io = |fault| Loss::of_io(&fault, false);
        let stream = TcpStream::connect(&addresses[..]).await.map_err(of_io)?;
        *from = stream.local_addr().ok();
        stream.set_nodelay(true).map_err(of_io)?;
        match &self.tls {
            None => Ok(Box::new(stream)),
            Some((connector, name)) => Ok(Box::new(connector.connect(name.clone(), stream).await.map_err(of_io)?)),
        }
    }
}

/// Takes any certificate; the handshake is signed by it all the same.
#[derive(Debug)]
struct Any(Arc<CryptoProvider>);

impl ServerCertVerifier for Any {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
