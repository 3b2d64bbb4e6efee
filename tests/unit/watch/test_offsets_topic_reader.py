"""Whatever becomes of the offsets topic, the reader says what is wrong, and goes on by itself."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from muster.coordinator.kafka.codec.codec import struct
from muster.coordinator.kafka_backend.upstream.protocol import UpstreamAddress
from muster.coordinator.kafka_backend.upstream.upstream_client import Upstream
from muster.coordinator.watch import offsets_topic_reader as module
from muster.coordinator.watch.offsets_topic_reader import OFFSETS_TOPIC, OffsetsTopicReader, ReadingProgress
from muster.coordinator.watch.watched_partition import WatchedFacts, WatchedPartition
from muster.storage.records.batch import NewRecord, encode_batch
from tests.fakes.upstream_broker import HANG_UP, UpstreamBroker
from tests.fakes.upstream_catalog import Told, UpstreamCatalog

FORBIDDEN, NOT_LEADER, OUT_OF_RANGE = 29, 6, 1
PATIENCE_S = 5


class Heard:
    """A ReaderListener, and what it has heard. Each call wakes who waits in `until`."""

    def __init__(self) -> None:
        self._facts = WatchedFacts(lambda shard, event: None)
        self.made: list[int] = []
        self.again: dict[int, bool] = {}
        self.at: dict[int, tuple[int, int]] = {}
        self.bytes: dict[int, list[tuple[int, int]]] = {}
        self.troubles: dict[int, str] = {}
        self.counts: list[int] = []
        self.changes: list[str] = []
        self.allowed = True
        self._news = asyncio.Event()

    async def until(self, so: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not so():
                self._news.clear()
                await self._news.wait()

    def look_again_soon(self) -> None:
        """Something that nobody says may have become so."""
        asyncio.get_running_loop().call_soon(self._news.set)

    def made_partition(self, partition: int, again: bool = False) -> WatchedPartition:
        self.made.append(partition)
        self.again[partition] = again
        self.at.pop(partition, None)
        return self._facts.made_partition(partition)

    def took_batches(self, partition: int) -> None:
        self._news.set()

    def progressed(self, partition: int, progress: ReadingProgress) -> None:
        self.at[partition] = (progress.records, progress.behind)
        self.bytes.setdefault(partition, []).append((progress.read_bytes, progress.size_bytes))
        self._news.set()

    def found_partitions(self, count: int) -> range:
        self.counts.append(count)
        self._news.set()
        return range(count)

    def may_read(self, allowed: bool) -> None:
        self.allowed = allowed
        self._news.set()

    def troubled(self, partition: int, why: str) -> None:
        self.troubles[partition] = why
        self._news.set()

    def changed(self, what: str) -> None:
        self.changes.append(what)
        self._news.set()


class Scene:
    """One broker, which leads an offsets topic whose partitions have these logs: where each begins, and its records."""

    def __init__(self, broker: UpstreamBroker) -> None:
        self.broker, self.heard = broker, Heard()
        self.catalog = UpstreamCatalog({1: broker})
        self.topic = Told(b"one", 2)
        self.catalog.all_know(**{OFFSETS_TOPIC: self.topic})
        self.logs: dict[int, tuple[int, int]] = {}
        self.epochs: dict[int, list[tuple[int, int]]] = {}
        """Of a partition, the epochs of its leaders, and where each begins; no leader: 0."""
        self.knows_no_epochs = False
        self.code = 0
        self.away = False
        self.sizes: dict[int, int] = {}
        broker.answers["Fetch"] = self._fetch
        broker.answers["DescribeLogDirs"] = self._log_dirs
        self.write(0, 0, 3)
        self.write(1, 0, 0)
        self.upstream = Upstream(UpstreamAddress((broker.address,), connect_s=5, answer_s=30))
        self.reader = OffsetsTopicReader(self.upstream, [0, 1], self.heard)

    def write(self, partition: int, begin: int, end: int) -> None:
        self.logs[partition] = self.catalog.ends[OFFSETS_TOPIC, partition] = (begin, end)

    def _log_dirs(self, request: Any) -> Any:
        rows = [
            struct("DescribeLogDirsResponse.results.topics.partitions")(partition_index=each, partition_size=size)
            for each, size in self.sizes.items()
        ]
        topic = struct("DescribeLogDirsResponse.results.topics")(name=OFFSETS_TOPIC, partitions=rows)
        return struct("DescribeLogDirsResponse")(
            results=[struct("DescribeLogDirsResponse.results")(topics=[topic] if rows else [])]
        )

    async def _fetch(self, request: Any) -> Any:
        await asyncio.sleep(0)
        if self.away:
            return HANG_UP
        told = [self._portion(part) for topic in request.topics for part in topic.partitions]
        return struct("FetchResponse")(
            responses=[struct("FetchResponse.responses")(topic=OFFSETS_TOPIC, partitions=told)]
        )

    def _portion(self, part: Any) -> Any:
        begin, end = self.logs[part.partition]
        code = self.code or (0 if begin <= part.fetch_offset <= end else OUT_OF_RANGE)
        records = b""
        epochs = self.epochs.get(part.partition, [(0, 0)])
        told = struct("FetchResponse.responses.partitions.diverging_epoch")
        parted = None
        if not code and part.last_fetched_epoch >= 0:
            if self.knows_no_epochs or part.last_fetched_epoch > epochs[-1][0]:
                code = OUT_OF_RANGE  # as Kafka 4.1.1 says
            epoch = max(epoch for epoch, _ in epochs if epoch <= part.last_fetched_epoch)
            its_end = next((start for later, start in epochs if later > epoch), end)
            if not code and (epoch < part.last_fetched_epoch or its_end < part.fetch_offset):
                parted = told(epoch=epoch, end_offset=its_end)
        if not code and parted is None and part.fetch_offset < end:
            made: list[NewRecord] = [(1, b"\x00\x7f", b"", ()) for _ in range(end - part.fetch_offset)]
            records = encode_batch(made, base_offset=part.fetch_offset, leader_epoch=epochs[-1][0])
        return struct("FetchResponse.responses.partitions")(
            partition_index=part.partition,
            error_code=code,
            high_watermark=end,
            log_start_offset=begin,
            diverging_epoch=parted,
            records=records,
        )

    def has_read(self, partition: int, records: int) -> Callable[[], bool]:
        return lambda: self.heard.at.get(partition) == (records, 0)


def run(
    story: Callable[[Scene], Coroutine[Any, Any, None]],
    monkeypatch: pytest.MonkeyPatch,
    before: Callable[[Scene], None] = lambda scene: None,
    idle_s: float = 0.01,
    calm_s: float = 0.0,
) -> None:
    """calm_s: between fetches while nothing happens; 0: idle_s."""
    monkeypatch.setattr(module, "PAUSE_S", 0.001)
    monkeypatch.setattr(module, "LONG_PAUSE_S", 0.01)
    monkeypatch.setattr(module, "SAME_S", 0.01)
    monkeypatch.setattr(module, "IDLE_S", idle_s)
    monkeypatch.setattr(module, "CALM_IDLE_S", calm_s or idle_s)

    async def whole() -> None:
        async with UpstreamBroker() as broker:
            scene = Scene(broker)
            before(scene)
            scene.reader.start()
            try:
                await story(scene)
            finally:
                await scene.reader.stop()
                scene.upstream.close()

    asyncio.run(whole())


def test_it_reads_to_the_end_and_on(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(scene: Scene) -> None:
        await scene.heard.until(scene.has_read(0, 3))
        scene.write(0, 0, 5)
        await scene.heard.until(scene.has_read(0, 5))

    run(story, monkeypatch)


def test_it_tells_how_many_bytes_of_how_many_it_has_read(monkeypatch: pytest.MonkeyPatch) -> None:
    def sized(scene: Scene) -> None:
        scene.sizes = {0: len(encode_batch([(1, b"\x00\x7f", b"", ())] * 3)), 1: 0}

    async def story(scene: Scene) -> None:
        await scene.heard.until(scene.has_read(0, 3))
        size = scene.sizes[0]
        assert (scene.heard.bytes[0][0], scene.heard.bytes[0][-1]) == ((0, size), (size, size))

    run(story, monkeypatch, sized)


def test_a_size_that_nobody_may_ask_for_is_not_known_and_reading_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(scene: Scene) -> None:
        await scene.heard.until(scene.has_read(0, 3))
        assert {size for _, size in scene.heard.bytes[0]} == {0}

    def refused(scene: Scene) -> None:
        scene.broker.answers["DescribeLogDirs"] = lambda request: struct("DescribeLogDirsResponse")(error_code=31)

    run(story, monkeypatch, refused)


def test_an_upstream_that_is_away_is_trouble_until_it_is_back(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(scene: Scene) -> None:
        await scene.heard.until(scene.has_read(0, 3))
        scene.away = True
        await scene.heard.until(lambda: "cannot be reached" in scene.heard.troubles.get(0, ""))
        scene.away = False
        scene.write(0, 0, 4)
        await scene.heard.until(scene.has_read(0, 4))
        assert scene.heard.troubles[0] == ""

    run(story, monkeypatch)


def test_a_broker_that_leads_it_no_longer_is_trouble_until_it_does(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(scene: Scene) -> None:
        await scene.heard.until(scene.has_read(0, 3))
        scene.code = NOT_LEADER
        await scene.heard.until(lambda: "NOT_LEADER" in scene.heard.troubles.get(0, ""))
        scene.code = 0
        await scene.heard.until(lambda: scene.heard.troubles[0] == "")

    run(story, monkeypatch)


def test_a_log_that_lost_records_is_read_again_from_its_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(scene: Scene) -> None:
        await scene.heard.until(scene.has_read(0, 3))
        scene.write(0, 0, 2)
        await scene.heard.until(scene.has_read(0, 2))
        assert scene.heard.made == [0, 1, 0]
        assert [what for what in scene.heard.changes if "truncated at offset 2, and had been read up to 3" in what]

    run(story, monkeypatch)


def test_a_log_that_lost_records_and_has_as_many_others_since_is_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(scene: Scene) -> None:
        await scene.heard.until(scene.has_read(0, 3))
        scene.epochs[0] = [(0, 0), (2, 1)]
        scene.write(0, 0, 9)
        await scene.heard.until(scene.has_read(0, 9))
        assert scene.heard.made == [0, 1, 0]
        (what,) = scene.heard.changes
        assert "truncated at offset 1, and had been read up to 3" in what

    run(story, monkeypatch)


def test_a_leader_that_does_not_know_the_epoch_of_what_was_read_is_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(scene: Scene) -> None:
        await scene.heard.until(scene.has_read(0, 3))
        scene.epochs[0] = [(0, 0)]
        scene.write(0, 0, 9)
        await scene.heard.until(scene.has_read(0, 9))
        assert scene.heard.made == [0, 1, 0]
        assert "was truncated, and had been read up to 3" in scene.heard.changes[0]

    def later_epoch(scene: Scene) -> None:
        scene.epochs[0] = [(7, 0)]

    run(story, monkeypatch, later_epoch)


def test_one_that_does_not_know_the_epochs_of_its_own_batches_is_read_on(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(scene: Scene) -> None:
        await scene.heard.until(scene.has_read(0, 3))
        await scene.heard.until(lambda: scene.heard.made == [0, 1, 0])
        scene.write(0, 0, 9)
        await scene.heard.until(scene.has_read(0, 9))
        scene.write(0, 0, 12)
        await scene.heard.until(scene.has_read(0, 12))
        assert scene.heard.made == [0, 1, 0]

    def knows_none(scene: Scene) -> None:
        scene.knows_no_epochs = True

    run(story, monkeypatch, knows_none)


def test_a_new_leader_that_has_all_of_it_is_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(scene: Scene) -> None:
        await scene.heard.until(scene.has_read(0, 3))
        scene.epochs[0] = [(0, 0), (2, 3)]
        scene.write(0, 0, 5)
        await scene.heard.until(scene.has_read(0, 5))
        scene.write(0, 0, 6)
        await scene.heard.until(scene.has_read(0, 6))
        assert (scene.heard.made, scene.heard.changes) == ([0, 1], [])

    run(story, monkeypatch)


def test_records_that_were_removed_before_they_were_read_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(scene: Scene) -> None:
        await scene.heard.until(scene.has_read(0, 3))
        scene.write(0, 7, 9)
        await scene.heard.until(scene.has_read(0, 9))
        assert scene.heard.made == [0, 1]
        (what,) = scene.heard.changes
        assert "begins at offset 7 now, and had been read up to 3" in what

    run(story, monkeypatch)


def test_a_topic_made_anew_that_is_as_long_as_the_old_one_is_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(scene: Scene) -> None:
        await scene.heard.until(scene.has_read(0, 3))
        scene.topic.id = b"two".ljust(16, b"\0")
        scene.write(0, 0, 9)
        await scene.heard.until(lambda: scene.heard.made == [0, 1, 0, 1])
        await scene.heard.until(scene.has_read(0, 9))
        assert [what for what in scene.heard.changes if "was deleted and made anew" in what]

    run(story, monkeypatch)


def test_partitions_that_come_later_are_read_too(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(scene: Scene) -> None:
        await scene.heard.until(scene.has_read(0, 3))
        scene.write(2, 0, 7)
        scene.topic.leaders = [1, 1, 1]
        await scene.heard.until(scene.has_read(2, 7))
        assert scene.heard.counts[-1] == 3

    run(story, monkeypatch)


def test_a_topic_that_comes_later_has_the_partitions_that_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(scene: Scene) -> None:
        await scene.heard.until(lambda: "has no such topic yet" in scene.heard.troubles.get(1, ""))
        scene.topic.leaders = [1]
        scene.catalog.all_know(**{OFFSETS_TOPIC: scene.topic})
        await scene.heard.until(scene.has_read(0, 3))
        assert scene.heard.counts[0] == 1
        assert scene.heard.troubles[1] == ""

    run(story, monkeypatch, lambda scene: scene.catalog.all_forget(OFFSETS_TOPIC))


def test_a_topic_that_may_not_be_seen_is_forbidden_until_it_may(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(scene: Scene) -> None:
        await scene.heard.until(lambda: not scene.heard.allowed)
        scene.catalog.hidden.clear()
        await scene.heard.until(lambda: scene.heard.allowed)
        await scene.heard.until(scene.has_read(0, 3))

    run(story, monkeypatch, lambda scene: scene.catalog.hidden.add(OFFSETS_TOPIC))


def test_a_topic_that_may_be_seen_and_not_read_is_forbidden_until_it_may(monkeypatch: pytest.MonkeyPatch) -> None:
    def forbid(scene: Scene) -> None:
        scene.code = FORBIDDEN

    async def story(scene: Scene) -> None:
        await scene.heard.until(lambda: not scene.heard.allowed)
        scene.code = 0
        await scene.heard.until(lambda: scene.heard.allowed)
        await scene.heard.until(scene.has_read(0, 3))

    run(story, monkeypatch, forbid)


def test_a_broker_is_left_alone_once_all_is_read_until_something_has_happened(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(scene: Scene) -> None:
        await scene.heard.until(scene.has_read(0, 3))
        await scene.heard.until(lambda: leader_rests(scene))
        fetched = len(scene.broker.of("Fetch"))
        scene.write(0, 0, 5)
        scene.reader.hurry()
        await scene.heard.until(scene.has_read(0, 5))
        assert len(scene.broker.of("Fetch")) == fetched + 1
        assert {request.max_wait_ms for request in scene.broker.of("Fetch")} == {0}

    run(story, monkeypatch, idle_s=3_600)


def test_after_something_has_happened_fetches_are_frequent(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(scene: Scene) -> None:
        await scene.heard.until(scene.has_read(0, 3))
        await scene.heard.until(lambda: leader_rests(scene))
        scene.write(0, 0, 5)
        scene.reader.hurry()
        await scene.heard.until(scene.has_read(0, 5))
        scene.write(0, 0, 9)
        await scene.heard.until(scene.has_read(0, 9))

    run(story, monkeypatch, idle_s=0.01, calm_s=3_600)


def leader_rests(scene: Scene) -> bool:
    scene.heard.look_again_soon()
    return 1 in scene.reader._hurried and not scene.reader._hurried[1].is_set()


def test_a_broker_that_has_much_is_asked_again_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MUCH_BYTES", 1)

    async def story(scene: Scene) -> None:
        await scene.heard.until(scene.has_read(0, 3))
        scene.reader.hurry()
        scene.write(0, 0, 5)
        await scene.heard.until(scene.has_read(0, 5))

    run(story, monkeypatch, idle_s=3_600)
