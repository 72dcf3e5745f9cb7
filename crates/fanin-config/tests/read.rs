//! What the file says is what the types hold.

mod common;

use std::path::Path;
use std::time::Duration;

use common::{FULL, folder, parse};
use fanin_config::{
    AccessLog, Alpn, Batch, Breaker, Cache, ClientCertificates, Config, EscapedSlashes, Executor, FILE_NAME,
    FieldNames, FlowLimits, GrpcCompression, Hedge, HttpVersion, Int64, Limit, LogFormat, MASK, ModelSettings,
    OnDisconnect, OriginPattern, Param, ParamKind, ParamLocation, ParamType, Priority, QueryLists, RequestSlashes,
    Retry, Rows, Server, Snapshot, Threads, TlsVersion, Upstream, UpstreamKind, Versions,
};
use http::{Method, StatusCode};

#[test]
fn an_empty_file_is_all_defaults() {
    let dir = folder();
    let config = parse("", dir.path()).expect("valid");
    assert_eq!(config, Config { dir: dir.path().into(), ..Config::default() });
    assert_eq!(config.server.listen[0].to_string(), "127.0.0.1:8080");
    assert_eq!(config.server.admin.map(|admin| admin.to_string()), Some("127.0.0.1:9090".into()));
    assert_eq!(config.flow.max_calls, 64);
}

