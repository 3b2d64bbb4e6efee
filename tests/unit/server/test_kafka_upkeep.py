"""What a node over a Kafka looks at each second: a mistake in one look is not the end of all others."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from muster.coordinator.config import load_settings
from muster.coordinator.runtime.node_status import Conditions
from muster.coordinator.server.backend import upkeep as upkeep_module
from muster.coordinator.server.kafka_backend import kafka_node_backend
from muster.coordinator.server.kafka_backend.kafka_node_backend import KafkaUpkeep
from tests.support.kafka.memory_node import until


def test_a_mistake_in_one_look_is_not_the_end_of_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_node_backend, "TICK_S", 0.0)
    contained: list[BaseException] = []
    monkeypatch.setattr(upkeep_module, "report_contained", lambda what, error: contained.append(error))
    looked: list[str] = []

    def mistaken(*_: Any) -> None:
        raise KeyError("a mistake of the program")

    side: Any = SimpleNamespace(
        owning=SimpleNamespace(now_ms=lambda: 0),
        shard_diagnostics=SimpleNamespace(report_shards=mistaken),
        upstream_diagnostics=SimpleNamespace(report_conditions=lambda conditions: looked.append("diagnostics")),
        look_at_transactions=mistaken,
        rights=SimpleNamespace(report_conditions=lambda conditions: looked.append("rights")),
        mirroring=None,
    )

    async def story() -> None:
        upkeep = KafkaUpkeep(load_settings(None, {"engine": "kafka://b:9092"}), side, Conditions(lambda: 0), None)
        await until(lambda: looked[:4] == ["diagnostics", "rights"] * 2)
        upkeep.stop()
        assert len(contained) >= 4

    asyncio.run(story())
