//! `[models]`: models in this process, and the protocol by which others ask them.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::{Serialize, Serializer};

use crate::priority::{self, Priority};
use crate::reader::{Located, Table, replace};
use crate::schema::types;
use crate::server_tls::ServerTls;
use crate::values::http::address;
use crate::values::serialize;
use crate::values::size::format_size;

/// `[models]`: models in this process: where they are, which versions are served, what they may use.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Models {
    /// Folder of the models, with files such as `NAME/VERSION/model.txt`. Changes in it are detected and loaded.
    #[serde(serialize_with = "serialize::path")]
    #[schemars(with = "String")]
    pub repository: PathBuf,
    /// Addresses on which other programs use the models, by the Open Inference Protocol over gRPC and HTTP. Without
    /// it, only flows use them.
    #[serde(serialize_with = "serialize::list")]
    #[schemars(with = "types::OneOrMore<types::Address>")]
    pub listen: Vec<SocketAddr>,
    /// TLS on `listen`. Without it, the listeners speak plain HTTP.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "ServerTls")]
    pub tls: Option<ServerTls>,
    /// Which versions of a model are served: `"latest"`, the number of latest versions, or a list of version numbers.
    #[schemars(with = "types::ModelVersions")]
    pub versions: Versions,
    /// Number of threads in the compute pool. `0` means one for each core that this process may use.
    #[schemars(with = "types::Count<0, 1024>")]
    pub threads: usize,
    /// Most inference requests that may wait for a thread, over all models. Further requests are refused at once.
    #[schemars(with = "types::Count<0>")]
    pub max_waiting: usize,
    /// An inference request expected to take no longer than this is computed on the thread that received it, if no
    /// other waits for its model. A hand-over to the pool would cost more. `"off"`: all use the pool.
    #[serde(serialize_with = "serialize::optional_duration_or_off")]
    #[schemars(with = "types::Or<types::DurationText, types::Off>")]
    pub inline: Option<Duration>,
    /// Largest total size of all loaded models in bytes. While a version is replaced, both count. A version that does
    /// not fit is refused.
    #[serde(serialize_with = "serialize::size")]
    #[schemars(with = "types::Size<1>")]
    pub memory: usize,
    /// Largest file of a model, in bytes. A larger one is refused unread.
    #[serde(serialize_with = "serialize::size")]
    #[schemars(with = "types::Size<1>")]
    pub max_file: usize,
    /// How long an inference request may take if the client sets no deadline.
    #[serde(serialize_with = "serialize::duration")]
    #[schemars(with = "types::DurationText")]
    pub timeout: Duration,
    /// Largest inference request, and largest outputs of an answer, in bytes.
    #[serde(serialize_with = "serialize::size")]
    #[schemars(with = "types::Size<1>")]
    pub max_message: usize,
    /// In-flight budget: total bytes of all requests in progress and of all answers that clients have not read. At
    /// least `max_message`. Requests beyond it are refused at once.
    #[serde(serialize_with = "serialize::size")]
    #[schemars(with = "types::Size<1>")]
    pub max_in_progress: usize,
    /// Most inference requests in flight, over all connections. Further requests are refused at once.
    #[schemars(with = "types::Count<1>")]
    pub limit: usize,
    /// Most open connections. Further connections are closed at once.
    #[schemars(with = "types::Count<1>")]
    pub max_connections: usize,
    /// How long a client may wait after connecting until it sends something.
    #[serde(serialize_with = "serialize::duration")]
    #[schemars(with = "types::DurationText")]
    pub header_timeout: Duration,
    /// How long a client may read an answer slower than `min_read_rate` before its connection is closed. It is noticed
    /// within five seconds.
    #[serde(serialize_with = "serialize::duration")]
    #[schemars(with = "types::DurationText")]
    pub slow_reader_timeout: Duration,
    /// Bytes per second that a client must read of its answers, on average over `slow_reader_timeout`.
    #[serde(serialize_with = "serialize::size")]
    #[schemars(with = "types::Size<1>")]
    pub min_read_rate: usize,
    /// How long a connection may stay open without a request, whether it answers pings or not. It is closed
    /// gracefully. Over HTTP/1.1 at most 75 seconds.
    #[serde(serialize_with = "serialize::duration")]
    #[schemars(with = "types::DurationText")]
    pub idle_timeout: Duration,
    /// Interval of pings on an idle HTTP/2 connection.
    #[serde(serialize_with = "serialize::duration")]
    #[schemars(with = "types::DurationText")]
    pub keepalive: Duration,
    /// How long the reply to a ping may take before the connection is closed.
    #[serde(serialize_with = "serialize::duration")]
    #[schemars(with = "types::DurationText")]
    pub keepalive_timeout: Duration,
    /// Age, plus or minus 10 %, at which a connection is closed gracefully. Its client then connects again, perhaps to
    /// an instance that was added. `"off"`: never.
    #[serde(serialize_with = "serialize::optional_duration_or_off")]
    #[schemars(with = "types::Or<types::DurationText, types::Off>")]
    pub max_connection_age: Option<Duration>,
    /// How long requests on a connection that is being closed may take to finish.
    #[serde(serialize_with = "serialize::duration")]
    #[schemars(with = "types::DurationText")]
    pub max_connection_age_grace: Duration,
    /// Allows clients to load and unload models by the protocol. Without it, only the folder decides.
    #[schemars(with = "types::Flag")]
    pub control: bool,
    /// Describes the protocol to everybody who asks on the models' port, by server reflection of gRPC. Tools such as grpcurl then need no
    /// `.proto` file.
    #[schemars(with = "types::Flag")]
    pub reflection: bool,
    /// The library of ONNX Runtime, or a folder that contains it. Without it, the system's folders are searched when
    /// the first ONNX model is loaded.
    #[serde(serialize_with = "serialize::optional_path", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub onnx_library: Option<PathBuf>,
    /// Settings of single models, by name.
    #[serde(serialize_with = "serialize::named")]
    #[schemars(with = "std::collections::BTreeMap<String, ModelSettings>")]
    pub settings: IndexMap<String, ModelSettings>,
}

