"""A node's part in `__security`: what it takes in, when it reads anew, and what it says before it writes."""

import asyncio
import threading
from collections.abc import Callable, Sequence

import pytest

from muster.coordinator.errors import ErrorCode
from muster.coordinator.replication.io import security_log as module
from muster.coordinator.replication.io.security_log import ANEW_AFTER_S, SecurityFollower
from muster.coordinator.replication.io.wire.node_api import (
    SecurityChange,
    SecurityQuery,
    SecurityRecords,
    SecurityUpdate,
    SecurityUpdateResult,
)
from muster.coordinator.replication.io.wire.node_links import LinkError
from muster.coordinator.replication.protocol.cluster_metadata import (
    NO_EPOCH,
    SECURITY,
    ClusterImage,
    ClusterState,
    PartitionView,
    TopicView,
)
from muster.coordinator.security.records import UnreadableSecurityRecord, encode_security_record
from muster.coordinator.security.state import SecretKey, SecurityRecord, SecurityState, diff_states
from muster.storage.records.batch import encode_batch

ME = 1


def image() -> ClusterImage:
    found = ClusterImage()
    topic = TopicView(b"s" * 16, SECURITY, {}, {0: PartitionView(ME, 0, 0, (ME,), (), (ME,))})
    found.apply(ClusterState(epoch=1, sequence=1, full=True, topics=(topic,)))
    return found


class Page:
    """A `SecuritySink` that writes down what it is told."""

    def __init__(self) -> None:
        self.told: list[object] = []

    def begin_reload(self) -> None:
        self.told.append("begin")

    def apply_changes(self, changes: Sequence[SecurityRecord]) -> None:
        self.told += [str(change.key[0]) for change in changes]

    def complete(self) -> None:
        self.told.append("complete")


class Told:
    """A leader that answers as a test has it, one question after the other, and then is silent."""

    def __init__(self, *reads: SecurityRecords) -> None:
        self.reads = list(reads)
        self.asked: list[SecurityQuery] = []
        self.done = asyncio.Event()

    async def read(self, asked: SecurityQuery) -> SecurityRecords:
        self.asked.append(asked)
        if not self.reads:
            self.done.set()
            await asyncio.Event().wait()
        return self.reads.pop(0)

    async def write(self, changed: SecurityUpdate) -> SecurityUpdateResult:
        return SecurityUpdateResult(ErrorCode.NONE, changed.base + len(changed.changes))


class NoLinks:
    def close(self) -> None: ...


def records(at: int, *names: str, epoch: int = 0, value: bytes | None = None) -> bytes:
    rows = []
    for name in names:
        key, made = encode_security_record(SecurityRecord(SecretKey(name), b"x"))
        rows.append((0, key, value or made, ()))
    return bytes(encode_batch(rows, base_offset=at, leader_epoch=epoch))


def anew(start: int, high: int) -> SecurityRecords:
    return SecurityRecords(ErrorCode.NONE, start, high, high, anew=True)


def read(high: int, data: bytes = b"") -> SecurityRecords:
    return SecurityRecords(ErrorCode.NONE, 0, high, high, records=data)


def follow(
    leader: Told, then: Callable[[SecurityFollower], None] = lambda one: None, clock: Sequence[float] = ()
) -> Page:
    page, seconds = Page(), list(clock)
    one = SecurityFollower(
        ME,
        image(),
        leader,
        NoLinks,
        lambda: seconds.pop(0) if seconds else 0.0,  # type: ignore[arg-type]
    )

    async def story() -> None:
        leader.done = asyncio.Event()
        running = asyncio.create_task(one.run(page))
        waiting = asyncio.create_task(leader.done.wait())
        await asyncio.wait({running, waiting}, return_when=asyncio.FIRST_COMPLETED)
        if running.done():
            running.result()
        then(one)
        running.cancel()

    asyncio.run(story())
    return page


