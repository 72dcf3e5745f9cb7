//! A PostgreSQL server for experiments: one that the environment names, or a private one in a temporary folder.

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
/// Rows of the table that queries scan.
const ROWS: &str = "create temp table lab_rows as select n % 100 as value from generate_series(1, 5000) n";

/// A database that answers.
pub(super) struct Database {
    config: Config,
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
            return Database::with(config, None, Duration::from_secs(5))
                .map_err(|error| LabError::Lacks(format!("the server of {VARIABLE} does not answer: {error}")));
        }
        let Some(programs) = programs() else { return Err(LabError::Lacks(LACKS.to_owned())) };
        Database::start(&programs)
    }

    fn start(programs: &Path) -> Result<Database, LabError> {
        let dir = super::scratch()?;
        // PostgreSQL refuses to run as root, so root lends it to a user without rights.
        let user = rustix::process::getuid().is_root().then_some(65_534);
        if let Some(user) = user {
            std::os::unix::fs::chown(dir.path(), Some(user), Some(user)).map_err(LabError::io("lending the folder"))?;
            // So that this user reaches it. Only the run's own folder: the system's is as it must be.
            if let Some(around) = super::args::base() {
                let mode = std::os::unix::fs::PermissionsExt::from_mode(0o711);
                std::fs::set_permissions(around, mode).map_err(LabError::io("lending the folder"))?;
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
        let made = command("initdb").args(["-U", "lab", "--auth=trust", "--no-sync", "-D"]).arg(&data).output();
        let made = made.map_err(LabError::io("initdb"))?;
        if !made.status.success() {
            return Err(LabError::Wrong(format!("initdb: {}", String::from_utf8_lossy(&made.stderr).trim())));
        }
        let mut command = command("postgres");
        // Only a socket in the folder: no port, nobody else.
        command.arg("-D").arg(&data).args([
            "-c",
            "listen_addresses=",
            "-c",
            "fsync=off",
            "-c",
            "max_connections=20",
            "-k",
        ]);
        command.arg(dir.path()).stderr(Stdio::null());
        let server = Owned::spawn(&mut command)?;
        let mut config = Config::new();
        config.host_path(dir.path()).user("lab").dbname("postgres");
        Database::with(config, Some((server, dir)), Duration::from_secs(20))
    }

    fn with(
        config: Config,
        server: Option<(Owned, tempfile::TempDir)>,
        patience: Duration,
    ) -> Result<Database, LabError> {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(LabError::io("a runtime"))?;
        let mut database = Database { config, version: String::new(), _server: server };
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

    /// Connections with the table of the experiments. Must be called within a runtime, which drives them.
    pub(super) async fn connect(&self, count: usize) -> Result<Vec<Client>, LabError> {
        let mut clients = Vec::new();
        for _ in 0..count {
            let (client, connection) = self.config.connect(NoTls).await.map_err(failed("connecting"))?;
            tokio::spawn(connection);
            client.batch_execute(ROWS).await.map_err(failed("making a table"))?;
            clients.push(client);
        }
        Ok(clients)
    }
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
