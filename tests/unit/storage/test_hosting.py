"""Which partitions of a cluster's topics are held here, whose disk it is, and what may have gone with the power."""

import contextlib
import errno
import os
import threading
from pathlib import Path

import pytest

from muster.storage.broker.broker import Broker
from muster.storage.config import LogSettings
from muster.storage.disk.files import File, RealFiles
from muster.storage.errors import NotLeaderOrFollower, StorageError, TopicAlreadyExists, UnknownTopicOrPartition
from muster.storage.logs import replica
from muster.storage.tools.verify import verify_dir
from muster.storage.topics.catalog import format_id
from muster.storage.types import Topic
from tests.fakes.memory_files import MemoryFiles
from tests.unit.storage.logs import T0, batch, open_broker, read_all, values
from tests.unit.storage.workload import Killed

META = "/data/meta.properties"
CATALOG = "/data/topics.json"
ID, OTHER_ID = bytes(range(16)), bytes(16)


def topic(*held: int, name: str = "t", topic_id: bytes = ID, partitions: int = 6, **configs: str) -> Topic:
    return Topic(name, topic_id, partitions, configs, False, held)


def put(broker: Broker, partition: int, text: bytes, name: str = "t") -> None:
    log = broker.log(name, partition)
    replica.append_as_follower(log, batch(text, base_offset=log.end_offset, leader_epoch=1), T0)
    broker.flush([(name, partition)])
    log.tell_high_watermark(log.end_offset)


def numbers(broker: Broker, name: str = "t") -> list[int]:
    return sorted(log.partition[1] for log in broker.logs() if log.partition[0] == name)


# -- whose disk ---------------------------------------------------------------------------------------------


def open_with(disk: MemoryFiles, number: int, settings: LogSettings | None = None) -> Broker:
    """What is drawn at random is `number`, sixteen times."""
    return Broker(
        "/data", settings or LogSettings(), disk, clock_ms=lambda: T0, random_bytes=lambda n: bytes([number]) * n
    )


def test_a_directory_has_an_id_of_its_own_for_ever() -> None:
    disk = MemoryFiles()
    broker = open_with(disk, 7)
    made = broker.identity.directory_id
    assert made == format_id(bytes([7]) * 16)
    assert len(made) == 22
    assert f"directory.id={made}\n".encode() in disk.content(META)
    broker.close()
    disk.crash()
    assert open_with(disk, 8).identity.directory_id == made


def test_a_directory_of_an_older_version_gets_an_id_and_that_version_still_reads_it() -> None:
    disk = MemoryFiles()
    open_with(disk, 7).close()
    disk.put(META, b"version=1\ncluster.id=abc\nnode.id=1\n")
    broker = open_with(disk, 8)
    assert (broker.cluster_id, broker.identity.directory_id) == ("abc", format_id(bytes([8]) * 16))
    broker.close()
    lines = disk.content(META).decode().splitlines()
    assert {"version=1", "cluster.id=abc", "node.id=1"} <= set(lines)
    assert all("=" in line for line in lines)
    assert open_with(disk, 9).identity.directory_id == format_id(bytes([8]) * 16)


def test_an_id_that_is_cut_short_is_said_and_not_taken_for_another_disk() -> None:
    disk = MemoryFiles()
    open_with(disk, 7).close()
    disk.put(META, disk.content(META).replace(b"directory.id=BwcH", b"directory.id="))
    with pytest.raises(StorageError, match=r"meta.properties cannot be read: its directory.id=\w+ has not the 22"):
        open_with(disk, 8)


def test_a_full_disk_keeps_no_node_from_starting_and_gives_no_id_that_the_next_start_would_not_have() -> None:
    disk = MemoryFiles()
    broker = open_with(disk, 7)
    broker.create_topic("t", 1)
    broker.close()
    disk.put(META, b"version=1\ncluster.id=abc\nnode.id=1\n")
    disk.capacity = 0
    assert open_with(disk, 8).identity.directory_id == ""


LOOSE = LogSettings.from_properties({"log.flush.interval.messages": "1000"})


