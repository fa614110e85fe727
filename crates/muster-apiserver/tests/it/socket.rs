//! Access over a real connection: tokens, client certificates, and who may end the server.

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper_util::rt::TokioIo;
use muster_apiserver::access::{Config, token::Tokens};
use muster_apiserver::http::{Endpoint, listen_as};
use muster_apiserver::{ApiServer, Options};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use serde_json::{Value, json};
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

type Identity = (Vec<CertificateDer<'static>>, Vec<u8>);

struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn new() -> Authority {
        let mut ca = CertificateParams::new(Vec::new()).unwrap();
        ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Authority(CertifiedIssuer::self_signed(ca, KeyPair::generate().unwrap()).unwrap())
    }

    fn identity(&self, name: &str, organization: &str) -> Identity {
        let mut leaf = CertificateParams::new(Vec::new()).unwrap();
        leaf.distinguished_name.push(DnType::CommonName, name);
        leaf.distinguished_name.push(DnType::OrganizationName, organization);
        leaf.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate().unwrap();
        let certificate = leaf.signed_by(&key, &self.0).unwrap();
        (vec![CertificateDer::from(certificate.der().to_vec())], key.serialize_der())
    }
}

/// Sends one request over a connection of its own; `None` if there was none.
async fn send(
    to: &Endpoint,
    identity: Option<&Identity>,
    token: &str,
    line: &str,
    body: Value,
) -> Option<(u16, Value)> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(to.ca_pem.as_bytes()).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    let config = match identity {
        Some((chain, key)) => {
            let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.clone()));
            config.with_client_auth_cert(chain.clone(), key).unwrap()
        }
        None => config.with_no_client_auth(),
    };
    let stream = tokio::net::TcpStream::connect(to.address).await.ok()?;
    let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
    let tls = connector.connect("127.0.0.1".try_into().unwrap(), stream).await.ok()?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(tls)).await.ok()?;
    tokio::spawn(connection);
    let (method, path) = line.split_once(' ').unwrap();
    let mut request = http::Request::builder()
        .method(method)
        .uri(path)
        .header("host", "localhost")
        .header("content-type", "application/json");
    if !token.is_empty() {
        request = request.header("authorization", format!("Bearer {token}"));
    }
    let request = request.body(Full::new(Bytes::from(body.to_string()))).unwrap();
    let response = sender.send_request(request).await.ok()?;
    let code = response.status().as_u16();
    let bytes = response.into_body().collect().await.ok()?.to_bytes();
    Some((code, serde_json::from_slice(&bytes).unwrap_or(Value::Null)))
}

#[tokio::test]
async fn whoever_connects_is_known_by_what_they_show() {
    let (authority, stranger) = (Authority::new(), Authority::new());
    let listener =
        listen_as(0, muster_apiserver::identity::Identity::new().unwrap(), Some(&authority.0.pem()))
            .await
            .unwrap();
    let to = listener.endpoint.clone();
    let tokens = Tokens::parse("alice-token,alice,7,team-a").unwrap();
    let access = Some(Config { admin_token: to.token.clone(), tokens, ..Config::default() });
    let server = ApiServer::new(Options { access, ..Options::default() });
    let ended = tokio::spawn(listener.serve(server, CancellationToken::new()));
    let whoami = async |identity: Option<&Identity>, token: &str| {
        let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
        let line = "POST /apis/authentication.k8s.io/v1/selfsubjectreviews";
        match send(&to, identity, token, line, review).await {
            Some((201, answer)) => answer["status"]["userInfo"]["username"].as_str().unwrap().to_string(),
            Some((code, _)) => code.to_string(),
            None => "no connection".into(),
        }
    };
    let carol = authority.identity("carol", "team-a");
    assert_eq!(whoami(None, &to.token).await, "muster-admin");
    assert_eq!(whoami(None, "alice-token").await, "alice");
    assert_eq!(whoami(None, "nonsense").await, "401");
    assert_eq!(whoami(None, "").await, "403");
    assert_eq!(whoami(Some(&carol), "").await, "carol");
    // A token says more than a certificate, and one that is wrong is not made good by a certificate.
    assert_eq!(whoami(Some(&carol), "alice-token").await, "alice");
    assert_eq!(whoami(Some(&carol), "nonsense").await, "401");
    assert_eq!(whoami(Some(&stranger.identity("root", "system:masters")), "").await, "no connection");
    assert_eq!(send(&to, None, "", "GET /healthz", Value::Null).await.unwrap().0, 200);
    // Only the administrator ends the server.
    for (identity, token, code) in
        [(None, "", 403), (None, "alice-token", 403), (None, "nonsense", 401), (Some(&carol), "", 403)]
    {
        let (got, answer) = send(&to, identity, token, "POST /muster/shutdown", Value::Null).await.unwrap();
        assert_eq!(got, code, "{token}: {answer}");
    }
    assert!(!ended.is_finished());
    assert_eq!(send(&to, None, &to.token, "POST /muster/shutdown", Value::Null).await.unwrap().0, 202);
    ended.await.unwrap();
}
