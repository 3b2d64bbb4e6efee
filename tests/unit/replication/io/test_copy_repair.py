"""A copy that is damaged, or whose directory is gone, is made anew once nobody counts on it; others are nobody's to
remove."""

import errno
import shutil
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from muster.coordinator.replication.io.copy_repair import AFTER_MS, CopyRepair
from muster.coordinator.replication.io.replica_logs import StoredLogs
from muster.coordinator.replication.protocol.cluster_metadata import (
    LEDGER,
    OFFSETS,
    SECURITY,
    ClusterImage,
    ClusterState,
    PartitionView,
    TopicPartition,
    TopicView,
)
from muster.coordinator.replication.protocol.replica_fetch import LogBroken
from muster.storage.broker.broker import Broker
from muster.storage.files import remove_tree
from tests.fakes.memory_files import MemoryFiles
from tests.unit.storage.logs import T0, batch, open_broker

PLACE, OTHER = TopicPartition("orders", 0), TopicPartition("orders", 1)
ID = b"o" * 16


class Replicas:
    """Those that are offline, and those of them that somebody counts on."""

    def __init__(self, *offline: TopicPartition) -> None:
        self.offline = list(offline)
        self.missed: set[TopicPartition] = set()
        self.corrupt: set[TopicPartition] = set()
        self.begun: list[tuple[TopicPartition, int]] = []

    def is_missed(self, unit: TopicPartition) -> bool:
        return unit in self.missed

    def corrupt_halves(self, unit: TopicPartition) -> set[TopicPartition]:
        return self.corrupt

    def copy_anew(self, unit: TopicPartition, now_ms: int) -> None:
        self.begun.append((unit, now_ms))
        self.offline = []


class Logs:
    def __init__(self, *gone: TopicPartition, stuck: bool = False) -> None:
        self.gone = set(gone)
        self.given_up: list[TopicPartition] = []
        self._stuck = stuck

    def is_gone(self, place: TopicPartition) -> bool:
        return place in self.gone

    def give_up(self, place: TopicPartition) -> None:
        if self._stuck:
            raise LogBroken("the catalog cannot be written")
        self.given_up.append(place)


def test_what_is_gone_is_made_anew_after_a_while_and_only_while_nobody_counts_on_it() -> None:
    replicas, logs = Replicas(PLACE), Logs(PLACE)
    mending = CopyRepair(replicas, logs)
    assert not mending.repair_copies(0)
    assert not mending.repair_copies(AFTER_MS - 1)
    replicas.missed = {PLACE}
    assert not mending.repair_copies(AFTER_MS)
    replicas.missed = set()
    assert mending.repair_copies(AFTER_MS + 1)
    assert (logs.given_up, replicas.begun) == ([PLACE], [(PLACE, AFTER_MS + 1)])


def test_of_a_shard_that_half_is_removed_which_is_damaged_and_only_while_nobody_counts_on_it() -> None:
    offsets, ledger = TopicPartition(OFFSETS, 3), TopicPartition(LEDGER, 3)
    replicas, logs = Replicas(offsets, ledger), Logs()
    replicas.corrupt, replicas.missed = {offsets}, {offsets}
    mending = CopyRepair(replicas, logs)
    mending.repair_copies(0)
    assert not mending.repair_copies(AFTER_MS)
    replicas.missed = set()
    assert mending.repair_copies(AFTER_MS + 1)
    assert (logs.given_up, replicas.begun) == ([offsets], [(offsets, AFTER_MS + 1)])


def test_a_copy_that_was_back_meanwhile_is_waited_for_anew() -> None:
    replicas, logs = Replicas(PLACE), Logs(PLACE)
    mending = CopyRepair(replicas, logs)
    mending.repair_copies(0)
    replicas.offline = []
    mending.repair_copies(AFTER_MS)
    replicas.offline = [PLACE]
    assert not mending.repair_copies(AFTER_MS + 1)
    assert mending.repair_copies(2 * AFTER_MS + 1)


def test_of_a_shard_that_half_goes_which_is_gone() -> None:
    offsets, ledger = TopicPartition(OFFSETS, 3), TopicPartition(LEDGER, 3)
    replicas, logs = Replicas(offsets, ledger), Logs(ledger)
    mending = CopyRepair(replicas, logs)
    mending.repair_copies(0)
    assert mending.repair_copies(AFTER_MS)
    assert (logs.given_up, replicas.begun) == ([ledger], [(offsets, AFTER_MS)])


