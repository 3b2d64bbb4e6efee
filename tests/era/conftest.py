"""One ZooKeeper server for all tests of that era; nothing is started for a release that cannot be had."""

import pytest

from tests.era.releases import jars_of
from tests.support.zookeeper.servers import zookeeper, zookeeper_server

__all__ = ["zookeeper", "zookeeper_server"]


def pytest_runtest_setup(item: pytest.Item) -> None:
    callspec = getattr(item, "callspec", None)
    if callspec is not None and "release" in callspec.params:
        jars_of(callspec.params["release"])
