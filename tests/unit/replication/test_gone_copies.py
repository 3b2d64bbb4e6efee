"""A copy whose directory is gone is made anew once nobody counts on it; one that is there is nobody's to remove."""

import shutil
from pathlib import Path

import pytest

from muster.coordinator.cluster.facts import LEDGER, OFFSETS, SECURITY, TopicPartition
from muster.coordinator.cluster.image import ClusterState, Image, PartitionView, TopicView
from muster.coordinator.cluster.replicas.ports import LogBroken
from muster.coordinator.replication.copies.logs import StoredLogs
from muster.coordinator.replication.copies.mending import AFTER_MS, Mending
from muster.storage.broker.broker import Broker
from tests.unit.storage.logs import T0, batch

PLACE, OTHER = TopicPartition("orders", 0), TopicPartition("orders", 1)
ID = b"o" * 16


class Replicas:
    """Those that are offline, and those of them that somebody counts on."""

    def __init__(self, *offline: TopicPartition) -> None:
        self.offline = list(offline)
        self.missed: set[TopicPartition] = set()
        self.begun: list[tuple[TopicPartition, int]] = []

    def is_missed(self, unit: TopicPartition) -> bool:
        return unit in self.missed

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
    mending = Mending(replicas, logs)
    assert not mending.look(0)
    assert not mending.look(AFTER_MS - 1)
    replicas.missed = {PLACE}
    assert not mending.look(AFTER_MS)
    replicas.missed = set()
    assert mending.look(AFTER_MS + 1)
    assert (logs.given_up, replicas.begun) == ([PLACE], [(PLACE, AFTER_MS + 1)])


def test_a_copy_that_was_back_meanwhile_is_waited_for_anew() -> None:
    replicas, logs = Replicas(PLACE), Logs(PLACE)
    mending = Mending(replicas, logs)
    mending.look(0)
    replicas.offline = []
    mending.look(AFTER_MS)
    replicas.offline = [PLACE]
    assert not mending.look(AFTER_MS + 1)
    assert mending.look(2 * AFTER_MS + 1)


def test_of_a_shard_that_half_goes_which_is_gone() -> None:
    offsets, ledger = TopicPartition(OFFSETS, 3), TopicPartition(LEDGER, 3)
    replicas, logs = Replicas(offsets, ledger), Logs(ledger)
    mending = Mending(replicas, logs)
    mending.look(0)
    assert mending.look(AFTER_MS)
    assert (logs.given_up, replicas.begun) == ([ledger], [(offsets, AFTER_MS)])


@pytest.mark.parametrize(
    ("logs", "place"),
    [
        (Logs(), PLACE),
        (Logs(PLACE, stuck=True), PLACE),
        (Logs(TopicPartition(SECURITY, 0)), TopicPartition(SECURITY, 0)),
    ],
    ids=["damaged, and there", "what is held cannot be written down", "another's to mend"],
)
def test_what_stays_as_it_is(logs: Logs, place: TopicPartition) -> None:
    replicas = Replicas(place)
    mending = Mending(replicas, logs, (SECURITY,))
    mending.look(0)
    assert not mending.look(AFTER_MS)
    assert (logs.given_up, replicas.begun) == ([], [])


def image() -> Image:
    found = Image()
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
