"""The topics of the log, in the words of those who ask: numbers of partitions, and ids."""

from collections.abc import Mapping
from typing import Protocol

from muster.coordinator.runtime.ports import LogFailed, LogNotReady
from muster.storage.broker.broker import Broker
from muster.storage.errors import NotKnownYet, StorageError


class CatalogTopic(Protocol):
    @property
    def id(self) -> bytes: ...

    @property
    def partitions(self) -> int: ...


class CatalogSource(Protocol):
    """A broker, as far as it is asked here."""

    def topics(self) -> Mapping[str, CatalogTopic]: ...


def topic_ids(broker: CatalogSource) -> dict[str, bytes]:
    """None of a topic that matches no pattern, whatever it is called."""
    return {name: topic.id for name, topic in broker.topics().items() if topic.id}


def partition_counts(broker: CatalogSource) -> dict[str, int]:
    return {name: topic.partitions for name, topic in broker.topics().items()}


def span_of_log(broker: Broker, topic: str, partition: int) -> tuple[int, int]:
    """Where a partition's log begins and ends. Raises LogFailed where there is none, or it is damaged; NotYet where
    another node is to say."""
    try:
        return broker.start_offset(topic, partition), broker.high_watermark(topic, partition)
    except NotKnownYet as error:
        raise LogNotReady(str(error), error.wait) from error
    except StorageError as error:
        raise LogFailed(str(error)) from error
