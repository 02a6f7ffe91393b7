"""An ASGI application behind a socket, and a client for it."""

import http.client
import json
import time
from contextlib import contextmanager
from threading import Thread

import uvicorn

from windtunnel.serving.connection import uvicorn_options


@contextmanager
def running(app, max_connections=512, keep_alive=5):
    """The port of a server that runs the application."""
    options = {"log_level": "error", "timeout_keep_alive": keep_alive, **uvicorn_options(max_connections)}
    server = uvicorn.Server(uvicorn.Config(app, port=0, **options))
    thread = Thread(target=server.run)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    try:
        yield server.servers[0].sockets[0].getsockname()[1]
    finally:
        server.should_exit = True
        thread.join(30)


def request(port, method, path, body=None, headers=None):
    """Status and content of a response; JSON is parsed."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    body = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
    connection.request(method, path, body, headers or {})
    response = connection.getresponse()
    content = response.read()
    connection.close()
    json_type = response.getheader("content-type", "").startswith("application/json")
    return response.status, json.loads(content) if json_type else content.decode()
