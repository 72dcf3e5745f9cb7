//! Every mistake gets one clear error at its place, and all errors come at once.
//!
//! Longer than 500 lines because it is one table: a file, and the error that it must give.

mod common;

use common::{FULL, folder, parse};
use fanin_config::Severity;

const OK: &str = "flow = 'flows/page.star:page'";

/// File, the place of its one error, a part of what it says.
fn cases() -> Vec<(String, &'static str, &'static str)> {
    let route = |text: &str| format!("[[routes]]\n{text}\n");
    let full_route = |text: &str| format!("[[routes]]\npath = '/a'\n{OK}\n{text}\n");
    let upstream = |text: &str| format!("[upstreams.a]\nurl = 'http://a'\n{text}\n");
    let tls = |text: &str| format!("[server.tls]\ncert = 'cert.pem'\nkey = 'key.pem'\n{text}\n");
    let operation =
        |text: &str| format!("[upstreams.a]\nurl = 'http://a'\n[upstreams.a.operations.b]\npath = '/'\n{text}\n");
    let grpc = |text: &str| format!("[upstreams.a]\ngrpc = 'http://a'\n{text}\n");
    let postgres = |text: &str| format!("[upstreams.a]\npostgres = 'postgres://u@h/d'\n{text}\n");
    vec![
        // Syntax.
        ("a = ".into(), "1:5", "invalid TOML"),
        ("[server\nlimit = 1".into(), "1:8", "invalid TOML"),
        ("[server]\nlimit = 1\nlimit = 2\n".into(), "3:1", "duplicate key `"),
        ("[upstreams.a]\nurl='http://a'\n[upstreams.a]".into(), "3:12", "duplicate key `"),
        // Shapes.
        (operation("returns = 'array'"), "5:11", "`array` is not a shape; use one of object, list"),
        (operation("returns = { a = ['int', 'bool'] }"), "5:11", "a list needs one shape"),
        (operation("method = 'HEAD'\nreturns = 'object'"), "6:11", "the answer to a HEAD has none"),
        // CORS.
        ("[cors]\ncredentials = true\n".into(), "1:1", "cors needs `origins`"),
        ("[cors]\norigins = []\n".into(), "2:11", "cors.origins: is empty"),
        ("[cors]\norigins = ['shop.example']\n".into(), "2:12", "`shop.example` is no origin"),
        ("[cors]\norigins = ['https://*.example']\n".into(), "2:12", "`https://*.example` is no origin"),
        ("[cors]\norigins = ['*', 'https://a.example']\n".into(), "2:11", "\"*\" stands for all pages"),
        ("[cors]\norigins = ['*']\ncredentials = true\n".into(), "3:15", "browsers send none where `origins` is \"*\""),
        (
            "[cors]\norigins = ['https://a.example']\ncredentials = true\nexpose = ['*']\n".into(),
            "4:10",
            "cors.expose: with `credentials`, browsers take \"*\" for a header of this name",
        ),
        (full_route("cors = 'on'"), "4:8", "`on` is not a table such as { origins = [...] }, or \"off\""),
        (full_route("cors = { origins = ['*'], methods = ['PUT'] }"), "4:8", "methods: the route has no PUT"),
        // Compression and caches.
        ("[compression]\ngzip = 10\n".into(), "2:8", "compression.gzip: 10 is out of range; write 1 to 9"),
        ("[compression]\nbrotli = 'on'\n".into(), "2:10", "compression.brotli must be a whole number, not a string"),
        ("[compression]\ngzip = 'off'\nbrotli = 'off'\nzstd = 'off'\n".into(), "2:8", "every encoding is off"),
        ("[compression]\ntypes = ['json']\n".into(), "2:10", "`json` is not a media type"),
        (full_route("compression = true"), "4:15", "must be a table such as { gzip = 6 }, or \"off\""),
        (full_route("cache_control = 'public max-age=60'"), "4:17", "is not a directive of Cache-Control"),
        (
            "[[routes]]\ngrpc = 'a.B/C'\nflow = 'flows/page.star:page'\netag = true\n[grpc]\nproto = 'cert.pem'\n"
                .into(),
            "4:8",
            "etag: does not apply to methods",
        ),
        (full_route("cache = true"), "4:9", "cache must be a table, not a boolean"),
        (full_route("cache = { tll = '1m' }"), "4:11", "unknown key `tll`"),
        (full_route("cache = { ttl_by_status = { 40 = '1m' } }"), "4:29", "`40` is not a status of responses"),
        (full_route("cache = { ttl_by_status = { 206 = '1m' } }"), "4:29", "`206` is not a status of responses"),
        (full_route("cache = { ttl_by_status = { 404 = '1' } }"), "4:29", "ttl_by_status: 404: "),
        (full_route("cache = { vary = ['host'] }"), "4:19", "`host` does not change responses"),
        (full_route("cache = {}\nmethod = 'POST'"), "4:9", "cache: only responses to GET are kept"),
        // Routes without a flow.
        (route("path = '/a'\nproxy = 'b'"), "3:9", "proxy: there is no section [upstreams.b]"),
        (
            format!("{}[[routes]]\npath = '/a'\nproxy = 'a'\n", postgres("")),
            "6:9",
            "requests are passed on to HTTP upstreams",
        ),
        (
            upstream("[[routes]]\npath = '/a'\nproxy = 'a'\nerrors = true"),
            "6:10",
            "needs a flow, and the route has `proxy`; remove one of them",
        ),
        (upstream("[[routes]]\npath = '/a'\nproxy = 'a'\nmethod = 'get'"), "6:10", "`get` is not a method such as"),
        // Headers of responses.
        ("[response_headers]\n".into(), "1:1", "response_headers needs `set`"),
        ("[response_headers]\nset = { 'a b' = 'c' }\n".into(), "2:9", "`a b` is not the name of a header"),
        ("[response_headers]\nset = { connection = 'c' }\n".into(), "2:9", "`connection` is set by Fanin"),
        ("[response_headers]\nset = { Content-Encoding = 'c' }\n".into(), "2:9", "depends on the request"),
        (
            "[response_headers]\nset = { a = \"b\\u0007\" }\n".into(),
            "2:9",
            "characters that are not allowed in a header",
        ),
        ("[response_headers]\nset = { a = 'b' }\nremove = ['A']\n".into(), "3:11", "`a` is set, too"),
        ("[response_headers]\nremove = ['date']\n".into(), "2:11", "`date` is set by Fanin"),
        (full_route("response_headers = []"), "4:20", "must be a table such as"),
        // Unknown keys.
        ("[servers]\n".into(), "1:2", "unknown key `servers` (did you mean `server`?)"),
        ("[server]\nlimits = 1\n".into(), "2:1", "unknown key `limits` in server (did you mean `limit`?)"),
        ("[server]\nmax-body = 1\n".into(), "2:1", "did you mean `max_body`?"),
        (
            "[server.tls]\ncert='cert.pem'\nkey='key.pem'\nciphers=''".into(),
            "4:1",
            "unknown key `ciphers` in server.tls (known keys: cert, key, certificates, min_version, alpn, client_certificates, client_ca, client_crl, resumption)",
        ),
        ("[flow]\nmax_cals = 1\n".into(), "2:1", "did you mean `max_calls`?"),
        (upstream("batch = {}"), "3:1", "unknown key `batch` in upstreams.a"),
        (full_route("methods = 'GET'"), "4:1", "did you mean `method`?"),
        (upstream("retries = 2"), "3:1", "did you mean `retry`?"),
        // Types.
        ("server = 3".into(), "1:10", "server must be a table, not an integer"),
        ("[server]\nlimit = true".into(), "2:9", "server.limit must be a whole number, not a boolean"),
        ("[server]\nlimit = '5'".into(), "2:9", "server.limit must be a whole number, not a string"),
        ("[server]\nlimit = 1.5".into(), "2:9", "not a float"),
        ("[server]\nreload = 1".into(), "2:10", "server.reload must be true or false, not an integer"),
        ("[server]\nheader_timeout = 100".into(), "2:18", "did you mean \"100ms\" or \"100s\"?"),
        ("[server]\nheader_timeout = 2020-01-01".into(), "2:18", "not a date"),
        ("upstreams = []".into(), "1:13", "must be a table of tables, not a list (write [upstreams.NAME])"),
        ("[upstreams]\na = 'http://a'".into(), "2:5", "upstreams.a must be a table, not a string"),
        ("[routes]\npath = '/'".into(), "1:1", "with two pairs of brackets"),
        (upstream("headers = 'a: b'"), "3:11", "must be a table"),
        (upstream("headers = { a = 1 }"), "3:17", "upstreams.a.headers.a must be a string"),
        (upstream("forward_headers = 'accept'"), "3:19", "must be a list"),
        // Numbers, sizes, durations.
        ("[server]\nlimit = 0".into(), "2:9", "server.limit: 0 is too small; the minimum is 1"),
        ("[server]\nlimit = -1".into(), "2:9", "server.limit: -1 is too small; the minimum is 1"),
        ("[server]\nworkers = 5000".into(), "2:11", "server.workers: 5000 is out of range; write 0 to 1024"),
        ("[server]\nmax_body = '1M'".into(), "2:12", "server.max_body: `M` is not a unit of size"),
        (
            "[server]\nmax_header_size = 10".into(),
            "2:19",
            "server.max_header_size: 10 bytes is too small; the minimum is 1024",
        ),
        ("[server]\nstall = '20'".into(), "2:9", "server.stall: `20` has no unit"),
        ("[server]\nstall = '0s'".into(), "2:9", "must be longer than zero"),
        (
            "[flow]\nmax_json_depth = 20000".into(),
            "2:18",
            "flow.max_json_depth: 20000 is out of range; write 1 to 10000",
        ),
        ("[server]\nqueueing = '0ms'".into(), "2:12", "must be longer than zero"),
        ("[server]\nqueueing = 'on'".into(), "2:12", "`on` is not a duration"),
        ("[server]\nmemory = '10B'".into(), "2:10", "10 bytes is below the least, 1048576"),
        ("[server]\nmemory = 'some'".into(), "2:10", "`some` is not a size"),
        ("[server]\npriority_header = 'x-p'".into(), "2:19", "is believed of nobody"),
        ("[server]\ntimeout_header = 'x-t'".into(), "2:18", "is believed of nobody"),
        ("[server]\nforwarded_header = 'forwarded'".into(), "2:20", "is believed of nobody"),
        ("[server]\nproxy_protocol = true".into(), "2:18", "is believed of nobody"),
        ("[server]\npriority_header = 'x-p'\ntrusted = ['a']".into(), "3:12", "is neither an address nor a network"),
        (
            full_route("priority = 'high'"),
            "4:12",
            "routes[0].priority: `high` is not allowed; write \"critical\" or \"normal\" or \"low\" or \"background\"",
        ),
        ("[models]".into(), "1:1", "models needs `repository`"),
        (
            "[models]\nrepository = 'm'\nversions = 'newest'".into(),
            "3:12",
            "`newest` is not \"latest\", a number or a list",
        ),
        (
            "[models]\nrepository = 'm'\nversions = 0".into(),
            "3:12",
            "models.versions: 0 is too small; the minimum is 1",
        ),
        ("[models]\nrepository = 'm'\nversions = []".into(), "3:12", "is empty; name a version"),
        ("[models]\nrepository = 'm'\nlisten = 'here'".into(), "3:10", "`here` is not an address"),
        (
            "[models]\nrepository = 'm'\ninline = '0s'".into(),
            "3:10",
            "models.inline: must be longer than zero; to disable it, write \"off\"",
        ),
        (
            "[models]\nrepository = 'm'\nmax_message = '2MiB'\nmax_in_progress = '1MiB'".into(),
            "4:19",
            "is 1MiB, but a single request may have 2MiB (`max_message`)",
        ),
        ("[models]\nrepository = 'm'\nthread = 1".into(), "3:1", "did you mean `threads`?"),
        (
            "[models]\nrepository = 'm'\n[models.settings.a]\nmax_delay = '1ms'".into(),
            "4:13",
            "but `max_batch` allows none",
        ),
        // Environment.
        ("[server]\nlog = 'a${NONE}b'".into(), "2:9", "server.log: the environment variable NONE is not set"),
        (
            "[server]\nlog = '${NONE'".into(),
            "2:8",
            "server.log: `${` has no closing `}` (to write a dollar sign, use $$)",
        ),
        ("[server]\nworkers = '${BAD}'".into(), "2:11", "`many` is not a whole number"),
        ("[server]\nreload = '${BAD}'".into(), "2:10", "`many` is neither true nor false"),
        // Addresses.
        ("[server]\nlisten = 'localhost:80'".into(), "2:10", "write an IP address and a port, such as \"0.0.0.0:80\""),
        ("[server]\nlisten = '8080'".into(), "2:10", "write an IP address and a port"),
        ("[server]\nlisten = []".into(), "2:10", "server.listen: is empty"),
        (
            "[server]\nlisten = ['1.2.3.4:5', '1.2.3.4:5']".into(),
            "2:24",
            "server.listen: 1.2.3.4:5 occurs twice; remove one",
        ),
        ("[server]\nprobes = '127.0.0.1:9090'".into(), "2:10", "server.probes: need an address of their own"),
        ("[server]\nadmin_token_file = 'none'".into(), "2:20", "there is no file"),
        ("[server]\nadmin_hosts = ['a:80']".into(), "2:16", "write it without a port"),
        ("[server]\nlisten = '127.0.0.1:9090'".into(), "2:10", "an address of their own"),
        ("[server]\naccess_log = ''".into(), "2:14", "is empty"),
        ("[server]\ntimeout_header = 'a b'".into(), "2:18", "server.timeout_header: `a b` is not the name of a header"),
        // TLS.
        ("[server.tls]\ncert = 'cert.pem'".into(), "1:1", "server.tls needs `key`"),
        (tls("client_certificates = 'required'"), "1:1", "server.tls needs `client_ca`"),
        (tls("client_ca = 'ca.pem'"), "4:13", "server.tls.client_ca: needs `client_certificates = \"required\"`"),
        (tls("min_version = '1.1'"), "4:15", "`1.1` is not allowed; write \"1.2\" or \"1.3\""),
        (tls("alpn = ['h2', 'h3']"), "4:15", "`h3` is not one of h2, http/1.1"),
        (tls("alpn = []"), "4:8", "server.tls.alpn: is empty"),
        (tls("alpn = ['h2', 'h2']"), "4:15", "server.tls.alpn: h2 occurs twice"),
        (tls("certificates = [{ cert = 'cert.pem' }]"), "4:17", "server.tls.certificates[0] needs `key`"),
        (
            full_route("client_certificate = 'required'"),
            "4:22",
            "no client has a certificate: set `client_certificates`",
        ),
        (full_route("allowed_certificates = ['orders']"), "4:25", "`orders` does not begin with one of subject:, dns:"),
        ("[server.tls]\ncert = 'none.pem'\nkey = 'key.pem'".into(), "2:8", "there is no file"),
        (
            upstream("tls = { ca = 'ca.pem' }"),
            "3:7",
            "upstreams.a.tls: needs an https URL, but no URL of this upstream is https",
        ),
        (
            "[upstreams.a]\nurl = 'https://a'\ntls = { cert = 'cert.pem' }".into(),
            "3:7",
            "upstreams.a.tls: `cert` and `key` need each other; set both or none",
        ),
        // Upstreams.
        ("[upstreams.a]\n".into(), "1:1", "upstreams.a needs `url`"),
        ("[upstreams.a]\nurls = []".into(), "2:8", "an upstream needs at least one endpoint"),
        ("[upstreams.a]\nurls = ['http://a', 'http://a/']".into(), "2:21", "the endpoint on a occurs twice"),
        (upstream("urls = ['http://b']"), "3:8", "upstreams.a.urls: cannot be combined with `url`; remove one of them"),
        (
            "[upstreams.a]\nurl = 'a:80'".into(),
            "2:7",
            "upstreams.a.url: the scheme is not supported; use http or https",
        ),
        ("[upstreams.a]\nurl = 'nonsense'".into(), "2:7", "is not a URL"),
        ("[upstreams.a]\nurl = 'http://a?b'".into(), "2:7", "query or fragment"),
        (
            "[upstreams.a]\nurl = 'http://u:p@a'".into(),
            "2:7",
            "upstreams.a.url: a URL must not contain a user or password; set headers.authorization instead",
        ),
        (
            "[upstreams.\"a b\"]\nurl = 'http://a'".into(),
            "1:12",
            "`a b` is not a valid name for an upstream (use letters, digits, `_` and `-`; begin with a letter)",
        ),
        (
            upstream("connect_timeout = '2s'"),
            "3:19",
            "upstreams.a.connect_timeout: must not be longer than `timeout` of the upstream",
        ),
        (upstream("limit = 0"), "3:9", "upstreams.a.limit: 0 is too small; the minimum is 1"),
        (upstream("http = '3'"), "3:8", "upstreams.a.http: `3` is not allowed; write \"1\" or \"2\""),
        (
            upstream("http = '2'\nmax_connecting = 5"),
            "4:18",
            "upstreams.a.max_connecting: must not exceed `max_connections`, 4",
        ),
        (
            upstream("query_lists = 'json'"),
            "3:15",
            "upstreams.a.query_lists: `json` is not allowed; write \"repeat\" or \"comma\"",
        ),
        (
            upstream("escaped_slashes = 'keep'"),
            "3:19",
            "upstreams.a.escaped_slashes: `keep` is not allowed; write \"refuse\" or \"encode\"",
        ),
        (
            upstream("operations.b.path = '/a%2Fb'"),
            "3:21",
            "upstreams.a.operations.b.path: has an escaped slash or backslash, which backends read in different ways; set `escaped_slashes` of the upstream to \"encode\"",
        ),
        (
            upstream("escaped_slashes = 'encode'\noperations.b.path = '/%2e%2E/b'"),
            "4:21",
            "upstreams.a.operations.b.path: has a segment \".\" or \"..\", which backends read in different ways",
        ),
        (
            upstream("headers = { connection = 'close' }"),
            "3:13",
            "upstreams.a.headers: `connection` is set by Fanin; remove it",
        ),
        (upstream("headers = { 'a b' = 'x' }"), "3:13", "upstreams.a.headers: `a b` is not the name of a header"),
        (
            upstream("headers = { a = \"x\\r\\nb: y\" }"),
            "3:13",
            "upstreams.a.headers: the value of `a` contains characters that are not allowed in a header",
        ),
        (
            upstream("headers = { accept = 'x', Accept = 'y' }"),
            "3:27",
            "upstreams.a.headers: `accept` occurs twice; remove one",
        ),
        (upstream("forward_headers = ['accept', 'Host']"), "3:30", "`host` belongs to the client's connection"),
        (upstream("limit = 'adaptve'"), "3:9", "`adaptve` is not a number, \"adaptive\" or a table"),
        (upstream("limit = true"), "3:9", "must be a number, \"adaptive\" or a table, not a boolean"),
        (upstream("limit = { min = 9, max = 8 }"), "3:17", "upstreams.a.limit.min: min, 9, must not exceed max, 8"),
        (upstream("limit = { min = 0 }"), "3:17", "upstreams.a.limit.min: 0 is too small; the minimum is 1"),
        (
            upstream("keepalive = '5s'"),
            "3:13",
            "upstreams.a.keepalive: applies to HTTP/2 only; set http = \"2\" or remove this key",
        ),
        // Policies.
        (upstream("retry = 'on'"), "3:9", "`on` is not a table or \"off\""),
        (upstream("retry = true"), "3:9", "upstreams.a.retry must be a table or \"off\", not a boolean"),
        (upstream("retry = { max = 11 }"), "3:17", "upstreams.a.retry.max: 11 is out of range; write 0 to 10"),
        (upstream("retry = { budget = 1.5 }"), "3:20", "upstreams.a.retry.budget: 1.5 is out of range; write 0 to 1"),
        (upstream("retry = { budget = '0.1' }"), "3:20", "must be a number, not a string"),
        (upstream("retry = { floor = -1 }"), "3:19", "upstreams.a.retry.floor: -1 is too small; the minimum is 0"),
        (upstream("retry = { budget = nan }"), "3:20", "upstreams.a.retry.budget: NaN is out of range; write 0 to 1"),
        (upstream("retry = { times = 2 }"), "3:11", "unknown key `times` in upstreams.a.retry"),
        (upstream("hedge = 'p20'"), "3:9", "upstreams.a.hedge: `p20` is not a valid percentile; write p50 to p99.9"),
        (upstream("hedge = 'px'"), "3:9", "upstreams.a.hedge: `px` is not a valid percentile; write p50 to p99.9"),
        (
            upstream("hedge = '2s'"),
            "3:9",
            "upstreams.a.hedge: must be shorter than `timeout`; otherwise it has no effect",
        ),
        (upstream("hedge = '0s'"), "3:9", "must be longer than zero"),
        (upstream("breaker = { share = 0 }"), "3:21", "upstreams.a.breaker.share: must be greater than 0"),
        (
            upstream("breaker = { calls = 0 }"),
            "3:21",
            "upstreams.a.breaker.calls: 0 is out of range; write 1 to 4294967295",
        ),
        (
            upstream("breaker = { pause = '2s', longest_pause = '1s' }"),
            "3:43",
            "upstreams.a.breaker.longest_pause: must not be shorter than `pause`",
        ),
        (
            upstream("attempt_timeout = '1s'"),
            "3:19",
            "upstreams.a.attempt_timeout: must be shorter than `timeout`; otherwise it has no effect",
        ),
        (
            upstream("chunk_timeout = '5s'"),
            "3:17",
            "upstreams.a.chunk_timeout: must be shorter than `timeout`; otherwise it has no effect",
        ),
        // Policies that contradict each other.
        (upstream("limit = 4\nmax_waiting = 10000"), "4:15", "unless each answer takes less than"),
        (
            format!("{}{}", upstream("attempt_timeout = '500ms'"), full_route("timeout = '400ms'")),
            "3:19",
            "upstreams.a.attempt_timeout: must be shorter than the longest route timeout, 400ms; otherwise there is no time for a second attempt",
        ),
        (
            format!("{}{}", upstream("hedge = '500ms'"), full_route("timeout = '400ms'")),
            "3:9",
            "upstreams.a.hedge: must be shorter than the longest route timeout, 400ms; otherwise there is no time for a second attempt",
        ),
        (
            operation("method = 'POST'\nhedge = '30ms'"),
            "6:9",
            "upstreams.a.operations.b.hedge: would send a POST twice; if the call changes nothing, add `safe = true`",
        ),
        (
            operation("safe = false\nhedge = 'half'"),
            "6:9",
            "upstreams.a.operations.b.hedge: would send a GET twice; if the call changes nothing, add `safe = true`",
        ),
        (
            operation("hedge = '2s'"),
            "5:9",
            "upstreams.a.operations.b.hedge: must be shorter than `timeout`; otherwise it has no effect",
        ),
        (
            operation("timeout = '100ms'\nattempt_timeout = '100ms'"),
            "6:19",
            "upstreams.a.operations.b.attempt_timeout: must be shorter than `timeout`; otherwise it has no effect",
        ),
        (operation("limit = 0"), "5:9", "upstreams.a.operations.b.limit: 0 is too small; the minimum is 1"),
        (
            operation("max_waiting = 3"),
            "5:15",
            "upstreams.a.operations.b.max_waiting: has no effect, because this operation has no `limit`; add one or remove this key",
        ),
        (operation("retry = 'on'"), "5:9", "`on` is not a table or \"off\""),
        // Kinds.
        (upstream("files = '.'"), "3:9", "upstreams.a.files: cannot be combined with `url`; remove one of them"),
        (
            upstream("statements.b = { sql = 'select 1' }"),
            "3:1",
            "upstreams.a.statements: applies to PostgreSQL, MySQL only; this upstream is HTTP",
        ),
        (
            upstream("password = 'x'"),
            "3:12",
            "upstreams.a.password: applies to PostgreSQL, MySQL only; this upstream is HTTP",
        ),
        (
            postgres("headers = { a = 'b' }"),
            "3:11",
            "upstreams.a.headers: applies to HTTP, gRPC only; this upstream is PostgreSQL",
        ),
        (
            postgres("keepalive = '5s'"),
            "3:13",
            "upstreams.a.keepalive: applies to HTTP, gRPC only; this upstream is PostgreSQL",
        ),
        (
            "[upstreams.a]\npostgres = 'postgres://h/d'".into(),
            "2:12",
            "upstreams.a.postgres: has no user; write postgres://user@host/database",
        ),
        ("[upstreams.a]\npostgres = 'http://h/d'".into(), "2:12", "has not the scheme of PostgreSQL"),
        (
            "[upstreams.a]\npostgres = 'postgres://u@h'".into(),
            "2:12",
            "upstreams.a.postgres: has no database; write postgres://user@host/database",
        ),
        ("[upstreams.a]\nfiles = 'none'".into(), "2:9", "there is no folder"),
        ("[upstreams.a]\nfiles = '.'\nconnect_timeout = '1s'".into(), "3:19", "this upstream is a folder"),
        (
            "[upstreams.a]\nmodel = 'spam'".into(),
            "2:9",
            "upstreams.a.model: needs the section [models] with the `repository` of the models",
        ),
        (
            "[upstreams.a]\nmodel = '../a'\n[models]\nrepository = '.'".into(),
            "2:9",
            "upstreams.a.model: `../a` is not a valid name of a model; write the name of its folder",
        ),
        ("[upstreams.a]\nmodel = 'spam'\n[models]\nrepository = '.'".into(), "2:9", "there is no model `spam` in"),
        (
            "[upstreams.a]\nmodel = 'spam'\nurl = 'http://a'\n[models]\nrepository = 'none'".into(),
            "2:9",
            "upstreams.a.model: cannot be combined with `url`; remove one of them",
        ),
        (
            "[upstreams.a]\nmodel = 'spam'\nconnect_timeout = '1s'\n[models]\nrepository = 'none'".into(),
            "3:19",
            "this upstream is a model",
        ),
        (grpc(""), "1:1", "upstreams.a needs `proto`"),
        (grpc("proto = 'no.proto'"), "3:9", "there is no file no.proto"),
        (
            grpc("reflection = true\nproto = 'ca.pem'"),
            "3:14",
            "upstreams.a.reflection: cannot be combined with `proto`; remove one of them",
        ),
        (
            grpc("reflection = true\nproto_path = '.'"),
            "4:14",
            "upstreams.a.proto_path: is used only with `proto`, which is missing; add `proto` or remove this key",
        ),
        (grpc("reflection = false"), "1:1", "upstreams.a needs `proto`"),
        (grpc("reflection = true\nhttp = '2'"), "4:8", "upstreams.a.http: applies to HTTP only; this upstream is gRPC"),
        (
            grpc("reflection = true\nint64 = 'float'"),
            "4:9",
            "upstreams.a.int64: `float` is not allowed; write \"string\" or \"number\"",
        ),
        (grpc("reflection = true\nsafe_methods = ['a b']"), "4:17", "`a b` is neither a method nor a service"),
        (
            "[upstreams.a]\ngrpc = 'dns:///a'\nreflection = true".into(),
            "2:8",
            "upstreams.a.grpc: the scheme is not supported; use http or https",
        ),
        (
            "[upstreams.a]\ngrpc = 'http://a/b'\nreflection = true".into(),
            "2:8",
            "upstreams.a.grpc: the URL of a gRPC server has no path; end it with the port",
        ),
        (upstream("proto = 'ca.pem'"), "3:9", "upstreams.a.proto: applies to gRPC only; this upstream is HTTP"),
        (postgres("[upstreams.a.statements.b]"), "3:1", "upstreams.a.statements.b needs `sql`"),
        (
            postgres("[upstreams.a.statements.query]\nsql = 'select 1'"),
            "3:25",
            "`query` is not a valid name for a statement (use letters, digits and `_`, but not query, query_one or execute; flows call it by this name)",
        ),
        (
            postgres("[upstreams.a.statements.b]\nsql = 'delete from a'"),
            "4:7",
            "upstreams.a.statements.b.sql: `delete` changes data, but the statement is read-only (set writes = true on the statement; in a flow, call execute())",
        ),
        (
            postgres("[upstreams.a.statements.b]\nsql = 'begin'"),
            "4:7",
            "upstreams.a.statements.b.sql: `begin` changes the state of the connection, which other calls use, too (each call is its own transaction; combine what belongs together into one statement)",
        ),
        (
            postgres("[upstreams.a.statements.b]\nsql = 'select $1'\nparams = ['a', 'a']"),
            "5:10",
            "upstreams.a.statements.b.params: `a` occurs twice; rename or remove one",
        ),
        (
            postgres("[upstreams.a.statements.b]\nsql = 'select $1'\nparams = ['ok']"),
            "5:10",
            "upstreams.a.statements.b.params: `ok` is already an argument of every call; use another name",
        ),
        ("[upstreams.a]\nmysql = 'postgres://u@h/d'".to_owned(), "2:9", "not the scheme of MySQL; use mysql"),
        ("[upstreams.a]\nmysql = 'mysql://u@h/d'\nkeepalive = '1s'".to_owned(), "3:13", "this upstream is MySQL"),
        (
            postgres("[upstreams.a.statements.b]\nsql = 'select $1'\nparams = ['ids']\nbatch = { key = 'ids' }"),
            "6:9",
            "needs `match`",
        ),
        (
            postgres("[upstreams.a.statements.b]\nsql = 'select $1'\nbatch = { key = 'ids', match = 'id' }"),
            "5:9",
            "upstreams.a.statements.b.batch: key = \"ids\" is not in `params`; add it there",
        ),
        (
            postgres("[upstreams.a.statements.b]\nsql = 'insert'\nwrites = true\ncache = { ttl = '1s' }"),
            "6:9",
            "upstreams.a.statements.b.cache: is only for statements that change nothing; this one has writes = true",
        ),
        (
            postgres("[upstreams.a.statements.b]\nsql = 'select $1'\nparams = ['linger']"),
            "5:10",
            "upstreams.a.statements.b.params: `linger` is already an argument of every call; use another name",
        ),
        (
            postgres("[upstreams.a.statements.b]\nsql = 'select 1'\nrows = 'two'"),
            "5:8",
            "upstreams.a.statements.b.rows: `two` is not allowed; write \"many\" or \"one\"",
        ),
        // Operations.
        (upstream("[upstreams.a.operations.b]"), "3:1", "upstreams.a.operations.b needs `path`"),
        (
            upstream("[upstreams.a.operations.b-c]\npath='/'"),
            "3:25",
            "`b-c` is not a valid name for an operation (use letters, digits and `_`; flows call it by this name)",
        ),
        (upstream("[upstreams.a.operations.b]\npath='/{*c}'"), "4:6", "only a route's path"),
        (
            upstream("[upstreams.a.operations.b]\npath='/'\nok=[200, 99]"),
            "5:10",
            "upstreams.a.operations.b.ok[1]: 99 is out of range; write 100 to 599",
        ),
        (operation("batch = {}"), "5:9", "upstreams.a.operations.b.batch needs `key`"),
        (operation("batch = { key = 'ids', max_key = 3 }"), "5:24", "did you mean `max_keys`?"),
        (
            operation("batch = { key = 'ids', max_keys = 0 }"),
            "5:35",
            "upstreams.a.operations.b.batch.max_keys: 0 is too small; the minimum is 1",
        ),
        (operation("batch = { key = 'ids', linger = 2 }"), "5:33", "must be a duration"),
        (
            operation("batch = { key = 'ids', linger = '0s', share = true }"),
            "5:47",
            "upstreams.a.operations.b.batch.share: needs time to collect calls of other requests, but `linger` is 0; raise it or remove this key",
        ),
        (
            operation("batch = { key = 'ids', fields = 'ids' }"),
            "5:33",
            "upstreams.a.operations.b.batch.fields: must not be the parameter that holds the keys",
        ),
        (
            operation("method = 'HEAD'\nbatch = { key = 'ids' }"),
            "6:9",
            "upstreams.a.operations.b.batch: splits answers, but the answer to a HEAD has no body; use GET",
        ),
        (
            operation("timeout = '1s'\nbatch = { key = 'ids', linger = '1s' }"),
            "6:9",
            "upstreams.a.operations.b.batch: linger, 1s, must be shorter than the timeout of the call, 1s",
        ),
        (
            operation("method = 'POST'\nbatch = { key = 'ids' }"),
            "6:9",
            "upstreams.a.operations.b.batch: is only for calls that change nothing; if this is one, set safe = true",
        ),
        (
            operation("params = { id = 'list' }\nbatch = { key = 'ids' }"),
            "6:9",
            "upstreams.a.operations.b.batch: key = \"ids\" is not in `params`; add it there",
        ),
        (
            operation("params = { ids = 'int' }\nbatch = { key = 'ids' }"),
            "6:9",
            "upstreams.a.operations.b.batch: key = \"ids\" must have the type \"list\" or \"any\" in `params`",
        ),
        (operation("cache = { stale = '1s' }"), "5:9", "needs `ttl`"),
        (
            operation("cache = { ttl = '1s', max_size = 0 }"),
            "5:34",
            "upstreams.a.operations.b.cache.max_size: 0 bytes is too small; the minimum is 1",
        ),
        (operation("cache = { ttl = '1s', sale = '1s' }"), "5:23", "did you mean `stale`?"),
        (operation("method = 'PUT'\ncache = { ttl = '1s' }"), "6:9", "change nothing"),
        (operation("method = 'PUT'\nsingle_flight = true"), "6:17", "change nothing"),
        (
            operation("params = { a = 'text' }"),
            "5:16",
            "upstreams.a.operations.b.params.a: `text` is not a type; use string, int, float, bool, list, any, with `?` at its end for an optional parameter",
        ),
        (operation("params = { a = 3 }"), "5:16", "must be a table"),
        (operation("params = { a = { default = 1 } }"), "5:16", "needs `type`"),
        (
            operation("params = { a = { type = 'int', default = 'x' } }"),
            "5:42",
            "upstreams.a.operations.b.params.a.default: does not match the type, int",
        ),
        (
            operation("params = { a = { type = 'int?', default = 1 } }"),
            "5:43",
            "upstreams.a.operations.b.params.a.default: cannot be combined with a type with `?`; remove one of them",
        ),
        (operation("params = { a = { type = 'int', in = 'body' } }"), "5:37", "`body` is not"),
        (
            operation("params = { a = { type = 'int', in = 'json' } }"),
            "5:10",
            "upstreams.a.operations.b.params: `in = \"json\"` needs a body, but a GET has none; change `method` or `in`",
        ),
        (
            operation("params = { a = { type = 'int', in = 'header', name = 'a b' } }"),
            "5:37",
            "upstreams.a.operations.b.params.a.in: `a b` is not the name of a header",
        ),
        (
            operation("params = { timeout = 'int' }"),
            "5:12",
            "`timeout` is already an argument of every call (use another name; `name` sets its name in the request)",
        ),
        (
            operation("params = { a-b = 'int' }"),
            "5:12",
            "`a-b` is not a valid name for a parameter (use letters, digits and `_`; `name` sets its name in the request)",
        ),
        (
            upstream("[upstreams.a.operations.b]\npath='/{c}'\nparams = {}"),
            "4:6",
            "upstreams.a.operations.b.path: contains {c}, which is not in `params`; add it there",
        ),
        (upstream("[upstreams.a.operations.b]\npath='/{c}'\nparams = { c = 'list' }"), "4:6", "which is a list"),
        (
            upstream("[upstreams.a.operations.b]\npath='/{c}'\nparams = { c = 'int?' }"),
            "4:6",
            "upstreams.a.operations.b.path: contains {c}, which is optional; remove the `?` of its type",
        ),
        (
            upstream("[upstreams.a.operations.b]\npath='/{c}'\nbatch = { key = 'c' }"),
            "5:9",
            "upstreams.a.operations.b.batch: key = \"c\" is in the path, but all calls of a batch share one path; put it into the query",
        ),
        // Snapshots.
        (upstream("snapshot = {}"), "3:12", "upstreams.a.snapshot needs `path`"),
        (upstream("snapshot = { path = 'a' }"), "3:21", "must begin with /"),
        (upstream("snapshot = { path = '/a b' }"), "3:21", "upstreams.a.snapshot.path: `/a b` must not contain ' '"),
        (upstream("snapshot = { path = '/', every = '0s' }"), "3:34", "must be longer than zero"),
        (
            upstream("snapshot = { path = '/', dump = 'a.json' }"),
            "3:33",
            "upstreams.a.snapshot.dump: a change of a .json file reloads the configuration; use another extension, such as .dump",
        ),
        (upstream("snapshot = { path = '/', evry = '1m' }"), "3:26", "did you mean `every`?"),
        // Routes.
        (route(OK), "1:1", "routes[0] needs `path`"),
        (route("path = '/a'"), "1:1", "routes[0] needs `flow`"),
        (full_route("method = 'get'"), "4:10", "`get` is not one of GET, "),
        (full_route("method = ['GET', 'get']"), "4:18", "`get` is not one of GET, "),
        (full_route("method = ['GET', 'GET']"), "4:18", "routes[0].method: GET occurs twice"),
        (full_route("method = []"), "4:10", "routes[0].method: needs at least one method"),
        (full_route("timeout = '0'"), "4:11", "must be longer than zero"),
        (full_route("on_disconnect = 'stop'"), "4:17", "`stop` is not"),
        (
            full_route("executor = 'threads'"),
            "4:12",
            "`threads` is not \"coroutines\" or { threads = 600, waiting = 200 }",
        ),
        (full_route("objective = 99"), "4:13", "must be a part and a time such as \"99 % < 200ms\""),
        (full_route("objective = '100 % < 1s'"), "4:13", "an objective leaves some requests to fail"),
        (full_route("objective = '99 % < 200'"), "4:13", "`200` has no unit"),
        (full_route("executor = 600"), "4:12", "must be \"coroutines\" or { threads"),
        (full_route("executor = { thread = 1 }"), "4:14", "did you mean `threads`?"),
        (full_route("executor = { threads = 0 }"), "4:24", "routes[0].executor.threads"),
        (route(&format!("path = 'a'\n{OK}")), "2:8", "must begin with /"),
        (route(&format!("path = '/a//b'\n{OK}")), "2:8", "empty segment"),
        (route(&format!("path = '//'\n{OK}")), "2:8", "empty segment"),
        (route(&format!("path = '/a/../b'\n{OK}")), "2:8", "must not hold the segment .."),
        (route(&format!("path = '/a?b'\n{OK}")), "2:8", "must not hold '?'"),
        (route(&format!("path = '/a/x{{b}}'\n{OK}")), "2:8", "a parameter is a whole segment"),
        (route(&format!("path = '/a/{{b'\n{OK}")), "2:8", "a parameter is a whole segment"),
        (route(&format!("path = '/a/{{}}'\n{OK}")), "2:8", "`` is not a parameter's name"),
        (route(&format!("path = '/a/{{*b}}/c'\n{OK}")), "2:8", "must come last"),
        (route(&format!("path = '/{{a}}/{{a}}'\n{OK}")), "2:8", "the parameter `a` twice"),
        (route("path = '/a'\nflow = 'flows/page.star'"), "3:8", "names no function"),
        (route("path = '/a'\nflow = 'flows/page.star:a-b'"), "3:8", "`a-b` is not a function's name"),
        (route("path = '/a'\nflow = 'flows/page.py:a'"), "3:8", "is not a .star file"),
        (route("path = '/a'\nflow = '../page.star:a'"), "3:8", "is outside the configuration's folder"),
        (route("path = '/a'\nflow = '/etc/page.star:a'"), "3:8", "is outside the configuration's folder"),
        (route("path = '/a'\nflow = 'none.star:a'"), "3:8", "there is no flow file"),
        (
            format!("[[routes]]\npath = '/a/{{b}}'\n{OK}\n[[routes]]\npath = '/a/{{c}}'\n{OK}\n"),
            "5:8",
            "GET /a/{c} occurs twice (the first one is in line 2",
        ),
        (
            format!("[[routes]]\npath = '/a/{{b}}'\n{OK}\n[[routes]]\nmethod = 'POST'\npath = '/a/{{c}}'\n{OK}\n"),
            "6:8",
            "/a/{c} matches the same paths as /a/{b}, line 2 (give the parameters the same names)",
        ),
        (
            format!("[[routes]]\npath = '/a/{{b}}'\n{OK}\n[[routes]]\npath = '/a/{{*c}}'\n{OK}\n"),
            "5:8",
            "/a/{*c} collides with /a/{b}, line 2",
        ),
        (
            format!("[[routes]]\npath = '/a/{{*c}}'\n{OK}\n[[routes]]\npath = '/a/{{b}}/d'\n{OK}\n"),
            "5:8",
            "/a/{b}/d collides with /a/{*c}, line 2",
        ),
    ]
}

