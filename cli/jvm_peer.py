"""Kafka's own assignors as a peer of the benchmark: one JVM, fed line by line, that times itself."""

import importlib.resources
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from muster.cli.common.errors import CommandError, Exit

TimeAssignor = Callable[[str, tuple[int, int, int], str], float]
"""(assignor, (members, topics, partitions of each), event) -> seconds"""

HEAP = "-Xmx8g"


@contextmanager
def jvm_assignors(classpath: str) -> Iterator[TimeAssignor]:
    """Start a JVM with `classpath` (kafka-clients and slf4j-api jars); needs Java 17 or later on PATH."""
    java = shutil.which("java")
    if java is None:
        raise CommandError(
            "there is no java on PATH", "--jar needs Java 17 or later", "install one, or leave --jar out"
        )
    source = importlib.resources.files("muster.assignors.tools") / "AssignorBench.java"
    with importlib.resources.as_file(source) as path:
        command = [java, HEAP, "-cp", classpath, str(path)]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)

    def ask(word: str, shape: tuple[int, int, int], event: str) -> float:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(f"{word} {' '.join(map(str, shape))} {event.replace(' ', '_')}\n")
        process.stdin.flush()
        answer = process.stdout.readline()
        if not answer:
            raise CommandError(
                f"the JVM ended with {process.wait()}",
                "expected --jar to hold kafka-clients and slf4j-api, separated as in a class path",
                code=Exit.USAGE,
            )
        return int(answer) / 1e9

    try:
        yield ask
    finally:
        assert process.stdin is not None
        process.stdin.close()
        process.wait(timeout=30)
