"""Notifications accepted into a SQLite file are delivered from PostgreSQL after `carillon ledger copy`."""

import json
import subprocess
from pathlib import Path

from tests.support.client import Client
from tests.support.process import Program, run_carillon


def carillon(*args: str) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": "/usr/bin:/bin"}
    return run_carillon([*args], env=environment, timeout=120)


def test_what_waited_in_the_file_is_delivered_from_the_other_database(postgres_dsn: str, tmp_path: Path) -> None:
    file = f"sqlite:///{tmp_path}/carillon.db"
    environment = {"CARILLON_HTTP__PORT": "0", "CARILLON_LEDGER__ALLOW_UNSAFE": "true"}
    with Program("serve", "--roles", "doors", env={**environment, "DATABASE_URL": file}, cwd=tmp_path) as before:
        before.wait_ready(60)
        accepted = Client.of(before).send(key="moved").body["notificationId"]
        in_use = carillon("ledger", "copy", file, postgres_dsn)
        assert (in_use.returncode, "stop every process" in in_use.stderr) == (1, True), in_use.stderr
        before.terminate()
        before.wait()
    done = carillon("ledger", "copy", file, postgres_dsn, "--json")
    assert done.returncode == 0, done.stderr
    told = {one["table"]: one["rows"] for one in json.loads(done.stdout)["tables"]}
    assert (told["records"], told["routes"]) == (1, 1)
    with Program("serve", env={**environment, "DATABASE_URL": postgres_dsn}, cwd=tmp_path) as after:
        after.wait_ready(60)
        sent = after.wait_for("route_attempted", timeout=60)
        assert (sent["notification_id"], sent["verdict"]) == (accepted, "finish")
        # The key came along: asking again is still the same notification.
        assert Client.of(after).send(key="moved").body["notificationId"] == accepted
