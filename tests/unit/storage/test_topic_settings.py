"""Settings of a topic that change while its logs are in use: at once, for good, and refused before anything is done."""

import asyncio
from collections.abc import Mapping

import pytest

from muster.storage import errors
from muster.storage.broker.broker import Broker
from muster.storage.broker.requests import LogRequests
from muster.storage.config import LogSettings, TopicSettings
from tests.fakes.memory_files import MemoryFiles
from tests.unit.storage.logs import T0, batch, open_broker


def changed(broker: Broker, name: str, changes: Mapping[str, str | None]) -> None:
    """As the doors do it. Raises what is refused."""

    async def run() -> None:
        requests = LogRequests.standalone(broker, clock_ms=lambda: T0)
        (result,) = await requests.topics.change([(name, changes)])
        await requests.close()
        if isinstance(result, errors.StorageError):
            raise result

    asyncio.run(run())


def test_a_new_setting_holds_for_the_next_append_and_after_a_restart() -> None:
    files = MemoryFiles()
    broker = open_broker(files)
    broker.create_topic("t", 2, {"retention.ms": "5000"})
    broker.append("t", 1, batch(b"x" * 300), T0)
    changed(broker, "t", {"max.message.bytes": "200"})
    with pytest.raises(errors.RecordBatchTooLarge):
        broker.append("t", 1, batch(b"x" * 300), T0)
    files.crash()
    reopened = open_broker(files)
    with pytest.raises(errors.RecordBatchTooLarge):
        reopened.append("t", 1, batch(b"x" * 300), T0)
    assert dict(reopened.topic("t").configs) == {"retention.ms": "5000", "max.message.bytes": "200"}


def test_a_setting_that_is_unset_is_the_nodes_again() -> None:
    broker = open_broker(MemoryFiles())
    broker.create_topic("t", 1, {"max.message.bytes": "100", "retention.ms": "5000"})
    with pytest.raises(errors.RecordBatchTooLarge):
        broker.append("t", 0, batch(b"x" * 300), T0)
    changed(broker, "t", {"max.message.bytes": None, "segment.bytes": None})
    broker.append("t", 0, batch(b"x" * 300), T0)
    assert dict(broker.topic("t").configs) == {"retention.ms": "5000"}


def test_readers_keep_what_they_have_seen_when_appends_are_to_be_flushed_again() -> None:
    broker = open_broker(MemoryFiles())
    broker.create_topic("t", 1, {"flush.messages": "1000"})
    broker.append("t", 0, batch(b"seen"), T0)
    assert broker.high_watermark("t", 0) == 1
    changed(broker, "t", {"flush.messages": "1"})
    assert broker.high_watermark("t", 0) == 1
    broker.append("t", 0, batch(b"not flushed yet"), T0)
    assert broker.high_watermark("t", 0) == 1


@pytest.mark.parametrize(
    ("name", "changes", "refusal", "words"),
    [
        ("nowhere", {"retention.ms": "1"}, errors.UnknownTopicOrPartition, "no topic 'nowhere'"),
        ("t", {"retention.ms": "soon"}, errors.InvalidConfig, "'retention.ms' is 'soon'"),
        ("t", {"retention.msec": "1"}, errors.InvalidConfig, "did you mean 'retention.ms'"),
        ("t", {"cleanup.policy": "delete"}, errors.InvalidConfig, "compaction leaves gaps"),
        ("t", {"cleanup.policy": None}, errors.InvalidConfig, "compaction leaves gaps"),
    ],
)
def test_what_is_refused_changes_nothing(
    name: str, changes: Mapping[str, str | None], refusal: type[Exception], words: str
) -> None:
    broker = open_broker(MemoryFiles())
    broker.create_topic("t", 1, {"cleanup.policy": "compact"})
    before = broker.topic_settings("t")
    with pytest.raises(refusal, match=words):
        changed(broker, name, changes)
    assert broker.topic_settings("t") == before
    assert broker.log("t", 0).settings == before


def test_a_full_disk_leaves_the_settings_as_they_were() -> None:
    files = MemoryFiles()
    broker = open_broker(files)
    broker.create_topic("t", 1, {"retention.ms": "5000"})
    files.capacity = files.used()
    with pytest.raises(errors.StorageError, match="free some space"):
        changed(broker, "t", {"retention.ms": "6000"})
    assert broker.log("t", 0).settings.retention_ms == broker.topic_settings("t").retention_ms == 5000


BOOLEANS = [field.alias for field in TopicSettings.model_fields.values() if field.annotation is bool and field.alias]


@pytest.mark.parametrize("name", BOOLEANS)
def test_a_boolean_is_true_or_false_and_nothing_else_as_in_kafka(name: str) -> None:
    """The controller reads `yes` as false: an operator would believe in a setting that does not hold."""
    broker = open_broker(MemoryFiles())
    broker.create_topic("t", 1)
    for word in ("yes", "on", "1", "t", "y", "no", "off", "0", ""):
        with pytest.raises(errors.InvalidConfig, match=f"'{name}'.*expected true or false"):
            broker.create_topic("new", 1, {name: word})
        with pytest.raises(errors.InvalidConfig, match=f"'{name}'.*expected true or false"):
            changed(broker, "t", {name: word})
    for word in ("true", "FALSE", "True"):
        changed(broker, "t", {name: word})
    assert broker.topic_settings("t")


def test_a_catalog_of_an_older_version_may_have_other_words() -> None:
    assert LogSettings().for_topic({"preallocate": "yes"}).preallocate