#[test]
fn every_key_is_read() {
    let dir = folder();
    let config = parse(FULL, dir.path()).expect("valid");
    assert_eq!(config.warnings, []);

    let server = &config.server;
    assert_eq!(server.listen.iter().map(ToString::to_string).collect::<Vec<_>>(), ["0.0.0.0:80", "[::1]:80"]);
    assert_eq!(server.admin, None);
    assert_eq!(server.probes.map(|probes| probes.to_string()), Some("0.0.0.0:9902".into()));
    assert_eq!(server.admin_token_file, Some(dir.path().join("key.pem")));
    assert_eq!(server.admin_hosts, ["fanin.internal"]);
    assert_eq!((server.workers, server.limit, server.max_waiting, server.max_connections), (3, 500, 0, 600));
    assert_eq!(server.queueing, Some(Duration::from_millis(7)));
    assert_eq!(server.memory, fanin_config::MemoryBudget::Bytes(256 << 20));
    assert_eq!(server.priority_header.as_ref().map(|name| name.as_str()), Some("x-priority"));
    assert_eq!(server.trusted.iter().map(ToString::to_string).collect::<Vec<_>>(), ["10.0.0.0/8", "::1"]);
    assert!(server.proxy_protocol);
    assert_eq!((server.max_connections_per_client, server.max_handshakes_per_client), (Some(60), Some(6)));
    assert_eq!((server.max_in_progress_per_client, server.max_resets_per_client), (Some(30), None));
    assert_eq!(server.forwarded_header.as_ref().map(|name| name.as_str()), Some("x-forwarded-for"));
    assert_eq!(server.header_timeout, Duration::from_secs(5));
    assert_eq!(server.idle_timeout, Duration::from_secs(90));
    assert_eq!(server.body_timeout, Duration::from_secs(20));
    assert_eq!((server.slow_reader_timeout, server.min_read_rate), (Some(Duration::from_secs(3)), 2 << 10));
    assert_eq!((server.slow_sender_timeout, server.min_send_rate), (None, 1 << 10));
    assert_eq!(server.drain_timeout, Duration::from_secs(60));
    assert_eq!((server.max_header_size, server.max_body), (16_384, 2_000_000));
    assert_eq!(server.timeout_header.as_ref().map(|name| name.as_str()), Some("x-timeout-ms"));
    assert_eq!(server.access_log, AccessLog::File(dir.path().join("access.log")));
    assert_eq!(server.escaped_slashes, RequestSlashes::Decode);
    assert_eq!((server.log.as_str(), server.log_format), ("warn,fanin=debug", LogFormat::Json));
    assert_eq!(server.stall, Duration::from_millis(50));
    assert_eq!(server.heap_profile, Some(512 << 10));
    assert!(!server.reload);
    let tls = server.tls.as_ref().expect("set");
    assert_eq!((&tls.cert, &tls.key), (&dir.path().join("cert.pem"), &dir.path().join("key.pem")));
    assert_eq!(tls.certificates.len(), 1);
    assert_eq!((tls.min_version, &*tls.alpn), (TlsVersion::V1_3, &[Alpn::Http1][..]));
    assert_eq!(tls.client_certificates, ClientCertificates::Optional);
    assert_eq!((&tls.client_ca, &tls.client_crl), (&Some(dir.path().join("ca.pem")), &Some(dir.path().join("ca.pem"))));
    assert!(!tls.resumption && tls.files().count() == 6);

    let models = config.models.as_ref().expect("set");
    assert_eq!(models.repository, dir.path().join("models"));
    assert_eq!(models.listen.iter().map(ToString::to_string).collect::<Vec<_>>(), ["127.0.0.1:8001", "[::1]:8001"]);
    assert_eq!((&models.versions, models.threads, models.max_waiting), (&Versions::Latest(3), 2, 50));
    assert_eq!((models.inline, models.memory, models.max_file), (None, 2 << 30, 1_000_000_000));
    assert_eq!(
        (models.timeout, models.max_message, models.max_in_progress),
        (Duration::from_millis(50), 4 << 20, 8 << 20)
    );
    assert_eq!((models.limit, models.max_connections, models.control), (100, 200, true));
    assert_eq!((models.header_timeout, models.idle_timeout), (Duration::from_secs(4), Duration::from_secs(60)));
    assert_eq!((models.slow_reader_timeout, models.min_read_rate), (Duration::from_secs(6), 100));
    assert_eq!((models.keepalive, models.keepalive_timeout), (Duration::from_secs(3), Duration::from_secs(1)));
    assert_eq!(models.max_connection_age, Some(Duration::from_secs(600)));
    assert_eq!(models.max_connection_age_grace, Duration::from_secs(5));
    let spam = ModelSettings {
        versions: Some(Versions::These(vec![3, 5])),
        limit: 1,
        priority: Priority::Low,
        max_batch: Some(8),
        max_delay: Some(Duration::from_millis(1)),
        sessions: Some(2),
        new_signature: true,
    };
    assert_eq!((models.settings_of("spam"), models.settings_of("other")), (spam, ModelSettings::default()));

    let flow = FlowLimits {
        max_calls: 10,
        max_steps: 1000,
        max_memory: 1 << 20,
        max_value: 64 << 10,
        max_depth: 8,
        max_fibers: 9,
        max_response: 4096,
        max_json_depth: 16,
        max_log_rate: 7,
    };
    assert_eq!(config.flow, flow);

    assert_eq!(config.upstreams.keys().collect::<Vec<_>>(), ["search", "catalog"], "in the file's order");
    let search = &config.upstreams["search"];
    assert_eq!(search.name, "search");
    assert_eq!(
        search.urls.iter().map(|url| url.as_str()).collect::<Vec<_>>(),
        ["https://a.internal:8080/base", "https://b.internal/"]
    );
    assert_eq!((search.timeout, search.connect_timeout), (Duration::from_millis(100), Duration::from_millis(50)));
    assert_eq!((search.limit, search.max_waiting), (Limit::Fixed(64), 33));
    assert_eq!((search.http, search.max_connections, search.max_connecting), (HttpVersion::Http2, 2, 1));
    assert_eq!((search.idle_timeout, search.max_answer), (Duration::from_secs(5), 1_000_000));
    assert_eq!(search.headers["authorization"], "Basic abc");
    assert_eq!(search.headers["x-from-env"], "s3cret-from-env");
    assert!(search.headers["authorization"].is_sensitive() && search.headers["x-from-env"].is_sensitive());
    assert!(!search.headers["accept"].is_sensitive());
    assert_eq!(search.forward_headers, ["authorization"]);
    assert_eq!((&search.timeout_header, search.query_lists), (&None, QueryLists::Comma));
    assert_eq!(search.escaped_slashes, EscapedSlashes::Encode);
    let tls = search.tls.as_ref().expect("set");
    assert_eq!(tls.ca, Some(dir.path().join("ca.pem")));
    assert_eq!(tls.cert, Some(dir.path().join("cert.pem")));
    assert_eq!(tls.key, Some(dir.path().join("key.pem")));
    assert_eq!(tls.server_name.as_deref(), Some("search"));
    assert_eq!(tls.min_version, TlsVersion::V1_3);
    assert_eq!(search.retry, Some(Retry { max: 2, budget: 0.1, floor: 1.0, backoff: Duration::from_millis(10) }));
    assert_eq!((search.keepalive, search.keepalive_timeout), (Duration::from_secs(20), Duration::from_secs(2)));
    assert!(!search.keepalive_idle);
    assert_eq!(search.hedge, Some(Hedge::Percentile(0.95)));
    let breaker = Breaker {
        share: 0.4,
        calls: 30,
        window: Duration::from_secs(5),
        pause: Duration::from_secs(2),
        longest_pause: Duration::from_secs(8),
        probes: 4,
    };
    assert_eq!((&search.breaker, search.ejection), (&Some(breaker), false));
    assert_eq!(search.attempt_timeout, Some(Duration::from_millis(60)));
    assert_eq!(search.chunk_timeout, Some(Duration::from_millis(70)));
    let ids = &search.operations["ids"];
    assert_eq!((&ids.method, ids.path.as_str(), ids.safe), (&Method::POST, "/ids/{text}", Some(true)));
    assert_eq!(ids.ok, [StatusCode::NOT_FOUND, StatusCode::CONFLICT]);
    assert_eq!(ids.timeout, Some(Duration::from_millis(40)));
    let params: Vec<_> = ids.params.as_ref().expect("set").iter().collect();
    assert_eq!(params.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["text", "page", "ids", "fields"]);
    assert_eq!(*params[0].1, Param::new(ParamType::String));
    let page = Param {
        default: Some(1.into()),
        location: ParamLocation::Json,
        name: Some("p".into()),
        ..Param::new(ParamType::Int)
    };
    assert_eq!(*params[1].1, page);
    assert_eq!((params[1].1.wire_name("page"), params[0].1.wire_name("text")), ("p", "text"));
    assert_eq!(params[2].1.kind, ParamKind { base: ParamType::List, optional: true });
    let batch = Batch {
        fields: Some("fields".into()),
        match_field: Some("id".into()),
        items: Some("rows".into()),
        max_keys: 20,
        linger: Duration::ZERO,
        ..Batch::new("ids")
    };
    assert_eq!(ids.batch, Some(batch));
    let cache = Cache {
        ttl: Duration::from_secs(60),
        stale: Duration::from_secs(10),
        stale_if_error: Duration::from_secs(3600),
        negative: Duration::from_secs(5),
        max_size: 1 << 20,
        cache_control: true,
    };
    assert_eq!(ids.cache, Some(cache));
    assert_eq!(ids.single_flight, Some(true));
    let snapshot = Snapshot {
        every: Duration::from_secs(60),
        key: Some("id".into()),
        items: Some("rows".into()),
        dump: Some(dir.path().join("search.dump")),
        allow_empty: true,
        ..Snapshot::new("/all?x=1")
    };
    assert_eq!(search.snapshot, Some(snapshot));

    let url = "http://catalog.internal:8080".parse().expect("a URL");
    assert_eq!(config.upstreams["catalog"], Upstream::new("catalog", url));

    let [page, home, orders] = &config.routes[..] else { panic!("three routes") };
    assert_eq!((&page.methods[..], page.path.as_str()), (&[Method::POST][..], "/pages/{id}/{*rest}"));
    assert_eq!(
        {
            let flow = page.flow.as_ref().expect("a flow");
            (flow.file.as_path(), flow.function.as_str())
        },
        (Path::new("flows/page.star"), "page")
    );
    assert_eq!(page.timeout, Duration::from_millis(400));
    assert_eq!((page.limit, page.max_waiting, page.max_body), (7, 8, 9_000));
    assert_eq!(page.priority, Priority::Low);
    assert_eq!((page.on_disconnect, page.errors), (OnDisconnect::Finish, true));
    assert_eq!(page.limits, FlowLimits { max_calls: 11, ..flow.clone() });
    assert_eq!(
        (&home.methods[..], home.timeout, home.on_disconnect),
        (&[Method::GET][..], Duration::from_secs(10), OnDisconnect::Effect)
    );
    assert_eq!((home.limit, home.max_waiting, home.max_body), (500, 0, 2_000_000), "the server's");
    assert_eq!(home.limits, flow, "what [flow] says");
    let flow = home.flow.as_ref().expect("a flow");
    assert_eq!(&FULL[flow.at.start..flow.at.end], "\"flows/page.star:home\"");

    let access = &orders.access;
    assert_eq!(
        (&access.auth[..], &access.rate_limit[..]),
        (&["shop", "partners"].map(String::from)[..], &["tenant".into()][..])
    );
    assert_eq!((access.rate_cost, access.require["level"].len(), access.allow.len(), access.deny.len()), (3, 2, 1, 1));
    assert_eq!(access.before.as_ref().map(ToString::to_string).as_deref(), Some("flows/page.star:guard"));
    let shop = &config.auth["shop"];
    assert_eq!((shop.upstream.as_deref(), shop.jwks_path.as_str(), shop.keys.len()), (Some("catalog"), "/keys", 1));
    assert_eq!((shop.leeway, shop.max_cached), (Duration::from_secs(5), 0));
    let tenant = &config.rate_limits["tenant"];
    assert_eq!((tenant.requests, tenant.per, tenant.burst, tenant.headers), (5, Duration::from_secs(1), 9, false));
    assert_eq!(tenant.key.to_string(), "claim:org.id");
}