@pytest.mark.parametrize(
    ("end", "settings", "unclean"),
    [
        ("stop", LOOSE, False),
        ("kill", LOOSE, False),
        ("crash", LOOSE, True),
        ("stop, crash", LOOSE, False),
        ("crash", LogSettings(), False),
    ],
)
def test_unclean_is_who_lost_power_with_records_that_nobody_flushes(
    end: str, settings: LogSettings, unclean: bool
) -> None:
    """Z4: who is killed leaves his writes with the system; where each record is flushed nothing that counts is lost."""
    disk = MemoryFiles()
    broker = open_with(disk, 7, settings)
    broker.create_topic("t", 1)
    if "stop" in end:
        broker.close()
    if "crash" in end:
        disk.crash()
    disk.kill()
    assert open_with(disk, 7, settings).unclean is unclean


def test_unclean_stays_until_somebody_reckons_with_it_however_often_the_node_starts_meanwhile() -> None:
    disk = MemoryFiles()
    open_with(disk, 7, LOOSE).create_topic("t", 1)
    disk.crash()
    open_with(disk, 7, LOOSE)
    disk.kill()
    broker = open_with(disk, 7, LOOSE)
    assert broker.unclean
    broker.close()
    broker = open_with(disk, 7, LOOSE)
    assert broker.unclean
    broker.forget_unclean()
    assert not broker.unclean
    disk.kill()
    assert not open_with(disk, 7, LOOSE).unclean


def test_unclean_is_known_whenever_the_start_is_cut_short() -> None:
    for number in range(12):
        disk = MemoryFiles()
        open_with(disk, 7, LOOSE).create_topic("t", 1)
        disk.crash()
        first = disk.calls + number

        def fault(operation: str, path: str, disk: MemoryFiles = disk, first: int = first) -> None:
            if disk.calls > first:
                raise Killed

        disk.fault = fault
        with contextlib.suppress(Killed):
            open_with(disk, 7, LOOSE)
        disk.kill()
        assert open_with(disk, 7, LOOSE).unclean


def test_a_start_on_the_same_boot_writes_nothing_about_it(tmp_path: Path) -> None:
    Broker(tmp_path / "d").close()
    before = (tmp_path / "d" / "meta.properties").stat().st_mtime_ns
    broker = Broker(tmp_path / "d")
    broker.close()
    assert broker.identity.boot_id
    assert (tmp_path / "d" / "meta.properties").stat().st_mtime_ns == before


# -- which partitions ---------------------------------------------------------------------------------------


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
    """A10: what its readers saw stays committed."""
    disk = MemoryFiles()
    broker = open_broker(disk)
    alone = broker.create_topic("t", 2)
    broker.append("t", 1, batch(b"mine"), T0)
    broker.flush()
    broker.host([Topic("t", alone.id, 2, {}, False, (0, 1))])
    log = broker.log("t", 1)
    assert (log.high_watermark, log.following) == (1, True)
    assert broker.lead({("t", 0): 1, ("t", 1): 1}) == {}
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
    """F11: no checkpoint of the former one makes the new one look damaged."""
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


# -- strays -------------------------------------------------------------------------------------------------


