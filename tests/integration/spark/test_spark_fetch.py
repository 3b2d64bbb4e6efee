"""What a task does, without Spark: fetch from a real node, in order, through restarts, cuts and losses."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pytest

from muster.client import Admin, Producer
from muster.client.config import ClientConfig, load
from muster.client.errors import Unreachable
from muster.spark.fetch import SlotFetch, read_ranges
from muster.spark.planning import FetchSettings, OffsetRange
from muster.spark.read_options import COLUMNS, DataLoss
from tests.support.node import NodeProcess, running_node
from tests.support.topics import make_topics

pytestmark = pytest.mark.integration

COUNT = 400


@pytest.fixture
def node(tmp_path: Path) -> Iterator[NodeProcess]:
    with running_node(tmp_path / "data") as node:
        make_topics(node.address, t=4)
        with Producer({"bootstrap.servers": node.address, "batch.size": 4_000, "linger.ms": 20}) as producer:
            for number in range(4 * COUNT):
                producer.produce("t", b"%d" % number + bytes(100), partition=number % 4)
        yield node


def settings(node: NodeProcess, **changed: int | bool) -> FetchSettings:
    given: dict[str, int | bool] = {
        "rows": 64,
        "patience_ms": 20_000,
        "max_bytes": 40_000,
        "max_partition_bytes": 40_000,
        "committed": False,
        "fail_on_data_loss": True,
    }
    config = load(ClientConfig, {"bootstrap.servers": node.address}, {})
    return FetchSettings(connection=config.connection, columns=COLUMNS, **(given | changed))  # type: ignore[arg-type]


def offsets(batches: Sequence[pa.RecordBatch]) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for batch in batches:
        for partition, offset in zip(batch["partition"].to_pylist(), batch["offset"].to_pylist(), strict=True):
            found.setdefault(partition, []).append(offset)
    return found


RANGES = [OffsetRange("t", 0, 0, 400), OffsetRange("t", 1, 37, 390), OffsetRange("t", 3, 399, 400)]
EXPECTED = {0: list(range(400)), 1: list(range(37, 390)), 3: [399]}


@pytest.mark.parametrize("max_bytes", [1, 5_000, 9_000, 1 << 20])
def test_ranges_come_whole_and_in_order_whatever_fits_into_an_answer(node: NodeProcess, max_bytes: int) -> None:
    batches = list(read_ranges(settings(node, max_bytes=max_bytes, max_partition_bytes=max_bytes), RANGES))
    assert offsets(batches) == EXPECTED
    assert max(batch.num_rows for batch in batches) <= 64


def test_two_ranges_of_one_partition_may_be_in_one_task(node: NodeProcess) -> None:
    ranges = [OffsetRange("t", 0, 300, 400), OffsetRange("t", 0, 0, 100)]
    found = offsets(list(read_ranges(settings(node), ranges)))
    assert sorted(found[0]) == [*range(100), *range(300, 400)]


def test_a_reader_that_stops_early_leaves_nothing_running(node: NodeProcess) -> None:
    reader = read_ranges(settings(node, max_bytes=4_000), RANGES)
    assert next(reader).num_rows > 0
    reader.close()
    assert offsets(list(read_ranges(settings(node), RANGES))) == EXPECTED


def test_a_node_that_is_killed_in_between_is_waited_for(node: NodeProcess) -> None:
    reader = read_ranges(settings(node, max_bytes=4_000, max_partition_bytes=4_000), RANGES)
    batches = [next(reader)]
    node.kill()
    node.start()
    assert offsets([*batches, *reader]) == EXPECTED


def test_a_node_that_stays_away_is_named(node: NodeProcess) -> None:
    reader = read_ranges(settings(node, max_bytes=4_000, max_partition_bytes=4_000, patience_ms=500), RANGES)
    next(reader)
    node.kill()
    with pytest.raises(Unreachable, match=rf"fetching records: no answer from {node.address} for \d+ ms"):
        list(reader)


def test_records_that_went_since_the_plan_are_a_loss_or_left_out(node: NodeProcess) -> None:
    with Admin({"bootstrap.servers": node.address}) as admin:
        admin.delete_records({("t", 0): 250})
    with pytest.raises(DataLoss, match=r"t-0: offsets 0 to 249 were to be read, but the log no longer holds them"):
        list(read_ranges(settings(node), RANGES))
    left = offsets(list(read_ranges(settings(node, fail_on_data_loss=False), RANGES)))
    assert left == EXPECTED | {0: list(range(250, 400))}


def test_a_topic_that_went_since_the_plan_is_a_loss_or_left_out(node: NodeProcess) -> None:
    with Admin({"bootstrap.servers": node.address}) as admin:
        admin.delete_topics(["t"])
    with pytest.raises(DataLoss, match="but the topic is gone"):
        list(read_ranges(settings(node), RANGES))
    assert list(read_ranges(settings(node, fail_on_data_loss=False), RANGES)) == []


def test_a_log_that_ends_before_the_plan_does_is_a_loss(node: NodeProcess) -> None:
    beyond = [OffsetRange("t", 0, 390, 500)]
    with pytest.raises(DataLoss, match="t-0: offsets 400 to 499"):
        list(read_ranges(settings(node), beyond))
    assert offsets(list(read_ranges(settings(node, fail_on_data_loss=False), beyond))) == {0: list(range(390, 400))}


def test_an_answer_is_one_range_once_it_is_known_how_much_fits(node: NodeProcess) -> None:
    """Or sixteen partitions would come in slivers, each to be joined before Spark gets it."""
    ranges = [OffsetRange("t", partition, 0, COUNT) for partition in range(4)]
    first, *others = SlotFetch(settings(node, max_bytes=9_000, max_partition_bytes=9_000), ranges).run()
    assert len(first) > 1
    assert {len(pieces) for pieces in others[:4]} == {1}
    assert len({pieces[0].wanted.partition for pieces in others[:4]}) == 4
