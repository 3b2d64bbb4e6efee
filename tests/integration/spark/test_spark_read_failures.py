"""A node that restarts, stays away, or a driver that dies while a stream is read: nothing lost, nothing twice."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from muster.client import Admin
from tests.support.node import NodeProcess, running_node
from tests.support.spark.reading import Reading
from tests.support.topics import eventually, fill, make_topics

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


DRIVER = """
import sys
from muster.spark.session import session

address, folder = sys.argv[1:]
spark = session("driver", master="local[2]", light=True, config={"spark.sql.warehouse.dir": f"{folder}/warehouse"})
stream = spark.readStream.format("muster").options(
    **{
        "bootstrap.servers": address,
        "subscribe": "driver",
        "group.id": "driver",
        "session.timeout.ms": "1500",
        "heartbeat.interval.ms": "300",
        "maxOffsetsPerTrigger": "100",
    }
)
writer = stream.load().select("partition", "offset").writeStream.format("json").option("path", f"{folder}/out")
trigger = {"processingTime": "0 seconds"}
writer.option("checkpointLocation", f"{folder}/checkpoint").trigger(**trigger).start().awaitTermination()
"""


@pytest.mark.timeout(300)  # two more Sparks are started
def test_a_driver_that_is_killed_goes_on_from_its_checkpoint(spark: Any, node: NodeProcess, tmp_path: Path) -> None:
    """The whole application, by SIGKILL. The file sink keeps what finished batches wrote, once."""
    make_topics(node.address, driver=3)
    more(node, "driver", 700)
    script = tmp_path / "member_driver.py"
    script.write_text(DRIVER)
    with Admin({"bootstrap.servers": node.address}) as admin:

        def committed() -> int:
            return sum(at.offset for at in admin.group_offsets("driver").values())

        for goal in (200, 1000):
            command = [sys.executable, str(script), node.address, str(tmp_path)]
            with (tmp_path / "log").open("ab") as log:
                driver = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
            try:
                eventually(lambda goal=goal: committed() >= goal, f"{goal} records to be committed")  # type: ignore[misc]
            finally:
                os.killpg(driver.pid, signal.SIGKILL)
                driver.wait()
            if goal == 200:
                more(node, "driver", 300)
    rows = spark.read.json(str(tmp_path / "out"))
    found = sorted((row.partition, row.offset) for row in rows.collect())
    assert len(found) == len(set(found)) == 1000
