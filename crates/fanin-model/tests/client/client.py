"""What clients of the Open Inference Protocol do with Fanin. client.py THEME ADDRESS ..."""
import json
import sys
import threading
import time
import urllib.error
import urllib.request

import grpc
import numpy as np
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http
from tritonclient.grpc import service_pb2 as pb, service_pb2_grpc

theme, address = sys.argv[1:3]
ROW = np.array([[0.5, -1.25, 0.0, 2.0]])


def sample(name):
    with open(f"{sys.argv[3]}/{name}.sample.json") as file:
        sample = json.load(file)
    data = [np.nan if value is None else value for value in sample["inputs"][0]["data"]]
    rows = np.array(data).reshape(sample["inputs"][0]["shape"])
    return rows, {output["name"]: np.array(output["data"]).reshape(output["shape"]) for output in sample["outputs"]}


def refused(call, *told):
    try:
        call()
    except Exception as error:
        for text in told:
            assert text in str(error), f"{text!r} is not in {error}"
        return
    raise AssertionError(f"{told} was expected")


def same(api, client):
    """What both transports have in common."""
    assert client.is_server_live() and client.is_server_ready()
    assert client.is_model_ready("spam") and client.is_model_ready("spam", "1")
    assert not client.is_model_ready("spam", "2") and not client.is_model_ready("none")
    for name, kind, version in [("one", "FP64", "1"), ("three", "FP32", "3")]:
        model = {"one": "spam"}.get(name, name)
        rows, expected = sample(name)
        input = api.InferInput("input", list(rows.shape), kind)
        input.set_data_from_numpy(rows.astype(np.float64 if kind == "FP64" else np.float32))
        for asked in ({}, {"model_version": version}, {"request_id": "abc"}):
            result = client.infer(model, [input], **asked)
            for output, value in expected.items():
                assert np.array_equal(result.as_numpy(output), value.astype(result.as_numpy(output).dtype)), output
        result = client.infer(model, [input], outputs=[api.InferRequestedOutput("raw")])
        assert np.array_equal(result.as_numpy("raw"), expected["raw"].astype(result.as_numpy("raw").dtype))
        assert result.as_numpy("output") is None
    refused(lambda: client.infer("none", [input]), "there is no model `none`")
    client.unload_model("spam")
    assert not client.is_model_ready("spam") and not client.is_server_ready()
    client.load_model("spam")
    assert client.is_model_ready("spam")
    refused(lambda: client.load_model("none"), "there is no model `none` in the repository")


def over_grpc():
    client = triton_grpc.InferenceServerClient(address)
    metadata = client.get_server_metadata()
    assert metadata.name == "fanin" and "statistics" in metadata.extensions
    metadata = client.get_model_metadata("spam")
    assert metadata.platform == "lightgbm_text" and list(metadata.versions) == ["1"]
    assert [(i.name, i.datatype, list(i.shape)) for i in metadata.inputs] == [("input", "FP64", [-1, 4])]
    assert [(o.name, o.datatype, list(o.shape)) for o in metadata.outputs] == [
        ("output", "FP64", [-1, 1]), ("raw", "FP64", [-1, 1])]
    config = client.get_model_config("spam").config
    assert config.name == "spam" and config.input[0].data_type == 12 and config.output[0].name == "output"
    same(triton_grpc, client)
    index = client.get_model_repository_index(as_json=True)["models"]
    assert index == [{"name": "spam", "version": "1", "state": "READY"}, {"name": "three", "version": "3", "state": "READY"}]
    stats = client.get_inference_statistics("three").model_stats
    assert len(stats) == 1 and stats[0].inference_stats.success.count == 4 and stats[0].inference_count == 8, stats
    assert len(client.get_inference_statistics().model_stats) == 2
    # Typed contents, which the client library does not send: they are answered typed.
    stub = service_pb2_grpc.GRPCInferenceServiceStub(grpc.insecure_channel(address))
    request = pb.ModelInferRequest(model_name="spam", id="7")
    input = request.inputs.add(name="input", datatype="FP64", shape=[1, 4])
    input.contents.fp64_contents.extend(ROW.ravel())
    response = stub.ModelInfer(request)
    _, expected = sample("one")
    assert response.id == "7" and response.model_version == "1" and not response.raw_output_contents
    assert response.outputs[0].contents.fp64_contents[0] == expected["output"][0][0]
    input.datatype = "FP32"
    refused(lambda: stub.ModelInfer(request), "INVALID_ARGUMENT", "`input` of FP32 has fp64_contents, fp32_contents is")
    client.close()