#[test]
fn a_route_chooses_what_runs_its_flow() {
    let dir = folder();
    let read = |text: &str| {
        let file = format!("[[routes]]\npath = '/'\nflow = 'flows/page.star:page'\n{text}");
        parse(&file, dir.path()).unwrap_or_else(|error| panic!("{error}"))
    };
    assert_eq!(read("").routes[0].executor, Executor::Coroutines);
    assert_eq!(read("executor = 'coroutines'").routes[0].executor, Executor::Coroutines);
    let both = read("executor = { threads = 8, waiting = 2 }");
    assert_eq!(both.routes[0].executor, Executor::Threads(Threads { threads: 8, waiting: 2 }));
    assert_eq!(both.warnings, []);
    assert_eq!(
        read("executor = { threads = 8 }").routes[0].executor,
        Executor::Threads(Threads { threads: 8, waiting: 200 })
    );
    let few = read("limit = 100\nexecutor = { threads = 90, waiting = 20 }");
    assert!(few.warnings[0].to_string().contains("admission lets only 100 requests in"), "{:?}", few.warnings);
}

#[test]
fn policies_can_be_switched_off_or_changed_in_part() {
    let dir = folder();
    let read = |text: &str| {
        let config = parse(&format!("[upstreams.a]\nurl = 'http://a'\n{text}"), dir.path());
        config.unwrap_or_else(|error| panic!("{error}")).upstreams["a"].clone()
    };
    assert_eq!(read("limit = 'adaptive'").limit, Limit::Adaptive { min: 8, max: 1024 });
    assert_eq!(read("limit = { min = 2000 }").limit, Limit::Adaptive { min: 2000, max: 2000 });
    assert_eq!(read("limit = { min = 2, max = 9 }").limit, Limit::Adaptive { min: 2, max: 9 });
    let off = read("retry = 'off'\nbreaker = 'off'\nhedge = 'off'");
    assert_eq!((off.retry, off.breaker, off.hedge), (None, None, None));
    assert_eq!(read("retry = { max = 3 }").retry, Some(Retry { max: 3, ..Retry::default() }));
    assert_eq!(read("breaker.calls = 5").breaker, Some(Breaker { calls: 5, ..Breaker::default() }));
    let longer = read("breaker.pause = '9s'").breaker.expect("on");
    assert_eq!(longer.longest_pause, Duration::from_secs(9), "never shorter than the first");
    assert_eq!(read("hedge = '30ms'").hedge, Some(Hedge::Time(Duration::from_millis(30))));
    assert_eq!((read("").hedge, read("hedge = 'half'").hedge), (Some(Hedge::Half), Some(Hedge::Half)));
    assert_eq!(read("hedge = 'p50'").hedge, Some(Hedge::Percentile(0.5)));
    assert_eq!(serde_json::to_value(read("hedge = 'p99.9'")).expect("JSON")["hedge"], "p99.9");
}

