"""Private servers and processes for the bench: PostgreSQL with fsync, nginx, wrk, Carillon."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.needs import find
from tests.support.ports import free_port

BIN = Path(sys.executable).parent
TIMEOUT_SECONDS = 240.0
WELCOME = {
    "templateKey": "welcome",
    "channel": "push",
    "recipient": "device-1",
    "data": {"name": "Ada", "link": "https://example.org/start"},
}


def run(module: str, *args: str, env: dict[str, str] | None = None, seconds: float = TIMEOUT_SECONDS) -> dict[str, Any]:
    """Run a runner to its end; its last line is a JSON object."""
    done = subprocess.run(
        [sys.executable, "-m", f"bench.runners.{module}", *args],
        env={**os.environ, **(env or {})},
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(f"{module} failed: {done.stderr[-2000:]}")
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


@contextmanager
def started(
    command: list[str], env: dict[str, str] | None = None
) -> Iterator[tuple[subprocess.Popen[str], dict[str, Any]]]:
    """A process that says `ready` in a line of JSON; ended by its own pid."""
    process = subprocess.Popen(
        command, env={**os.environ, **(env or {})}, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        yield process, _await_ready(process)
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        if process.stdout is not None:
            process.stdout.close()


def _await_ready(process: subprocess.Popen[str]) -> dict[str, Any]:
    for text in process.stdout or ():
        line: dict[str, Any] = json.loads(text)
        if line.get("event") == "ready":
            return line
    raise RuntimeError(f"{process.args!r} ended before it was ready")


@contextmanager
def carillon(env: dict[str, str], *args: str, runner: str | None = None) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The real program, or the runner that changes it; gives its process and its address."""
    settings = {"CARILLON_HTTP__PORT": "0", "CARILLON_LOG__LEVEL": "error", **env}
    program = [str(BIN / "carillon")] if runner is None else [sys.executable, "-m", f"bench.runners.{runner}"]
    with started([*program, "serve", *args], settings) as (process, ready):
        yield process, ready["addresses"][0]


@contextmanager
def nginx(body: str = "ok", status: int = 200) -> Iterator[str]:
    """An HTTP server that answers everything with one status and body, at once; gives its URL."""
    folder = Path(tempfile.mkdtemp(prefix="cb-"))
    port = free_port()
    temporary = " ".join(
        f"{kind}_temp_path {folder}/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    conf = folder / "nginx.conf"
    conf.write_text(
        f"worker_processes 1; daemon off; pid {folder}/pid; error_log {folder}/error.log;\n"
        "events { worker_connections 4096; }\n"
        f"http {{ access_log off; keepalive_requests 10000000; {temporary}\n"
        f"server {{ listen 127.0.0.1:{port} backlog=4096; location / {{ return {status} '{body}'; }} }} }}\n"
    )
    process = subprocess.Popen([find("nginx"), "-e", str(folder / "error.log"), "-c", str(conf)])
    try:
        await_port(port)
        yield f"http://127.0.0.1:{port}/hook"
    finally:
        process.terminate()
        process.wait()
        shutil.rmtree(folder, ignore_errors=True)


def await_port(port: int) -> None:
    import socket  # noqa: PLC0415 - only here

    until = time.monotonic() + 10
    while time.monotonic() < until:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.02)
    raise RuntimeError(f"nothing listens on {port}")


def wrk(
    address: str,
    seconds: float,
    connections: int = 64,
    bodies: Sequence[dict[str, Any]] = (WELCOME,),
    people: int = 0,
) -> dict[str, float]:
    """Post notifications over `connections` connections, each with a key of its own; requests and failures a second.

    The bodies are sent in turns; `user-?` in them is one of so many people, chosen anew for each request.
    """
    script = Path(__file__).parent / "runners" / "send.lua"
    done = subprocess.run(
        [find("wrk"), "-t1", f"-c{connections}", f"-d{seconds:g}s", "-s", str(script), address],
        env={
            **os.environ,
            "BENCH_BODIES": "\n".join(json.dumps(body) for body in bodies),
            "BENCH_RUN": os.urandom(6).hex(),
            "BENCH_PEOPLE": str(people),
        },
        capture_output=True,
        text=True,
        timeout=seconds + 60,
        check=True,
    )
    found: dict[str, float] = json.loads(done.stdout.strip().splitlines()[-1])
    return found