def over_http():
    client = triton_http.InferenceServerClient(address)
    metadata = client.get_server_metadata()
    assert metadata["name"] == "fanin" and "binary_tensor_data" in metadata["extensions"]
    metadata = client.get_model_metadata("spam")
    assert metadata["inputs"] == [{"name": "input", "datatype": "FP64", "shape": [-1, 4]}]
    assert client.get_model_config("three")["input"][0]["data_type"] == "TYPE_FP32"
    same(triton_http, client)
    # Without the binary extension: all in JSON.
    rows, expected = sample("one")
    input = triton_http.InferInput("input", [1, 4], "FP64")
    input.set_data_from_numpy(ROW, binary_data=False)
    result = client.infer("spam", [input], outputs=[triton_http.InferRequestedOutput("output", binary_data=False)])
    assert result.as_numpy("output")[0][0] == expected["output"][0][0]
    index = client.get_model_repository_index()
    assert [(entry["name"], entry["state"]) for entry in index] == [("spam", "READY"), ("three", "READY")]
    stats = client.get_inference_statistics()["model_stats"]
    assert {entry["name"]: entry["inference_stats"]["success"]["count"] for entry in stats} == {"spam": 1, "three": 4}
    client.close()


def post(path, body, headers={}):
    request = urllib.request.Request(f"http://{address}{path}", body, headers, method="POST")
    try:
        with urllib.request.urlopen(request) as response:
            return response.status, json.load(response)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)["error"]


