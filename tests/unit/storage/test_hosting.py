"""Which partitions of a cluster's topics are held here, and what is done with what nobody knows."""

import errno
import os

import pytest

from muster.storage.errors import NotLeaderOrFollower, StorageError, TopicAlreadyExists, UnknownTopicOrPartition
from muster.storage.logs import replica
from muster.storage.tools.repair import verify_dir
from muster.storage.topics.catalog import format_id
from muster.storage.types import Topic
from tests.fakes.memory_files import MemoryFiles
from tests.unit.storage.hosted import CATALOG, ID, OTHER_ID, numbers, put, topic
from tests.unit.storage.logs import T0, batch, open_broker, read_all, values
from tests.unit.storage.workload import Killed

# -- which partitions -------------------------------------------------------------------------------------


def test_a_node_of_its_own_writes_a_catalog_that_knows_of_no_cluster() -> None:
    disk = MemoryFiles()
    broker = open_broker(disk)
    broker.create_topic("t", 3, {"retention.ms": "5"})
    broker.delete_topic("t")
    broker.create_topic("u", 1)
    assert b"held" not in disk.content(CATALOG)
    assert b"leaving" not in disk.content(CATALOG)
    assert broker.topic("u").held is None
    assert broker.log("u", 0).following is False


def test_what_is_held_is_opened_again_and_nothing_else_is() -> None:
    disk = MemoryFiles()
    broker = open_broker(disk)
    assert broker.host([topic(4, 1)]) == {}
    put(broker, 4, b"four")
    for again in (broker, open_broker(_after(disk, "crash")), open_broker(_after(disk, "kill"))):
        assert numbers(again) == [1, 4]
        assert (again.topic("t").partitions, again.topic("t").here, again.topic("t").id) == (6, (1, 4), ID)
        with pytest.raises(NotLeaderOrFollower, match="t-0 is not held by this node"):
            again.log("t", 0)
        with pytest.raises(UnknownTopicOrPartition, match="its partitions are 0 to 5"):
            again.log("t", 6)
        log = again.log("t", 4)
        assert (log.end_offset, log.following, log.holes) == (1, True, False)
        assert again.recovered() == {}


def _after(disk: MemoryFiles, what: str) -> MemoryFiles:
    disk.crash() if what == "crash" else disk.kill()
    return disk


def test_more_of_a_topic_is_held_beside_what_is_and_it_may_have_grown() -> None:
    broker = open_broker(MemoryFiles())
    broker.host([topic(1, partitions=2, **{"retention.ms": "5"})])
    put(broker, 1, b"one")
    assert broker.host([topic(1, 5), topic(0, name="u", topic_id=OTHER_ID)]) == {}
    assert (numbers(broker), numbers(broker, "u")) == ([1, 5], [0])
    assert (broker.topic("t").partitions, broker.topic("t").configs) == (6, {"retention.ms": "5"})
    assert values(read_all(broker.log("t", 1))) == [b"one"]


def test_many_partitions_are_taken_in_with_one_flush_of_the_disk() -> None:
    disk = MemoryFiles()
    broker = open_broker(disk)
    flushed: list[str] = []
    disk.fault = lambda operation, path: flushed.append(path) if "sync" in operation else None
    broker.host([topic(*range(50), partitions=50)])
    assert len([path for path in flushed if path == "/data"]) < 5
    assert not [path for path in flushed if path.startswith("/data/t-")]
    disk.crash()
    assert numbers(open_broker(disk)) == list(range(50))


def test_a_node_of_its_own_becomes_one_of_a_cluster_with_all_it_has() -> None:
    """CL-A10: what its readers saw stays committed."""
    disk = MemoryFiles()
    broker = open_broker(disk)
    alone = broker.create_topic("t", 2)
    broker.append("t", 1, batch(b"mine"), T0)
    broker.flush()
    broker.host([Topic("t", alone.id, 2, {}, False, (0, 1))])
    log = broker.log("t", 1)
    assert (log.high_watermark, log.following) == (1, True)
    replica.start_leading(log, 1)
    broker.append("t", 1, batch(b"ours"), T0)
    broker.flush()
    assert log.high_watermark == 1
    broker.close()
    assert open_broker(disk).topic("t").here == (0, 1)


def test_a_topic_of_another_id_is_not_mixed_with_the_one_that_is_held() -> None:
    broker = open_broker(MemoryFiles())
    broker.host([topic(0)])
    with pytest.raises(TopicAlreadyExists, match="Let go of that one first"):
        broker.host([topic(1, topic_id=OTHER_ID)])
    assert numbers(broker) == [0]


