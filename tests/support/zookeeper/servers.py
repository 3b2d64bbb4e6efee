"""A real ZooKeeper for tests: one server for the whole session, an ensemble of three for those that break it.

Servers end with the test process, however it ends. Every test gets a chroot of its own.
"""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import pytest

from muster.coordinator.java_runtime import JavaNotFound, find_java
from muster.coordinator.zookeeper.local_ensemble import LocalEnsemble, ServerTuning, open_or_create_ensemble

TICK_MS = 200
"""Sessions may be as short as two of these."""

FOR_TESTS = ServerTuning(tick_ms=TICK_MS, heap_mb=64, logs=False, durable=False, tied=True)

numbers = count(1)


@contextmanager
def running(nodes: int) -> Iterator[LocalEnsemble]:
    """An ensemble on free ports, in a folder of its own."""
    try:
        find_java()
    except JavaNotFound as error:
        pytest.skip(str(error))
    folder = Path(tempfile.mkdtemp(prefix="muster-zookeeper-"))
    ensemble = open_or_create_ensemble(folder, nodes, tuning=FOR_TESTS)
    try:
        ensemble.start()
        yield ensemble
    finally:
        ensemble.stop()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def zookeeper_server() -> Iterator[LocalEnsemble]:
    """One server for everybody: leave it running."""
    with running(1) as ensemble:
        yield ensemble


@pytest.fixture
def zookeeper(zookeeper_server: LocalEnsemble) -> str:
    """A connect string with a chroot that nobody else uses."""
    return f"{zookeeper_server.connect}/test-{next(numbers)}"


@pytest.fixture(scope="module")
def zookeeper_ensemble() -> Iterator[LocalEnsemble]:
    """Three servers, to be killed and restarted: leave all three running."""
    with running(3) as ensemble:
        yield ensemble