def bad():
    stub = service_pb2_grpc.GRPCInferenceServiceStub(grpc.insecure_channel(address))

    def ask(code, told, model="spam", name="input", datatype="FP64", shape=(1, 4), raw=ROW.tobytes(), version="", outputs=(), **more):
        request = pb.ModelInferRequest(model_name=model, model_version=version)
        if name:
            request.inputs.add(name=name, datatype=datatype, shape=shape)
            request.raw_input_contents.append(raw)
        for output in outputs:
            request.outputs.add(name=output)
        refused(lambda: stub.ModelInfer(request, **more), f"StatusCode.{code}", told)

    ask("INVALID_ARGUMENT", "input `input` FP64[-1, 4] is missing", name="")
    ask("INVALID_ARGUMENT", "the model has no input `x`; it takes `input` FP64[-1, 4]", name="x")
    ask("INVALID_ARGUMENT", "input `input` has datatype INT64, FP64 is expected", datatype="INT64")
    ask("INVALID_ARGUMENT", "input `input` has datatype `FP99`, which is none of the protocol's", datatype="FP99")
    ask("INVALID_ARGUMENT", "input `input` has shape [4], [-1, 4] is expected", shape=(4,))
    ask("INVALID_ARGUMENT", "input `input` has shape [1, 5], [-1, 4] is expected", shape=(1, 5))
    ask("INVALID_ARGUMENT", "input `input` has shape [-1, 4]", shape=(-1, 4))
    ask("INVALID_ARGUMENT", "31 bytes of raw data, shape [1, 4] of FP64 takes 32", raw=ROW.tobytes()[:-1])
    ask("INVALID_ARGUMENT", "there is no output `x`; there are `output` FP64[-1, 1], `raw` FP64[-1, 1]", outputs=["x"])
    ask("INVALID_ARGUMENT", "version `new` of model `spam` is not a number", version="new")
    ask("NOT_FOUND", "there is no model `none`", model="none")
    ask("NOT_FOUND", "model `spam` has no version 9 loaded", version="9")
    ask("RESOURCE_EXHAUSTED", "the request is larger than", raw=b"\0" * 100_000_000, shape=(3125000, 4))
    refused(lambda: stub.RepositoryModelUnload(pb.RepositoryModelUnloadRequest(model_name="spam")),
            "PERMISSION_DENIED", "models.control")
    refused(lambda: stub.SystemSharedMemoryStatus(pb.SystemSharedMemoryStatusRequest()), "UNIMPLEMENTED")
    channel = grpc.insecure_channel(address)
    garbage = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
    refused(lambda: garbage(b"\xff\xff\xff"), "INVALID_ARGUMENT", "the message is broken")
    squeezed = grpc.insecure_channel(address, compression=grpc.Compression.Gzip)
    request = pb.ModelInferRequest(model_name="spam" * 1000)
    refused(lambda: service_pb2_grpc.GRPCInferenceServiceStub(squeezed).ModelInfer(request), "UNIMPLEMENTED", "compressed")
    # NaN is a missing value to trees, not an error.
    request = pb.ModelInferRequest(model_name="spam", raw_input_contents=[np.full((1, 4), np.nan).tobytes()])
    request.inputs.add(name="input", datatype="FP64", shape=[1, 4])
    assert len(stub.ModelInfer(request).raw_output_contents) == 2

    infer = "/v2/models/spam/infer"
    tensor = {"name": "input", "datatype": "FP64", "shape": [1, 4], "data": [1, 2, 3, 4]}
    told = lambda path, body, **more: post(path, json.dumps(body).encode(), **more)
    status, answer = told(infer, {"inputs": [tensor]})
    assert status == 200 and answer["outputs"][0]["shape"] == [1, 1], answer
    assert told(infer, {"inputs": [{**tensor, "data": [[1, None, 3, 4]]}]})[0] == 200
    assert told(infer, {"inputs": []}) == (400, "model `spam`: input `input` FP64[-1, 4] is missing")
    assert told(infer, {}) == (400, "the body has no list `inputs`")
    assert told(infer, {"inputs": [{**tensor, "data": [1, 2, 3, "4"]}]}) == (
        400, 'tensor `input`: element 3 is "4", not a number')
    assert told(infer, {"inputs": [{**tensor, "data": [1, 2, 3]}]}) == (
        400, "model `spam`: input `input` has 3 elements, shape [1, 4] takes 4")
    assert post(infer, b'{"inputs": [{"name": "input", "data": [NaN]}]}')[0] == 400
    # Two numbers of 8 bytes for each row of eight.
    rows = {"name": "input", "datatype": "FP64", "shape": [12_000, 4], "data": [0] * 48_000}
    many = json.dumps({"inputs": [rows]}, separators=(",", ":")).encode()
    assert len(many) < 100_000
    status, answer = post(infer, many)
    assert status == 400 and answer.endswith("(models.max_message)") and "the outputs take" in answer, answer
    few = json.dumps({"inputs": [rows], "outputs": [{"name": "raw"}]}, separators=(",", ":")).encode()
    assert post(infer, few)[0] == 200
    assert told("/v2/models/none/infer", {"inputs": [tensor]}) == (404, "there is no model `none`")
    assert told("/v2/models/spam/none", {})[0] == 404 and told("/", {})[0] == 404
    assert told("/v2/models/spam", {})[0] == 405
    assert told("/v2/repository/models/spam/unload", {})[0] == 403
    assert post(infer, b" " * 200_000)[0] == 400
    binary = {**tensor, "parameters": {"binary_data_size": 40}}
    del binary["data"]
    head = json.dumps({"inputs": [binary]}).encode()
    length = {"Inference-Header-Content-Length": str(len(head))}
    assert post(infer, head + ROW.tobytes(), length) == (400, "a tensor's binary_data_size is 40, 32 bytes are left")
    assert post(infer, head + b"\0" * 50, length) == (400, "10 bytes of binary data belong to no tensor")
    assert post(infer, head, {"Inference-Header-Content-Length": "9999"})[0] == 400
    assert post(infer, head, {"Content-Encoding": "gzip"})[0] == 400


