"""Who may do what, of a cluster, as one node changes it: what is written when, and what is told of it."""

import asyncio
import errno
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import pytest

from muster.coordinator.errors import ErrorCode
from muster.coordinator.replication.io.wire.node_api import SecurityChange, SecurityUpdateResult
from muster.coordinator.replication.io.wire.node_links import LinkBroken
from muster.coordinator.security.records import decode_security_record
from muster.coordinator.security.state import SecretKey, SecurityRecord
from muster.coordinator.server.cluster_backend import shared_security
from muster.coordinator.server.cluster_backend.shared_security import BEGUN, SharedSecurityStore
from muster.coordinator.server.security.security_store import (
    ConcurrentSecurityChange,
    SecurityUnavailable,
    SecurityWriteTimedOut,
    error_code_for,
)
from muster.storage.broker.broker import Broker
from muster.storage.errors import StorageError

MINE = [SecurityRecord(SecretKey("a"), b"mine")]
THEIRS = [SecurityRecord(SecretKey("a"), b"theirs")]
OTHER = [SecurityRecord(SecretKey("b"), b"theirs")]

Answer = SecurityUpdateResult | Exception | Callable[[], SecurityUpdateResult]


class Leader:
    """Answers each write as a test has it; what it is told of is in force once `brought`."""

    def __init__(self, *answers: Answer) -> None:
        self.answers = list(answers)
        self.written: list[list[SecurityRecord]] = []
        self.reached: asyncio.Event | None = None
        self.why = ""

    async def run(self, sink: SharedSecurityStore) -> None:
        sink.begin_reload()
        sink.complete()
        await asyncio.Event().wait()

    async def latest(self) -> None: ...

    async def reaches(self, end: int) -> None:
        if self.reached is not None:
            await self.reached.wait()

    async def write(self, changes: Sequence[SecurityChange]) -> SecurityUpdateResult:
        self.written.append([decode_security_record(each.key, each.value) for each in changes])
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer() if callable(answer) else answer

    def close(self) -> None: ...


def refused(code: ErrorCode) -> SecurityUpdateResult:
    return SecurityUpdateResult(code, 1)


DONE = SecurityUpdateResult(ErrorCode.NONE, 1)


def play(tmp_path: Path, leader: Leader, story: Callable[[SharedSecurityStore], Awaitable[None]]) -> None:
    async def run() -> None:
        broker = Broker(tmp_path / "data")
        store = SharedSecurityStore(broker)
        store.load()
        await store.know(leader, lambda why: None, there=True)  # type: ignore[arg-type]
        try:
            await story(store)
        finally:
            store.stop()
            broker.close()

    asyncio.run(run())


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_security, "RETRY_S", 0)


def test_it_is_told_as_done_once_it_is_in_force_on_this_node(tmp_path: Path) -> None:
    async def story(store: SharedSecurityStore) -> None:
        leader.reached = asyncio.Event()
        writing = asyncio.create_task(store.write(MINE))
        for _ in range(20):
            await asyncio.sleep(0)
        assert leader.written == [MINE]
        assert not writing.done()
        leader.reached.set()
        await writing

    leader = Leader(DONE)
    play(tmp_path, leader, story)


def test_what_came_in_between_and_is_about_others_is_no_hindrance(tmp_path: Path) -> None:
    async def story(store: SharedSecurityStore) -> None:
        await store.write(MINE)
        assert leader.written == [MINE, MINE]
        assert store.state.secrets["b"] == b"theirs"

    def between() -> SecurityUpdateResult:
        stores[0].apply_changes(OTHER)
        return refused(ErrorCode.INVALID_UPDATE_VERSION)

    stores: list[SharedSecurityStore] = []
    leader = Leader(between, DONE)
    play(tmp_path, leader, lambda store: stores.append(store) or story(store))  # type: ignore[func-returns-value]


def test_what_came_in_between_is_taken_in_before_it_is_written_again(tmp_path: Path) -> None:
    async def story(store: SharedSecurityStore) -> None:
        leader.reached = asyncio.Event()
        writing = asyncio.create_task(store.write(MINE))
        for _ in range(20):
            await asyncio.sleep(0)
        assert leader.written == [MINE], "it would be refused by the same word again"
        leader.reached.set()
        await writing
        assert leader.written == [MINE, MINE]

    leader = Leader(refused(ErrorCode.INVALID_UPDATE_VERSION), DONE)
    play(tmp_path, leader, story)


