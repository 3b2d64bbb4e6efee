"""The upstream's topics where a node on its own has its log: what a change of them means for what is known."""

from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any, cast

from muster.coordinator.config import load_settings
from muster.coordinator.core.model.events import TopicsChanged
from muster.coordinator.server.kafka_backend.upstream_logs import UpstreamLogs


class Told:
    """`Topics`, as far as it is asked."""

    internal = frozenset({"muster.state"})

    def __init__(self) -> None:
        self.counts = {"orders": 2, "muster.state": 8}
        self.listeners: list[Callable[[TopicsChanged], None]] = []

    def partitions(self) -> dict[str, int]:
        return self.counts

    def ids(self) -> dict[str, bytes]:
        return {"orders": b"o" * 16}

    def on_change(self, listener: Callable[[TopicsChanged], None]) -> None:
        self.listeners.append(listener)


def test_t5_where_a_topics_logs_ended_is_forgotten_with_it() -> None:
    """What is made anew under its name has other ends: with the old ones every lag would be wrong."""
    told, forgotten = Told(), list[str]()

    def forget(topics: Iterable[str]) -> None:
        forgotten.extend(topics)

    ends = SimpleNamespace(forget=forget, ahead=None)
    logs = UpstreamLogs(load_settings(None, {"engine": "kafka://b:9092"}), "id", cast(Any, told), cast(Any, ends))
    heard: list[set[str]] = []
    logs.on_topics_changed(lambda: heard.append(set(logs.topics())))
    told.counts = {"shop": 1, "muster.state": 8}
    for listener in told.listeners:
        listener(TopicsChanged(told.counts, ("orders",)))
    assert (forgotten, heard) == (["orders"], [{"shop", "muster.state"}])
    assert [topic.name for topic in logs.topics().values() if topic.internal] == ["muster.state"]
