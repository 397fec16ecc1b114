"""Settings of the Kafka door that cannot work, each refused by its name before anything is read."""

from pathlib import Path

import pytest

from carillon.compose.intake import kafka_door
from carillon.compose.process import Process
from carillon.config.reading import load, masked, secrets
from carillon.config.settings import Settings
from carillon.domain.errors import ConfigurationError
from tests.support.dispatches import LoopClock

SERVERS = {"KAFKA_BOOTSTRAP_SERVERS": "127.0.0.1:1"}


def settings(folder: Path, text: str) -> Settings:
    file = folder / "carillon.toml"
    file.write_text(text)
    return load(config=file, environ=SERVERS)


def opened(given: Settings) -> object:
    process = Process(given, {}, LoopClock(), lambda _: None, "owner")
    # What is refused is refused before a ledger is looked at.
    return kafka_door(process, None)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            '[kafka.options]\n"enable.auto.commit" = "true"\n',
            r"kafka\.options: enable\.auto\.commit is set by the door",
        ),
        ('[kafka.options]\n"auto.offset.reset" = "latest"\n', r"kafka\.options: auto\.offset\.reset"),
        ('[kafka.options]\n"group.id" = "mine"\n', r"kafka\.options: group\.id is set by kafka\.group_id"),
        ('[kafka.options]\n"no.such.property" = "1"\n', r"kafka\.options: .*no\.such\.property"),
        ('[kafka.options]\n"fetch.min.bytes" = "many"\n', r"kafka\.options: .*fetch\.min\.bytes"),
        ("[kafka]\nbatch = 0\n", r"kafka\.batch: 0 is not between 1 and 10000"),
        ("[kafka]\nsession_timeout_ms = 10\n", r"kafka\.session_timeout_ms"),
        ("[kafka]\ntopics = 1\n", r"kafka\.topics"),
        ('[priorities]\n"a.*" = "URGENT"\n', r"priorities"),
    ],
)
def test_what_cannot_work_is_refused(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        opened(settings(tmp_path, f'extends = "sse"\n{text}'))


def test_a_blueprint_without_such_messages_reads_no_topic(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="local reads no topic; sse does"):
        opened(settings(tmp_path, 'extends = "local"\n[kafka]\nbootstrap_servers = "127.0.0.1:1"\n'))


def test_without_brokers_nothing_is_read() -> None:
    assert opened(load("sse", environ={})) is None


def test_the_document_s_names(tmp_path: Path) -> None:
    found = load("sse", environ={**SERVERS, "KAFKA_TOPIC": "notification-events", "KAFKA_GROUP_ID": "mine"}).kafka
    assert (found.bootstrap_servers, found.topic, found.group_id) == ("127.0.0.1:1", "notification-events", "mine")
    file = settings(tmp_path, 'extends = "sse"\n[kafka]\ngroup_id = "told"\nsession_timeout_ms = 6000\n').kafka
    assert (file.topic, file.group_id, file.session_timeout_ms) == ("notifications", "told", 6000)


def test_a_password_among_the_options_is_hidden(tmp_path: Path) -> None:
    found = settings(tmp_path, 'extends = "sse"\n[kafka.options]\n"sasl.password" = "hunter-22"\n')
    assert masked(found)["kafka"]["options"] == {"sasl.password": "********"}
    assert "hunter-22" in secrets(found)