def test_all_that_is_committed_comes_into_force_at_once_and_the_rest_as_it_comes() -> None:
    leader = Told(
        anew(0, 3), read(3, records(0, "a", "b")), read(3, records(2, "c")), read(4, records(3, "d", epoch=2))
    )
    assert follow(leader).told == ["begin", "a", "b", "c", "complete", "d"]
    assert [(each.offset, each.last_epoch) for each in leader.asked] == [(-1, -1), (0, -1), (2, 0), (3, 0), (4, 2)]


def test_nothing_is_known_before_all_that_the_leader_has_is_committed() -> None:
    """A leader that was killed knows a high watermark of some seconds ago, and what was acknowledged since counts."""
    begun = SecurityRecords(ErrorCode.NONE, 0, 1, 2, anew=True)
    first = SecurityRecords(ErrorCode.NONE, 0, 1, 2, records=records(0, "a"))
    assert follow(Told(begun, first)).told == ["begin", "a"]
    assert follow(Told(begun, first, read(2, records(1, "b")))).told == ["begin", "a", "b", "complete"]


def test_what_a_leader_had_and_the_next_one_has_not_is_not_waited_for() -> None:
    begun = SecurityRecords(ErrorCode.NONE, 0, 1, 9, anew=True)
    assert follow(Told(begun, read(1, records(0, "a")))).told == ["begin", "a", "complete"]


def test_what_is_empty_is_known_at_once() -> None:
    assert follow(Told(anew(5, 5))).told == ["begin", "complete"]


def test_a_batch_that_begins_before_what_is_asked_for_is_taken_from_there() -> None:
    leader = Told(anew(1, 3), read(3, records(0, "a", "b", "c")))
    assert follow(leader).told == ["begin", "b", "c", "complete"]


def test_where_an_election_cut_what_was_read_all_is_read_anew() -> None:
    leader = Told(anew(0, 2), read(2, records(0, "a", "b")), anew(0, 1), read(1, records(0, "a", epoch=1)))
    assert follow(leader).told == ["begin", "a", "b", "complete", "begin", "a", "complete"]
    assert leader.asked[3] == SecurityQuery(0, NO_EPOCH, leader.asked[3].max_wait_ms)


def test_who_has_heard_nothing_for_long_reads_all_anew() -> None:
    """What was taken away meanwhile, and cleaned out of the log, would stand for ever."""
    leader = Told(anew(0, 1), read(1, records(0, "a")), read(1), anew(0, 1))
    late = ANEW_AFTER_S + 5
    follow(leader, clock=[0, 0, 0, 0, 0, 0, 0, late, late, late])
    assert [each.offset for each in leader.asked] == [-1, 0, 1, -1, 0]


def test_what_cannot_be_read_ends_it_and_what_came_damaged_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RETRY_S", 0)
    with pytest.raises(UnreadableSecurityRecord, match="version 9"):
        follow(Told(anew(0, 1), read(1, records(0, "a", value=b'{"version":9}'))))
    damaged = bytearray(records(0, "a"))
    damaged[-1] ^= 1
    leader = Told(anew(0, 1), read(1, bytes(damaged)), SecurityRecords(ErrorCode.NOT_LEADER_OR_FOLLOWER))
    leader.reads.append(read(1, records(0, "a")))
    assert follow(leader).told == ["begin", "a", "complete"]


def test_nothing_is_written_while_it_is_not_known_what_is_there() -> None:
    found: list[SecurityUpdateResult] = []
    change = [SecurityChange(b"k", None)]

    def then(one: SecurityFollower) -> None:
        writing = one.write(change)
        try:
            writing.send(None)
        except StopIteration as done:
            found.append(done.value)

    follow(Told(anew(0, 2), read(2, records(0, "a"))), then)
    follow(Told(anew(0, 1), read(1, records(0, "a"))), then)
    assert found == [SecurityUpdateResult(ErrorCode.LEADER_NOT_AVAILABLE), SecurityUpdateResult(ErrorCode.NONE, 2)]


