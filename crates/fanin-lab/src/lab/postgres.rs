//! A PostgreSQL server for experiments: one that the environment names, or a private one in a temporary folder.

use std::hash::{BuildHasher, RandomState};
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use tokio_postgres::{Client, Config, NoTls};

use super::error::LabError;
use super::process::{Owned, pause};

const VARIABLE: &str = "FANIN_LAB_POSTGRES";
const LACKS: &str = "it needs PostgreSQL: install it (Debian, Ubuntu: apt-get install postgresql; Fedora: dnf install postgresql-server), of which only the \
                     programs initdb and postgres are used, in a temporary folder; or name a server of yours in the variable FANIN_LAB_POSTGRES, as \
                     postgres://user:password@host/database";
/// A user without rights.
const NOBODY: u32 = 65_534;

/// A database that answers.
pub(super) struct Database {
    config: Config,
    url: String,
    version: String,
    /// Ends before its folder goes.
    _server: Option<(Owned, tempfile::TempDir)>,
}

impl Database {
    /// The one of the environment, else a new one of our own.
    pub(super) fn find() -> Result<Database, LabError> {
        if let Ok(url) = std::env::var(VARIABLE) {
            let config: Config = url.parse().map_err(|error: tokio_postgres::Error| {
                LabError::Lacks(format!("{VARIABLE} is no address of a database: {error}"))
            })?;
            return Database::with(config, url, None, Duration::from_secs(5))
                .map_err(|error| LabError::Lacks(format!("the server of {VARIABLE} does not answer: {error}")));
        }
        let Some(programs) = programs() else { return Err(LabError::Lacks(LACKS.to_owned())) };
        Database::start(&programs)
    }

    fn start(programs: &Path) -> Result<Database, LabError> {
        let dir = super::scratch()?;
        // It listens on a port of its own, which anybody on this machine could try.
        let (port, password) = (free_port()?, password());
        let secret = dir.path().join("password");
        std::fs::write(&secret, &password).map_err(LabError::io("writing a password"))?;
        // PostgreSQL refuses to run as root, so root lends it to a user without rights.
        let user = rustix::process::getuid().is_root().then_some(NOBODY);
        if let Some(user) = user {
            let lent = || LabError::io("giving the folder to the database's user");
            for place in [dir.path(), &secret] {
                std::os::unix::fs::chown(place, Some(user), Some(user)).map_err(lent())?;
            }
            // So that this user reaches it. Only the run's own folder: one of the system's is as it must be.
            if let Some(around) = super::run_dir::get() {
                let mode = std::os::unix::fs::PermissionsExt::from_mode(0o711);
                std::fs::set_permissions(around, mode).map_err(lent())?;
            }
        }
        let command = |name: &str| {
            let mut command = Command::new(programs.join(name));
            command
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::piped())
                .env("LC_ALL", "C")
                .current_dir(dir.path());
            if let Some(user) = user {
                std::os::unix::process::CommandExt::uid(&mut command, user);
                std::os::unix::process::CommandExt::gid(&mut command, user);
            }
            command
        };
        let data = dir.path().join("data");
        let mut init = command("initdb");
        init.args(["-U", "lab", "--auth=scram-sha-256", "--no-sync", "-E", "UTF8", "--pwfile"]).arg(&secret);
        let made = init.arg("-D").arg(&data).output().map_err(LabError::io("initdb"))?;
        if !made.status.success() {
            return Err(LabError::Wrong(format!("initdb: {}", String::from_utf8_lossy(&made.stderr).trim())));
        }
        let mut command = command("postgres");
        command.arg("-D").arg(&data);
        for setting in ["listen_addresses=127.0.0.1", "unix_socket_directories=", "fsync=off", "max_connections=20"] {
            command.args(["-c", setting]);
        }
        command.args(["-p", &port.to_string()]).stderr(Stdio::null());
        let server = Owned::spawn(&mut command)?;
        let url = format!("postgres://lab:{password}@127.0.0.1:{port}/postgres");
        let config = url.parse().map_err(|error: tokio_postgres::Error| LabError::wrong(error.to_string()))?;
        Database::with(config, url, Some((server, dir)), Duration::from_secs(20))
    }

    fn with(
        config: Config,
        url: String,
        server: Option<(Owned, tempfile::TempDir)>,
        patience: Duration,
    ) -> Result<Database, LabError> {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(LabError::io("a runtime"))?;
        let mut database = Database { config, url, version: String::new(), _server: server };
        let end = Instant::now() + patience;
        database.version = loop {
            let asked = runtime.block_on(async {
                let client = database.connect(1).await?.pop().ok_or_else(|| LabError::wrong("no connection"))?;
                let row =
                    client.query_one("show server_version", &[]).await.map_err(failed("asking for the version"))?;
                Ok::<String, LabError>(row.get(0))
            });
            match asked {
                Ok(version) => break version,
                Err(error) if Instant::now() > end => return Err(error),
                Err(_) => pause(Duration::from_millis(50)),
            }
        };
        Ok(database)
    }

    pub(super) fn version(&self) -> &str {
        self.version.split(' ').next().unwrap_or_default()
    }

    /// As `fanin.toml` has it.
    pub(super) fn url(&self) -> &str {
        &self.url
    }

    /// Connections. Must be called within a runtime, which drives them.
    pub(super) async fn connect(&self, count: usize) -> Result<Vec<Client>, LabError> {
        let mut clients = Vec::new();
        for _ in 0..count {
            let (client, connection) = self.config.connect(NoTls).await.map_err(failed("connecting"))?;
            tokio::spawn(connection);
            clients.push(client);
        }
        Ok(clients)
    }
}

/// A port that nobody listens on now.
fn free_port() -> Result<u16, LabError> {
    let found = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|listener| listener.local_addr());
    found.map(|addr| addr.port()).map_err(LabError::io("finding a port"))
}

/// Nobody guesses it: std's hashers are keyed by the system's random numbers.
fn password() -> String {
    let word = || RandomState::new().hash_one(std::process::id());
    format!("{:016x}{:016x}", word(), word())
}

fn failed(what: &'static str) -> impl FnOnce(tokio_postgres::Error) -> LabError {
    move |error| {
        let cause = std::error::Error::source(&error).map(|cause| format!(": {cause}")).unwrap_or_default();
        LabError::Wrong(format!("PostgreSQL, {what}: {error}{cause}"))
    }
}

/// The folder that holds `initdb` and `postgres`: on the path, or where distributions put them.
fn programs() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut places: Vec<PathBuf> = std::env::split_paths(&path).collect();
    for base in ["/usr/lib/postgresql", "/usr/local/pgsql", "/usr/pgsql", "/opt/homebrew/opt"] {
        let mut versions: Vec<PathBuf> =
            std::fs::read_dir(base).into_iter().flatten().flatten().map(|entry| entry.path().join("bin")).collect();
        versions.sort();
        places.extend(versions.into_iter().rev());
        places.push(Path::new(base).join("bin"));
    }
    places.into_iter().find(|place| place.join("initdb").is_file() && place.join("postgres").is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_private_server_leaves_the_systems_folders_as_they_are() {
        let Some(programs) = programs() else { return };
        let mode = || std::fs::metadata(std::env::temp_dir()).unwrap().permissions();
        let before = mode();
        let database = Database::start(&programs).unwrap();
        assert!(!database.version().is_empty());
        let folder = database._server.as_ref().unwrap().1.path().to_path_buf();
        assert!(folder.join("data").exists());
        drop(database);
        assert!(!folder.exists());
        assert_eq!(mode(), before);
    }
}
