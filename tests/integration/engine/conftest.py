"""A real Kafka for the engine's tests: from Maven's jars; without them the tests are skipped, and said by name."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from muster.coordinator.bench.kafka.broker import KAFKA
from muster.coordinator.bench.kafka.maven import NotFetched, jars
from tests.interop.kafka_broker import kafka_broker


@pytest.fixture(scope="session")
def kafka_classpath() -> str:
    try:
        if shutil.which("java") is None:
            raise NotFetched("java is not on the PATH")
        return os.pathsep.join(map(str, jars(KAFKA)))
    except NotFetched as error:
        why = f"needs a real broker ({KAFKA}): {error}"
        if os.environ.get("MUSTER_ENGINE"):
            pytest.fail(f"{why}; `make engine` wants it")
        pytest.skip(why)


@pytest.fixture(scope="session")
def kafka(kafka_classpath: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a broker, for all tests of a run: each has a cluster name of its own."""
    place: Path = tmp_path_factory.mktemp("upstream") / "kafka"
    with kafka_broker(kafka_classpath, place) as address:
        yield address
