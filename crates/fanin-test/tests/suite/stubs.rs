//! What stubs answer, and which requests they are for.

use crate::folder::{BOTH, Folder};

#[test]
fn answers_have_parameters_query_body_and_headers() {
    Folder::new(
        "",
        "def page(req):
    if req.method == 'POST':
        done = a.post('/orders', json = req.body, headers = {'x-by': 'me'}, query = {'n': [1, 2]})
        return response(status = 201, body = done, headers = {'location': '/orders/' + done['id']})
    return a.get('/files/{name}', params = {'name': req.params['id']})
",
        "def test_function_of_the_call():
    stub(a.post, '/orders', answer = lambda call: {
        'id': '7', 'got': call.json, 'by': call.headers['x-by'], 'n': call.query_all['n'], 'number': call.number})
    made = post('/page/x', json = {'item': 'ü'})
    assert_equal(made.status, 201)
    assert_equal(made.headers['location'], '/orders/7')
    assert_equal(made.json, {'id': '7', 'got': {'item': 'ü'}, 'by': 'me', 'n': ['1', '2'], 'number': 0})
    assert_true(requests(a.post)[0].effect)

def test_parameters_of_the_path():
    stub(a.get, '/files/{name}', answer = lambda call: call.params['name'], headers = {'x-a': '1'})
    assert_equal(get('/page/a b').json, 'a b')

def test_text_keeps_its_type():
    stub(a.get, text = 'plain', headers = {'content-type': 'text/css'})
    assert_equal(get('/page/1').text, 'plain')
    assert_equal(get('/page/1').headers['content-type'], 'text/css')

def test_digits_stay():
    stub(a.get, answer = 1.50)
    assert_equal(get('/page/1').status, 200)
",
    )
    .passes();
}

#[test]
fn the_newest_stub_that_fits_answers() {
    Folder::new(
        "",
        BOTH,
        "def setup():
    stub(a, answer = 'any')
    stub(b.get, '/two', answer = 'two')

def test_newest():
    assert_equal(get('/page/1').json, {'one': 'any', 'two': 'two'})
    stub(a.get, '/one/{id}', answer = 'one')
    stub(a.get, '/one/9', answer = 'nine')
    assert_equal([get('/page/1').json['one'], get('/page/9').json['one']], ['one', 'nine'])

def test_query_decides():
    stub(a.get, '/one/1', query = {'no': 'such'}, answer = 'wrong')
    assert_equal(get('/page/1').json['one'], 'any')

def test_sequence_and_its_last_answer():
    stub(a.get, answers = [1, reply(status = 404), reply(answer = 3, delay = '5ms')])
    got = [get('/page/1') for _ in range(4)]
    assert_equal([one.status for one in got], [200, 502, 200, 200])
    assert_equal([one.elapsed for one in got], [0, 0, 5, 5])
",
    )
    .passes();
}

#[test]
fn batched_operations_are_answered_by_item() {
    let more = "
[upstreams.a.operations.things]
path = '/things'
params = { ids = 'list' }
batch = { key = 'ids', match = 'id' }

[upstreams.b.operations.named]
path = '/named'
method = 'POST'
safe = true
params = { keys = { type = 'list', in = 'json' } }
batch = { key = 'keys', items = 'found' }
";
    Folder::new(
        more,
        "def page(req):
    ids = ['1', '2', '9']
    return {'things': [a.things(id) for id in ids], 'named': [b.named(id) for id in ids]}
",
        "def test_items():
    stub(a.things, items = {1: {'id': '1'}, '2': {'id': '2'}})
    stub(b.named, items = {'1': 'one', '9': 'nine'})
    page = get('/page/1')
    assert_equal(page.json, {'things': [{'id': '1'}, {'id': '2'}, None], 'named': ['one', None, 'nine']})
    assert_equal([call.batch for call in page.calls], [1, 1, 1, 2, 2, 2])
    assert_equal(len(requests()), 2)
",
    )
    .passes();
}