#[test]
fn connections_follow_the_protocol() {
    let dir = folder();
    let config = parse("[upstreams.a]\nurl = 'http://a'\nhttp = '2'", dir.path()).expect("valid");
    let upstream = &config.upstreams["a"];
    assert_eq!((upstream.max_connections, upstream.max_connecting), (4, 4), "never more in the making than allowed");
}

#[test]
fn connecting_may_not_outlast_a_short_timeout() {
    let dir = folder();
    let config = parse("[upstreams.a]\nurl = 'http://a'\ntimeout = '100ms'", dir.path()).expect("valid");
    assert_eq!(config.upstreams["a"].connect_timeout, Duration::from_millis(100));
}

#[test]
fn a_folder_or_the_file_itself_is_loaded() {
    let dir = folder();
    let file = dir.path().join(FILE_NAME);
    std::fs::write(&file, "[server]\nworkers = 2\n").expect("written");
    for path in [dir.path(), &file] {
        let config = Config::load(path).expect("valid");
        assert_eq!(config.server, Server { workers: 2, ..Server::default() });
        assert_eq!(config.dir, dir.path());
    }
}

#[test]
fn what_cannot_be_read_is_one_error() {
    let dir = folder();
    let error = Config::load(&dir.path().join("none")).expect_err("no file");
    assert!(error.to_string().contains("none: cannot be read"), "{error}");
    std::fs::write(dir.path().join(FILE_NAME), b"a = 1\n\xff").expect("written");
    let error = Config::load(dir.path()).expect_err("not text");
    assert!(error.to_string().contains("line 2 is not UTF-8"), "{error}");
    std::fs::write(dir.path().join(FILE_NAME), vec![b'#'; (4 << 20) + 1]).expect("written");
    let error = Config::load(dir.path()).expect_err("too large");
    assert!(error.to_string().contains("larger than"), "{error}");
}

