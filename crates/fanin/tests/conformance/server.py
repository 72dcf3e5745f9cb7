"""The server under test of connectrpc's conformance suite: writes a configuration for what the suite asks, and runs `fanin serve`.

Arguments: the fanin program, the suite's folder of .proto files, the folder of their Python modules, the flow.
"""
import http.server, pathlib, re, shutil, signal, struct, subprocess, sys, tempfile, threading, time

program, protos, modules, flow = sys.argv[1:]
sys.path.insert(0, modules)
from connectrpc.conformance.v1 import server_compat_pb2 as compat

request = compat.ServerCompatRequest()
(length,) = struct.unpack(">I", sys.stdin.buffer.read(4))
request.ParseFromString(sys.stdin.buffer.read(length))


class Delay(http.server.BaseHTTPRequestHandler):
    """Answers after the milliseconds that the path names."""
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        time.sleep(int(self.path[1:]) / 1000)
        self.send_response(200)
        self.send_header("content-length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *_):
        pass


delay = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Delay)
threading.Thread(target=delay.serve_forever, daemon=True).start()
folder = pathlib.Path(tempfile.mkdtemp(prefix="fanin-conformance"))
shutil.copy(flow, folder / "conformance.star")
limit = request.message_receive_limit or 8 << 20
toml = f"""
[server]
listen = "127.0.0.1:0"
admin = "off"
access_log = "off"
workers = 1
queueing = "off"
max_body = {limit}

[upstreams.delay]
url = "http://127.0.0.1:{delay.server_address[1]}"
timeout = "20s"
retry = "off"
hedge = "off"

[grpc]
proto = "{protos}/connectrpc/conformance/v1/service.proto"
proto_path = "{protos}"
compress_from = "64B"
"""
for method in ("Unary", "IdempotentUnary", "ServerStream", "ClientStream", "BidiStream"):
    function = re.sub("(?<!^)(?=[A-Z])", "_", method).lower()
    toml += f"""
[[routes]]
grpc = "connectrpc.conformance.v1.ConformanceService/{method}"
flow = "conformance.star:{function}"
timeout = "20s"
"""
if request.use_tls:
    (folder / "cert.pem").write_bytes(request.server_creds.cert)
    (folder / "key.pem").write_bytes(request.server_creds.key)
    toml += '\n[server.tls]\ncert = "cert.pem"\nkey = "key.pem"\n'
(folder / "fanin.toml").write_text(toml)

server = subprocess.Popen([program, "serve", str(folder)], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def stop(*_):
    server.kill()
    server.wait()
    shutil.rmtree(folder, ignore_errors=True)
    sys.exit(0)


signal.signal(signal.SIGTERM, stop)
for line in server.stderr:
    sys.stderr.write(line)
    found = re.search(r'listen="127\.0\.0\.1:(\d+)"', line)
    if found:
        break
else:
    sys.exit(1)
response = compat.ServerCompatResponse(host="127.0.0.1", port=int(found[1]), pem_cert=request.server_creds.cert if request.use_tls else b"")
data = response.SerializeToString()
sys.stdout.buffer.write(struct.pack(">I", len(data)) + data)
sys.stdout.buffer.flush()
for line in server.stderr:
    sys.stderr.write(line)
stop()