#[test]
fn snapshots_of_upstreams_are_fetched_first() {
    Folder::new(
        "
[upstreams.a.snapshot]
path = '/all'
every = '5m'
",
        "def page(req):
    return a.lookup(req.params['id'])
",
        "def test_refreshed():
    stub(a, answers = [reply(answer = {'x': 1}, delay = '30ms'), {'x': 2}])
    assert_equal(get('/page/x').json, 1)
    assert_equal(get('/page/x').elapsed, 0)
    advance('6m')
    assert_equal(get('/page/x').json, 2)
",
    )
    .passes();
}

#[test]
fn streams_and_uploads_pass() {
    Folder::with_toml(
        "
[upstreams.a]
url = 'http://a'
[upstreams.b]
url = 'http://b'
[[routes]]
path = '/down'
flow = 'page.star:down'
[[routes]]
method = 'PUT'
path = '/up'
flow = 'page.star:up'
stream_body = true
",
        "def down(req):
    return stream(a.get('/large'))

def up(req):
    return b.put('/x', body = req.stream)
",
        "def test_down():
    stub(a.get, text = 'x' * 100000)
    page = get('/down')
    assert_equal((len(page.text), page.complete), (100000, True))

def test_up():
    stub(b.put, answer = lambda call: len(call.text))
    assert_equal(together([request('PUT', '/up', text = 'y' * 70000)])[0].json, 70000)
",
    )
    .passes();
}

#[test]
fn large_bodies_take_no_virtual_time() {
    Folder::new(
        "",
        "def page(req):
    return {'n': len(req.body['xs']), 'm': len(a.get('/big')['xs'])}
",
        "def test_large():
    stub(a.get, answer = {'xs': ['x' * 100 for _ in range(20000)]}, delay = '10ms')
    page = post('/page/1', json = {'xs': ['y' * 100 for _ in range(2000)]})
    assert_equal((page.json, page.elapsed), ({'n': 2000, 'm': 20000}, 10))
",
    )
    .passes();
}

#[test]
fn grpc_methods_answer_messages_and_codes() {
    let folder = Folder::with_toml(
        "
[upstreams.a]
grpc = 'https://a'
proto = 'users.proto'
[upstreams.b]
url = 'http://b'
[[routes]]
path = '/user'
flow = 'page.star:page'
",
        "def page(req):
    return {'user': a.Get({'id': '7'}, optional = True), 'all': a.List({'id': '8'})}
",
        "def test_messages():
    stub(a.Get, answer = {'name': 'Ada', 'n': 7})
    stub(a.List, answer = [{'name': 'Bob'}])
    assert_equal(get('/user').json, {'user': {'name': 'Ada', 'n': 7}, 'all': [{'name': 'Bob'}]})
    assert_equal([one.json for one in requests()], [{'id': '7'}, {'id': '8'}])

def test_codes():
    stub(a.call, 'users.Users/List', answer = [])
    stub(a.call, 'users.Users/Get', status = 'UNAVAILABLE')
    assert_equal(get('/user').partial, ['a'])
",
    );
    std::fs::write(
        folder.path("users.proto"),
        "syntax = \"proto3\";
package users;
service Users { rpc Get(Id) returns (User); rpc List(Id) returns (stream User); }
message Id { string id = 1; }
message User { string name = 1; int32 n = 2; }
",
    )
    .unwrap();
    folder.passes();
}

#[test]
fn flows_see_who_sends_a_request_and_the_flow_before_them_runs() {
    Folder::with_toml(
        "
[upstreams.a]
url = 'http://a'
[upstreams.b]
url = 'http://b'
[[routes]]
path = '/mine'
flow = 'page.star:page'
before = 'page.star:guard'
",
        "def guard(req):
    if not req.principal:
        abort(401, 'sign in')
    return {'admin': a.get('/admins/' + req.principal, optional = True)}

def page(req):
    return [req.principal, req.claims['scope'], req.auth['admin']]
",
        "def setup():
    stub(a.get, '/admins/ada', answer = True, delay = '5ms')

def test_known():
    page = get('/mine', principal = 'ada', claims = {'scope': 'all'})
    assert_equal((page.json, page.elapsed), (['ada', 'all', True], 5))

def test_unknown():
    assert_equal(get('/mine').status, 401)
",
    )
    .passes();
}
