//! A folder with what a configuration may name.

use std::path::Path;

use fanin_config::{Config, ConfigError};
use tempfile::TempDir;

/// The environment of all these tests.
pub fn env(name: &str) -> Option<String> {
    match name {
        "CATALOG_URL" => Some("http://catalog.internal:8080".into()),
        "TOKEN" => Some("s3cret-from-env".into()),
        "WORKERS" => Some("3".into()),
        "RELOAD" => Some("false".into()),
        "BAD" => Some("many".into()),
        _ => None,
    }
}

/// A folder with a flow file, and PEM files that hold nothing.
pub fn folder() -> TempDir {
    let dir = tempfile::tempdir().expect("a folder for the test");
    std::fs::create_dir(dir.path().join("flows")).expect("created");
    for file in ["flows/page.star", "ca.pem", "cert.pem", "key.pem"] {
        std::fs::write(dir.path().join(file), "").expect("written");
    }
    dir
}

/// Reads a text as `fanin.toml` of a folder.
pub fn parse(text: &str, dir: &Path) -> Result<Config, ConfigError> {
    Config::parse(text, "fanin.toml", dir, &env)
}

/// A file that sets every key to something that is not its default.
#[allow(dead_code, reason = "not every test program uses it")]
pub const FULL: &str = r#"
[server]
listen = ["0.0.0.0:80", "[::1]:80"]
admin = "off"
probes = "0.0.0.0:9902"
admin_token_file = "key.pem"
admin_hosts = ["fanin.internal"]
workers = "${WORKERS}"
limit = 500
max_waiting = 0
queueing = "7ms"
memory = "256MiB"
priority_header = "x-priority"
trusted = ["10.0.0.0/8", "::1"]
proxy_protocol = true
forwarded_header = "x-forwarded-for"
max_connections = 600
max_connections_per_client = 60
max_handshakes_per_client = 6
max_in_progress_per_client = 30
max_resets_per_client = "off"
header_timeout = "5s"
idle_timeout = "1m30s"
body_timeout = "20s"
slow_reader_timeout = "3s"
min_read_rate = "2KiB"
slow_sender_timeout = "off"
min_send_rate = "1KiB"
drain_timeout = "1m"
max_header_size = "16KiB"
max_body = "2MB"
timeout_header = "x-timeout-ms"
access_log = "access.log"
log_format = "json"
escaped_slashes = "decode"
log = "warn,fanin=debug"
stall = "50ms"
heap_profile = "512KiB"
reload = "${RELOAD}"

[server.tls]
cert = "cert.pem"
key = "key.pem"
certificates = [{ cert = "cert.pem", key = "key.pem" }]
min_version = "1.3"
alpn = "http/1.1"
client_certificates = "optional"
client_ca = "ca.pem"
client_crl = "ca.pem"
resumption = false

[flow]
max_calls = 10
max_steps = 1_000
max_memory = "1MiB"
max_value = "64KiB"
max_depth = 8
max_fibers = 9
max_response = 4096
max_json_depth = 16
max_log_rate = 7

[upstreams.search]
urls = ["https://a.internal:8080/base", "https://b.internal"]
timeout = "100ms"
connect_timeout = "50ms"
limit = 64
max_waiting = 33
http = "2"
max_connections = 2
max_connecting = 1
idle_timeout = "5s"
max_answer = "1MB"
headers = { authorization = "Basic abc", x-from-env = "${TOKEN}", accept = "application/json" }
forward_headers = ["Authorization"]
timeout_header = "off"
query_lists = "comma"
escaped_slashes = "encode"
tls = { ca = "ca.pem", cert = "cert.pem", key = "key.pem", server_name = "search", min_version = "1.3" }

retry = { max = 2, budget = 0.1, floor = 1, backoff = "10ms" }
hedge = "p95"
ejection = false
keepalive = "20s"
keepalive_timeout = "2s"
keepalive_idle = false
attempt_timeout = "60ms"
chunk_timeout = "70ms"

[upstreams.search.breaker]
share = 0.4
calls = 30
window = "5s"
pause = "2s"
longest_pause = "8s"
probes = 4

[upstreams.search.snapshot]
path = "/all?x=1"
every = "1m"
key = "id"
items = "rows"
dump = "search.dump"
allow_empty = true

[upstreams.search.operations.ids]
method = "POST"
path = "/ids/{text}"
params = { text = "string", page = { type = "int", default = 1, in = "json", name = "p" }, ids = "list?", fields = "any" }
safe = true
ok = [404, 409]
timeout = "40ms"
single_flight = true

[upstreams.search.operations.ids.batch]
key = "ids"
fields = "fields"
match = "id"
items = "rows"
max_keys = 20
linger = "0ms"

[upstreams.search.operations.ids.cache]
ttl = "1m"
stale = "10s"
stale_if_error = "1h"
negative = "5s"
max_size = "1MiB"
cache_control = true

[upstreams.catalog]
url = "${CATALOG_URL}"

[models]
repository = "models"
listen = ["127.0.0.1:8001", "[::1]:8001"]
versions = 3
threads = 2
max_waiting = 50
inline = "off"
memory = "2GiB"
max_file = "1GB"
timeout = "50ms"
max_message = "4MiB"
max_in_progress = "8MiB"
limit = 100
max_connections = 200
header_timeout = "4s"
slow_reader_timeout = "6s"
min_read_rate = 100
idle_timeout = "1m"
keepalive = "3s"
keepalive_timeout = "1s"
max_connection_age = "10m"
max_connection_age_grace = "5s"
control = true
onnx_library = "lib/libonnxruntime.so"

[models.settings.spam]
versions = [3, 5]
limit = 1
priority = "low"
max_batch = 8
max_delay = "1ms"
sessions = 2
new_signature = true

[[routes]]
method = "POST"
path = "/pages/{id}/{*rest}"
flow = "./flows/page.star:page"
timeout = "400ms"
limit = 7
max_waiting = 8
priority = "low"
on_disconnect = "finish"
max_body = "9KB"
errors = true
max_calls = 11

[[routes]]
path = "/"
flow = "flows/page.star:home"

[auth.shop]
kind = "jwt"
header = "x-token"
query = "token"
issuers = ["https://idp.example"]
audiences = ["shop"]
algorithms = ["PS256"]
upstream = "catalog"
jwks_path = "/keys"
keys = ["key.pem"]
refresh = "10m"
min_interval = "1m"
max_stale = "2h"
leeway = "5s"
required_claims = ["sub"]
principal_claim = "email"
max_cached = 0

[auth.jobs]
kind = "jwt"
issuers = []
audiences = []
secret = "${TOKEN}-s3cret-from-env-again"

[auth.partners]
kind = "api_keys"
file = "key.pem"

[rate_limits.tenant]
requests = 5
per = "1s"
burst = 9
key = "claim:org.id"
max_keys = 10
headers = false

[[routes]]
path = "/orders"
flow = "flows/page.star:home"
auth = ["shop", "partners"]
require = { scope = "orders:write", level = [1, 2], verified = true }
allow = ["10.0.0.0/8"]
deny = ["10.9.0.0/16"]
rate_limit = "tenant"
rate_cost = 3
before = "flows/page.star:guard"
"#;
