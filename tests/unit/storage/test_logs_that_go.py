"""What is left of partitions that were removed: nothing that the collector of garbage would have to look for."""

import gc
from pathlib import Path

from muster.storage.broker.broker import Broker
from muster.storage.config import LogSettings


def test_a_log_that_goes_needs_no_collector(tmp_path: Path) -> None:
    broker = Broker(tmp_path / "data", LogSettings.from_properties({}))
    try:
        gc.collect()
        gc.disable()
        broker.create_topic("t", 40)
        broker.delete_topic("t")
        assert gc.collect() < 40
    finally:
        gc.enable()
        broker.close()
