//! `[models]`: models in this process, and the protocol by which others ask them.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::{Serialize, Serializer};

use crate::read::At;
use crate::table::Table;
use crate::{Priority, overload, schema, text};

/// `[models]`: where models are, which of their versions are served, what they may use.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Models {
    /// Folder of the models: `NAME/VERSION/model.txt` and the like. It is watched.
    #[serde(serialize_with = "text::path")]
    #[schemars(with = "String")]
    pub repository: PathBuf,
    /// Addresses on which others ask the models by the Open Inference HttpVersion, gRPC and HTTP alike; without it only
    /// flows do.
    #[serde(serialize_with = "text::list")]
    #[schemars(with = "schema::OneOrMore<schema::Address>")]
    pub listen: Vec<SocketAddr>,
    /// Which versions of a model are served: `"latest"`, the number of the latest ones, or a list of version numbers.
    #[schemars(with = "schema::ModelVersions")]
    pub versions: Versions,
    /// Threads that compute; 0 is one for each core that this process may use.
    #[schemars(with = "schema::Count<0, 1024>")]
    pub threads: usize,
    /// Requests that may wait for a thread, over all models. The next one is refused at once.
    #[schemars(with = "schema::Count<0>")]
    pub max_waiting: usize,
    /// A request that is expected to take no longer than this is computed on the thread that received it, if none of
    /// its model waits; handing it over would cost more than it takes. `"off"`: all go to the pool.
    #[serde(serialize_with = "text::optional_duration_or_off")]
    #[schemars(with = "schema::Or<schema::DurationText, schema::Off>")]
    pub inline: Option<Duration>,
    /// Bytes that all loaded models may hold, the old version during a change included. A version that does not fit is
    /// refused.
    #[serde(serialize_with = "text::size")]
    #[schemars(with = "schema::Size<1>")]
    pub memory: usize,
    /// Bytes of a model's file. A larger one is refused unread.
    #[serde(serialize_with = "text::size")]
    #[schemars(with = "schema::Size<1>")]
    pub max_file: usize,
    /// Time of a request that brings no deadline of its own.
    #[serde(serialize_with = "text::duration")]
    #[schemars(with = "schema::DurationText")]
    pub timeout: Duration,
    /// Bytes of a request, and of the outputs of an answer.
    #[serde(serialize_with = "text::size")]
    #[schemars(with = "schema::Size<1>")]
    pub max_message: usize,
    /// Bytes of all requests in progress and of all answers that clients have not taken yet; at least `max_message`. What
    /// goes beyond is refused at once.
    #[serde(serialize_with = "text::size")]
    #[schemars(with = "schema::Size<1>")]
    pub max_in_progress: usize,
    /// Requests in progress over all connections. The next one is refused at once.
    #[schemars(with = "schema::Count<1>")]
    pub limit: usize,
    /// Open connections. The excess is closed at once.
    #[schemars(with = "schema::Count<1>")]
    pub max_connections: usize,
    /// How often a quiet HTTP/2 connection is pinged.
    #[serde(serialize_with = "text::duration")]
    #[schemars(with = "schema::DurationText")]
    pub keepalive: Duration,
    /// A connection whose ping is not answered within this is closed.
    #[serde(serialize_with = "text::duration")]
    #[schemars(with = "schema::DurationText")]
    pub keepalive_timeout: Duration,
    /// After this, more or less a tenth, a connection is asked to go: its client makes a new one, perhaps to an instance
    /// that has been added. `"off"`: never.
    #[serde(serialize_with = "text::optional_duration_or_off")]
    #[schemars(with = "schema::Or<schema::DurationText, schema::Off>")]
    pub max_connection_age: Option<Duration>,
    /// How long requests of a connection that was asked to go may take.
    #[serde(serialize_with = "text::duration")]
    #[schemars(with = "schema::DurationText")]
    pub max_connection_age_grace: Duration,
    /// Whether models may be loaded and unloaded by the protocol. Without it the folder alone decides.
    #[schemars(with = "schema::Flag")]
    pub control: bool,
    /// The library of ONNX Runtime, or a folder that has it, for ONNX models. Without it the system's folders are searched
    /// when the first such model is loaded.
    #[serde(serialize_with = "text::optional_path", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub onnx_library: Option<PathBuf>,
    /// Exceptions for single models.
    #[serde(serialize_with = "text::named")]
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

