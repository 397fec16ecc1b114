"""Commands over HTTP where something else than Carillon answers, half of it does, or a gateway stands between."""

import shutil
import socket
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.client import HTTPException
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.support.client import Client
from tests.support.process import Program, run_carillon
from tests.support.terminal import Terminal
from tests.support.vendor import Reply, Vendor
from tests.support.waiting import wait_until

pytestmark = pytest.mark.req("P-1151")

PAGE = b"<!doctype html><title>Somebody's shop</title>"
ANSWERS = {
    "a web page": (
        b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(PAGE), PAGE),
        "does not answer as Carillon",
    ),
    "a list": (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]", "does not answer as Carillon"),
    "another program": (
        b'HTTP/1.1 200 OK\r\nContent-Length: 15\r\n\r\n{"status":"ok"}',
        "does not answer as Carillon",
    ),
    "an object": (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}", "does not answer as Carillon does: there is no '"),
    "no web server": (b"-ERR unknown command 'GET'\r\n", "it ended without a whole answer"),
    "half": (b'HTTP/1.1 200 OK\r\nContent-Length: 999\r\n\r\n{"items": [', "it ended without a whole answer"),
}
OK = {"notificationId": "n-1", "status": "queued", "queueName": "standard"}
COMMANDS = [
    *(("send", "welcome", "--channel", "push", "--to", "x"), ("top",), ("tail",), ("pause",)),
    *(("digests", "list"), ("endpoints", "list"), ("templates", "test-send", "welcome", "--to", "x")),
]


@contextmanager
def stranger(answer: bytes) -> Iterator[str]:
    """Gives the same answer to everybody; its address."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    caller, _ = listener.accept()
                except OSError:
                    return
                with caller:
                    caller.recv(65_536)
                    caller.sendall(answer)

        threading.Thread(target=serve, daemon=True).start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        # A listener that is closed goes on with the call under way.
        listener.shutdown(socket.SHUT_RDWR)


@pytest.mark.req("P-1271")
@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_something_else_is_named_in_one_line(tmp_path: Path, command: tuple[str, ...]) -> None:
    for what, (answer, words) in ANSWERS.items():
        with stranger(answer) as address:
            asked = run_carillon([*command, "--url", address], cwd=tmp_path)
        assert asked.returncode != 0, what
        (line,) = asked.stderr.splitlines()
        assert line.startswith("carillon: "), what
        assert words in line, (what, line)
        assert f"{address}" in line
        assert line.endswith("--url names another address")


class Gateway(ThreadingHTTPServer):
    """Hands requests on; the first one for the live stream meets a server that is just being restarted."""

    daemon_threads = True

    def __init__(self, upstream: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handing)
        self.upstream = upstream
        self.streams = 0


class _Handing(BaseHTTPRequestHandler):
    server: Gateway

    def do_GET(self) -> None:
        if self.path == "/api/v1/console/live":
            self.server.streams += 1
            if self.server.streams == 1:
                self.send_error(503)
                return
        with urllib.request.urlopen(self.server.upstream + self.path) as answer:  # noqa: S310 - loopback
            self.send_response(answer.status)
            self.end_headers()
            with suppress(HTTPException, OSError):
                # The server is stopped at the end of the test.
                shutil.copyfileobj(answer, self.wfile, 1)

    def log_message(self, *_: object) -> None:
        """The tests are quiet."""


@pytest.mark.req("P-1231")
@pytest.mark.parametrize("reply", [Reply(503), Reply(429), Reply(502, body="<h1>Bad Gateway</h1>")], ids=str)
def test_what_is_accepted_is_followed_when_the_server_answers_again(tmp_path: Path, reply: Reply) -> None:
    with Vendor(tmp_path / "busy.jsonl") as vendor:
        vendor.answer(Reply(202, body=OK), reply, Reply(200, body={"status": "delivered", "routes": []}))
        ran = run_carillon(["send", "welcome", "--to", "x", "--url", vendor.url], env={}, cwd=tmp_path)
    assert (ran.returncode, ran.stderr) == (0, ""), ran.stderr
    assert ran.stdout.startswith("n-1  delivered")


@pytest.mark.req("P-1231")
@pytest.mark.parametrize("reply", [Reply(503), Reply(403)], ids=["busy", "refused"])
def test_what_is_accepted_is_said_to_be_where_its_outcome_stays_unknown(tmp_path: Path, reply: Reply) -> None:
    with Vendor(tmp_path / "busy.jsonl") as vendor:
        vendor.answer(Reply(202, body=OK))
        vendor.default = reply
        words = ["send", "welcome", "--to", "x", "--wait", "0.5", "--url", vendor.url]
        ran = run_carillon(words, env={}, cwd=tmp_path)
    why = f"its outcome is not known (the server answered {reply.status})"
    assert (ran.returncode, ran.stderr) == (0, f"{why}; it is accepted and goes on without this command\n")
    assert ran.stdout.startswith("n-1  queued")


def test_tail_follows_events_again_after_a_gateway_s_503(tmp_path: Path) -> None:
    environment = {"DATABASE_URL": f"sqlite:///{tmp_path}/c.db", "CARILLON_HTTP__PORT": "0"}
    with Program("serve", env=environment, cwd=tmp_path) as program:
        gateway = Gateway(str(program.wait_ready(60)["addresses"][0]))
        threading.Thread(target=gateway.serve_forever, daemon=True).start()
        client = Client.of(program)
        url = f"http://127.0.0.1:{gateway.server_port}"
        with Terminal("tail", "--only", "events", env={"CARILLON_URL": url}) as terminal:
            wait_until(lambda: gateway.streams > 1, timeout=20, what="another call for the live stream")
            refused = {"sandbox": {"outcome": "refused", "times": 1}}
            given_up: list[str] = []

            def told() -> bool:
                # Following begins at some moment after the call: one of these comes after it.
                given_up.append(client.send(metadata=refused).body["notificationId"])
                client.settled(given_up[-1])
                return any(one in terminal.seen for one in given_up)

            wait_until(told, timeout=60, what="an event")
            assert terminal.interrupt() == 0
        gateway.shutdown()
        gateway.server_close()
