"""The clients that play the situations: the command that starts a member, and the features of each client."""

import json
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.interop.peers import JARS, jars_of

MEMBERS = Path(__file__).parent / "members"
INTEROP = Path(__file__).parents[1] / "interop"
BUILD = Path(__file__).parents[2] / "build" / "truth"


class NotInstalled(Exception):
    """The client is not installed on this machine; the message says what is missing."""


@dataclass(frozen=True, slots=True)
class Client:
    """A column of the table: a library and a rebalance protocol.

    mode: eager, cooperative or kip848.
    can: features that not every client has: `static` (group.instance.id), `poll-interval` (max.poll.interval.ms),
        `pattern`, `resubscribe` (a running member changes its subscription), `two-assignors` (a list of strategies),
        `missing-topic` (a subscription to a topic that does not exist), `read-on` (the member's program can leave the
        group and go on reading).
    cannot: situations that it does not get through, on Apache Kafka 4.1.1 either, and why.
    """

    name: str
    library: str
    mode: str
    can: frozenset[str]
    command: Callable[[Mapping[str, Any]], list[str]]
    cannot: Mapping[str, str] = field(default_factory=dict)

    @property
    def protocol(self) -> str:
        return "consumer" if self.mode == "kip848" else "classic"

    @property
    def assignor(self) -> str:
        """The assignor that its members offer by default."""
        return "cooperative-sticky" if self.mode == "cooperative" else "range"


def python_command(job: Mapping[str, Any]) -> list[str]:
    return [sys.executable, str(MEMBERS / "python_member.py"), json.dumps(job)]


def kafkajs_command(job: Mapping[str, Any]) -> list[str]:
    node = shutil.which("node")
    if node is None:
        raise NotInstalled("node is not installed")
    if not (INTEROP / "js" / "node_modules" / "kafkajs").is_dir():
        raise NotInstalled("kafkajs is not installed: run 'npm install --no-package-lock' in tests/interop/js")
    return [node, str(MEMBERS / "kafkajs_member.js"), json.dumps(job)]


def java_command(job: Mapping[str, Any]) -> list[str]:
    classpath = jars_of(JARS, "kafka-clients")
    if shutil.which("javac") is None or not classpath:
        raise NotInstalled("it takes a JDK, and 'mvn dependency:get -Dartifact=org.apache.kafka:kafka-clients:4.1.1'")
    classes = built("java", ["javac", "-cp", classpath, "-d", "{}", str(MEMBERS / "JavaMember.java")])
    small = ["-Xmx96m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    return ["java", *small, "-cp", f"{classes}:{classpath}", "JavaMember", json.dumps(job)]


def go_command(job: Mapping[str, Any]) -> list[str]:
    if shutil.which("go") is None:
        raise NotInstalled("go is not installed")
    built_at = built("go", ["go", "build", "-C", str(MEMBERS / "go"), "-o", "{}/member", "."])
    return [str(built_at / "member"), json.dumps(job)]


building = threading.Lock()


def built(what: str, command: list[str]) -> Path:
    """Run a build command unless its output is newer than the sources; {} in it stands for the output folder.

    Raises `NotInstalled` if the build fails."""
    place = BUILD / what
    with building:
        newest = max(each.stat().st_mtime for each in MEMBERS.rglob("*.*") if each.suffix in (".java", ".go", ".mod"))
        mark = place / ".built"
        if not mark.exists() or mark.stat().st_mtime < newest:
            place.mkdir(parents=True, exist_ok=True)
            command = [word.replace("{}", str(place)) for word in command]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                raise NotInstalled(f"{what} members cannot be built: {done.stderr[-500:]}")
            mark.touch()
    return place


ALL = frozenset({"static", "poll-interval", "pattern", "resubscribe", "two-assignors", "missing-topic"})
READS_ON = frozenset({"read-on"})
EAGER, COOPERATIVE, KIP848 = "eager", "cooperative", "kip848"
NO_LIST = ALL - {"two-assignors"}
FRANZ = ALL - {"poll-interval"}

HANGS = "a member hangs in its own poll() once a plan leaves out a topic that it reads"
KAFKA_PYTHON = {"pattern-matched": HANGS, "subscription-changed": HANGS}
KEEPS = "its members do not join again when a topic is deleted"
CONFLUENT_COOP = {
    "subscription-changed": "its cooperative members do not join again when all their topics are replaced"
}
JAVA_COOP = {
    "topic-remade": "its members may end: their assignor raises IllegalStateException (No more unfilled consumers)"
}
FRANZ_GO = {"topic-deleted": KEEPS, "topic-remade": KEEPS}
FRANZ_848 = {"static-restart-within": "its close() does not release the group.instance.id (epoch -2 names none)"}
SARAMA = {"topic-deleted": "it reads nothing while one of its topics does not exist"}
KAFKAJS = {
    "topic-deleted": KEEPS,
    "pattern-matched": "it looks for topics that match a pattern only when it subscribes",
    "restarted-with-another-topic": "its leader gives out only topics that it reads itself",
}

CLIENTS = (
    Client("confluent", "confluent-kafka", EAGER, ALL | READS_ON, python_command),
    Client("confluent-coop", "confluent-kafka", COOPERATIVE, ALL | READS_ON, python_command, CONFLUENT_COOP),
    Client("confluent-848", "confluent-kafka", KIP848, NO_LIST | READS_ON, python_command),
    Client("kafka-python", "kafka-python", EAGER, ALL | READS_ON, python_command, KAFKA_PYTHON),
    Client("kafka-python-coop", "kafka-python", COOPERATIVE, ALL | READS_ON, python_command, KAFKA_PYTHON),
    Client("aiokafka", "aiokafka", EAGER, ALL, python_command),
    Client("java", "java", EAGER, ALL, java_command),
    Client("java-coop", "java", COOPERATIVE, ALL, java_command, JAVA_COOP),
    Client("java-848", "java", KIP848, NO_LIST, java_command),
    Client("kafkajs", "kafkajs", EAGER, frozenset({"pattern"}), kafkajs_command, KAFKAJS),
    Client("franz", "franz-go", EAGER, FRANZ, go_command, FRANZ_GO),
    Client("franz-coop", "franz-go", COOPERATIVE, FRANZ, go_command, FRANZ_GO),
    Client("franz-848", "franz-go", KIP848, FRANZ - {"two-assignors"}, go_command, FRANZ_848),
    Client("sarama", "sarama", EAGER, frozenset({"static", "two-assignors"}), go_command, SARAMA),
    Client("muster", "muster", EAGER, ALL, python_command),
    Client("muster-coop", "muster", COOPERATIVE, ALL, python_command),
    Client("muster-848", "muster", KIP848, NO_LIST, python_command),
)


def clients_named(wanted: tuple[str, ...]) -> list[Client]:
    """Clients by name, else by library or mode; all of them for no words. Raises `LookupError` for an unknown word."""
    if not wanted:
        return list(CLIENTS)
    names = {each.name for each in CLIENTS}
    by_name, by_kind = set(wanted) & names, set(wanted) - names
    found = [each for each in CLIENTS if each.name in by_name or {each.library, each.mode} & by_kind]
    known = {word for each in CLIENTS for word in (each.name, each.library, each.mode)}
    if unknown := set(wanted) - known:
        raise LookupError(f"no client is called {', '.join(sorted(unknown))}; known are {', '.join(sorted(known))}")
    return found