def test_more_than_the_node_may_have_is_refused_by_name_and_the_rest_is_held() -> None:
    broker = open_broker(MemoryFiles(), max__partitions=2)
    failures = broker.host([topic(0, 1, 2)])
    assert [str(why) for why in failures.values()] == [
        "Partition t-2 exceeds the node's limit of 2 (max.partitions). Raise it, or move partitions to other nodes."
    ]
    assert numbers(broker) == [0, 1]


def test_a_partition_that_leaves_is_gone_for_good_and_comes_back_empty() -> None:
    """CL-F11: no checkpoint of the former one makes the new one look damaged."""
    disk = MemoryFiles()
    broker = open_broker(disk)
    broker.host([topic(0, 3)])
    put(broker, 3, b"old")
    broker.checkpoint()
    log = broker.log("t", 3)
    broker.drop("t", [3])
    with pytest.raises(NotLeaderOrFollower):
        broker.log("t", 3)
    with pytest.raises(StorageError, match="has been removed"):
        log.append(batch(b"late"), T0)
    broker.clear_away()
    assert not disk.exists("/data/t-3")
    assert b"leaving" not in disk.content(CATALOG)
    broker.host([topic(3)])
    assert broker.end_offset("t", 3) == 0
    disk.crash()
    again = open_broker(disk)
    assert (again.end_offset("t", 3), again.recovered(), numbers(again)) == (0, {}, [0, 3])


def test_with_its_last_partition_a_topic_leaves() -> None:
    disk = MemoryFiles()
    broker = open_broker(disk)
    broker.host([topic(2)])
    broker.drop("t", [2])
    broker.clear_away()
    assert dict(broker.topics()) == {}
    broker.host([topic(2, topic_id=OTHER_ID)])
    assert broker.topic("t").id == OTHER_ID


def test_another_topic_of_the_name_may_come_before_the_files_of_the_last_are_gone() -> None:
    """A topic that is deleted and made again at once: nobody has cleared away in between."""
    disk = MemoryFiles()
    broker = open_broker(disk)
    broker.host([topic(0, 2)])
    put(broker, 2, b"old")
    broker.drop("t", [0])
    broker.drop("t", [2])
    assert broker.host([topic(2, topic_id=OTHER_ID)]) == {}
    assert (broker.topic("t").id, broker.end_offset("t", 2)) == (OTHER_ID, 0)
    assert not disk.exists("/data/t-0")


def test_a_removal_is_finished_by_the_next_start_or_before_the_partition_comes_again() -> None:
    for again in (True, False):
        disk = MemoryFiles()
        broker = open_broker(disk)
        broker.host([topic(0, 3)])
        put(broker, 3, b"old")
        broker.drop("t", [3])
        if again:
            broker.host([topic(3)])
        else:
            disk.crash()
            broker = open_broker(disk)
            assert not disk.exists("/data/t-3")
            broker.host([topic(3)])
        assert (numbers(broker), broker.end_offset("t", 3)) == ([0, 3], 0)


def test_holding_and_leaving_are_there_whole_or_not_at_all_whenever_they_are_cut_short() -> None:
    for number in range(70):
        disk = MemoryFiles()
        broker = open_broker(disk)
        broker.host([topic(0, 1)])
        put(broker, 1, b"one")
        first = disk.calls + number

        def fault(operation: str, path: str, disk: MemoryFiles = disk, first: int = first) -> None:
            if disk.calls > first:
                raise Killed

        disk.fault = fault
        steps = 0
        try:
            broker.host([topic(2)])
            steps = 1
            broker.drop("t", [1])
            steps = 2
            broker.clear_away()
        except Killed:
            pass
        disk.crash()
        again = open_broker(disk)
        assert again.recovered() == {}
        assert numbers(again) in [[[0, 1], [0, 1, 2]], [[0, 1, 2], [0, 2]], [[0, 2]]][steps]
        if 1 in numbers(again):
            assert again.end_offset("t", 1) == 1
        again.host([topic(1, 2)])
        assert numbers(again) == [0, 1, 2]


# -- strays -----------------------------------------------------------------------------------------------


