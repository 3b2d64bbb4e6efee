"""The quotas that are kept: many at once, and on a disk that is full."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from muster.coordinator.errors import ErrorCode
from muster.coordinator.rpc.v1 import quota_service_pb2 as pb
from muster.coordinator.server.security import grpc_quotas
from muster.coordinator.server.security.grpc_quotas import Alteration, ConfiguredQuotas, QuotaService
from muster.coordinator.server.security.security_store import SecurityStore
from muster.storage.broker.broker import Broker
from muster.storage.errors import StorageError


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SecurityStore]:
    broker = Broker(tmp_path / "data")
    opened = SecurityStore(broker)
    opened.load()
    yield opened
    broker.close()


def wanted(*names: str) -> list[Alteration]:
    return [([("user", name)], [("producer_byte_rate", 1.0)]) for name in names]


class NeverCounted(dict[Any, Any]):
    def keys(self) -> Any:
        raise AssertionError("all that there are were looked at for each that comes")


def test_there_is_an_end_to_how_many_have_quotas_and_nobody_counts_them_for_each(
    store: SecurityStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """100,000 entities in one request held the node's loop up for 95 s."""
    monkeypatch.setattr(grpc_quotas, "MOST_ENTITIES", 3)
    monkeypatch.setattr(grpc_quotas, "AT_ONCE", 2)
    store.state.quotas = NeverCounted()

    async def story() -> None:
        quotas = ConfiguredQuotas(store)
        assert [bool(why) for why in await quotas.alter(wanted("a", "b"), validate_only=False)] == [False] * 2
        told = await quotas.alter(wanted("b", "c", "c", "d", "a"), validate_only=False)
        assert [why.partition(";")[0] for why in told] == [
            "",
            "",
            "the request names this entity twice",
            "3 entities have quotas",
            "",
        ]
        assert [entity for entity, _ in store.state.quotas.items()] == [(("user", name),) for name in "abc"]

    asyncio.run(story())


def test_many_names_of_one_entity_are_counted_once() -> None:
    """Each was looked for among all others: minutes, for 100,000 names to be taken away."""

    class Name(str):
        __slots__ = ()
        compared = 0
        __hash__ = str.__hash__

        def __eq__(self, other: object) -> bool:
            Name.compared += 1
            return str.__eq__(self, other)

    assert grpc_quotas.apply_quota_ops((("user", "a"),), {}, [(Name(number), None) for number in range(500)]) == {}
    assert Name.compared < 5_000


def test_more_than_one_write_takes_are_in_force_together(store: SecurityStore) -> None:
    names = [f"{number:04}" + "x" * 1_000 for number in range(4_500)]

    async def story() -> None:
        assert not any(await ConfiguredQuotas(store).alter(wanted(*names), validate_only=False))
        assert len(await ConfiguredQuotas(store).matching([], strict=False)) == len(names)

    asyncio.run(story())


def test_a_disk_that_takes_nothing_is_told_by_grpc_as_such(
    store: SecurityStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def full(changes: Any) -> None:
        raise StorageError("No space left on device")

    monkeypatch.setattr(store, "write_all", full)
    request = pb.AlterQuotasRequest()
    entry = request.entries.add(set={"producer_byte_rate": 1.0})
    entry.entity.add(type="user", name="a")
    (answer,) = asyncio.run(QuotaService(ConfiguredQuotas(store)).alter_quotas(request, None)).results  # type: ignore[arg-type]
    assert answer.error_code == int(ErrorCode.UNKNOWN_SERVER_ERROR)
    assert "No space left" in answer.error_message
    assert not store.state.quotas