#[test]
fn secrets_are_masked() {
    let dir = folder();
    let mut config = parse(FULL, dir.path()).expect("valid");
    let with_user = "http://user:hunter2@catalog.internal/".parse().expect("a URL");
    config.upstreams["catalog"].urls = vec![with_user];
    let masked = config.masked();
    let text = masked.to_string();
    for secret in ["abc", "s3cret-from-env", "hunter2", "user:"] {
        assert!(!text.contains(secret), "{secret} in {text}");
    }
    assert_eq!(masked["upstreams"]["search"]["headers"]["authorization"], MASK);
    assert_eq!(masked["upstreams"]["search"]["headers"]["x-from-env"], MASK);
    assert_eq!(masked["upstreams"]["search"]["headers"]["accept"], "application/json");
    assert_eq!(masked["upstreams"]["catalog"]["urls"][0], "http://***@catalog.internal/");
    assert_eq!(masked["upstreams"]["search"]["hedge"], "p95");
    assert_eq!(masked["server"]["idle_timeout"], "90s");
    assert_eq!(masked["routes"][0]["max_calls"], 11);
    assert_eq!(masked["routes"][0]["flow"], "flows/page.star:page");
}

#[test]
fn a_route_may_have_several_methods() {
    let dir = folder();
    let text = "[[routes]]\nmethod = ['GET', 'POST']\npath = '/a'\nflow = 'flows/page.star:page'\n";
    let config = parse(text, dir.path()).expect("valid");
    let route = &config.routes[0];
    assert_eq!((&route.methods[..], route.label()), (&[Method::GET, Method::POST][..], "GET,POST /a".to_owned()));
    assert_eq!(config.masked()["routes"][0]["method"], serde_json::json!(["GET", "POST"]));
}

#[test]
fn one_request_to_models_always_has_room() {
    let dir = folder();
    let config = parse("[models]\nrepository = 'm'\nmax_message = '1GiB'\n", dir.path()).expect("valid");
    assert_eq!(config.models.expect("set").max_in_progress, 1 << 30);
}