def drain():
    """Asks two servers by turns of the channel's own choice while the first one drains."""
    # The authority of such a target would be both addresses, which is none.
    channel = grpc.insecure_channel(f"ipv4:{address},{sys.argv[3]}", options=[("grpc.default_authority", "models")])
    stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
    request = pb.ModelInferRequest(model_name="spam", raw_input_contents=[ROW.tobytes()])
    request.inputs.add(name="input", datatype="FP64", shape=[1, 4])
    failed, asked = [], [0] * 4
    ends = threading.Event()

    def ask(number):
        while not ends.is_set():
            try:
                stub.ModelInfer(request, timeout=20)
                asked[number] += 1
            except Exception as error:
                failed.append(error)

    threads = [threading.Thread(target=ask, args=[number]) for number in range(4)]
    for thread in threads:
        thread.start()
    while sum(asked) < 200 and not failed:
        time.sleep(0.01)
    print("under way", flush=True)
    # The first one is gone when nothing answers there any more.
    probe = address.rsplit(":", 1)
    import socket
    gone = time.time() + 30
    while time.time() < gone:
        try:
            socket.create_connection((probe[0], int(probe[1])), 1).close()
        except OSError:
            break
        time.sleep(0.01)
    before = sum(asked)
    while sum(asked) < before + 200 and not failed:
        time.sleep(0.01)
    ends.set()
    for thread in threads:
        thread.join()
    assert not failed, failed[0]


def age():
    """Connections live 200 ms here, and nobody notices."""
    client = triton_grpc.InferenceServerClient(address)
    input = triton_grpc.InferInput("input", [1, 4], "FP64")
    input.set_data_from_numpy(ROW)
    http = triton_http.InferenceServerClient(address)
    until = time.time() + 1.5
    while time.time() < until:
        client.infer("spam", [input])
        assert http.is_server_live()
    client.close()


def bytes_in_progress():
    """Here a request may have a million bytes, and all together too."""
    import socket
    host, port = address.rsplit(":", 1)
    data = json.dumps({"inputs": [{"name": "input", "datatype": "FP64", "shape": [1, 4], "data": [1, 2, 3, 4]}]}).encode()
    body = data + b" " * (700_000 - len(data))
    head = f"POST /v2/models/spam/infer HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n\r\n".encode()

    def stalled():
        client = socket.create_connection((host, int(port)), 60)
        client.sendall(head + body[:600_000])
        return client

    def answer(client):
        status = client.recv(12)
        assert status.startswith(b"HTTP/1.1 "), status
        return int(status[9:])

    clients = [stalled(), stalled()]
    # One of the two is refused, whichever came last; the other one's bytes count as long as it is there.
    import select
    refused = select.select(clients, [], [], 60)[0]
    assert len(refused) == 1 and answer(refused[0]) == 503
    text = refused[0].recv(65536)
    assert b"requests and answers in progress hold " in text and b"already (models.max_in_progress)" in text, text
    refused[0].close()
    first = next(client for client in clients if client is not refused[0])
    first.sendall(body[600_000:])
    assert answer(first) == 200
    # All of it is free again.
    again = stalled()
    again.sendall(body[600_000:])
    assert answer(again) == 200
    stub = service_pb2_grpc.GRPCInferenceServiceStub(grpc.insecure_channel(address))
    waiting = stalled()
    request = pb.ModelInferRequest(model_name="spam", raw_input_contents=[ROW.tobytes() * 20_000])
    request.inputs.add(name="input", datatype="FP64", shape=[20_000, 4])
    # It may come before those bytes have.
    until = time.time() + 60
    while time.time() < until:
        try:
            stub.ModelInfer(request)
        except grpc.RpcError as error:
            assert error.code() == grpc.StatusCode.RESOURCE_EXHAUSTED, error
            assert error.details().endswith("already (models.max_in_progress)"), error
            break
    else:
        raise AssertionError("nothing was refused")
    waiting.close()


