"""The gRPC server of tests: .ci/servers/grpc starts it. It speaks proto/probe.proto, compiled by protoc."""

import collections
import os
import signal
import sys
import threading
import time
from concurrent import futures
from importlib import resources

folder, port, options = sys.argv[1], sys.argv[2], sys.argv[3:]
here = os.path.join(os.path.dirname(os.path.abspath(__file__)), "proto")

from grpc_tools import protoc  # noqa: E402

made = os.path.join(folder, "made")
os.makedirs(made, exist_ok=True)
google = str(resources.files("grpc_tools") / "_proto")
arguments = ["protoc", f"-I{here}", f"-I{google}", f"--python_out={made}", f"--grpc_python_out={made}"]
arguments += ["--include_imports", f"--descriptor_set_out={folder}/set.binpb", "probe.proto", "common/parts.proto"]
assert protoc.main(arguments) == 0, "protoc failed"
sys.path.insert(0, made)

import grpc  # noqa: E402
from grpc_reflection.v1alpha import reflection  # noqa: E402

import probe_pb2 as pb  # noqa: E402
import probe_pb2_grpc as stubs  # noqa: E402

CODES = {code.value[0]: code for code in grpc.StatusCode}


class Probe(stubs.ProbeServicer):
    def __init__(self):
        self.lock = threading.Lock()
        self.times = collections.Counter()

    def count(self, key):
        with self.lock:
            self.times[key] += 1
            return self.times[key]

    def sight(self, key, times, context):
        left = context.time_remaining()
        metadata = {key: value for key, value in context.invocation_metadata() if isinstance(value, str)}
        return pb.Sight(key=key, times=times, left_ms=-1 if left is None else left * 1000, metadata=metadata)

    def Echo(self, request, context):
        return request

    def Seen(self, request, context):
        context.send_initial_metadata((("x-before", "b"),))
        context.set_trailing_metadata((("x-behind", "t"), ("x-raw-bin", b"\x00\xff")))
        with self.lock:
            times = self.times[request.key]
        return self.sight(request.key, times, context)

    def Fail(self, request, context):
        times = self.count(request.key)
        if request.times == 0 or times <= request.times:
            if request.pushback_ms:
                context.set_trailing_metadata((("grpc-retry-pushback-ms", request.pushback_ms),))
            context.abort(CODES[request.code], request.message)
        return self.sight(request.key, times, context)

    FailWriting = Fail

    def Wait(self, request, context):
        over = threading.Event()
        context.add_callback(over.set)
        times = self.count(request.key)
        if (times == 1 or not request.first) and over.wait(request.ms / 1000):
            self.count(request.key + "/cancelled")
        return self.sight(request.key, times, context)

    def Count(self, request, context):
        ballast = b"x" * request.bytes
        value = 0
        while value < request.to or request.end == "forever":
            value += 1
            yield pb.Number(value=value, ballast=ballast)
        if request.end == "fail":
            context.abort(grpc.StatusCode.DATA_LOSS, "lost count")
        if request.end == "die":
            time.sleep(0.2)
            os._exit(1)
        if request.end == "hang":
            over = threading.Event()
            context.add_callback(over.set)
            over.wait(60)

    def Sum(self, requests, context):
        return pb.Number(value=sum(number.value for number in requests))

    def Squares(self, requests, context):
        for number in requests:
            yield pb.Number(value=number.value**2)


class Other(stubs.OtherServicer):
    def Echo(self, request, context):
        return request


settings = [("grpc.so_reuseport", 0), ("grpc.max_receive_message_length", 64 << 20)]
if "--permissive" in options:
    settings += [("grpc.http2.min_recv_ping_interval_without_data_ms", 1), ("grpc.http2.max_ping_strikes", 0)]
server = grpc.server(futures.ThreadPoolExecutor(32), options=settings)
stubs.add_ProbeServicer_to_server(Probe(), server)
stubs.add_OtherServicer_to_server(Other(), server)
names = ("fanin.probe.Probe", "fanin.probe.Other", reflection.SERVICE_NAME)
if "--old-reflection" in options:
    reflection.enable_server_reflection(names, server)
elif "--no-reflection" not in options:
    from google.protobuf import descriptor_pool

    # grpcio-reflection speaks v1alpha only; v1 has the same messages by another name.
    servicer = reflection.ReflectionServicer(names, descriptor_pool.Default())
    from grpc_reflection.v1alpha import reflection_pb2

    handler = grpc.stream_stream_rpc_method_handler(
        servicer.ServerReflectionInfo,
        request_deserializer=reflection_pb2.ServerReflectionRequest.FromString,
        response_serializer=reflection_pb2.ServerReflectionResponse.SerializeToString,
    )
    generic = grpc.method_handlers_generic_handler(
        "grpc.reflection.v1.ServerReflection", {"ServerReflectionInfo": handler}
    )
    server.add_generic_rpc_handlers((generic,))
if "--tls" in options:
    with open(os.path.join(folder, "key.pem"), "rb") as key, open(os.path.join(folder, "ca.pem"), "rb") as certificate:
        credentials = grpc.ssl_server_credentials([(key.read(), certificate.read())])
    bound = server.add_secure_port(f"127.0.0.1:{port}", credentials)
else:
    bound = server.add_insecure_port(f"127.0.0.1:{port}")
assert bound, f"port {port} is taken"
server.start()
signal.signal(signal.SIGTERM, lambda *_: server.stop(0))
with open(os.path.join(folder, "port.new"), "w") as file:
    file.write(str(bound))
os.rename(os.path.join(folder, "port.new"), os.path.join(folder, "port"))
server.wait_for_termination()