#[test]
fn an_operation_has_policies_of_its_own_or_its_upstreams() {
    let dir = folder();
    let text = "[upstreams.a]\nurl = 'http://a'\nretry = 'off'\n\
        [upstreams.a.operations.own]\npath = '/'\nmethod = 'POST'\nsafe = true\ntimeout = '300ms'\nlimit = 3\n\
        max_waiting = 4\nretry = { max = 2 }\nhedge = 'p99'\nattempt_timeout = '100ms'\nchunk_timeout = '50ms'\n\
        max_answer = '2MB'\n\
        [upstreams.a.operations.off]\npath = '/'\nhedge = 'off'\nretry = 'off'\n\
        [upstreams.a.operations.none]\npath = '/'\n";
    let config = parse(text, dir.path()).expect("right");
    let operations = &config.upstreams["a"].operations;
    let own = &operations["own"];
    assert_eq!((own.limit, own.max_waiting, own.max_answer), (Some(3), Some(4), Some(2_000_000)));
    assert_eq!(own.retry, Some(Some(Retry { max: 2, ..Default::default() })));
    assert_eq!(own.hedge, Some(Some(Hedge::Percentile(0.99))));
    assert_eq!(own.attempt_timeout, Some(Duration::from_millis(100)));
    assert_eq!(own.chunk_timeout, Some(Duration::from_millis(50)));
    assert_eq!((&operations["off"].hedge, &operations["off"].retry), (&Some(None), &Some(None)));
    assert_eq!((&operations["none"].hedge, &operations["none"].retry), (&None, &None));
    let masked = config.masked();
    let shown = &masked["upstreams"]["a"]["operations"];
    assert_eq!((&shown["own"]["hedge"], &shown["off"]["retry"]), (&"p99".into(), &"off".into()));
    assert!(shown["none"].get("hedge").is_none());
}

#[test]
fn upstreams_of_all_kinds() {
    let dir = folder();
    std::fs::create_dir(dir.path().join("docs")).expect("a folder");
    std::fs::write(dir.path().join("a.proto"), "").expect("a file");
    let text = r#"
[upstreams.db]
postgres = ["postgres://app:secret@one/shop?sslmode=require", "postgres://app@two:5433/shop"]
limit = 4
password = "hidden"
[upstreams.db.statements.order]
sql = "select * from orders where id = $1"
params = ["id"]
rows = "one"
[upstreams.other]
postgres = "postgres://app@one/shop"
[upstreams.texts]
files = "docs"
[upstreams.spam]
model = "docs"
[models]
repository = "."
[upstreams.users]
grpc = "http://users:50051"
proto = "a.proto"
safe_methods = ["Get"]
[upstreams.more]
grpc = ["https://one", "https://two"]
descriptors = "a.proto"
tls = { server_name = "more" }
int64 = "number"
field_names = "proto"
compression = "gzip"
max_messages = 7
max_stream = "1MiB"
stream_idle_timeout = "5m"
keepalive_idle = false
headers = { authorization = "Bearer x" }
"#;
    let config = parse(text, dir.path()).expect("valid");
    let db = &config.upstreams["db"];
    assert_eq!((db.kind(), db.endpoints().len(), db.max_connections), (UpstreamKind::Postgres, 2, 4));
    assert_eq!(db.statements["order"].rows, Rows::One);
    assert_eq!(config.upstreams["other"].limit, Limit::Fixed(8));
    assert_eq!(config.upstreams["texts"].files, Some(dir.path().join("docs")));
    let spam = &config.upstreams["spam"];
    assert_eq!((spam.kind(), spam.model.as_deref(), &spam.retry), (UpstreamKind::Model, Some("docs"), &None));
    let users = &config.upstreams["users"];
    assert_eq!((users.kind(), users.http, users.max_connections), (UpstreamKind::Grpc, HttpVersion::Http2, 4));
    assert_eq!((&users.hedge, &users.timeout_header, users.keepalive_idle), (&Some(Hedge::Half), &None, true));
    assert_eq!((users.proto.as_slice(), users.max_messages), (&[dir.path().join("a.proto")][..], 10_000));
    assert_eq!((users.int64, users.field_names, users.safe_methods.len()), (Int64::String, FieldNames::Json, 1));
    let more = &config.upstreams["more"];
    assert_eq!((more.endpoints().len(), more.max_messages, more.keepalive_idle), (2, 7, false));
    assert_eq!((more.int64, more.field_names), (Int64::Number, FieldNames::Proto));
    assert_eq!((more.compression, more.max_stream), (GrpcCompression::Gzip, 1 << 20));
    assert_eq!((users.compression, users.max_stream), (GrpcCompression::Off, 16 << 30));
    assert_eq!(more.descriptors, Some(dir.path().join("a.proto")));
    let masked = config.masked().to_string();
    assert!(!masked.contains("secret") && !masked.contains("hidden") && !masked.contains("Bearer"), "{masked}");
    let users = &config.masked()["upstreams"]["users"];
    assert!(users.get("http").is_none() && users.get("timeout_header").is_none(), "{users}");
    let db = &config.masked()["upstreams"]["db"];
    assert_eq!(db["password"], MASK);
    assert_eq!(db["postgres"][0], "postgres://***@one/shop?sslmode=require");
    assert!(db.get("http").is_none() && db.get("headers").is_none(), "{db}");
}

