"""What a newcomer expects of the command line without having read a page: versions, helps, notes, addresses."""

import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.text import Text

from tests.scenario.test_cli import Run, carillon
from tests.support.client import Client
from tests.support.docs_facts import help_texts
from tests.support.ports import free_port
from tests.support.process import Program
from tests.support.sources import ROOT

SEND = ("send", "welcome", "--channel", "push", "--to", "device-1", "-d", "name=Ada", "-d", "link=https://x.example")
REFUSED = {"sandbox": {"outcome": "refused", "times": 1}}


@pytest.fixture
def program(tmp_path: Path) -> Iterator[Program]:
    """Carillon on its default ledger and on a port that is not the default."""
    with Program("serve", env={"CARILLON_HTTP__PORT": "0"}, cwd=tmp_path) as running:
        running.wait_ready()
        yield running


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("{folder}", "is a folder"),
        ("{folder}/letter.txt", "is no SQLite database"),
        ("{folder}/letter.txt/carillon.db", "cannot be created"),
        # Root may write here by the modes of the folder, and yet no file can be created.
        ("/proc/carillon.db", "no file can be created in this folder"),
    ],
    ids=["folder", "letter", "below_a_file", "proc"],
)
def test_a_file_that_can_never_be_a_ledger_ends_the_start_with_one_line(tmp_path: Path, path: str, words: str) -> None:
    letter = tmp_path / "letter.txt"
    letter.write_text("Dear Ada, this is no database.\n", encoding="utf-8")
    url = f"sqlite:///{path.format(folder=tmp_path)}"
    ended = carillon("serve", env={"DATABASE_URL": url, "CARILLON_HTTP__PORT": "0"}, cwd=tmp_path)
    said = ended.stdout + ended.stderr
    assert (ended.returncode, len(said.splitlines())) == (2, 1), said
    assert words in said
    assert "DATABASE_URL=sqlite:///path" in said
    read = carillon("dead-letters", "list", env={"DATABASE_URL": url}, cwd=tmp_path)
    assert read.returncode in {1, 2}
    assert len(read.stderr.splitlines()) == 1, read.stderr
    assert letter.read_text(encoding="utf-8").startswith("Dear Ada"), "nothing was changed"
    assert list(tmp_path.iterdir()) == [letter], "nothing was left behind"


@pytest.mark.req("P-787")
@pytest.mark.parametrize(
    "command",
    [
        ("templates", "list"),
        ("templates", "pull", "texts"),
        ("templates", "diff", "texts"),
        ("templates", "push", "texts", "--dry-run"),
        ("keys", "list"),
    ],
    ids=" ".join,
)
def test_a_command_that_only_reads_creates_no_ledger(tmp_path: Path, command: tuple[str, ...]) -> None:
    texts = tmp_path / "texts"
    texts.mkdir()
    asked = carillon(*command, cwd=tmp_path)
    assert asked.returncode == 0, asked.stderr
    assert list(tmp_path.iterdir()) == [texts], "nothing was left behind"


@pytest.mark.req("P-788")
@pytest.mark.parametrize("command", [SEND, ("top",), ("tail",), ("pause",)], ids=lambda one: one[0])
def test_without_a_server_a_command_says_so_in_plain_words(tmp_path: Path, command: tuple[str, ...]) -> None:
    address = f"http://127.0.0.1:{free_port()}"
    asked = carillon(*command, env={"CARILLON_URL": address}, cwd=tmp_path)
    assert asked.returncode != 0
    why = "Connection refused; is `carillon serve` running there? --url names another address"
    assert asked.stderr.splitlines() == [f"carillon: no answer from {address}: {why}"]


def test_the_version_is_an_option_too() -> None:
    asked, commanded = carillon("--version"), carillon("version")
    assert asked.returncode == 0, asked.stderr
    assert asked.stdout == commanded.stdout


@pytest.mark.parametrize("command", [("serve",), ("send",), ("load",), ("templates", "list")])
def test_helps_show_kinds_in_words_and_none_for_a_flag(command: tuple[str, ...]) -> None:
    told = carillon(*command, "--help").stdout
    assert "<text>" in told
    for kind in ("<bool>", "<str>", "<list", "<int", "<float"):
        assert kind not in told


@pytest.mark.req("P-1029")
def test_helps_are_shown_whole() -> None:
    for command, (said, options) in help_texts().items():
        for text in (said, *options.values()):
            # Square brackets are a style to the printer, and would vanish.
            assert Text.from_markup(text).plain == text, command


