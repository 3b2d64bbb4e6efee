"""What Spark's tasks do in a cluster that moves, without Spark (CL-K7): nodes do as the test says."""

from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

from muster.client.calls import leaders as leading
from muster.client.config import ClientConfig, load
from muster.client.twins import shared_loop
from muster.client.types import TopicPartition
from muster.spark.fetch import read_ranges
from muster.spark.options import WriteOptions, check_write_options
from muster.spark.planning import FetchSettings, OffsetRange
from muster.spark.read_options import DataLoss
from muster.spark.row_encoding import EncodedRows
from muster.spark.write_calls import AppendingOutlet, NotOnOneNode, SinkNode, StagingOutlet, commit_attempts
from muster.storage.records.batch import encode_batch
from tests.support.scripted.cluster import ScriptedCluster, scripted
from tests.support.scripted.node import BROKEN

COUNT = 40
OFFSET_NOT_AVAILABLE = 78


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[ScriptedCluster]:
    """On the loop that all clients of the process share: gRPC knows one."""
    monkeypatch.setattr(leading, "BACKOFF_MS", 5)
    monkeypatch.setattr(leading, "BACKOFF_MAX_MS", 40)
    context = scripted()
    loop = shared_loop()
    cluster = loop.run(context.__aenter__())
    try:
        yield cluster
    finally:
        loop.run(context.__aexit__(None, None, None))


def batch(*values: bytes) -> bytes:
    return encode_batch([(1, None, value, ()) for value in values])


def filled(cluster: ScriptedCluster, *leaders: int) -> list[OffsetRange]:
    """A topic with COUNT records in each partition, ten by ten, and what there is to read of it."""

    async def fill() -> None:
        cluster.topic("t", *leaders)
        for partition in range(len(leaders)):
            for first in range(0, COUNT, 10):
                cluster.append("t", partition, batch(*(b"%d" % number for number in range(first, first + 10))))

    shared_loop().run(fill())
    return [OffsetRange("t", partition, 0, COUNT) for partition in range(len(leaders))]


def settings(cluster: ScriptedCluster, **changed: Any) -> FetchSettings:
    given = {"rows": 64, "patience_ms": 10_000, "max_bytes": 300, "max_partition_bytes": 300, "committed": False}
    config = load(ClientConfig, {"bootstrap.servers": cluster.nodes[1].address, "retry.backoff.ms": 5}, {})
    more: Any = {"fail_on_data_loss": True} | given | changed
    return FetchSettings(connection=config.connection, columns=("partition", "offset", "value"), **more)


def offsets(batches: Iterator[pa.RecordBatch]) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for each in batches:
        for partition, offset in zip(each["partition"].to_pylist(), each["offset"].to_pylist(), strict=True):
            found.setdefault(partition, []).append(offset)
    return found


def options(cluster: ScriptedCluster, *, streaming: bool = False, **given: str) -> WriteOptions:
    node = {"bootstrap.servers": cluster.nodes[1].address, "retry.backoff.ms": "5"}
    return check_write_options(node | given, streaming=streaming)


def test_ranges_are_read_from_whoever_leads_them(cluster: ScriptedCluster) -> None:
    ranges = filled(cluster, 1, 2, 3)
    assert offsets(read_ranges(settings(cluster), ranges)) == {number: list(range(COUNT)) for number in range(3)}
    asked = {(said.node, part.partition) for said in cluster.calls("MultiFetch") for part in said.request.fetches}
    assert {(2, 1), (3, 2)} <= asked
    assert {node for node, partition in asked if partition == 0} == {1}


def test_a_leader_that_dies_in_a_micro_batch_is_followed(cluster: ScriptedCluster) -> None:
    """CL-K7: nothing is read twice, nothing is missing."""
    ranges = filled(cluster, 2, 2, 1)

    async def die(request: Any, truth: Callable[[], Awaitable[Any]]) -> Any:
        cluster.lead("t", 0, 3)
        cluster.lead("t", 1, 1)
        cluster.goes(2)
        return BROKEN

    async def once(request: Any, truth: Callable[[], Awaitable[Any]]) -> Any:
        cluster.nodes[2].next("MultiFetch", die)
        return await truth()

    cluster.nodes[2].next("MultiFetch", once)
    assert offsets(read_ranges(settings(cluster), ranges)) == {number: list(range(COUNT)) for number in range(3)}
    assert len(cluster.calls("MultiFetch", 2)) == 2