@pytest.mark.parametrize(
    ("logs", "place"),
    [
        (Logs(), PLACE),
        (Logs(PLACE, stuck=True), PLACE),
        (Logs(TopicPartition(SECURITY, 0)), TopicPartition(SECURITY, 0)),
    ],
    ids=["a disk that fails", "what is held cannot be written down", "another's to mend"],
)
def test_what_stays_as_it_is(logs: Logs, place: TopicPartition) -> None:
    replicas = Replicas(place)
    mending = CopyRepair(replicas, logs, (SECURITY,))
    mending.repair_copies(0)
    assert not mending.repair_copies(AFTER_MS)
    assert (logs.given_up, replicas.begun) == ([], [])


def image() -> ClusterImage:
    found = ClusterImage()
    view = PartitionView(2, 0, 0, (2,), (), (1, 2))
    found.apply(ClusterState(epoch=1, sequence=1, full=True, topics=(TopicView(ID, "orders", {}, {0: view, 1: view}),)))
    return found


def opened(directory: Path) -> tuple[Broker, StoredLogs]:
    broker = Broker(directory)
    return broker, StoredLogs(broker, image().topics.get, lambda: T0)


def test_a_directory_that_was_removed_with_the_node_stopped_is_begun_anew_and_its_neighbour_stays(
    tmp_path: Path,
) -> None:
    broker, logs = opened(tmp_path)
    for place in (PLACE, OTHER):
        logs.open(place, ID).append_as_follower(batch(b"x", leader_epoch=0))
    broker.close()
    shutil.rmtree(tmp_path / "orders-0")
    broker, logs = opened(tmp_path)
    for attempt in (logs.open, logs.reopen):
        with pytest.raises(LogBroken, match=r"orders-0 is gone.* in a cluster it is made anew"):
            attempt(PLACE, ID)
    assert (logs.is_gone(PLACE), logs.is_gone(OTHER)) == (True, False)
    logs.give_up(PLACE)
    assert [logs.open(place, ID).end for place in (PLACE, OTHER)] == [0, 1]
    assert not logs.is_gone(PLACE)
    broker.close()
    broker, logs = opened(tmp_path)
    assert [logs.open(place, ID).end for place in (PLACE, OTHER)] == [0, 1]
    broker.close()


class Unreadable(Logs):
    """Of which nobody can tell whether it is there; by the error that the disk gives."""

    def __init__(self) -> None:
        super().__init__()
        self.why = "Input/output error"

    def is_gone(self, place: TopicPartition) -> bool:
        raise LogBroken(self.why)


def test_a_copy_that_cannot_be_looked_at_stays_and_is_told_of_once_and_others_are_mended() -> None:
    replicas, logs = Replicas(PLACE, OTHER), Unreadable()
    mending = CopyRepair(replicas, logs)
    mending.repair_copies(0)
    with capture_logs() as lines:
        for now_ms in range(AFTER_MS, AFTER_MS + 5):
            assert not mending.repair_copies(now_ms)
        logs.why = "Permission denied"
        mending.repair_copies(AFTER_MS + 5)
    assert [(line["partition"], line["why"]) for line in lines] == [
        *((str(place), "Input/output error") for place in (PLACE, OTHER)),
        *((str(place), "Permission denied") for place in (PLACE, OTHER)),
    ]
    assert (logs.given_up, replicas.begun) == ([], [])


@pytest.mark.parametrize("code", [errno.EACCES, errno.EIO, errno.ESTALE])
def test_a_directory_that_cannot_be_looked_into_is_not_taken_for_gone(code: int) -> None:
    files = MemoryFiles()
    broker = open_broker(files)
    logs = StoredLogs(broker, image().topics.get, lambda: T0)
    for place in (PLACE, OTHER):
        logs.open(place, ID).append_as_follower(batch(b"x", leader_epoch=0))
    broker.close()

    def fails(operation: str, path: str) -> None:
        if path == "/data/orders-0":
            raise OSError(code, "no")

    remove_tree(files, "/data/orders-0")
    broker = open_broker(files)
    logs = StoredLogs(broker, image().topics.get, lambda: T0)
    files.fault = fails
    with pytest.raises(LogBroken, match=r"orders-0 cannot be told: no\. What to do: "):
        logs.is_gone(PLACE)
    assert not logs.is_gone(OTHER)
    files.fault = None
    assert logs.is_gone(PLACE)
    broker.close()
