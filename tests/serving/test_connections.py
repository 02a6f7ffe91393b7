"""How many clients a server takes, and how much of their bodies."""

import http.client
import json
import socket
from contextlib import ExitStack

import pytest
from sklearn.linear_model import LinearRegression

import windtunnel
from tests.support.http_server import request, running
from windtunnel.api.serve import application

ROW = json.dumps([[2, 1]])
MAX_BYTES = 1000


@pytest.fixture
def app(tmp_path):
    path = tmp_path / "line.windtunnel"
    windtunnel.translate(LinearRegression().fit([[0.0, 1.0], [1.0, 1.0]], [1.0, 3.0])).save(path)
    return application([path], max_bytes=MAX_BYTES)


def connect(port):
    return http.client.HTTPConnection("127.0.0.1", port, timeout=30)


def predict(connection, body=ROW):
    connection.request("POST", "/predict", body)
    response = connection.getresponse()
    return response.status, response.headers, json.loads(response.read())


def test_connections_beyond_the_limit_get_503_and_the_others_are_served(app):
    with running(app, max_connections=3) as port, ExitStack() as stack:
        kept = [connect(port) for _ in range(3)]
        for connection in kept:
            stack.callback(connection.close)
            assert predict(connection)[0] == 200
        for body in (ROW, " " * 300_000):
            other = connect(port)
            status, headers, answer = predict(other, body)
            assert (status, headers["Retry-After"], headers["Connection"]) == (503, "1", "close")
            assert "connections" in answer["error"] and answer["type"] == "Overloaded"
            other.close()
        assert [predict(connection)[0] for connection in kept] == [200] * 3
        kept.pop().close()
        while request(port, "POST", "/predict", [[2, 1]])[0] == 503:  # until the server has seen the end
            pass
        metrics = request(port, "GET", "/metrics")[1]
        assert 'windtunnel_requests_total{model="",status="503"}' in metrics


def test_a_client_that_sends_no_more_gets_its_responses(app):
    body = ROW.encode()
    message = b"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)
    with running(app) as port:
        for count in (1, 3):
            with socket.create_connection(("127.0.0.1", port), timeout=30) as client:
                client.sendall(message * count)
                client.shutdown(socket.SHUT_WR)
                assert received(client).count(b"200 OK") == count


def test_a_head_without_end_is_rejected(app):
    with running(app, keep_alive=60) as port, socket.create_connection(("127.0.0.1", port), timeout=30) as client:
        client.sendall(b"GET /v2 HTTP/1.1\r\nHost: x\r\nA: ")
        with pytest.raises(ConnectionError):
            for _ in range(1000):
                client.sendall(b"a" * 2**16)
        assert request(port, "POST", "/predict", [[2, 1]])[0] == 200


def test_connections_on_which_nothing_goes_on_are_closed(app):
    head = b"GET /v2 HTTP/1.1\r\nHost: x\r\n"
    with running(app, keep_alive=1) as port, ExitStack() as stack:
        clients = [stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=30)) for _ in range(4)]
        for client, start in zip(clients, (b"", head, head + b"\r\n" + head, head + b"\r\n\r\n"), strict=True):
            client.sendall(start)
        assert [received(client).count(b"200 OK") for client in clients] == [0, 0, 1, 1]


def test_a_client_that_does_not_read_loses_its_connection(tmp_path, app):
    body = json.dumps([[2, 1]] * 60_000).encode()
    message = b"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)
    large = application([tmp_path / "line.windtunnel"], max_bytes=2**20)
    with running(large, keep_alive=1) as port, socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2**12)
        client.connect(("127.0.0.1", port))
        client.settimeout(30)
        with pytest.raises(ConnectionError):
            for _ in range(100):
                client.sendall(message)
        assert request(port, "POST", "/predict", [[2, 1]])[0] == 200


def received(client):
    """All that the server sends until it closes the connection."""
    return b"".join(iter(lambda: client.recv(2**16), b""))


def test_bodies_beyond_the_memory_for_them_get_503(app):
    head = b"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n"
    with running(app) as port, ExitStack() as stack:
        clients = [stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=30)) for _ in range(5)]
        for client in clients:
            client.sendall(head + b" " * 900)
        rejected = request(port, "POST", "/predict", b" " * 900)
        assert rejected[0] == 503 and "bytes" in rejected[1]["error"]
        for client in clients:
            client.close()
        while request(port, "POST", "/predict", b"[[2, 1]]" + b" " * 900)[0] == 503:
            pass
        assert request(port, "POST", "/predict", [[2, 1]])[0] == 200
