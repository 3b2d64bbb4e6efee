"""What is left of topics that were removed: no open file, and nothing that the collector of garbage would look for."""

import gc
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from muster.storage.broker.broker import Broker
from tests.unit.storage.logs import T0, batch


@pytest.fixture(autouse=True)
def no_garbage_is_collected() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def test_the_files_of_a_removed_topic_are_closed_at_once(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    broker.create_topic("t", 3)
    for number in range(3):
        broker.append("t", number, batch(b"x"), T0)
    assert opened(tmp_path, "t-") == 3
    broker.delete_topic("t")
    assert opened(tmp_path, "t-") == 0
    broker.close()


def opened(home: Path, name: str) -> int:
    """How many files below `home` this process has open."""
    found = 0
    for each in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            found += os.readlink(each).startswith(str(home / name))
    return found


def test_the_logs_of_a_removed_topic_need_no_collector(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    gc.collect()
    broker.create_topic("t", 40)
    broker.delete_topic("t")
    assert gc.collect() < 40
    broker.close()
