use std::path::PathBuf;

use fanin_config::{Certificate, CertificateName};
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DnType, IsCa, Issuer, KeyIdMethod, KeyPair,
    KeyUsagePurpose, SanType, SerialNumber, date_time_ymd,
};

use super::*;

/// Files of certificates.
struct Files(tempfile::TempDir);

impl Files {
    fn new() -> Files {
        Files(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        std::fs::write(self.path(name), text).unwrap();
        self.path(name)
    }

    /// A certificate that signs itself.
    fn server(&self, file: &str, names: &[&str]) -> Certificate {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        self.of(file, CertificateParams::new(names).unwrap())
    }

    fn of(&self, file: &str, params: CertificateParams) -> Certificate {
        let key = KeyPair::generate().unwrap();
        let cert = self.write(&format!("{file}.pem"), &params.self_signed(&key).unwrap().pem());
        Certificate { cert, key: self.write(&format!("{file}-key.pem"), &key.serialize_pem()) }
    }

    fn tls(&self, file: &str, names: &[&str]) -> ServerTls {
        let Certificate { cert, key } = self.server(file, names);
        ServerTls::new(cert, key)
    }
}

fn authority() -> (CertificateParams, KeyPair) {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    (params, KeyPair::generate().unwrap())
}

fn error(tls: &ServerTls) -> String {
    Listener::load(tls, None).unwrap_err().to_string()
}

#[test]
fn what_is_wrong_with_files_is_said_with_key_and_file() {
    let files = Files::new();
    let mut tls = files.tls("a", &["a.example", "*.example"]);
    let other = files.server("b", &["b.example"]);
    assert!(Listener::load(&tls, None).is_ok());

    let expect = |tls: &ServerTls, parts: &[&str]| {
        let error = error(tls);
        assert!(parts.iter().all(|part| error.contains(part)), "{error}, expected {parts:?}");
    };
    let mismatch = ServerTls { key: other.key.clone(), ..tls.clone() };
    expect(&mismatch, &["key: ", "b-key.pem: is not the key of the certificate in ", "a.pem"]);
    let empty = files.write("empty.pem", "nothing");
    expect(&ServerTls { cert: empty.clone(), ..tls.clone() }, &["cert: ", "empty.pem: no certificate in this file"]);
    expect(&ServerTls { key: empty.clone(), ..tls.clone() }, &["key: ", "empty.pem: no private key in this file"]);
    expect(&ServerTls { key: files.path("none"), ..tls.clone() }, &["key: ", "none: No such file"]);

    tls.certificates = vec![other, files.server("again", &["c.example", "*.example"])];
    expect(&tls, &["certificates[1].cert: ", "again.pem: has the name *.example, as ", "a.pem has"]);
    tls.certificates = vec![files.server("nameless", &[])];
    expect(&tls, &["certificates[0].cert: ", "nameless.pem: has no DNS name"]);

    tls.certificates.clear();
    tls.client_certificates = ClientCertificates::Required;
    tls.client_ca = Some(empty.clone());
    expect(&tls, &["client_ca: ", "no certificate in this file"]);
    tls.client_ca = Some(tls.cert.clone());
    tls.client_crl = Some(empty);
    expect(&tls, &["client_crl: ", "no revocation list in this file"]);
}

#[test]
fn an_expired_certificate_is_a_warning() {
    let files = Files::new();
    let mut params = CertificateParams::new(vec!["old.example".to_owned()]).unwrap();
    params.not_before = date_time_ymd(2001, 1, 1);
    params.not_after = date_time_ymd(2002, 1, 1);
    let Certificate { cert, key } = files.of("old", params);
    let listener = Listener::load(&ServerTls::new(cert, key), None).unwrap();
    let warnings: Vec<String> = listener.warnings().collect();
    assert!(warnings.len() == 1 && warnings[0].contains("old.pem: the certificate of "), "{warnings:?}");
    assert!(warnings[0].contains("has expired"), "{warnings:?}");
    assert_eq!(listener.expiries()[0].not_after, 1_009_843_200);
    let fresh = Listener::load(&files.tls("new", &["a.example"]), None).unwrap();
    assert_eq!(fresh.warnings().count(), 0);
}

#[test]
fn sessions_outlive_a_reload_unless_clients_are_verified_otherwise() {
    let files = Files::new();
    let mut tls = files.tls("a", &["a.example"]);
    let same = |a: &Listener, b: &Listener| Arc::ptr_eq(&a.config().ticketer, &b.config().ticketer);
    let first = Listener::load(&tls, None).unwrap();
    assert!(first.config().ticketer.enabled());
    let Certificate { cert, key } = files.server("b", &["b.example"]);
    let renewed = Listener::load(&ServerTls { cert, key, ..tls.clone() }, Some(&first)).unwrap();
    assert!(same(&first, &renewed), "another certificate of the server");

    let (ca, ca_key) = authority();
    tls.client_ca = Some(files.write("ca.pem", &ca.self_signed(&ca_key).unwrap().pem()));
    tls.client_certificates = ClientCertificates::Optional;
    let optional = Listener::load(&tls, Some(&renewed)).unwrap();
    assert!(!same(&renewed, &optional), "clients have certificates now");
    assert!(same(&optional, &Listener::load(&tls, Some(&optional)).unwrap()));
    let (other, other_key) = authority();
    files.write("ca.pem", &other.self_signed(&other_key).unwrap().pem());
    assert!(!same(&optional, &Listener::load(&tls, Some(&optional)).unwrap()), "another authority in the same file");
    let list = CertificateRevocationListParams {
        this_update: date_time_ymd(2020, 1, 1),
        next_update: date_time_ymd(2030, 1, 1),
        crl_number: SerialNumber::from(1),
        issuing_distribution_point: None,
        revoked_certs: Vec::new(),
        key_identifier_method: KeyIdMethod::Sha256,
    };
    let list = list.signed_by(&Issuer::new(other, other_key)).unwrap();
    tls.client_crl = Some(files.write("crl.pem", &list.pem().unwrap()));
    let listed = Listener::load(&tls, Some(&optional)).unwrap();
    assert!(!same(&optional, &listed));
    assert_eq!(listed.expiries().last().map(|one| one.kind), Some("client-crl"));
    assert_eq!(listed.expiries().last().map(|one| one.not_after), Some(1_893_456_000));
    tls.resumption = false;
    let none = Listener::load(&tls, Some(&listed)).unwrap();
    assert!(!none.config().ticketer.enabled() && none.config().send_tls13_tickets == 0);
}

#[test]
fn a_client_certificate_is_read() {
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CountryName, "DE");
    params.distinguished_name.push(DnType::OrganizationName, "Shop, Inc");
    params.distinguished_name.push(DnType::CommonName, "orders");
    params.serial_number = Some(SerialNumber::from(vec![0x01, 0xAB]));
    params.not_after = date_time_ymd(2040, 1, 1);
    params.subject_alt_names = vec![
        SanType::DnsName("Orders.internal".try_into().unwrap()),
        SanType::URI("spiffe://example.org/shop/orders".try_into().unwrap()),
        SanType::Rfc822Name("orders@example.org".try_into().unwrap()),
        SanType::IpAddress([10, 0, 0, 7].into()),
        SanType::IpAddress("2001:db8::7".parse().unwrap()),
    ];
    let der = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
    let read = ClientCertificate::parse(der.der()).unwrap();
    // A comma in a value cannot be taken for one between parts.
    assert_eq!(read.subject, r"CN=orders,O=Shop\, Inc,C=DE");
    assert_eq!(read.serial, "01ab");
    assert_eq!(read.not_after, 2_208_988_800);
    let json: serde_json::Value = serde_json::from_str(&read.to_json()).unwrap();
    assert_eq!(json["ip"], serde_json::json!(["10.0.0.7", "2001:db8::7"]));
    assert_eq!(json["not_after"], 2_208_988_800_000_i64);
    let has = |name: &str| read.has(&CertificateName::parse(name).unwrap());
    for name in [
        r"subject:CN=orders,O=Shop\, Inc,C=DE",
        "dns:*.internal",
        "uri:spiffe://example.org/shop/*",
        "email:*@example.org",
        "ip:2001:db8::7",
        &format!("fingerprint:{}", read.fingerprint),
    ] {
        assert!(has(name), "{name}");
    }
    for name in ["subject:CN=orders", "dns:internal", "uri:spiffe://example.org/*/x", "ip:10.0.0.8"] {
        if CertificateName::parse(name).is_ok() {
            assert!(!has(name), "{name}");
        }
    }
    assert_eq!(ClientCertificate::parse(&der.der()[..100]), None);
}

#[test]
fn the_certificate_is_chosen_by_the_name() {
    let files = Files::new();
    let load = |files: &Certificate| {
        let named = |file| Named { key: String::new(), file };
        let provider = rustls::crypto::ring::default_provider();
        loading::certificate(&named(&files.cert), &named(&files.key), &provider).unwrap()
    };
    let all =
        [("d", vec!["default.example"]), ("w", vec!["*.shop.example"]), ("e", vec!["a.shop.example", "x.example"])];
    let made: Vec<ServerCertificate> = all.iter().map(|(file, names)| load(&files.server(file, names))).collect();
    let [default, wildcard, exact] = &made[..] else { unreachable!("three") };
    let by_name = ByName::new(default, &made[1..]).map_err(|taken| taken.name).unwrap();
    for (host, expected) in [
        ("default.example", default),
        ("none.example", default),
        ("shop.example", default),
        ("b.shop.example", wildcard),
        ("B.Shop.example", wildcard),
        ("a.b.shop.example", default),
        ("a.shop.example", exact),
        ("x.example", exact),
    ] {
        assert!(Arc::ptr_eq(by_name.find(host), &expected.certified), "{host}");
    }
}
