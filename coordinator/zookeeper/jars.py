"""ZooKeeper's server classes, found where pyspark keeps its jars. Nothing of pyspark is imported."""

from importlib.util import find_spec
from pathlib import Path

from muster.coordinator.zookeeper.errors import ExtraMissing, ZooKeeperError

SERVER_JAR = ("zookeeper-3", "zookeeper-jute-", "slf4j-api-", "metrics-core-", "snappy-java-")
LOGGING_JARS = ("log4j-slf4j2-impl-", "log4j-api-", "log4j-core-")


def server_class_path(*, logging: bool) -> str:
    """What to give to `java -cp`. Raises ExtraMissing without pyspark, ZooKeeperError when its jars are others."""
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise ExtraMissing("pyspark, whose jars hold the ZooKeeper server,")
    folder = Path(spec.origin).parent / "jars"
    wanted = SERVER_JAR + LOGGING_JARS if logging else SERVER_JAR
    return ":".join(str(find_jar(folder, prefix)) for prefix in wanted)


def find_jar(folder: Path, prefix: str) -> Path:
    found = sorted(folder.glob(f"{prefix}*.jar"))
    if not found:
        raise ZooKeeperError(
            f"{folder} has no {prefix}*.jar; expected the jars of pyspark 4.2 or later; "
            "install it with: pip install 'muster-groups[zookeeper]'"
        )
    return found[-1]
