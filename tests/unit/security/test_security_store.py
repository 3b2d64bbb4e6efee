"""Who may do what, kept in a real log in a real directory."""

import asyncio
import errno
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from muster.coordinator.security.access_model import Acl, Operation, PatternType, Permission, ResourceType
from muster.coordinator.security.records import UnreadableSecurityRecord, decode_security_record, encode_security_record
from muster.coordinator.security.state import (
    AclKey,
    ApiToken,
    PasswordHash,
    QuotaKey,
    ScramCredential,
    SecurityRecord,
    TokenKey,
    TopicKey,
    TopicOwner,
    User,
    UserKey,
)
from muster.coordinator.server.security.security_store import PLACE, SECURITY_TOPIC, SecurityDamaged, SecurityStore
from muster.storage.broker.broker import Broker
from muster.storage.broker.group_commit import append_each
from muster.storage.errors import InvalidTopicName, StorageError, UnknownTopicOrPartition
from muster.storage.logs.log import Log
from muster.storage.records.batch import encode_turn
from muster.storage.tools.repair import recover_dir
from muster.storage.types import AppendOrigin

READS = Acl(ResourceType.TOPIC, PatternType.PREFIXED, "or ders", "User:CN=é,O=x", "*", Operation.READ, Permission.ALLOW)
ALICE = User("alice", {"SCRAM-SHA-256": ScramCredential(b"salt", 4096, b"s", b"v")}, PasswordHash(b"x", b"y", 2, 8, 1))
EVERYTHING = [
    SecurityRecord(UserKey("alice"), ALICE),
    SecurityRecord(TokenKey("t1"), ApiToken("t1", "ci", "User:ci", b"\x00\xff", 5, 6)),
    SecurityRecord(AclKey(READS), READS),
    SecurityRecord(TopicKey("orders"), TopicOwner("alice", bytes(16))),
    SecurityRecord(QuotaKey((("client-id", None), ("user", "alice"))), {"producer_byte_rate": 1024.0}),
]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    opened = Broker(tmp_path / "data")
    yield opened
    opened.close()


def opened(broker: Broker) -> SecurityStore:
    store = SecurityStore(broker)
    store.load()
    return store


@pytest.mark.parametrize("change", EVERYTHING, ids=lambda change: type(change.key).__name__)
def test_what_is_written_is_read_again(change: SecurityRecord) -> None:
    assert decode_security_record(*encode_security_record(change)) == change
    assert decode_security_record(encode_security_record(change)[0], None) == SecurityRecord(change.key, None)


def test_a_restart_finds_all_that_was_written_and_nothing_that_was_taken_away(broker: Broker) -> None:
    asyncio.run(opened(broker).write(EVERYTHING))
    asyncio.run(opened(broker).write([SecurityRecord(TokenKey("t1"), None)]))
    state = opened(broker).state
    assert (state.users, state.tokens, state.acls) == ({"alice": ALICE}, {}, {READS})
    assert state.quotas == {(("client-id", None), ("user", "alice")): {"producer_byte_rate": 1024.0}}


def private(broker: Broker) -> Log:
    log = broker.private_log(*PLACE)
    assert log is not None
    return log


def test_nobody_but_the_node_finds_it_and_nobody_takes_its_name(broker: Broker) -> None:
    for _ in range(2):  # whether or not it is there
        assert SECURITY_TOPIC not in broker.topics()
        for ask in (broker.topic, broker.topic_settings, broker.check_writable, broker.delete_topic):
            with pytest.raises(UnknownTopicOrPartition):
                ask(SECURITY_TOPIC)
        for origin in (AppendOrigin.CLIENT, AppendOrigin.COORDINATOR):
            with pytest.raises(UnknownTopicOrPartition):
                broker.append(*PLACE, encode_turn([(b"k", b"v", None)], 1), 1, origin=origin)
        assert isinstance(append_each(broker, *PLACE, [b""], 1)[0], UnknownTopicOrPartition)
        with pytest.raises(UnknownTopicOrPartition):
            broker.fetch(*PLACE, 0, 1)
        with pytest.raises(UnknownTopicOrPartition):
            broker.plan_change(SECURITY_TOPIC, {"retention.ms": "1"})
        with pytest.raises(UnknownTopicOrPartition):
            broker.add_partitions(SECURITY_TOPIC, 2)
        assert broker.sizes([PLACE]) == [0]
        assert broker.ends([PLACE]) == [-1]
        for name in (SECURITY_TOPIC, "..security", "_.security"):
            with pytest.raises(InvalidTopicName, match="keep for themselves"):
                broker.create_topic(name, 1)
        asyncio.run(opened(broker).write(EVERYTHING))