def test_what_the_cluster_does_not_know_is_kept_named_and_taken_up_again_when_it_does(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """F11."""
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


# -- a log that failed --------------------------------------------------------------------------------------


def broken_flush(operation: str, path: str) -> None:
    if operation == "sync" and path.endswith(".log"):
        raise OSError(errno.EIO, "Input/output error", path)


def test_a_log_whose_flush_failed_is_opened_anew_with_what_was_flushed() -> None:
    disk = MemoryFiles()
    broker = open_broker(disk)
    broker.host([topic(0)])
    put(broker, 0, b"kept")
    log = broker.log("t", 0)
    replica.append_as_follower(log, batch(b"lost", base_offset=1, leader_epoch=2), T0)
    disk.fault = broken_flush
    with pytest.raises(StorageError):
        log.flush()
    assert log.failure is not None
    assert [trouble.name for trouble in broker.troubles.current()] == ["log-fenced:t-0"]
    disk.fault = None
    broker.reopen("t", 0)
    again = broker.log("t", 0)
    assert again is not log
    assert (again.failure, again.end_offset, again.high_watermark, again.following) == (None, 1, 1, True)
    assert broker.troubles.current() == ()
    put(broker, 0, b"more")
    assert values(read_all(again)) == [b"kept", b"more"]
    broker.close()
    disk.crash()
    assert values(read_all(open_broker(disk).log("t", 0))) == [b"kept", b"more"]


def test_one_that_cannot_be_opened_stays_as_it_was() -> None:
    disk = MemoryFiles()
    broker = open_broker(disk)
    broker.host([topic(0)])
    put(broker, 0, b"kept")
    log = broker.log("t", 0)
    log.fence("the disk went away")
    disk.rename("/data/t-0", "/data/elsewhere")
    with pytest.raises(StorageError, match="Could not open /data/t-0: No such file"):
        broker.reopen("t", 0)
    assert broker.log("t", 0) is log
    disk.rename("/data/elsewhere", "/data/t-0")
    broker.reopen("t", 0)
    assert broker.log("t", 0).end_offset == 1
    sound = broker.log("t", 0)
    broker.reopen("t", 0)
    assert broker.log("t", 0) is sound


def test_a_directory_that_was_gone_at_the_start_and_is_back() -> None:
    disk = MemoryFiles()
    broker = open_broker(disk)
    broker.host([topic(0)])
    put(broker, 0, b"kept")
    broker.checkpoint_high_watermarks()
    broker.close()
    disk.rename("/data/t-0", "/data/elsewhere")
    broker = open_broker(disk)
    with pytest.raises(StorageError, match="is gone"):
        broker.log("t", 0)
    disk.rename("/data/elsewhere", "/data/t-0")
    broker.reopen("t", 0)
    log = broker.log("t", 0)
    assert (log.end_offset, log.high_watermark) == (1, 1)
    assert broker.troubles.current() == ()


def test_a_topic_that_is_made_again_before_its_former_files_are_gone_is_held() -> None:
    """A cluster's topic that was deleted and made again could be held by no node until that started anew (cluster
    seed 0 over real logs)."""
    disk = MemoryFiles()
    broker = open_broker(disk)
    broker.host([topic(0, 1)])
    put(broker, 0, b"former")
    broker.drop("t", [0, 1])
    assert broker.host([topic(0, topic_id=OTHER_ID)]) == {}
    assert broker.log("t", 0).end_offset == 0
    assert broker.topic("t").id == OTHER_ID


def test_what_is_made_again_while_files_are_cleared_away_is_not_cleared_away() -> None:
    """Which ones are going was looked up before the turn came to clear them away."""
    disk = MemoryFiles()
    broker = open_broker(disk)
    broker.host([topic(0)])
    put(broker, 0, b"former")
    broker.drop("t", [0])
    with broker._changing:
        clearing = threading.Thread(target=broker.clear_away)
        clearing.start()
        clearing.join(0.05)  # it waits for its turn by now, or will; both end well
        broker._finish_deletion_of("t")
        broker._save({})
        disk.make_dir("/data/t-0")
    clearing.join()
    assert disk.is_dir("/data/t-0")


def test_whether_there_is_room_is_tried_and_leaves_nothing_behind(tmp_path: Path) -> None:
    class Full(RealFiles):
        code = errno.ENOSPC

        def open(self, path: str, *, create: bool = False, writable: bool = True) -> File:
            if path.endswith("room-probe-of-copies"):
                raise OSError(self.code, os.strerror(self.code))
            return super().open(path, create=create, writable=writable)

    sound = Broker(tmp_path / "a", LogSettings())
    before = sorted(os.listdir(tmp_path / "a"))
    assert sound.no_room(4096) == ""
    assert sorted(os.listdir(tmp_path / "a")) == before
    sound.close()
    full = Broker(tmp_path / "b", LogSettings(), Full())
    assert "No space left on device" in full.no_room(4096)
    Full.code = errno.EIO
    assert full.no_room(4096) == "", "that is not for want of room"
    full.close()