class Fed:
    """A leader that has what a test feeds it, one answer after the other; who wants the latest hears `ends`."""

    def __init__(self) -> None:
        self.fed: asyncio.Queue[SecurityRecords] = asyncio.Queue()
        self.ends: list[SecurityRecords] = []

    async def read(self, asked: SecurityQuery) -> SecurityRecords:
        return await self.fed.get() if asked.max_wait_ms else self.ends.pop(0)

    async def write(self, changed: SecurityUpdate) -> SecurityUpdateResult:
        raise AssertionError("nobody writes")


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_who_wants_the_latest_waits_until_all_of_it_is_in_force() -> None:
    async def story() -> None:
        leader, page, looks = Fed(), Page(), list[None]()
        one = SecurityFollower(ME, image(), leader, NoLinks, lambda: 0.0, lambda: looks.append(None))  # type: ignore[arg-type]
        running = asyncio.create_task(one.run(page))
        leader.ends = [anew(0, 2), read(1)]
        latest = asyncio.create_task(one.latest())
        await turns()
        assert (latest.done(), len(leader.ends)) == (False, 1), "what is known here is not what is there"
        for number, answer in enumerate((anew(0, 2), read(2, records(0, "a"))), 2):
            leader.fed.put_nowait(answer)
            await turns()
            assert (latest.done(), len(looks)) == (False, number)
        leader.fed.put_nowait(read(2, records(1, "b")))
        async with asyncio.timeout(20):
            await latest
        assert (page.told, leader.ends) == (["begin", "a", "b", "complete"], [])
        leader.ends = [read(3)]
        latest = asyncio.create_task(one.latest())
        await turns()
        assert not latest.done()
        leader.fed.put_nowait(read(3, records(2, "c")))
        async with asyncio.timeout(20):
            await latest
        leader.ends = [SecurityRecords(ErrorCode.NOT_LEADER_OR_FOLLOWER)]
        with pytest.raises(LinkError, match="the leader of __security-0 answers NOT_LEADER_OR_FOLLOWER"):
            await one.latest()
        running.cancel()

    asyncio.run(story())


def test_what_makes_one_state_of_another() -> None:
    one, other = SecurityState(), SecurityState()
    one.apply([SecurityRecord(SecretKey(name), b"1") for name in "ab"])
    other.apply([SecurityRecord(SecretKey("b"), b"2"), SecurityRecord(SecretKey("c"), b"1")])
    changes = diff_states(one, other)
    assert changes == [
        SecurityRecord(SecretKey("a"), None),
        SecurityRecord(SecretKey("b"), b"2"),
        SecurityRecord(SecretKey("c"), b"1"),
    ]
    assert diff_states(one, other, only_come=True) == changes[1:]
    one.apply(changes)
    assert not diff_states(one, other)


def test_much_at_once_is_read_beside_the_loop_and_taken_write_by_write(monkeypatch: pytest.MonkeyPatch) -> None:
    """A megabyte of rules took a hundred milliseconds of every node's loop."""
    names = [f"secret-{number}" for number in range(400)]
    data = b"".join(records(at, *names[at : at + 100]) for at in range(0, 400, 100))
    assert len(data) > module.AT_ONCE
    where: list[bool] = []
    apart = module.split_records

    def seen(taken: bytes, offset: int) -> Sequence[module.SecurityPortion]:
        where.append(threading.current_thread() is threading.main_thread())
        return apart(taken, offset)

    monkeypatch.setattr(module, "split_records", seen)
    page = follow(Told(anew(0, 400), read(400, data), read(401, records(400, "last"))))
    assert page.told == ["begin", *names, "complete", "last"]
    assert where == [True, False, True]


def test_what_cannot_be_read_in_much_ends_it_all_the_same() -> None:
    names = [f"secret-{number}" for number in range(400)]
    with pytest.raises(UnreadableSecurityRecord, match="of version 9"):
        follow(Told(anew(0, 401), read(401, records(0, *names) + records(400, "later", value=b'{"version":9}'))))