def test_who_is_overtaken_decides_anew(tmp_path: Path) -> None:
    seen: list[bytes | None] = []

    async def story(store: SharedSecurityStore) -> None:
        def between() -> SecurityUpdateResult:
            store.apply_changes(THEIRS)
            return refused(ErrorCode.INVALID_UPDATE_VERSION)

        async def change() -> None:
            seen.append(store.state.secrets.get("a"))
            await store.write(MINE)

        leader.answers = [between, DONE]
        await store.settled(change)
        assert seen == [None, b"theirs"]
        store.apply_changes(OTHER)
        leader.answers = [lambda: store.apply_changes(THEIRS) or refused(ErrorCode.INVALID_UPDATE_VERSION)]
        store.apply_changes(MINE)
        with pytest.raises(ConcurrentSecurityChange):
            await store.write([SecurityRecord(SecretKey("a"), None)])

    leader = Leader()
    play(tmp_path, leader, story)


def test_an_answer_that_was_lost_is_no_second_write(tmp_path: Path) -> None:
    async def story(store: SharedSecurityStore) -> None:
        def lost() -> SecurityUpdateResult:
            store.apply_changes(MINE)
            raise LinkBroken("the connection broke")

        leader.answers = [lost]
        await store.write(MINE)
        assert leader.written == [MINE]

    leader = Leader()
    play(tmp_path, leader, story)


@pytest.mark.parametrize(
    ("answer", "kind", "code"),
    [
        (refused(ErrorCode.LEADER_NOT_AVAILABLE), SecurityUnavailable, 15),
        (refused(ErrorCode.NOT_ENOUGH_REPLICAS), SecurityUnavailable, 15),
        (refused(ErrorCode.REQUEST_TIMED_OUT), SecurityWriteTimedOut, 7),
        (LinkBroken("it broke"), SecurityWriteTimedOut, 7),
    ],
)
def test_what_is_not_done_in_time_says_whether_it_may_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: Answer, kind: type[SecurityUnavailable], code: int
) -> None:
    monkeypatch.setattr(shared_security, "DEADLINE_S", 0.02)

    async def story(store: SharedSecurityStore) -> None:
        leader.answers = [answer] * 100_000
        with pytest.raises(SecurityUnavailable) as told:
            await store.write(MINE)
        assert (type(told.value), error_code_for(told.value)) == (kind, code)
        assert ErrorCode(code).retriable

    leader = Leader()
    play(tmp_path, leader, story)


def test_what_the_leader_cannot_take_is_no_matter_of_time(tmp_path: Path) -> None:
    async def story(store: SharedSecurityStore) -> None:
        with pytest.raises(StorageError, match="INVALID_REQUEST") as told:
            await store.write(MINE)
        assert error_code_for(told.value) is ErrorCode.UNKNOWN_SERVER_ERROR

    play(tmp_path, Leader(refused(ErrorCode.INVALID_REQUEST)), story)


def test_the_first_change_that_is_somebody_s_says_that_there_was_one(tmp_path: Path) -> None:
    from tests.support.secured_sides import acl

    async def story(store: SharedSecurityStore) -> None:
        from muster.coordinator.security.state import AclKey

        await store.write(MINE)
        await store.write([SecurityRecord(AclKey(acl("a")), acl("a"))])
        assert [len(each) for each in leader.written] == [1, 2]
        assert leader.written[1][1] == SecurityRecord(SecretKey(BEGUN), b"1")

    leader = Leader(DONE, DONE)
    play(tmp_path, leader, story)


def test_what_waited_and_cannot_be_taken_away_is_not_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would come again with each start: a user who was removed meanwhile would be there again."""

    def stays(directory: Path) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(shared_security, "read_pending", lambda directory: MINE)
    monkeypatch.setattr(shared_security, "remove_pending", stays)

    async def story(store: SharedSecurityStore) -> None:
        raise AssertionError("it is not begun")

    leader = Leader(DONE)
    with pytest.raises(StorageError, match="cannot be removed: Read-only file system; what waited in it"):
        play(tmp_path, leader, story)
    assert leader.written == [MINE]
