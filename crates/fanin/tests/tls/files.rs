//! A folder with a service, and the certificates that it and its clients have.

use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, CertifiedIssuer, DnType,
    ExtendedKeyUsagePurpose, IsCa, KeyIdMethod, KeyPair, KeyUsagePurpose, RevocationReason, RevokedCertParams, SanType,
    SerialNumber, date_time_ymd,
};
use tempfile::TempDir;

pub const FLOW: &str = r#"
def page(req):
    return {"client": req.client}
"#;

/// A folder with `fanin.toml`, and an authority that signs for it.
pub struct Service {
    dir: TempDir,
    authority: CertifiedIssuer<'static, KeyPair>,
}

impl Service {
    /// The authority's certificate is `ca.pem`; `server.pem` and `server-key.pem` are for `localhost`. `tls`: more keys of `[server.tls]`.
    pub fn new(tls: &str, rest: &str) -> Service {
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, "tests");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let authority =
            CertifiedIssuer::self_signed(params, KeyPair::generate().expect("a key")).expect("an authority");
        let service = Service { dir: tempfile::tempdir().expect("a folder"), authority };
        service.write("ca.pem", &service.authority.pem());
        service.server("server", &["localhost"]);
        service.write("page.star", FLOW);
        service.configure(tls, rest);
        service
    }

    pub fn configure(&self, tls: &str, rest: &str) {
        let toml = format!(
            "[server]\nlisten = \"127.0.0.1:0\"\nadmin = \"127.0.0.1:0\"\nworkers = 2\n\
             [server.tls]\ncert = \"server.pem\"\nkey = \"server-key.pem\"\n{tls}\n\
             [[routes]]\npath = \"/\"\nflow = \"page.star:page\"\n{rest}\n"
        );
        self.write("fanin.toml", &toml);
    }

    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).expect("written");
    }

    /// `NAME.pem` and `NAME-key.pem`, for these hosts.
    pub fn server(&self, name: &str, hosts: &[&str]) {
        let hosts: Vec<String> = hosts.iter().map(|host| (*host).to_owned()).collect();
        self.issue(name, CertificateParams::new(hosts).expect("names"));
    }

    /// The same for a client with this URI.
    pub fn client(&self, name: &str, uri: &str, edit: impl FnOnce(&mut CertificateParams)) {
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::OrganizationName, "Shop");
        params.distinguished_name.push(DnType::CommonName, name);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        params.subject_alt_names = vec![
            SanType::URI(uri.try_into().expect("ASCII")),
            SanType::DnsName(format!("{name}.internal").try_into().expect("ASCII")),
            SanType::IpAddress([10, 0, 0, 7].into()),
        ];
        edit(&mut params);
        self.issue(name, params);
    }

    fn issue(&self, name: &str, params: CertificateParams) {
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.authority).expect("a certificate");
        self.write(&format!("{name}.pem"), &certificate.pem());
        self.write(&format!("{name}-key.pem"), &key.serialize_pem());
    }

    /// `crl.pem`, with these serial numbers.
    pub fn revoke(&self, serials: &[u64]) {
        let revoked = |serial: &u64| RevokedCertParams {
            serial_number: SerialNumber::from(*serial),
            revocation_time: date_time_ymd(2024, 1, 1),
            reason_code: Some(RevocationReason::KeyCompromise),
            invalidity_date: None,
        };
        let list = CertificateRevocationListParams {
            this_update: date_time_ymd(2024, 1, 1),
            next_update: date_time_ymd(2100, 1, 1),
            crl_number: SerialNumber::from(serials.len() as u64 + 1),
            issuing_distribution_point: None,
            revoked_certs: serials.iter().map(revoked).collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        self.write("crl.pem", &list.signed_by(&self.authority).expect("a list").pem().expect("PEM"));
    }
}
