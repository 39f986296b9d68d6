"""A service on a socket of this machine, on a thread that ends with its test, and requests to it."""

import json
import socket
import threading
import time
import urllib.error
import urllib.request
from contextlib import contextmanager

import uvicorn

from proxima.serve.http import make_app
from proxima.serve.run import bound_socket


class Client:
    """Requests to one server."""

    def __init__(self, address):
        self.address = address

    def send(self, method, path, content=None, **headers):
        body = content if isinstance(content, bytes | None) else json.dumps(content).encode()
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        sent = {"Content-Type": "application/json"} | named
        request = urllib.request.Request(self.address + path, body, sent, method=method)
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read()

    def post(self, path, content=None, **headers):
        status, body = self.send("POST", path, content, **headers)
        return status, json.loads(body)

    def raw(self, content):
        """What the server answers to these bytes, whatever they are, until it closes or has said all."""
        host, port = self.address.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), timeout=30) as connection:
            connection.sendall(content)
            return http_answer(connection)


def http_answer(connection):
    """One answer with its head, as bytes."""
    answer = b""
    while part := connection.recv(65_536):
        answer += part
        head, _, body = answer.lower().partition(b"\r\n\r\n")
        length = head.partition(b"content-length: ")[2].split(b"\r\n")[0]
        if length and len(body) >= int(length):
            break
    return answer


@contextmanager
def serving(service):
    """A client of the service, which is served meanwhile."""
    with bound_socket("127.0.0.1", 0) as listening:
        config = uvicorn.Config(make_app(service), log_level="error", lifespan="off")
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            while not server.started:
                time.sleep(0.01)
            yield Client(f"http://127.0.0.1:{listening.getsockname()[1]}")
        finally:
            server.should_exit = True
            thread.join()
