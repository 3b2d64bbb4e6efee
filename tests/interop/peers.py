"""Where the clients of other languages are, and how to run a story of theirs; skips with the reason without them."""

import os
import shutil
import subprocess
from functools import cache
from pathlib import Path

import pytest

from tests.support.kafka.stage import Stage, Worker

HERE = Path(__file__).parent
STORY_S = 120

JARS = ("kafka-clients", "slf4j-api", "lz4-java", "zstd-jni", "snappy-java")
"""What Kafka's own client needs, by the beginning of the file names."""

STREAMS_JARS = (*JARS, "kafka-streams", "rocksdbjni", "jackson-databind", "jackson-core", "jackson-annotations")


def java_story(name: str, *arguments: str) -> list[str]:
    """The lines that `java/NAME.java` prints."""
    return lines_of(java_command(name, *arguments), HERE)


def java_command(name: str, *arguments: str) -> list[str]:
    """What runs `java/NAME.java`."""
    java, classpath = shutil.which("java"), kafka_classpath()
    if java is None:
        pytest.skip("java is not installed")
    if not classpath:
        pytest.skip(
            "no kafka-clients jar: set KAFKA_CLIENTS_CLASSPATH, or fetch it with "
            "'mvn dependency:get -Dartifact=org.apache.kafka:kafka-clients:4.3.0'"
        )
    return [java, "-cp", classpath, str(HERE / "java" / f"{name}.java"), *arguments]


def streams_command(name: str, *arguments: str) -> list[str]:
    """What runs `java/NAME.java`, an application of Kafka Streams."""
    java, classpath = shutil.which("java"), jars_of(STREAMS_JARS, "kafka-streams")
    if java is None or not classpath:
        pytest.skip(
            "no Kafka Streams: it takes java, and 'mvn dependency:get -Dartifact=org.apache.kafka:kafka-streams:4.1.1'"
        )
    return [java, "-Xmx256m", "-cp", classpath, str(HERE / "java" / f"{name}.java"), *arguments]


def kafka_classpath() -> str:
    """From KAFKA_CLIENTS_CLASSPATH, or the newest jars in Maven's local repository; empty without kafka-clients."""
    return os.environ.get("KAFKA_CLIENTS_CLASSPATH") or jars_of(JARS, "kafka-clients")


def jars_of(names: tuple[str, ...], needed: str) -> str:
    repository = Path.home() / ".m2" / "repository"
    found = {name: sorted(repository.glob(f"**/{name}-[0-9]*.jar")) for name in names}
    return ":".join(str(jars[-1]) for jars in found.values() if jars) if found[needed] else ""


def node_story(name: str, *arguments: str) -> list[str]:
    """The lines that `js/NAME.js` prints."""
    return lines_of(node_command(name, *arguments), HERE / "js")


def node_command(name: str, *arguments: str) -> list[str]:
    """What runs `js/NAME.js`."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed")
    if not (HERE / "js" / "node_modules" / "kafkajs").is_dir():
        pytest.skip("kafkajs is not installed: run 'npm install --no-package-lock' in tests/interop/js")
    return [node, str(HERE / "js" / f"{name}.js"), *arguments]


def go_story(*arguments: str) -> list[str]:
    """The lines that the clients in `go/` print."""
    return lines_of(go_command(*arguments), HERE)


def go_command(*arguments: str) -> list[str]:
    """What runs the clients in `go/`, built with the modules that its go.mod names."""
    go = shutil.which("go")
    if go is None:
        pytest.skip("go is not installed")
    return [build_go_clients(go), *arguments]


@cache
def build_go_clients(go: str) -> str:
    """Once per run; what has not changed is in Go's cache."""
    program = HERE.parents[1] / "build" / "interop" / "go-clients"
    done = subprocess.run(
        [go, "build", "-C", str(HERE / "go"), "-o", str(program), "."], capture_output=True, text=True, check=False
    )
    if done.returncode:
        pytest.skip(f"the clients in tests/interop/go cannot be built: {done.stderr[-1000:]}")
    return str(program)


def kcat_command() -> str:
    kcat = shutil.which("kcat")
    if kcat is None:
        pytest.skip("kcat is not installed (apt-get install kcat)")
    return kcat


def lines_of(command: list[str], directory: Path) -> list[str]:
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=STORY_S, check=False)
    assert done.returncode == 0, done.stderr[-4000:] or done.stdout[-4000:]
    return done.stdout.splitlines()


# Members of a stage
# ------------------


def java(play: Stage, *instance: str) -> Worker:
    name = f"java-{len(play.workers)}"
    told = (play.node.kafka_address, play.group, play.topic, name, play.assignor, *instance)
    return play.run(name, java_command("GroupWorker", *told))


def kafkajs(play: Stage, *assignor: str) -> Worker:
    name = f"kafkajs-{len(play.workers)}"
    told = (play.node.kafka_address, play.group, play.topic, name, *assignor)
    return play.run(name, node_command("group_worker", *told))
