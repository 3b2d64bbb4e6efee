"""Copies of `__security`: found by nobody but nodes, and never used where not all that was kept of it is whole."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from muster.coordinator.replication.io.replica_logs import StoredLog, StoredLogs
from muster.coordinator.replication.protocol.cluster_metadata import (
    SECURITY,
    ClusterImage,
    ClusterState,
    PartitionView,
    TopicPartition,
    TopicView,
)
from muster.coordinator.replication.protocol.replica_fetch import LogBroken
from muster.coordinator.server.cluster_backend.group_service import ClusterImageView
from muster.storage.broker.broker import Broker
from muster.storage.errors import UnknownTopicOrPartition
from tests.unit.storage.logs import T0, batch

PLACE, ID = TopicPartition(SECURITY, 0), b"i" * 16


def image() -> ClusterImage:
    found = ClusterImage()
    view = PartitionView(2, 0, 0, (1, 2), (), (1, 2))
    orders = TopicView(b"o" * 16, "orders", {}, {0: view})
    topic = TopicView(ID, SECURITY, {"cleanup.policy": "compact"}, {0: view})
    found.apply(ClusterState(epoch=1, sequence=1, full=True, topics=(topic, orders)))
    return found


def opened(directory: Path) -> tuple[Broker, StoredLogs]:
    broker = Broker(directory)
    return broker, StoredLogs(broker, image().topics.get, lambda: T0)


def filled(logs: StoredLogs, count: int = 3) -> StoredLog:
    log = logs.open(PLACE, ID)
    for number in range(count):
        log.append_as_follower(batch(b"x" * 100, base_offset=log.end, leader_epoch=number))
    log.flush()
    return log


def killed(broker: Broker, to: Path, hurt: Callable[[bytearray], None]) -> Path:
    shutil.copytree(broker.data_dir, to)
    path = to / f"{SECURITY}-0" / f"{0:020}.log"
    data = bytearray(path.read_bytes())
    hurt(data)
    path.write_bytes(data)
    return to


def flip(at: int) -> Callable[[bytearray], None]:
    def hurt(data: bytearray) -> None:
        data[at] ^= 1

    return hurt


def cut(data: bytearray) -> None:
    del data[-50:]


def test_a_copy_of_it_is_kept_as_any_and_shown_to_no_client(tmp_path: Path) -> None:
    broker, logs = opened(tmp_path / "a")
    filled(logs)
    assert list(logs.held()) == [(PLACE, ID)]
    assert SECURITY not in broker.topics()
    with pytest.raises(UnknownTopicOrPartition):
        broker.log(*PLACE)
    broker.close()
    again, logs = opened(tmp_path / "a")
    assert logs.open(PLACE, ID).end == 3
    again.close()
    view = ClusterImageView(1, image())
    assert list(view.topics()) == ["orders"]
    assert len(view.topics()) == 1
    assert SECURITY not in view.topics()
    assert view.partition(SECURITY, 0) is None
    assert view.partition("orders", 0) is not None


@pytest.mark.parametrize("hurt", [flip(100), flip(-20), cut], ids=["first", "last", "cut short"])
@pytest.mark.parametrize("clean", [False, True], ids=["killed", "stopped"])
def test_what_was_kept_and_is_not_whole_is_used_by_nobody_until_it_is_made_anew(
    tmp_path: Path, hurt: Callable[[bytearray], None], clean: bool
) -> None:
    """A start that took the damage for the torn end of a write would be in sync without what it had promised."""
    broker, logs = opened(tmp_path / "a")
    filled(logs)
    if clean:
        broker.close()
    copied = killed(broker, tmp_path / "b", hurt)
    if not clean:
        broker.close()
    again, logs = opened(copied)
    for _ in range(2):
        with pytest.raises(LogBroken):
            logs.open(PLACE, ID)
        with pytest.raises(LogBroken):
            logs.reopen(PLACE, ID)
    logs.give_up(PLACE)
    fresh = logs.open(PLACE, ID)
    assert (fresh.start, fresh.end) == (0, 0)
    assert filled(logs, 2).end == 2
    again.close()
    once_more, logs = opened(copied)
    assert logs.open(PLACE, ID).end == 2
    once_more.close()


def test_what_was_never_flushed_may_be_torn(tmp_path: Path) -> None:
    broker, logs = opened(tmp_path / "a")
    log = filled(logs)
    log.append_as_follower(batch(b"x" * 100, base_offset=3, leader_epoch=3))
    copied = killed(broker, tmp_path / "b", cut)
    broker.close()
    again, logs = opened(copied)
    assert logs.open(PLACE, ID).end == 3
    again.close()
