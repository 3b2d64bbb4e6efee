"""One ZooKeeper server for all tests of that era."""

from tests.support.zookeeper.servers import zookeeper, zookeeper_server

__all__ = ["zookeeper", "zookeeper_server"]
