//! The policies of the server hold in tests, in virtual time.

use crate::folder::{BOTH, Folder};

const PLAIN: &str = "def page(req):
    return a.get('/x')
";

#[test]
fn timeouts_retries_and_hedges() {
    Folder::new(
        "",
        BOTH,
        "def test_timeout():
    stub(a.get, answer = 1, delay = '10ms')
    stub(b.get, fail = 'timeout')
    page = get('/page/1')
    assert_equal((page.status, page.partial, page.elapsed), (200, ['b'], 100))
    assert_equal([call.outcome for call in page.calls], ['200', 'timeout'])

def test_each_kind(kind = each('refused', 'connect', 'protocol', 'decode', 'too_large')):
    stub(a.get, fail = kind)
    stub(b.get, answer = 2)
    page = get('/page/1')
    assert_equal(page.status, 502)
    assert_equal(page.error.upstream, 'a')
",
    )
    .passes();
    let toml = crate::folder::TOML.replace(
        "url = \"https://a.internal\"\n",
        "urls = [\"https://a1.internal\", \"https://a2.internal\"]\nretry = { max = 2 }\nhedge = \"30ms\"\n",
    );
    Folder::with_toml(
        &toml,
        PLAIN,
        "def test_retry():
    stub(a.get, answers = [reply(status = 503), 1])
    page = get('/page/1')
    assert_equal((page.status, page.calls[0].attempts, len(requests(a))), (200, 2, 2))

def test_hedge():
    stub(a.get, answers = [reply(answer = 'late', delay = '90ms'), reply(answer = 'soon', delay = '10ms')])
    page = get('/page/1')
    assert_equal((page.json, page.elapsed), ('soon', 40))
",
    )
    .passes();
}

#[test]
fn caches_single_flight_and_breaker() {
    Folder::new(
        "
[upstreams.a.operations.cached]
path = '/cached'
cache = { ttl = '1m' }
",
        "def page(req):
    return a.cached()
",
        "def test_cache():
    stub(a.cached, answers = [1, 2])
    assert_equal([get('/page/1').json, get('/page/1').json], [1, 1])
    assert_equal(get('/page/1').calls[0].shared, 'cache')
    advance('2m')
    assert_equal(get('/page/1').json, 2)

def test_single_flight():
    stub(a.cached, answer = 1, delay = '20ms', times = 1)
    pages = together([request('GET', '/page/%d' % n, after = '%dms' % (n * 5)) for n in range(3)])
    assert_equal([page.elapsed for page in pages], [20, 15, 10])
",
    )
    .passes();
    let toml = crate::folder::TOML.replace(
        "timeout = \"100ms\"\n\n[upstreams.b]",
        "timeout = \"100ms\"\nbreaker = { calls = 10, pause = \"5s\" }\n\n[upstreams.b]",
    );
    Folder::with_toml(
        &toml,
        PLAIN,
        "def test_breaker():
    stub(a.get, fail = 'refused')
    for _ in range(50):
        get('/page/1')
    assert_equal(get('/page/1').error.kind, 'upstream-breaker')
    stub(a.get, answer = 1)
    advance('10s')
    assert_equal(get('/page/1').status, 200)
",
    )
    .passes();
}

#[test]
fn a_test_sees_nothing_of_another() {
    let toml = crate::folder::TOML.replace(
        "url = \"http://b.internal:8080\"\ntimeout = \"100ms\"\n",
        "url = \"http://b.internal:8080\"\ntimeout = \"100ms\"\nbreaker = { calls = 10, pause = \"5s\" }\n",
    );
    let toml = format!(
        "{toml}
[upstreams.a.snapshot]
path = '/all'
every = '5m'
[upstreams.b.operations.cached]
path = '/cached'
cache = {{ ttl = '1m' }}
[push]
max_channels = 1
"
    );
    let folder = Folder::with_toml(
        &toml,
        "load('@push', 'push')
def page(req):
    if req.params['id'] == 'broken':
        return b.get('/broken')
    push.publish('news' + req.params['id'], 1)
    return [a.lookup('x'), b.cached()]
",
        "def test_alone(number = each(1, 2, 3)):
    stub(a, answer = {'x': number})
    stub(b.cached, answer = number, times = 1)
    stub(b.get, fail = 'refused')
    assert_equal([get('/page/%d' % number).json for _ in range(2)], [[number, number], [number, number]])
    assert_equal(get('/page/%d' % (number + 1)).error.kind, 'push-limit')
    for _ in range(50):
        get('/page/broken')
    assert_equal(get('/page/broken').error.kind, 'upstream-breaker')
",
    );
    // One after another on one thread, and side by side.
    for threads in [1, 3] {
        let run = folder.run_with(&fanin_test::RunOptions { threads, ..Default::default() });
        assert_eq!((run.outcomes.len(), run.failed()), (3, 0), "{}", fanin_test::report::text(&run, true));
    }
}

#[test]
fn effects_run_in_order_and_only_after_guards() {
    Folder::new(
        "",
        "def page(req):
    a.get('/guard')
    a.post('/first')
    b.post('/second')
    return 'done'
",
        "def paths():
    return [one.path for one in requests() if one.effect]

def test_order():
    stub(a, answer = {}, delay = '10ms')
    stub(b, answer = {})
    assert_equal(get('/page/1').status, 200)
    assert_equal(paths(), ['/first', '/second'])
    assert_equal([one.at for one in requests()], [0, 10, 20])

def test_guard():
    stub(a.get, status = 403)
    stub(a.post, answer = {})
    stub(b, answer = {})
    assert_equal(get('/page/1').status, 502)
    assert_equal(paths(), [])
",
    )
    .passes();
}

#[test]
fn random_delays_follow_from_the_seed() {
    let folder = Folder::new(
        "",
        PLAIN,
        "def test_random():
    stub(a.get, answer = 1, delay = 'p50 20ms, p99 90ms')
    print([get('/page/1').elapsed for _ in range(20)])
",
    );
    let output = |seed| {
        let options = fanin_test::RunOptions { seed, ..Default::default() };
        folder.run_with(&options).outcomes[0].output.clone()
    };
    let first = output(1);
    assert!(first.contains("page_test.star:5: ["), "{first}");
    assert_eq!(first, output(1));
    assert_ne!(first, output(2));
}