def limits():
    """Here two requests may be in progress and four connections be open, in all; deadlines are 2 s, pings come each 100 ms."""
    import socket
    path = "/inference.GRPCInferenceService/ModelInfer"
    ends = threading.Event()

    def never():
        ends.wait()
        return
        yield

    channels = [grpc.insecure_channel(address, options=[("grpc.use_local_subchannel_pool", 1)]) for _ in range(3)]
    # Requests whose message does not come, each on a connection of its own.
    stalled = [channel.stream_unary(path).future(never()) for channel in channels[:2]]
    stub = service_pb2_grpc.GRPCInferenceServiceStub(channels[2])
    request = pb.ModelInferRequest(model_name="spam", raw_input_contents=[ROW.tobytes()])
    request.inputs.add(name="input", datatype="FP64", shape=[1, 4])
    told = None
    while told is None and not any(call.done() for call in stalled):
        try:
            stub.ModelInfer(request)
        except grpc.RpcError as error:
            told = error
    assert told.code() == grpc.StatusCode.RESOURCE_EXHAUSTED, told
    assert told.details() == "2 requests are in progress already (models.limit)", told
    for call in stalled:
        assert call.code() == grpc.StatusCode.DEADLINE_EXCEEDED, call
        assert call.details() == "the deadline passed before the request had arrived in full", call
    ends.set()
    stub.ModelInfer(request)
    host, port = address.rsplit(":", 1)
    # A client that greets and then says nothing more, not even to a ping, is the fourth; the fifth is one too many.
    silent = socket.create_connection((host, int(port)), 60)
    silent.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0]))
    assert silent.recv(4096), "the server greets"
    fifth = socket.create_connection((host, int(port)), 60)
    assert fifth.recv(1) == b""
    while silent.recv(4096):
        pass
    # Its place is free again.
    again = grpc.insecure_channel(address, options=[("grpc.use_local_subchannel_pool", 1)])
    service_pb2_grpc.GRPCInferenceServiceStub(again).ModelInfer(request, wait_for_ready=True)


def standard():
    from google.protobuf.descriptor_pool import DescriptorPool
    from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase
    channel = grpc.insecure_channel(address)
    health = lambda method, service="": channel.unary_unary(f"/grpc.health.v1.Health/{method}")(
        b"\x0a" + bytes([len(service)]) + service.encode(), timeout=50)
    serving = b"\x08\x01"
    protocol = "inference.GRPCInferenceService"
    assert health("Check") == health("Check", protocol) == serving
    refused(lambda: health("Check", "other"), "NOT_FOUND", "other is not served here")
    all_of_them = channel.unary_unary("/grpc.health.v1.Health/List")(b"", timeout=50)
    assert protocol.encode() in all_of_them and all_of_them.count(serving) == 2, all_of_them
    if sys.argv[3] == "off":
        refused(lambda: ProtoReflectionDescriptorDatabase(channel).get_services(), "UNIMPLEMENTED", "there is no method")
        return
    database = ProtoReflectionDescriptorDatabase(channel)
    services = {"grpc.health.v1.Health", "grpc.reflection.v1.ServerReflection", "grpc.reflection.v1alpha.ServerReflection", protocol}
    assert set(database.get_services()) == services, database.get_services()
    described = DescriptorPool(database).FindServiceByName(protocol)
    assert "ModelInfer" in described.methods_by_name
    talk = lambda *messages: list(channel.stream_stream("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo")(iter(messages), timeout=50))
    assert len(talk(b"\x3a\x01*", b"\x1a\x01x")) == 2
    refused(lambda: talk(b"\xff"), "INVALID_ARGUMENT", "not one of reflection")
    refused(lambda: talk(b"\x1a" + b"x" * 100_000), "RESOURCE_EXHAUSTED", "65536")


def watch():
    watch = lambda service: grpc.insecure_channel(address).unary_stream("/grpc.health.v1.Health/Watch")(
        b"\x0a" + bytes([len(service)]) + service.encode(), timeout=100)
    known, unknown = watch(""), watch("other")
    assert next(known) == b"\x08\x01" and next(unknown) == b"\x08\x03"
    refused(lambda: next(watch("third")), "RESOURCE_EXHAUSTED", "2 clients watch already")
    print("under way", flush=True)
    assert next(known) == b"\x08\x02"
    for one in known, unknown:
        refused(lambda: list(one), "UNAVAILABLE", "shutting down")


{"grpc": over_grpc, "http": over_http, "bad": bad, "drain": drain, "age": age, "limits": limits,
 "bytes": bytes_in_progress, "standard": standard, "watch": watch}[theme]()
print("done")
