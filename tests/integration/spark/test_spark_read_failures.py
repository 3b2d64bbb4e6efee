"""A node that restarts or stays away while a stream is read: nothing lost, nothing twice."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.node import NodeProcess, running_node
from tests.support.spark.reading import Reading
from tests.support.topics import fill, make_topics

pytestmark = pytest.mark.integration


@pytest.fixture
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    with running_node(tmp_path_factory.mktemp("failures") / "data") as node:
        yield node


def more(node: NodeProcess, topic: str, count: int) -> None:
    fill(node.address, topic, [b"%d" % number for number in range(count)], [b"%d" % key for key in range(50)])


def test_a_node_that_is_killed_and_comes_back_interrupts_nothing(spark: Any, node: NodeProcess, tmp_path: Path) -> None:
    make_topics(node.address, back=3)
    more(node, "back", 300)
    reading = Reading(
        spark, node, tmp_path, subscribe="back", maxOffsetsPerTrigger="100", **{"group.id": "back"}
    ).start()
    try:
        reading.until(100)
        node.kill()
        node.start()
        more(node, "back", 300)
        reading.until(600)
    finally:
        reading.stop()
    assert reading.exactly(back=600)


def test_a_node_that_stays_away_is_named_with_how_long_it_was_waited_for(
    spark: Any, node: NodeProcess, tmp_path: Path
) -> None:
    make_topics(node.address, away=1)
    more(node, "away", 50)
    options = {"subscribe": "away", "startingOffsets": "earliest", "default.api.timeout.ms": "1500"}
    reading = Reading(spark, node, tmp_path, **options).start()
    try:
        reading.until(50)
        node.kill()
        with pytest.raises(Exception, match=rf"no answer from {node.address} for \d+ ms"):
            reading.query.awaitTermination(60)
        node.start()
        more(node, "away", 50)
        reading.drain()
    finally:
        reading.stop()
    assert reading.exactly(away=100)