def test_what_the_cluster_does_not_know_is_kept_named_and_taken_up_again_when_it_does(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """CL-F11."""
    disk = MemoryFiles()
    broker = open_broker(disk)
    broker.host([topic(0, 3)])
    put(broker, 3, b"kept")
    broker.set_aside("t", [3])
    stray = f"t-3.{format_id(ID)}-stray"
    assert broker.strays() == [stray]
    assert f"they are kept in /data/{stray}, and nothing removes them but you" in caplog.text
    assert numbers(broker) == [0]
    disk.crash()
    broker = open_broker(disk)
    for _ in range(3):
        broker.tick(T0 + 10**12)
    broker.delete_topic("t")
    assert broker.strays() == [stray]
    broker.host([topic(3)])
    assert broker.strays() == []
    assert (broker.end_offset("t", 3), broker.high_watermark("t", 3)) == (1, 0)
    broker.log("t", 3).tell_high_watermark(1)
    assert values(read_all(broker.log("t", 3))) == [b"kept"]


def test_another_topic_of_the_name_neither_takes_nor_removes_what_is_in_its_way() -> None:
    disk = MemoryFiles()
    broker = open_broker(disk)
    broker.host([topic(3)])
    put(broker, 3, b"kept")
    broker.set_aside("t", [3])
    disk.rename(f"/data/{broker.strays()[0]}", "/data/t-3")  # as a start that was cut short may leave it
    broker.host([topic(3, topic_id=OTHER_ID)])
    put(broker, 3, b"new")
    assert broker.strays() == [f"t-3.{format_id(ID)}-stray"]
    broker.set_aside("t", [3])
    broker.host([topic(3)])
    broker.log("t", 3).tell_high_watermark(1)
    assert values(read_all(broker.log("t", 3))) == [b"kept"]
    assert broker.strays() == [f"t-3.{format_id(OTHER_ID)}-stray"]


@pytest.mark.parametrize("hosted", [True, False])
def test_files_without_a_topic_id_are_kept_too_and_under_names_that_differ(hosted: bool) -> None:
    disk = MemoryFiles()
    broker = open_broker(disk)
    for _ in range(2):
        broker.host([topic(0)])
        put(broker, 0, b"whose")
        broker.set_aside("t", [0])
        disk.rename(f"/data/{next(n for n in broker.strays() if 'unknown' not in n)}", "/data/t-0")
        disk.remove("/data/t-0/partition.metadata")
        if hosted:
            broker.host([topic(0, topic_id=OTHER_ID)])
        else:
            broker.create_topic("t", 1)
        assert broker.end_offset("t", 0) == 0
        broker.delete_topic("t")
    assert broker.strays() == ["t-0.unknown-stray", "t-0.unknown.2-stray"]


def test_a_creation_that_was_cut_short_leaves_nothing_to_keep() -> None:
    disk = MemoryFiles()
    broker = open_broker(disk)
    broker.host([topic(0)])
    broker.delete_topic("t")
    disk.make_dir("/data/t-0")
    broker.create_topic("t", 1)
    assert broker.strays() == []


def test_the_longest_name_leaves_room_for_what_it_is_kept_under() -> None:
    name = "n" * 249
    broker = open_broker(MemoryFiles())
    broker.host([topic(100, name=name, partitions=101)])
    broker.set_aside(name, [100])
    assert [len(stray) for stray in broker.strays()] == [255]
    broker.host([topic(100, name=name, partitions=101)])
    assert broker.strays() == []


def test_what_cannot_be_written_down_is_said_and_the_logs_stay_as_they_are() -> None:
    disk = MemoryFiles()
    broker = open_broker(disk)
    broker.host([topic(0)])
    put(broker, 0, b"zero")

    def fault(operation: str, path: str) -> None:
        if operation == "write" and "topics.json" in path:
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)

    disk.fault = fault
    with pytest.raises(
        StorageError, match="Which partitions are held could not be written to /data: Input/output error"
    ):
        broker.host([topic(1)])
    with pytest.raises(StorageError, match="That t leaves this node could not be written down: Input/output error"):
        broker.drop("t", [0])
    assert numbers(broker) == [0]
    assert values(read_all(broker.log("t", 0))) == [b"zero"]
    disk.fault = None
    assert broker.host([topic(1)]) == {}


def test_tools_look_at_what_is_held_and_take_holes_of_a_compacting_leader_for_none() -> None:
    disk = MemoryFiles()
    broker = open_broker(disk)
    broker.host([topic(1, 4, **{"cleanup.policy": "compact"})])
    log = broker.log("t", 1)
    answer = b"".join(batch(b"v", key=b"k", base_offset=at, leader_epoch=0) for at in (0, 5, 9))
    replica.append_as_follower(log, answer, T0)
    broker.close()
    report = verify_dir("/data", files=disk)
    assert (report.findings, report.batches) == ([], 3)