#[test]
fn each_slip_has_its_error() {
    let dir = folder();
    let mut wrong = Vec::new();
    for (text, place, part) in cases() {
        let found = match parse(&text, dir.path()) {
            Ok(_) => "nothing".to_owned(),
            Err(error) => {
                let [diagnostic] = &error.diagnostics[..] else {
                    wrong.push(format!("{text}\ngave {error}\n"));
                    continue;
                };
                assert_eq!(diagnostic.severity, Severity::Error);
                diagnostic.to_string()
            }
        };
        if !found.starts_with(&format!("fanin.toml:{place}: ")) || !found.contains(part) {
            wrong.push(format!("{text}\ngave {found}\nexpected {place} … {part}\n"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn paths_that_differ_somewhere_go_together() {
    let dir = folder();
    let paths =
        ["/", "/a", "/a/", "/a/{b}", "/a/b", "/a/{c}/d", "/a/{e}/f", "/g/{*rest}", "/g", "/{any}", "/{other}/x"];
    let text: String = paths.iter().map(|path| format!("[[routes]]\npath = '{path}'\n{OK}\n")).collect();
    let more = format!("[[routes]]\nmethod = 'POST'\npath = '/a/{{b}}'\n{OK}\n");
    let config = parse(&(text + &more), dir.path()).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(config.routes.len(), paths.len() + 1);
}

#[cfg(unix)]
#[test]
fn links_do_not_lead_outside() {
    let (dir, outside) = (folder(), folder());
    std::os::unix::fs::symlink(outside.path().join("flows/page.star"), dir.path().join("link.star")).expect("linked");
    let error = parse("[[routes]]\npath = '/'\nflow = 'link.star:a'", dir.path()).expect_err("outside");
    assert!(error.to_string().contains("3:8: the flow file"), "{error}");
    assert!(error.to_string().contains("link to outside"), "{error}");
}

#[test]
fn all_errors_come_at_once_in_the_files_order() {
    let dir = folder();
    let text = "[[routes]]\npath = 'a'\ntimeout = 5\n[server]\nlimit = 0\n[upstreams.b]\nlimit = 0\nurll = ''\n";
    let error = parse(text, dir.path()).expect_err("wrong in many ways");
    let places: Vec<_> = error.to_string().lines().map(|line| line.split(": ").next().map(str::to_owned)).collect();
    let expected = ["1:1", "2:8", "3:11", "5:9", "6:1", "7:9", "8:1"].map(|place| Some(format!("fanin.toml:{place}")));
    assert_eq!(places, expected, "{error}");
}

#[test]
fn columns_count_characters() {
    let dir = folder();
    let error = parse("[server]\nlog = 'żółw ${NONE}'", dir.path()).expect_err("not set");
    assert!(error.to_string().starts_with("fanin.toml:2:13: "), "{error}");
}

#[test]
fn warnings_do_not_refuse_the_file() {
    let dir = folder();
    let text = format!("[server]\nlimit = 5\n[[routes]]\npath = '/'\n{OK}\nlimit = 6\n");
    let config = parse(&text, dir.path()).expect("valid");
    let [warning] = &config.warnings[..] else { panic!("{:?}", config.warnings) };
    assert!(warning.to_string().starts_with("fanin.toml:6:9: warning: routes[0]: limit 6 is above"), "{warning}");
    let text = "[upstreams.a]\nurl = 'http://a'\nretry = 'off'\nattempt_timeout = '50ms'\n";
    let config = parse(text, dir.path()).expect("valid");
    assert!(config.warnings[0].to_string().contains("4:19: warning: upstreams.a.attempt_timeout: "));
    let text = format!("[[routes]]\npath = '/items/:id'\n{OK}\n");
    let config = parse(&text, dir.path()).expect("valid");
    assert!(config.warnings[0].to_string().contains("a parameter is written {id}"), "{:?}", config.warnings);
    let text = format!("[[routes]]\npath = '/'\n{OK}\ntimeout = '1s'\nobjective = '99 % < 2s'\n");
    let warning = parse(&text, dir.path()).expect("valid").warnings[0].to_string();
    assert!(warning.contains("5:13: warning: routes[0].objective: 2s is above the route's timeout"), "{warning}");
}

/// Cut anywhere or with any byte changed, a file is either read or refused with places that are in it.
#[test]
fn broken_files_never_panic() {
    let dir = folder();
    let check = |text: &str| {
        if let Err(error) = parse(text, dir.path()) {
            assert!(!error.diagnostics.is_empty());
            for diagnostic in &error.diagnostics {
                assert!(diagnostic.at.line > 0 && diagnostic.at.end <= text.len(), "{diagnostic}");
            }
        }
    };
    for end in 0..FULL.len() {
        check(&FULL[..end]);
    }
    let mut state = 1u64;
    for at in 0..FULL.len() {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let mut bytes = FULL.as_bytes().to_vec();
        bytes[at] = b"\"'[]{}=\n#$0a.,\\-"[(state >> 60) as usize];
        check(std::str::from_utf8(&bytes).expect("ASCII"));
    }
}

#[test]
fn errors_about_urls_show_neither_user_nor_query() {
    let dir = folder();
    // Each with a reason to be refused, and with `hush` as its user, password or query.
    let http = [
        "http://hush:hush@a",
        "http://hush@a",
        "http://a?hush=hush",
        "http://a#hush",
        "http://hush:hush@a b",
        "hush:hush@a",
        "ftp://hush:hush@a",
        "http://hush:hush@",
        "http://a:hush/",
        "hush",
    ];
    let sql = [
        "hush:hush@h/d",
        "http://hush:hush@h/d",
        "SCHEME://hush:hush@h",
        "SCHEME://hush:hush@/d",
        "SCHEME://hush:hush@h:x/d",
        "SCHEME://hush:hu/hush@h/d",
        "SCHEME://hush:1/hush@h/d",
        "SCHEME://hush:hush@h/a/b",
        "SCHEME://hush:hush@h/d#hush",
        "SCHEME://hush:hush@h/d?sslmode=hush",
        "SCHEME://hush:hush@h/d?hush=hush",
        "SCHEME://hush:hush@h/d?hush",
        "SCHEME://hush:hu?hush@h/d",
        "SCHEME://hush:hush@[h/d",
        "hush",
        "SCHEME:hush",
        "SCHEME://:hush@h/d",
    ];
    let of = |key: &'static str, urls: &[&str]| {
        let scheme = |url: &str| url.replace("SCHEME", key);
        urls.iter().map(|url| (key, scheme(url))).collect::<Vec<_>>()
    };
    let cases =
        [of("url", &http), of("urls", &http), of("grpc", &http), of("postgres", &sql), of("mysql", &sql)].concat();
    for (key, url) in cases {
        let list = if key == "url" { format!("'{url}'") } else { format!("['{url}']") };
        let error = parse(&format!("[upstreams.a]\n{key} = {list}"), dir.path()).unwrap_err().to_string();
        assert!(!error.contains("hush"), "{url}: {error}");
    }
    // Twice the same.
    for (key, url) in
        [("postgres", "postgres://hush:hush@h/d?application_name=hush"), ("mysql", "mysql://hush:hush@h/d")]
    {
        let text = format!("[upstreams.a]\n{key} = ['{url}', '{url}']");
        let error = parse(&text, dir.path()).unwrap_err().to_string();
        assert!(error.contains("the endpoint on h occurs twice") && !error.contains("hush"), "{error}");
    }
}