@pytest.mark.req("P-861", "P-865")
def test_commands_of_a_folder_find_the_process_that_serves_it(program: Program, tmp_path: Path) -> None:
    sent = carillon(*SEND, cwd=tmp_path)
    assert sent.returncode == 0, sent.stderr
    assert "delivered" in sent.stdout
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    assert "127.0.0.1:8080" in carillon(*SEND, cwd=elsewhere).stderr
    # A shell in which the port was exported for `serve` means the same port.
    address = str(program.wait_ready()["addresses"][0])
    port = address.rpartition(":")[2]
    assert "delivered" in carillon(*SEND, env={"CARILLON_HTTP__PORT": port}, cwd=elsewhere).stdout
    for said in ("0", "eighty", ""):
        assert "127.0.0.1:8080" in carillon(*SEND, env={"CARILLON_HTTP__PORT": said}, cwd=elsewhere).stderr
    # An address is copied with its slash at the end, or without its beginning.
    assert "delivered" in carillon(*SEND, "--url", f"{address}/", cwd=elsewhere).stdout
    for command in (SEND, ("top", "--once"), ("load", "--count", "1")):
        bare = carillon(*command, "--url", f"127.0.0.1:{port}", cwd=elsewhere)
        assert bare.stderr == f"carillon: 127.0.0.1:{port} is not an http:// or https:// address\n", command
    program.terminate()
    assert program.wait() == 0
    assert not (tmp_path / "carillon.db-url").exists()


def test_send_at_a_later_time_does_not_wait(program: Program, tmp_path: Path) -> None:
    del program
    began = time.monotonic()
    sent = carillon(*SEND, "--at", "2099-01-01T08:00:00Z", cwd=tmp_path)
    assert sent.returncode == 0, sent.stderr
    assert "queued" in sent.stdout
    assert "still queued" not in sent.stderr
    assert time.monotonic() - began < 10


def test_one_dead_letter_is_one_and_two_are_several(program: Program, tmp_path: Path) -> None:
    client = Client.of(program)

    def listed() -> Run:
        client.settled(client.send(metadata=REFUSED).body["notificationId"])
        return carillon("dead-letters", "list", cwd=tmp_path)

    assert "1 of 1 dead letter " in listed().stdout
    assert "2 of 2 dead letters " in listed().stdout


def test_a_file_that_is_not_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "carillon.toml").write_text("[http]\nport = 9999\n", encoding="utf-8")
    unread = carillon("config", "show", cwd=tmp_path)
    assert "carillon.toml in this folder is not read; --config carillon.toml reads it" in unread.stderr
    assert "port = 8080\n" in unread.stdout
    read = carillon("config", "show", "--config", "carillon.toml", cwd=tmp_path)
    assert read.stderr == ""
    assert "port = 9999  # carillon.toml\n" in read.stdout


