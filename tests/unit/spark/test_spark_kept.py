"""What Spark's processes do once they have loaded the source."""

import gc
import sys
from collections.abc import Iterator
from importlib.machinery import ModuleSpec

import pytest

from muster.spark.fetch import share_transport
from muster.spark.lookup import NodeLookup
from muster.spark.options import check_read_options
from muster.spark.read_options import DAEMON, settle_in
from muster.spark.source import MusterDataSource


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    """As in a process that has just been started."""
    settle_in.cache_clear()
    gc.unfreeze()
    yield
    settle_in.cache_clear()
    gc.unfreeze()


@pytest.fixture
def daemon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", ModuleSpec(DAEMON, None))


@pytest.mark.usefixtures("daemon")
def test_in_a_process_of_sparks_daemon_what_is_loaded_is_collected_no_more() -> None:
    tracked = len(gc.get_objects())
    settle_in()
    assert gc.get_freeze_count() > tracked // 2
    assert len(gc.get_objects()) < tracked // 2


@pytest.mark.usefixtures("daemon")
def test_what_comes_later_is_collected_as_ever() -> None:
    settle_in()
    frozen = gc.get_freeze_count()
    later = [[] for _ in range(1000)]  # type: ignore[var-annotated]
    settle_in()
    assert gc.get_freeze_count() <= frozen
    assert gc.is_tracked(later)


def test_elsewhere_nothing_changes() -> None:
    settle_in()
    assert gc.get_freeze_count() == 0


@pytest.mark.usefixtures("daemon")
def test_a_process_that_only_makes_the_source_settles_too() -> None:
    MusterDataSource({"bootstrap.servers": "127.0.0.1:1", "subscribe": "orders"}).schema()
    assert gc.get_freeze_count() > 0


@pytest.mark.usefixtures("daemon")
def test_a_process_that_plans_or_reads_settles_with_what_that_needs() -> None:
    options = check_read_options({"bootstrap.servers": "127.0.0.1:1", "subscribe": "orders"}, streaming=False)
    for begin in (lambda: NodeLookup(options), lambda: share_transport(options.connection)):
        settle_in.cache_clear()
        gc.unfreeze()
        begin()
        assert gc.get_freeze_count() > 0
