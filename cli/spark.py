"""A Spark session for the length of a command."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import click

from muster.cli.common.errors import CommandError
from muster.cli.common.options import key_values

spark_conf_option = click.option(
    "--spark-conf",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    callback=key_values,
    help="For the Spark session, such as spark.driver.memory=4g; may be repeated.",
)

KNOWN_MASTER = re.compile(
    r"local|local\[([1-9]\d*|\*)(\s*,\s*[1-9]\d*)?\]|local-cluster\[\s*\d+\s*,\s*\d+\s*,\s*\d+\s*\]"
    r"|spark://[^\s/,]+:\d+(,[^\s/,]+:\d+)*|yarn|k8s://\S+"
)


def check_master(ctx: click.Context, param: click.Parameter, given: str | None) -> str | None:
    """Checks the word before a JVM is started that would print its stack over a wrong one."""
    if given is not None and KNOWN_MASTER.fullmatch(given) is None:
        expected = "local[2], local[*], spark://HOST:PORT, yarn or k8s://URL"
        raise click.BadParameter(f"{given!r} is no Spark master; expected {expected}", ctx, param)
    return given


PYTHON_ERROR = re.compile(r"^(?:: )?(?:(?:[a-z_]\w*\.)+[A-Z]\w*|[A-Z]\w*(?:Error|Exception)): (.+)", re.M)
"""The line of a traceback that says what happened."""


@contextmanager
def spark_session(name: str, master: str, settings: Mapping[str, str]) -> Iterator[Any]:
    """Started, quiet, and stopped at the end; one that was there before is left running.

    What goes wrong in it comes as a CommandError, with the reason and without the stack of two languages.
    """
    from muster.coordinator.java_runtime import JavaNotFound
    from muster.spark.session import session

    try:
        from pyspark.sql import SparkSession

        before = SparkSession.getActiveSession()
        spark = session(name, master=master, light=master.startswith("local"), config=settings)
    except (ImportError, JavaNotFound) as missing:
        raise CommandError(str(missing)) from missing
    except Exception as error:
        # The gateway's own errors: pyspark may be missing, so they have no name here before they happen.
        if not type(error).__module__.startswith(("py4j", "pyspark")):
            raise
        raise CommandError(f"Spark does not start on {master!r}: {spark_failure_reason(str(error))}") from error
    try:
        spark.sparkContext.setLogLevel("ERROR")
        from pyspark.errors import PySparkException

        try:
            yield spark
        except PySparkException as error:
            raise CommandError(f"the Spark job failed: {spark_failure_reason(str(error))}") from error
    finally:
        if before is None:
            spark.stop()


def spark_failure_reason(text: str) -> str:
    """The last thing that Python said, else the first line.

    >>> spark_failure_reason("[X] Failed: Traceback...\\n  File a\\nstorage.errors.DiskFull: the disk is full\\n"
    ... "SQLSTATE: 38000")
    'the disk is full'
    >>> spark_failure_reason("[PATH_NOT_FOUND] no such path\\nmore")
    '[PATH_NOT_FOUND] no such path'
    """
    said = PYTHON_ERROR.findall(text)
    return str(said[-1]) if said else text.partition("\n")[0]