#[test]
fn rules_of_cors_are_of_all_routes_or_of_one() {
    let dir = folder();
    let route = |text: &str| format!("[[routes]]\npath = '/{}'\nflow = 'flows/page.star:page'\n{text}\n", text.len());
    let all = "[cors]\norigins = ['https://Shop.example:443', 'https://*.partner.example']\ncredentials = true\n";
    let own =
        "cors = { origins = ['*'], methods = ['GET', 'HEAD'], headers = ['*'], expose = ['x-a'], max_age = '1h' }";
    let text = [all.to_owned(), route(""), route("cors = 'off'"), route(own)].concat();
    let config = parse(&text, dir.path()).unwrap();
    let [of_all, off, own] = [0, 1, 2].map(|at| config.routes[at].cors.clone());
    assert_eq!((of_all.as_ref(), off), (config.cors.as_ref(), None));
    let origins = of_all.unwrap().origins.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(origins, ["https://shop.example", "https://*.partner.example"]);
    let own = own.unwrap();
    assert_eq!((own.origins, own.methods.map(|methods| methods.len())), (vec![OriginPattern::Any], Some(2)));
    assert_eq!((own.headers[0].as_str(), own.max_age.as_secs(), own.credentials), ("*", 3600, false));
    let masked = config.masked();
    assert_eq!((&masked["routes"][1]["cors"], &masked["cors"]["max_age"]), (&"off".into(), &"10m".into()));
}

#[test]
fn rules_of_compression_are_of_all_routes_or_of_one() {
    let dir = folder();
    let route = |text: &str| format!("[[routes]]\npath = '/{}'\nflow = 'flows/page.star:page'\n{text}\n", text.len());
    let own =
        "compression = { gzip = 'off', types = ['text/*'], min_size = 0 }\netag = true\ncache_control = 'no-store'";
    let text = ["[compression]\nzstd = 1\n".to_owned(), route(""), route("compression = 'off'"), route(own)].concat();
    let config = parse(&text, dir.path()).unwrap();
    let [of_all, off, own] = [0, 1, 2].map(|at| config.routes[at].compression.clone());
    assert_eq!((of_all.as_ref(), off), (config.compression.as_ref(), None));
    let of_all = of_all.unwrap();
    assert_eq!((of_all.zstd, of_all.brotli, of_all.gzip, of_all.min_size), (Some(1), Some(5), Some(6), 1024));
    let own = own.unwrap();
    assert_eq!((own.zstd, own.gzip, own.min_size, own.types.len()), (Some(3), None, 0, 1));
    let last = &config.routes[2];
    assert_eq!((last.etag, last.cache_control.as_ref().map(|value| value.as_bytes())), (true, Some(&b"no-store"[..])));
    let masked = config.masked();
    let of_route = &masked["routes"][2]["compression"];
    assert_eq!((&of_route["gzip"], &of_route["types"][0]), (&"off".into(), &"text/*".into()));
    assert_eq!(masked["routes"][1]["compression"], "off");
}
