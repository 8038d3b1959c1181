//! A server with TLS, and its temporary certificates.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::{Arc, OnceLock},
};

use tempfile::TempDir;

use super::{
    kind,
    port::{Reservation, free_port},
    server::{Server, Setup},
};

/// A private authority, its certificate for 127.0.0.1, and a reserved port for a server that uses them.
#[derive(Debug)]
pub struct Tls {
    dir: Arc<TempDir>,
    port: u16,
    _port: Reservation,
}

impl Tls {
    /// Creates them with the `openssl` command; `None` if the server was built without TLS.
    #[track_caller]
    pub fn new() -> Option<Tls> {
        if !server_has_tls() {
            return None;
        }
        let dir = tempfile::Builder::new().prefix("dlock-").tempdir().expect("a temporary folder");
        let (port, reservation) = free_port();
        let tls = Tls { dir: Arc::new(dir), port, _port: reservation };
        fs::write(
            tls.path("leaf.cnf"),
            "subjectAltName=IP:127.0.0.1,DNS:localhost\nbasicConstraints=CA:FALSE\n",
        )
        .expect("a file in a folder of ours");
        let key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";
        tls.openssl(&format!(
            "req -x509 {key} -keyout ca.key -out ca.crt -days 2 -subj /CN=test-authority"
        ));
        tls.openssl(&format!("req {key} -keyout leaf.key -out leaf.csr -subj /CN=127.0.0.1"));
        tls.openssl(
            "x509 -req -in leaf.csr -CA ca.crt -CAkey ca.key -CAcreateserial -out leaf.crt -days 2 -extfile leaf.cnf",
        );
        Some(tls)
    }

    /// The same authority and certificate for another server, on another port.
    pub fn another(&self) -> Tls {
        let (port, reservation) = free_port();
        Tls { dir: self.dir.clone(), port, _port: reservation }
    }

    /// A server with the module and TLS on [`Tls::url`] (and plain connections for the harness).
    pub fn server(&self) -> Setup {
        let settings = self.settings();
        let words: Vec<&str> =
            settings.iter().flat_map(|(name, value)| [*name, value.as_str()]).collect();
        Server::with(&words)
    }

    /// Settings of a server or a sentinel: names and values.
    pub(super) fn settings(&self) -> [(&'static str, String); 5] {
        let path = |name: &str| self.path(name).display().to_string();
        [
            ("tls-port", self.port.to_string()),
            ("tls-cert-file", path("leaf.crt")),
            ("tls-key-file", path("leaf.key")),
            ("tls-ca-cert-file", path("ca.crt")),
            ("tls-auth-clients", "no".to_owned()),
        ]
    }

    /// The URL for clients: `rediss://127.0.0.1:port/`.
    pub fn url(&self) -> String {
        format!("rediss://127.0.0.1:{}/", self.port)
    }

    /// The TLS port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The authority's certificate, PEM.
    pub fn authority(&self) -> Vec<u8> {
        fs::read(self.authority_file()).expect("a file that openssl wrote")
    }

    /// The file with the authority's certificate.
    pub fn authority_file(&self) -> PathBuf {
        self.path("ca.crt")
    }

    /// Files of a client certificate of this authority and its key (PEM).
    pub fn client_files(&self) -> [PathBuf; 2] {
        [self.path("leaf.crt"), self.path("leaf.key")]
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    #[track_caller]
    fn openssl(&self, words: &str) {
        let done = Command::new("openssl")
            .args(words.split(' '))
            .current_dir(self.dir.path())
            .output()
            .unwrap_or_else(|error| panic!("cannot run openssl: {error}"));
        let said = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success(), "openssl {words}: {said}");
    }
}

/// Whether the server supports TLS, tested once: such a server complains about missing certificates. (Servers without
/// TLS accept the setting, too.)
fn server_has_tls() -> bool {
    static HAS: OnceLock<bool> = OnceLock::new();
    *HAS.get_or_init(|| {
        let binary = kind::binary();
        let said = Command::new(&binary)
            .args(["--port", "0", "--tls-port", "1"])
            .current_dir(Path::new("/"))
            .output()
            .unwrap_or_else(|error| panic!("cannot run {binary}: {error}"));
        let text = [said.stdout, said.stderr].concat();
        String::from_utf8_lossy(&text).contains("No tls-cert-file configured")
    })
}
