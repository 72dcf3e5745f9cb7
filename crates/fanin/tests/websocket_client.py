"""A WebSocket's client for tests: websocket_client.py SERVER CA PROTOCOL

Subscribes to /events and prints what it gets, a line each. Publishes each line of standard input to the channel `news`. SERVER is an
address; with TLS, CA is a file with the certificate to trust, otherwise it is empty.
"""

import json
import ssl
import sys
import threading
import urllib.request

from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

server, ca, protocol = sys.argv[1:]
tls = ssl.create_default_context(cafile=ca) if ca else None
s = "s" if ca else ""


def publish():
    opener = urllib.request.build_opener(
        urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=tls)
    )
    for line in sys.stdin:
        opener.open(f"http{s}://{server}/publish/news?event=goal", line.encode(), timeout=60).read()


# The origin of a page of this server. Pings are sent all the time, and compression is offered.
socket = connect(
    f"ws{s}://{server}/events?token=sesame",
    ssl=tls,
    origin=f"http{s}://{server}",
    subprotocols=[protocol],
    ping_interval=0.05,
    ping_timeout=60,
    open_timeout=60,
    close_timeout=60,
    proxy=None,
)
print(socket.subprotocol, flush=True)
threading.Thread(target=publish, daemon=True).start()
try:
    while True:
        print(socket.recv(), flush=True)
except ConnectionClosed:
    print(json.dumps([socket.close_code, socket.close_reason]), flush=True)