def test_a_new_leader_that_does_not_know_yet_how_far_it_counts_has_lost_nothing(cluster: ScriptedCluster) -> None:
    """CL-L8: its high watermark may lie below what was planned, until somebody has fetched from it."""
    ranges = filled(cluster, 2)

    async def behind(request: Any, truth: Callable[[], Awaitable[Any]]) -> Any:
        answer = await truth()
        for each in answer.results:
            each.result.records, each.result.high_watermark = b"", 5
        return answer

    async def not_yet(request: Any, truth: Callable[[], Awaitable[Any]]) -> Any:
        answer = await truth()
        answer.topics[0].partitions[0].error_code = OFFSET_NOT_AVAILABLE
        return answer

    cluster.nodes[2].next("MultiFetch", behind)
    cluster.nodes[2].next("ListOffsets", not_yet)
    assert offsets(read_ranges(settings(cluster), ranges)) == {0: list(range(COUNT))}
    assert len(cluster.calls("ListOffsets", 2)) == 2


def test_what_an_unclean_election_has_cost_is_a_loss(cluster: ScriptedCluster) -> None:
    ranges = filled(cluster, 2)

    async def lose() -> None:
        cluster.unclean("t", 0, 3, keep=20)

    shared_loop().run(lose())
    with pytest.raises(DataLoss, match="t-0: offsets 20 to 39"):
        offsets(read_ranges(settings(cluster), ranges))


def test_rows_are_appended_where_they_are_led_and_once_each(cluster: ScriptedCluster) -> None:
    """CL-K6 and CL-K7, at least once: a request whose answer is lost is sent again under its numbers."""
    filled(cluster, 1, 2, 3)

    async def write_and_break(request: Any, truth: Callable[[], Awaitable[Any]]) -> Any:
        await truth()
        cluster.lead("t", 1, 3)
        return BROKEN

    cluster.nodes[2].next("Produce", write_and_break)
    node = SinkNode(options(cluster))
    assert node.partitions_of("t") == 3
    rows = [EncodedRows(TopicPartition("t", number), batch(b"new"), 1) for number in range(3)]
    node.run(AppendingOutlet(node).send(rows, last=True))
    for partition in range(3):
        assert cluster.values("t", partition)[COUNT:] == [b"new"]


def test_an_exactly_once_sink_wants_all_partitions_on_one_node(cluster: ScriptedCluster) -> None:
    """CL-K7: it is refused otherwise, with a sentence that says what else there is."""
    filled(cluster, 1, 2)
    node = SinkNode(options(cluster, streaming=True))
    node.partitions_of("t")
    rows = [EncodedRows(TopicPartition("t", 0), batch(b"new"), 1)]
    with pytest.raises(NotOnOneNode, match=r"nodes 1, 2 lead the partitions of t, .* delivery=at-least-once"):
        node.run(StagingOutlet(node, "query-q", 7, "attempt").send(rows, last=True))
    assert cluster.calls("StageRecords") == []


def test_an_exactly_once_sink_stages_and_commits_at_the_node_that_has_all(cluster: ScriptedCluster) -> None:
    filled(cluster, 3, 3)
    node = SinkNode(options(cluster, streaming=True))
    node.partitions_of("t")
    staged = StagingOutlet(node, "query-q", 7, "attempt")
    node.run(staged.send([EncodedRows(TopicPartition("t", 0), batch(b"new"), 1)], last=True))
    assert staged.home == cluster.nodes[3].address
    node.run(commit_attempts(node.transport, "query-q", 7, [("attempt", staged.size)], staged.home))
    assert [said.node for said in cluster.said if said.name in ("StageRecords", "CommitStaged")] == [3, 3]
