"""The built image, run: `make image` builds it, because a build takes minutes and needs root or a registry."""

import json
import os
import subprocess
import uuid
from collections.abc import Iterator

import pytest

from carillon import __version__
from scripts.image import NAME, ROOT, base_name, missing, storage
from tests.support.client import WELCOME, Client
from tests.support.ports import free_port
from tests.support.waiting import wait_until

FOLDER = ROOT / "build" / "image"
SECRET = "invented-with-at-least-32-characters"
# What a container may need of a kernel that has neither cgroups of one kind nor a bridge.
PLAIN = ("--runtime", "runc", "--cgroup-manager", "cgroupfs")
LIMITS = ("--network", "host", "--no-healthcheck", "--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1024:1024")


def podman(*words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    command = ["podman", *storage(FOLDER), *PLAIN, *words]
    return subprocess.run(command, capture_output=True, text=True, check=check, timeout=250)


@pytest.fixture(scope="module")
def image() -> str:
    lacking = missing("podman", "runc")
    if lacking:
        pytest.skip(f"{' and '.join(lacking)} cannot be found; on Debian: apt-get install {' '.join(lacking)}")
    if os.geteuid() != 0:
        pytest.skip("containers are started as root here")
    if not FOLDER.is_dir() or podman("image", "exists", NAME, check=False).returncode != 0:
        pytest.skip("the image is not built: make image, or make image ARGS=--from-debian")
    return NAME


@pytest.fixture
def running(image: str) -> Iterator[tuple[str, int]]:
    name, port = f"carillon-{uuid.uuid4().hex[:8]}", free_port()
    given = {"CARILLON_HTTP__PORT": str(port), "CARILLON_HTTP__HOST": "127.0.0.1", "JWT_SECRET_KEY": SECRET}
    env = [word for key, value in given.items() for word in ("--env", f"{key}={value}")]
    # As the manifests run it: nothing of the root file system can be written to.
    podman("run", "--detach", "--name", name, "--read-only", "--tmpfs", "/tmp", *LIMITS, *env, image)  # noqa: S108
    try:
        yield name, port
    finally:
        podman("rm", "--force", "--time", "20", "--volumes", name, check=False)


def test_the_base_is_the_one_of_the_dockerfile() -> None:
    assert base_name() == "docker.io/library/python:3.12-slim"


@pytest.mark.slow
@pytest.mark.req("P-555")
def test_the_image_says_what_it_is_and_runs_as_nobody(image: str) -> None:
    told = json.loads(podman("image", "inspect", image).stdout)[0]
    config = told["Config"]
    assert (config["User"], config["Entrypoint"], config["Cmd"]) == ("10001:10001", ["carillon"], ["serve"])
    said = podman("run", "--rm", *LIMITS, image, "--version").stdout.strip()
    assert said == __version__
    refused = podman("run", "--rm", *LIMITS, image, "serve", check=False)
    assert refused.returncode == 2
    assert "JWT_SECRET_KEY" in refused.stdout + refused.stderr


@pytest.mark.slow
@pytest.mark.req("P-555")
def test_the_image_becomes_ready_and_drains(running: tuple[str, int]) -> None:
    name, port = running
    client = Client(f"http://127.0.0.1:{port}")

    def ready() -> bool:
        try:
            return client.get("/readyz").status == 200
        except OSError:
            return False

    wait_until(ready, timeout=120, what="a container that is ready")
    assert client.get("/console").status == 200
    assert client.send(WELCOME).status == 401, "a container asks its callers who they are"
    key = podman("exec", name, "carillon", "keys", "create", "orders").stdout.split()[0]
    sent = client.call("POST", "/api/v1/notifications/send", WELCOME, {"X-API-Key": key})
    assert sent.status == 202
    told = podman("exec", name, "id", "-u").stdout.strip()
    assert told == "10001"
    podman("stop", "--time", "30", name)
    assert podman("wait", name).stdout.strip() == "0", "SIGTERM drains"