def test_each_setting_names_where_its_value_comes_from(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text('extends = "listo"\n[http]\nport = 9999\n', encoding="utf-8")
    environ = {
        "CARILLON_HTTP__HOST": "127.0.0.2",
        "TWILIO_FROM": "+15550100000",
        "CARILLON_ALLOW_SANDBOX": "1",
        "JWT_SECRET_KEY": "x" * 40,
    }
    told = carillon("config", "show", "--config", "mine.toml", env=environ, cwd=tmp_path)
    assert told.returncode == 0, told.stderr
    assert 'host = "127.0.0.2"  # CARILLON_HTTP__HOST\n' in told.stdout
    assert "port = 9999  # mine.toml\n" in told.stdout
    assert '"+15550100000"  # TWILIO_FROM\n' in told.stdout
    assert "  # blueprint listo\n" in told.stdout
    assert "max_requests_in_flight = 1024\n" in told.stdout, "a default names nothing"


def test_templates_of_folders_are_listed_too(program: Program, tmp_path: Path) -> None:
    del program
    doctor = carillon("doctor", cwd=tmp_path).stdout
    listed = carillon("templates", "list", cwd=tmp_path).stdout
    assert "Templates: 5 read and checked" in doctor
    assert "0 of 0 in the ledger, 5 in folders" in listed
    assert listed.count("welcome") == 5
    assert "1 in folders" in carillon("templates", "list", "--channel", "sms", cwd=tmp_path).stdout


@pytest.mark.req("P-563")
def test_doctor_is_not_content_with_a_channel_that_every_send_refuses(tmp_path: Path) -> None:
    config = tmp_path / "fax.toml"
    config.write_text('extends = "local"\n[channels]\nfax = ["sandbox"]\n')
    told = carillon("doctor", "--config", str(config), cwd=tmp_path)
    assert told.returncode == 1
    assert "ill  Channel fax: no door takes a message for it" in told.stdout
    assert "ok   Channel push: sandbox" in told.stdout
    assert carillon("doctor", cwd=tmp_path).returncode == 0


@pytest.mark.req("P-563")
@pytest.mark.slow
@pytest.mark.skipif(shutil.which("unshare") is None, reason="only Linux takes the network away from one command")
def test_without_a_network_the_first_make_says_so_in_one_line(tmp_path: Path) -> None:
    alone = subprocess.run(
        ["unshare", "--user", "--net", "--map-root-user", "make", "install", f"VENV={tmp_path}/venv"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    if "unshare failed" in alone.stderr:
        pytest.skip("this machine gives no namespaces")
    said = [line for line in alone.stdout.splitlines() if not line.startswith("Creating")]
    assert alone.returncode != 0
    assert len(said) == 1
    assert said[0].startswith("The packages could not be fetched (Temporary failure in name resolution).")
    assert not (tmp_path / "venv").exists()


@pytest.mark.req("P-1186", "P-1226")
@pytest.mark.parametrize(
    "url",
    [
        *("127.0.0.1:8080", "http://", "http://[::1", "http://here:none", "http://two words"),
        *("http://a..b", f"http://{'a' * 64}.org", "http://127.0.0.1:8080/ä"),
    ],
)
@pytest.mark.parametrize("command", [SEND, ("load", "--count", "1")])
def test_an_address_that_is_none_is_said_in_one_line(tmp_path: Path, command: tuple[str, ...], url: str) -> None:
    ended = carillon(*command, "--url", url, cwd=tmp_path)
    assert (ended.returncode, ended.stderr) == (1, f"carillon: {url} is not an http:// or https:// address\n")


@pytest.mark.req("P-1190")
def test_commands_find_the_process_that_still_runs(program: Program, tmp_path: Path) -> None:
    first = str(program.wait_ready()["addresses"][0])
    with Program("serve", env={"CARILLON_HTTP__PORT": "0"}, cwd=tmp_path) as second:
        address = str(second.wait_ready()["addresses"][0])
        assert address != first
        program.terminate()
        assert program.wait() == 0
        assert "delivered" in carillon(*SEND, cwd=tmp_path).stdout
        assert (tmp_path / "carillon.db-url").read_text(encoding="utf-8") == f"{address}\n"
        second.terminate()
        assert second.wait() == 0
    assert not (tmp_path / "carillon.db-url").exists()


@pytest.mark.req("P-1226")
@pytest.mark.parametrize("token", ["sec ret", "ключ"])
@pytest.mark.parametrize("command", [SEND, ("load", "--count", "1"), ("pause",), ("top", "--json")])
def test_a_token_that_is_none_is_said_in_one_line(tmp_path: Path, command: tuple[str, ...], token: str) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    ended = carillon(*command, "--url", url, cwd=tmp_path, env={"CARILLON_TOKEN": token})
    said = "carillon: CARILLON_TOKEN: it must hold one token and nothing else\n"
    assert (ended.returncode, ended.stderr) == (1, said)


@pytest.mark.req("P-1226")
def test_a_token_may_end_with_its_line(program: Program, tmp_path: Path) -> None:
    assert program.wait_ready()
    assert "Nothing is paused." in carillon("pause", cwd=tmp_path, env={"CARILLON_TOKEN": "secret\n"}).stdout


@pytest.mark.req("P-1223")
def test_a_key_that_no_header_can_carry_is_refused_in_one_line(program: Program, tmp_path: Path) -> None:
    assert program.wait_ready()
    ended = carillon(*SEND, "--key", "ключ", cwd=tmp_path)
    said = "carillon: VALIDATION_ERROR: an idempotency key is 1 to 255 printable ASCII characters"
    assert (ended.returncode, ended.stderr.startswith(said)) == (1, True), ended.stderr


@pytest.mark.req("P-1228")
def test_commands_find_the_older_process_too(program: Program, tmp_path: Path) -> None:
    first = str(program.wait_ready()["addresses"][0])
    with Program("serve", env={"CARILLON_HTTP__PORT": "0"}, cwd=tmp_path) as killed:
        killed.wait_ready()
        killed.kill()
    with Program("serve", env={"CARILLON_HTTP__PORT": "0"}, cwd=tmp_path) as second:
        second.wait_ready()
        second.terminate()
        assert second.wait() == 0
    assert (tmp_path / "carillon.db-url").read_text(encoding="utf-8") == f"{first}\n"
    assert "delivered" in carillon(*SEND, cwd=tmp_path).stdout


@pytest.mark.req("P-1187")
def test_a_pause_without_a_name_asks_for_it(program: Program, tmp_path: Path) -> None:
    assert program.wait_ready()
    ended = carillon("pause", "provider", "--reason", "an incident", cwd=tmp_path)
    assert ended.returncode == 2
    assert "which provider?" in ended.stderr
    assert ended.stdout == ""
    assert carillon("pause", cwd=tmp_path).stdout == "Nothing is paused.\n"
