"""Tables by partition: a page of rows at a time, with committed and end offset, lag and rates."""

from typing import Any

import numpy as np
import pytest

from muster.assignors.data.values import readable_lag
from muster.coordinator.observability.history.group_history import PartitionRates
from muster.coordinator.observability.read_model.groups import PartitionLag, TopicPartition
from muster.coordinator.observability.views.member_names import Names
from muster.coordinator.rpc.v1 import coordinator_service_pb2 as pb
from muster.coordinator.web.pages.position_view import (
    ROWS,
    known_rates,
    partition_lines,
    position_lines,
    reader_lines,
    row_page,
    written_to,
)
from muster.storage.rpc.v1 import broker_service_pb2 as log_pb
from tests.fakes.asked_node import AskedNode
from tests.support.web import get

NAN = float("nan")


def seen(topic: str, *rows: tuple[float, float, int]) -> PartitionRates:
    """Partitions from 0 on: (written, read, lag)."""
    produced, consumed, lags = (np.array(column) for column in zip(*rows, strict=True))
    places = tuple(TopicPartition(topic, number) for number in range(len(rows)))
    return PartitionRates(places, produced, consumed, lags.astype(np.float64), lags)


def positions(*committed: int | None, start: int = 0, end: int = 100) -> dict[TopicPartition, PartitionLag]:
    return {
        TopicPartition("t", number): PartitionLag(
            TopicPartition("t", number), at, start, end, readable_lag(at, start, end), "m-1" if number == 0 else ""
        )
        for number, at in enumerate(committed)
    }


def test_a_position_has_its_offsets_its_lag_and_both_rates() -> None:
    known = seen("t", (5.0, 2.5, 60), (NAN, NAN, 0))
    rates = (known_rates(known, "consumed"), known_rates(known, "produced"))
    first, second = position_lines(positions(40, None), Names.of_ids(["m-1"]), *rates, row_page(1, 2))
    assert (first.committed, first.log_end, first.lag, first.read, first.written) == (40, 100, 60, 2.5, 5.0)
    assert (second.committed, second.lag, second.read, second.owner) == (None, 100, None, "")


def test_what_retention_removed_is_beside_the_lag() -> None:
    (line,) = position_lines(positions(5, start=95), Names({}), {}, {}, row_page(1, 1))
    assert (line.lag, line.removed) == (5, 90)


def test_of_a_thousand_partitions_a_page_is_shown_most_lag_first() -> None:
    many = positions(*(number % 100 for number in range(1_000)))
    pages = [position_lines(many, Names({}), {}, {}, row_page(number, 1_000)) for number in (1, 20, 21)]
    assert [len(lines) for lines in pages] == [ROWS] * 3
    assert (pages[0][0].lag, pages[1][-1].lag) == (100, 1)
    assert pages[1] == pages[2], "a page beyond the last is the last"


@pytest.mark.parametrize(("number", "first", "last"), [(1, 0, 50), (3, 100, 125), (9, 100, 125), (0, 0, 50)])
def test_pages_of_rows(number: int, first: int, last: int) -> None:
    shown = row_page(number, 125)
    assert (shown.first, shown.last, shown.pages) == (first, last, 3)


def test_a_topic_has_the_lag_and_rate_of_each_group_and_idle_ones_last() -> None:
    groups = [("idle", seen("t", (9.0, 0.0, 900))), ("live", seen("t", (9.0, 3.0, 7), (1.0, NAN, 2)))]
    health = {"idle": ("IDLE", "idle since 14:02 UTC, 900 behind"), "live": ("OK", "")}
    lines = reader_lines("t", [*groups, ("other", seen("u", (1.0, 1.0, 1)))], health)
    assert [(line.group, line.lag, line.read, line.partitions) for line in lines] == [
        ("live", 9, 3.0, 2),
        ("idle", 900, 0.0, 1),
    ]
    assert written_to(groups, ["t"]) == {("t", 0): 9.0, ("t", 1): 1.0}


def test_partitions_of_a_topic_come_a_page_at_a_time() -> None:
    ends = {("t", number): 10 * number for number in range(150)}
    lines = partition_lines("t", {("t", 149): 90}, ends, {}, {("t", 149): 1.5}, row_page(3, 150))
    assert [line.number for line in lines] == list(range(100, 150))
    assert (lines[-1].records, lines[-1].written, lines[-1].size) == (1_400, 1.5, "0 B")


def node_with_topic(partitions: int) -> AskedNode:
    """Its topic t has 100 records in each partition, and a setting of its own."""
    node = AskedNode()

    def offsets(request: Any) -> log_pb.ListOffsetsResponse:
        answer = log_pb.ListOffsetsResponse()
        for topic in request.topics:
            found = answer.topics.add(name=topic.name)
            for row in topic.partitions:
                found.partitions.add(partition_index=row.partition_index, offset=7 if row.timestamp == -2 else 107)
        return answer

    configs = log_pb.DescribeConfigsResponse()
    result = configs.results.add()
    result.configs.add(name="cleanup.policy", value="delete", is_default=True)
    result.configs.add(name="retention.ms", value="4711")
    metadata = log_pb.MetadataResponse(
        topics=[log_pb.TopicMetadata(name="t", partitions=[log_pb.PartitionMetadata()] * partitions)]
    )
    node.answers = {
        "Metadata": lambda request: metadata,
        "ListOffsets": offsets,
        "DescribeConfigs": lambda request: configs,
    }
    return node


def test_a_topic_s_page_has_its_settings_its_readers_and_a_page_of_its_partitions() -> None:
    """A thousand partitions were forty thousand pixels."""
    node = node_with_topic(1_000)
    body = get(node, "/topics/t?page=20").text
    partitions = body.partition('id="partitions"')[2].partition("</section>")[0]
    assert partitions.count('data-h="records">100<') == 50
    assert "951 to 1,000 of 1,000 partitions" in partitions
    assert "No group has a position in it." in body.partition('id="readers"')[2].partition("</section>")[0]
    own, _, others = body.partition('id="settings"')[2].partition("</section>")[0].partition("<details")
    assert ("retention.ms" in own, "4711" in own, "cleanup.policy" in own) == (True, True, False)
    assert "1 that the node decides" in others
    assert "cleanup.policy" in others


def test_a_what_if_of_nobody_says_that_there_is_no_plan() -> None:
    """The page was blank."""
    node = AskedNode()
    node.answers["SimulateAssignment"] = lambda request: pb.SimulateAssignmentResponse()
    body = get(node, "/groups/g/what-if?assignor=range").text
    assert "There is no plan to show: the group has no members, and none were added." in body