/// `[models.settings.NAME]`: what is different for one model.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ModelSettings {
    /// As `models.versions`, for this model.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "schema::ModelVersions")]
    pub versions: Option<Versions>,
    /// Threads that may compute this model at a time; 0 is all but one (all, if there is one only).
    #[schemars(with = "schema::Count<0, 1024>")]
    pub limit: usize,
    /// Who goes first, and who is refused first: `critical`, `normal`, `low` or `background`.
    #[schemars(with = "schema::PriorityText")]
    pub priority: Priority,
    /// Rows that may be computed together, of several requests; 1 is none but a request's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "schema::Count<1>")]
    pub max_batch: Option<usize>,
    /// How long a request waits for others to be computed with.
    #[serde(serialize_with = "text::optional_duration", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "schema::DurationText")]
    pub max_delay: Option<Duration>,
    /// Sessions of an ONNX model: how many requests of it are computed at once, each with its own copy of the weights. Default: 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "schema::Count<1, 1024>")]
    pub sessions: Option<usize>,
    /// Whether a version with other inputs or outputs than the running one's may take its place.
    #[schemars(with = "schema::Flag")]
    pub new_signature: bool,
}

impl Models {
    /// All defaults for a repository.
    pub fn new(repository: impl Into<PathBuf>) -> Models {
        Models {
            repository: repository.into(),
            listen: Vec::new(),
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
            keepalive: Duration::from_secs(10),
            keepalive_timeout: Duration::from_secs(5),
            max_connection_age: None,
            max_connection_age_grace: Duration::from_secs(30),
            control: false,
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
        if table.at("repository").is_none() {
            table.missing("repository", "repository = \"models\", the folder that holds NAME/VERSION/");
        }
        let listen = table.list("listen", "an address such as \"0.0.0.0:8001\"", true, crate::server::address);
        set(&mut models.listen, listen.map(|all| all.into_iter().map(|at| at.value).collect()));
        set(&mut models.versions, versions(&mut table));
        set(&mut models.threads, table.count("threads", 0..=1024));
        set(&mut models.max_waiting, table.count("max_waiting", 0..=u64::MAX));
        set(&mut models.inline, duration_or_off(&mut table, "inline"));
        set(&mut models.memory, table.size("memory", 1));
        set(&mut models.max_file, table.size("max_file", 1));
        set(&mut models.timeout, table.duration("timeout"));
        set(&mut models.max_message, table.size("max_message", 1));
        let least = models.max_message;
        models.max_in_progress = match table.size("max_in_progress", 1) {
            None => models.max_in_progress.max(least),
            Some(bytes) => {
                if bytes < least {
                    let (bytes, least) = (crate::format_size(bytes as u64), crate::format_size(least as u64));
                    table.error(
                        "max_in_progress",
                        format!("is {bytes}, but a single request may have {least} (`max_message`)"),
                    );
                }
                bytes
            }
        };
        set(&mut models.limit, table.count("limit", 1..=u64::MAX));
        set(&mut models.max_connections, table.count("max_connections", 1..=u64::MAX));
        set(&mut models.keepalive, table.duration("keepalive"));
        set(&mut models.keepalive_timeout, table.duration("keepalive_timeout"));
        set(&mut models.max_connection_age, duration_or_off(&mut table, "max_connection_age"));
        set(&mut models.max_connection_age_grace, table.duration("max_connection_age_grace"));
        set(&mut models.control, table.flag("control"));
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
    fn read((name, mut table): (At<String>, Table<'_, '_>)) -> (String, ModelSettings) {
        let settings = ModelSettings {
            versions: versions(&mut table),
            limit: table.count("limit", 0..=1024).unwrap_or(0),
            priority: overload::read_priority(&mut table).unwrap_or_default(),
            max_batch: table.count("max_batch", 1..=u64::MAX),
            max_delay: table.duration("max_delay"),
            sessions: table.count("sessions", 1..=1024),
            new_signature: table.flag("new_signature").unwrap_or(false),
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

fn duration_or_off(table: &mut Table<'_, '_>, key: &'static str) -> Option<Option<Duration>> {
    let duration = table.parsed(key, "a duration or \"off\"", |text| match text {
        "off" => Ok(None),
        text => match crate::parse_duration(text)? {
            Duration::ZERO => Err("must be longer than zero; \"off\" switches it off".to_owned()),
            duration => Ok(Some(duration)),
        },
    });
    duration.map(|at| at.value)
}

fn set<T>(default: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *default = value;
    }
}
