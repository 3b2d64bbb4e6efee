"""A few rounds of exactly-once with kills, where there are Java and a Kafka; `python -m tests.torture.exactly_once` has
more."""

import os
import shutil
from pathlib import Path

import pytest

from muster.workshop.bench.kafka_peer import KAFKA, JarsUnavailable, find_jars
from tests.interop.kafka_broker import kafka_broker
from tests.torture.exactly_once import BURST, MORE, torture


@pytest.mark.integration
@pytest.mark.timeout(400)
def test_every_record_comes_out_once_whoever_is_killed(tmp_path: Path) -> None:
    if shutil.which("java") is None:
        pytest.skip("needs a real broker: java is not on the PATH")
    try:
        classpath = os.pathsep.join(map(str, find_jars(KAFKA)))
    except JarsUnavailable as error:
        pytest.skip(f"needs a real broker ({KAFKA}): {error}")
    with kafka_broker(classpath, tmp_path / "kafka", MORE) as kafka:
        assert torture(kafka, 4, 3, tmp_path)["records"] == 4 * BURST
