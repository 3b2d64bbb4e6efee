"""Options shared by every test."""

import gc
import os
import signal
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from _pytest.doctest import DoctestModule
from hypothesis import settings
from xdist.scheduler import LoadFileScheduling

from tests.parts import PARTS, NoPart, is_for_verify, part_of, starts_processes
from tests.support.pace import pace
from tests.support.part_lines import PartLines

# A gate must give the same answer twice: examples are drawn from a fixed seed, and no example is timed on a shared
# machine. `make search` draws at random instead and digs deeper; what it finds becomes an `@example`.
settings.register_profile("gate", derandomize=True, deadline=None)
settings.register_profile("search", derandomize=False, deadline=None, max_examples=1000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "gate"))

# Read when gRPC is imported: see tests/unit/spark/test_fork_beside_grpc.py.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A script's background job inherits that, and so would every process that a test starts, to stop it with Ctrl-C.
    signal.signal(signal.SIGINT, signal.default_int_handler)

SPARK = ("tests/integration/spark/", "tests/integration/spark/test_pipeline_spark.py")
"""Tests that share one Spark session, which takes long to start."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rewrite", action="store_true", help="write the real traces back into tests/scripts")
    parser.addoption("--parts", action="store_true", help="a line for each part of the suite (tests/parts.py), no dots")


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--parts") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(PartLines(config.pluginmanager.get_plugin("terminalreporter")))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks by part, and the parts in their order: what takes longest goes first, so that nobody waits for it alone."""
    order: dict[str, int] = {}
    for item in items:
        try:
            part = part_of(item.nodeid)
        except NoPart as error:
            raise pytest.UsageError(str(error)) from None
        order[item.nodeid] = PARTS.index(part)
        if is_for_verify(part):
            item.add_marker("verify")
        if starts_processes(part):
            item.add_marker("integration")
    items.sort(key=lambda item: order[item.nodeid])


@pytest.hookimpl(wrapper=True)
def pytest_collect_file(file_path: Path) -> Generator[None, list[pytest.Collector], list[pytest.Collector]]:
    """Two thousand modules have no example: they need not be imported and searched for one, in each process."""
    found = yield
    if file_path.suffix == ".py" and b">>>" not in file_path.read_bytes():
        return [one for one in found if not isinstance(one, DoctestModule)]
    return found


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, Any, Any]:
    """Eleven thousand tests and all that they import stay to the end: the collector need not look through them."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, Any, Any]:
    """Time limits are in seconds of a machine that is not busy."""
    own = item.get_closest_marker("timeout")
    asked = item.config.getoption("timeout")
    limit_s = own.args[0] if own else float(item.config.getini("timeout")) if asked is None else asked
    item.add_marker(pytest.mark.timeout(limit_s * pace()), append=False)
    return (yield)


class Shares(LoadFileScheduling):
    """What one process runs where several share the tests out: a file, or all that needs Spark."""

    def _split_scope(self, nodeid: str) -> str:
        return "spark" if nodeid.startswith(SPARK) else str(super()._split_scope(nodeid))


@pytest.hookimpl(optionalhook=True)  # -p no:xdist
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Shares:
    return Shares(config, log)