/// Which versions of a model are served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Versions {
    /// This many of the highest numbers that can be loaded.
    Latest(usize),
    /// These, as far as they are there.
    These(Vec<u64>),
}

impl Serialize for Versions {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            Versions::Latest(1) => to.serialize_str("latest"),
            Versions::Latest(count) => count.serialize(to),
            Versions::These(versions) => versions.serialize(to),
        }
    }
}

/// `[models.settings.NAME]`: settings of one model.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ModelSettings {
    /// Which versions of this model are served. Default: `versions` of `[models]`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "types::ModelVersions")]
    pub versions: Option<Versions>,
    /// Most threads that may compute this model at the same time. `0` means all but one, or one if there is only one.
    #[schemars(with = "types::Count<0, 1024>")]
    pub limit: usize,
    /// Priority of this model's requests: which are computed first and refused last. `critical`, `normal`, `low` or
    /// `background`.
    #[schemars(with = "types::PriorityText")]
    pub priority: Priority,
    /// Most rows that are computed together, from several requests. `1` disables batching.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "types::Count<1>")]
    pub max_batch: Option<usize>,
    /// How long a request may wait for others to share its batch.
    #[serde(serialize_with = "serialize::optional_duration", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "types::DurationText")]
    pub max_delay: Option<Duration>,
    /// Number of sessions of an ONNX model: how many of its requests are computed at the same time. Each session has
    /// its own copy of the weights. Default: 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "types::Count<1, 1024>")]
    pub sessions: Option<usize>,
    /// Accepts a version whose inputs or outputs differ from those of the running one.
    #[schemars(with = "types::Flag")]
    pub new_signature: bool,
}

impl Models {
    /// All defaults for a repository.
    pub fn new(repository: impl Into<PathBuf>) -> Models {
        Models {
            repository: repository.into(),
            listen: Vec::new(),
            tls: None,
            versions: Versions::Latest(1),
            threads: 0,
            max_waiting: 1000,
            inline: Some(Duration::from_micros(50)),
            memory: 1 << 30,
            max_file: 1 << 30,
            timeout: Duration::from_secs(10),
            max_message: 16 << 20,
            max_in_progress: 256 << 20,
            limit: 10_000,
            max_connections: 10_000,
            header_timeout: Duration::from_secs(10),
            slow_reader_timeout: Duration::from_secs(10),
            min_read_rate: 512,
            idle_timeout: Duration::from_secs(300),
            keepalive: Duration::from_secs(10),
            keepalive_timeout: Duration::from_secs(5),
            max_connection_age: None,
            max_connection_age_grace: Duration::from_secs(30),
            control: false,
            reflection: false,
            onnx_library: None,
            settings: IndexMap::new(),
        }
    }

