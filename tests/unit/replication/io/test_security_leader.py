"""Many rules at once are looked at beside the loop of who leads `__security`, and written as they would be at once."""

import asyncio
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from muster.coordinator.errors import ErrorCode
from muster.coordinator.replication.io import security_log as module
from muster.coordinator.replication.io.security_log import PLACE, SecurityLeader
from muster.coordinator.replication.io.wire.node_api import SecurityChange, SecurityUpdate, SecurityUpdateResult
from muster.coordinator.replication.protocol.cluster_metadata import TopicPartition
from muster.coordinator.security.records import encode_security_record
from muster.coordinator.security.state import SecretKey, SecurityRecord
from muster.storage.records.batch import decode_records
from muster.storage.types import AppendOrigin


class Records:
    """A log that only grows."""

    def __init__(self) -> None:
        self.end_offset = 0
        self.data = b""

    def append(self, batch: bytes, now_ms: int, *, origin: AppendOrigin) -> None:
        self.data += batch
        self.end_offset += len(list(decode_records(batch)))


class Led:
    """Who leads it, until it is not led here."""

    def __init__(self) -> None:
        self.records = Records()
        self.replicas = SimpleNamespace(led={PLACE: self})
        self.leader = SimpleNamespace(over=False, may_append=lambda acks: ErrorCode.NONE)
        broker = SimpleNamespace(private_log=lambda *place: self.records)
        self.leading = SecurityLeader(
            cast(Any, broker), cast(Any, self.replicas), appended=self._appended, wall_ms=lambda: 5, happened=list
        )

    async def _appended(self, place: TopicPartition, end: int) -> ErrorCode:
        return ErrorCode.NONE


def changed(count: int, value: bytes | None = None) -> SecurityUpdate:
    made = [encode_security_record(SecurityRecord(SecretKey(f"secret-{number}"), b"x" * 40)) for number in range(count)]
    return SecurityUpdate(0, -1, tuple(SecurityChange(key, value or data) for key, data in made))


def written(led: Led, asked: SecurityUpdate, meanwhile: Callable[[], None] = lambda: None) -> SecurityUpdateResult:
    async def story() -> SecurityUpdateResult:
        writing = asyncio.create_task(led.leading.write(asked))
        await asyncio.sleep(0)
        meanwhile()
        return await writing

    return asyncio.run(story())


@pytest.mark.parametrize(("count", "beside"), [(5, False), (1_000, True)])
def test_many_are_looked_at_beside_the_loop(monkeypatch: pytest.MonkeyPatch, count: int, beside: bool) -> None:
    where: list[bool] = []
    as_batch = module.encode_changes

    def seen(asked: SecurityUpdate, now_ms: int) -> bytes | None:
        where.append(threading.current_thread() is not threading.main_thread())
        return as_batch(asked, now_ms)

    monkeypatch.setattr(module, "encode_changes", seen)
    led = Led()
    assert written(led, changed(count)) == SecurityUpdateResult(ErrorCode.NONE, count)
    assert [each.key for each in decode_records(led.records.data)] == [each.key for each in changed(count).changes]
    assert where == [beside]
    assert written(led, changed(count)).error is ErrorCode.INVALID_UPDATE_VERSION


def test_what_is_led_elsewhere_by_then_is_not_written() -> None:
    led = Led()
    assert written(led, changed(1_000), led.replicas.led.clear).error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert led.records.data == b""


@pytest.mark.parametrize("count", [1, 1_000])
def test_what_cannot_be_read_is_not_written_however_much_it_is(count: int) -> None:
    led = Led()
    assert written(led, changed(count, b'{"version":9}' + b" " * 40)).error is ErrorCode.INVALID_REQUEST
    assert led.records.data == b""