def test_a_restart_keeps_it_and_checks_it_as_all_logs(tmp_path: Path) -> None:
    first = Broker(tmp_path / "data")
    asyncio.run(opened(first).write(EVERYTHING))
    first.close()
    again = Broker(tmp_path / "data")
    assert [log.partition for log in again.logs()] == [PLACE]
    assert opened(again).state.acls == {READS}
    again.close()


def test_what_a_client_made_by_that_name_is_not_believed(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as before:  # a version that kept no names for itself
        before.setattr("muster.storage.topics.topics.PRIVATE_TOPICS", frozenset())
        broker.create_topic(SECURITY_TOPIC, 1)
    with pytest.raises(StorageError, match="a client made it"):
        opened(broker)


def test_a_change_is_in_force_once_it_is_durable_and_whoever_listens_hears_of_it(broker: Broker) -> None:
    store = opened(broker)
    heard = []
    store.on_change(lambda: heard.append(set(store.state.acls)))
    asyncio.run(store.write([SecurityRecord(AclKey(READS), READS)]))
    assert heard == [{READS}]


def test_after_a_failed_flush_nothing_is_in_force_and_nothing_more_is_taken(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = opened(broker)

    def fails(log: Log) -> None:
        raise StorageError("the disk is gone")

    with monkeypatch.context() as failing:
        failing.setattr(Log, "flush", fails)
        with pytest.raises(StorageError, match="the disk is gone"):
            asyncio.run(store.write(EVERYTHING))
    assert not store.state.users
    with pytest.raises(StorageError, match="until the node is restarted: the disk is gone"):
        asyncio.run(store.write(EVERYTHING))


def test_a_node_that_cannot_read_who_may_do_what_says_where_and_does_not_start(broker: Broker) -> None:
    opened(broker)
    private(broker).append(
        encode_turn([(b'["user","a"]', b'{"version":2}', None)], 1), 1, origin=AppendOrigin.COORDINATOR
    )
    with pytest.raises(SecurityDamaged, match=r"offset 0: .*is of version 2; this node reads up to 1"):
        opened(broker)


def test_a_value_or_a_write_that_is_too_large_is_refused_before_it_is_written(broker: Broker) -> None:
    store = opened(broker)
    large = User("u", {"x" * 70_000: ScramCredential(b"", 1, b"", b"")})
    with pytest.raises(ValueError, match="expected at most 65536"):
        asyncio.run(store.write([SecurityRecord(UserKey("u"), large)]))
    with pytest.raises(ValueError, match="10001 changes at once; expected at most 10000"):
        asyncio.run(store.write([EVERYTHING[0]] * 10_001))
    assert private(broker).end_offset == 0


@pytest.mark.parametrize("key", [b"", b"[]", b'["nobody"]', b'["acl","TOPIC"]', b"\xff", b'{"a":1}', b'["user"]'])
def test_a_key_without_shape_is_told_as_such(key: bytes) -> None:
    with pytest.raises(UnreadableSecurityRecord):
        decode_security_record(key, b"{}")


def test_who_hangs_up_in_the_middle_leaves_nothing_that_only_a_restart_would_put_in_force(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client's hanging up cancels its call: the denial it had sent was durable, and in force only after a restart."""
    store, flushing, go_on = opened(broker), threading.Event(), threading.Event()
    flush = Log.flush

    def held(log: Log) -> None:
        flushing.set()
        assert go_on.wait(30)
        flush(log)

    async def story() -> None:
        call = asyncio.create_task(store.write([SecurityRecord(AclKey(READS), READS)]))
        await asyncio.to_thread(flushing.wait, 30)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        go_on.set()
        await store.write([SecurityRecord(TopicKey("t"), TopicOwner("a", bytes(16)))])

    monkeypatch.setattr(Log, "flush", held)
    asyncio.run(story())
    assert store.state.acls == opened(broker).state.acls == {READS}


def test_more_than_one_write_takes_is_written_in_several(broker: Broker) -> None:
    """Names of 4,096 characters take six bytes each where they have to be escaped."""
    long = [READS._replace(name=f"{number:04}" + "\x01" * 4_000) for number in range(400)]
    store = opened(broker)
    asyncio.run(store.write_all([SecurityRecord(AclKey(acl), acl) for acl in long]))
    assert opened(broker).state.acls == set(long)
    asyncio.run(store.write_all([SecurityRecord(AclKey(acl), None) for acl in long]))
    assert not opened(broker).state.acls


def killed(broker: Broker, path: Path) -> Path:
    """The directory of a node that was killed: no checkpoint since the start."""
    copied = path / "killed"
    shutil.copytree(broker.data_dir, copied)
    return copied


@pytest.mark.parametrize(
    ("hurt", "where"),
    [
        (lambda data: data[:100] + bytes([data[100] ^ 1]) + data[101:], "byte 0"),
        (lambda data: data[:-10] + bytes([data[-10] ^ 1]) + data[-9:], "damaged at byte"),
        (lambda data: data[:-30], "are left"),
        (lambda data: b"", "the file ends early"),
        (lambda data: data[:8] + b"\x00\x01" + data[10:], "byte 0"),
    ],
    ids=["first", "last", "cut short", "emptied", "length"],
)
def test_damage_after_a_crash_is_not_taken_for_the_torn_end_of_a_write(
    broker: Broker, tmp_path: Path, hurt: Callable[[bytes], bytes], where: str
) -> None:
    """Denials that were acknowledged were cut off with it, and the node started without them."""
    store = opened(broker)
    denied = [READS._replace(name=str(number), permission=Permission.DENY) for number in range(20)]
    for acl in denied:
        asyncio.run(store.write([SecurityRecord(AclKey(acl), acl)]))
    copied = killed(broker, tmp_path)
    log = copied / "__security-0" / f"{0:020}.log"
    log.write_bytes(hurt(log.read_bytes()))
    again = Broker(copied)
    with pytest.raises(StorageError, match=f"{where}.*muster log recover"):
        opened(again)
    with pytest.raises(StorageError, match="muster log recover"):
        SecurityStore(again).reset()
    again.close()
    lost = recover_dir(str(copied), dry_run=False)
    assert {cut.topic for cut in lost} == {SECURITY_TOPIC}
    again = Broker(copied)
    if lost[0].next_offset is None:
        assert opened(again).state.acls < set(denied)
    else:
        with pytest.raises(SecurityDamaged, match="muster storage reset-security"):
            opened(again)
        SecurityStore(again).reset()
        assert not opened(again).state.acls
        asyncio.run(opened(again).write([SecurityRecord(AclKey(READS), READS)]))
        again.close()
        again = Broker(copied)
        assert opened(again).state.acls == {READS}
    again.close()


def test_what_was_never_acknowledged_may_be_torn_by_a_crash(broker: Broker, tmp_path: Path) -> None:
    asyncio.run(opened(broker).write([SecurityRecord(AclKey(READS), READS)]))
    private(broker).append(
        encode_turn([(*encode_security_record(EVERYTHING[0]), None)], 1), 1, origin=AppendOrigin.COORDINATOR
    )
    copied = killed(broker, tmp_path)
    log = copied / "__security-0" / f"{0:020}.log"
    log.write_bytes(log.read_bytes()[:-7])
    again = Broker(copied)
    assert opened(again).state.acls == {READS}
    assert not opened(again).state.users
    again.close()


def test_where_it_cannot_be_noted_how_far_it_goes_it_is_durable_all_the_same(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = opened(broker)

    def full(broker: Broker) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Broker, "private_written", full)
    asyncio.run(store.write([SecurityRecord(AclKey(READS), READS)]))
    assert store.state.acls == opened(broker).state.acls == {READS}