    /// Names of the models that the repository has now, in order; none if it cannot be read.
    pub fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.repository).into_iter().flatten().filter_map(Result::ok);
        let folders = entries.filter(|entry| entry.path().is_dir());
        let mut names: Vec<String> = folders.filter_map(|entry| entry.file_name().into_string().ok()).collect();
        // Kubernetes keeps the folders behind its links under names that begin with a dot.
        names.retain(|name| !name.starts_with('.'));
        names.sort();
        names
    }

    /// The settings of a model.
    pub fn settings_of(&self, name: &str) -> ModelSettings {
        self.settings.get(name).cloned().unwrap_or_default()
    }

    pub(crate) fn read(mut table: Table<'_, '_>) -> Option<Models> {
        let repository = table.parsed("repository", "a folder's path", |text| match text {
            "" => Err("is empty".into()),
            text => Ok(text.to_owned()),
        });
        let dir = table.reader().dir().to_path_buf();
        let mut models = Models::new(repository.map(|at| dir.join(at.value)).unwrap_or_default());
        if !table.has("repository") {
            table.missing("repository", "repository = \"models\", the folder that holds NAME/VERSION/");
        }
        let listen = table.list("listen", "an address such as \"0.0.0.0:8001\"", true, address);
        replace(&mut models.listen, listen.map(|all| all.into_iter().map(|at| at.value).collect()));
        models.tls = table.table("tls").and_then(ServerTls::read);
        if models.tls.is_some() && models.listen.is_empty() {
            table.error("tls", "needs `listen`: without it, nobody connects");
        }
        replace(&mut models.versions, versions(&mut table));
        replace(&mut models.threads, table.count("threads", 0..=1024));
        replace(&mut models.max_waiting, table.count("max_waiting", 0..=u64::MAX));
        replace(&mut models.inline, table.duration_or_off("inline"));
        replace(&mut models.memory, table.size("memory", 1));
        replace(&mut models.max_file, table.size("max_file", 1));
        replace(&mut models.timeout, table.duration("timeout"));
        replace(&mut models.max_message, table.size("max_message", 1));
        let least = models.max_message;
        models.max_in_progress = match table.size("max_in_progress", 1) {
            None => models.max_in_progress.max(least),
            Some(bytes) => {
                if bytes < least {
                    let (bytes, least) = (format_size(bytes as u64), format_size(least as u64));
                    table.error(
                        "max_in_progress",
                        format!("is {bytes}, but a single request may have {least} (`max_message`)"),
                    );
                }
                bytes
            }
        };
        replace(&mut models.limit, table.count("limit", 1..=u64::MAX));
        replace(&mut models.max_connections, table.count("max_connections", 1..=u64::MAX));
        replace(&mut models.header_timeout, table.duration("header_timeout"));
        replace(&mut models.slow_reader_timeout, table.duration("slow_reader_timeout"));
        replace(&mut models.min_read_rate, table.size("min_read_rate", 1));
        replace(&mut models.idle_timeout, table.duration("idle_timeout"));
        replace(&mut models.keepalive, table.duration("keepalive"));
        replace(&mut models.keepalive_timeout, table.duration("keepalive_timeout"));
        replace(&mut models.max_connection_age, table.duration_or_off("max_connection_age"));
        replace(&mut models.max_connection_age_grace, table.duration("max_connection_age_grace"));
        replace(&mut models.control, table.boolean("control"));
        replace(&mut models.reflection, table.boolean("reflection"));
        let library = table.parsed("onnx_library", "a path", |text| match text {
            "" => Err("is empty".into()),
            text => Ok(dir.join(text)),
        });
        models.onnx_library = library.map(|at| at.value);
        let settings = table.named_tables("settings");
        models.settings = settings.into_iter().map(ModelSettings::read).collect();
        table.finish();
        Some(models)
    }
}

impl ModelSettings {
    fn read((name, mut table): (Located<String>, Table<'_, '_>)) -> (String, ModelSettings) {
        let settings = ModelSettings {
            versions: versions(&mut table),
            limit: table.count("limit", 0..=1024).unwrap_or(0),
            priority: priority::read(&mut table).unwrap_or_default(),
            max_batch: table.count("max_batch", 1..=u64::MAX),
            max_delay: table.duration("max_delay"),
            sessions: table.count("sessions", 1..=1024),
            new_signature: table.boolean("new_signature").unwrap_or(false),
        };
        if settings.max_delay.is_some() && settings.max_batch.is_none_or(|rows| rows == 1) {
            table.error("max_delay", "waits for others to be computed with, but `max_batch` allows none");
        }
        table.finish();
        (name.value, settings)
    }
}

/// `"latest"`, a number, or a list of numbers.
fn versions(table: &mut Table<'_, '_>) -> Option<Versions> {
    if table.is_number("versions") {
        return table.count("versions", 1..=u64::MAX).map(Versions::Latest);
    }
    if table.is_list("versions") {
        let these = table.numbers("versions", 0..=u64::MAX)?;
        if these.is_empty() {
            table.error("versions", "is empty; name a version, or write \"latest\"");
        }
        return Some(Versions::These(these));
    }
    let latest = table.parsed("versions", "\"latest\", a number or a list of versions", |text| match text {
        "latest" => Ok(Versions::Latest(1)),
        text => Err(format!("`{text}` is not \"latest\", a number or a list of versions")),
    });
    latest.map(|at| at.value)
}
