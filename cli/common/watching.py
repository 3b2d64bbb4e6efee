"""--kafka and --segments: answer from the records of groups that a Kafka coordinates, without a node of one's own.

Such a command runs a watching node as a child for as long as it takes, and asks it as it would ask any node. What the
Kafka wants to see of a client is taken from a properties file as Kafka's own tools take it.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

import click

from muster.cli.common.commands import CommandError, ConnectionOption, Exit, Unhealthy
from muster.cli.common.options import Duration, current_command_config
from muster.cli.common.output import notice

if TYPE_CHECKING:
    from muster.client import Admin

Function = TypeVar("Function", bound=Callable[..., Any])

WATCHED_KAFKA = "watched-kafka"
"""The condition that says what a node cannot see of it."""

LOADING = "COORDINATOR_LOAD_IN_PROGRESS: "
"""Before the sentence that says how far a node is."""

PAUSE_S = 0.1

READING_ON = ("being read", "read yet", "being looked at")
"""In the sentences of a node that has not failed at anything. What fails is told by others: it "cannot be read"."""

PATIENCE_S = 15.0
"""How long what fails may go on failing. Reading itself has no limit: on a busy machine a process may have no turn for
long, and a Kafka that does not answer is one that cannot be read."""


def watching_options(function: Function) -> Function:
    """--kafka, --segments and --since, for a command that asks --bootstrap and changes nothing."""
    return add_watching_options(function, told_early=False)


def live_watching_options(function: Function) -> Function:
    """The same for a command that waits for what happens next, which copies of segments never tell."""
    asked = watching_options(function)

    @wraps(asked)
    def run(**given: Any) -> Any:
        if given["segments"]:
            raise click.UsageError("copies of segments do not grow; use muster groups history")
        return asked(**given)

    return run  # type: ignore[return-value]


def early_watching_options(function: Function) -> Function:
    """The same for a command that tells of what has been read before all has been: it gets a `ReadingPace` as `pace`,
    or None where it asks a node."""
    return add_watching_options(function, told_early=True)


def add_watching_options(function: Function, *, told_early: bool) -> Function:
    @wraps(function)
    def run(
        *, kafka: str | None, segments: tuple[str, ...], since: int | None, broker_logs: tuple[str, ...], **given: Any
    ) -> Any:
        if kafka is None and not segments:
            if since is not None or broker_logs:
                raise click.UsageError("--since and --broker-log go with --kafka or --segments")
            return function(**given | ({"pace": None} if told_early else {}))
        if kafka is not None and segments:
            raise click.UsageError("--kafka and --segments name two sources; leave one out")
        group = given.get("group")
        with logs_as_files(broker_logs) as logs:
            settings = watching_settings(kafka, segments, since, logs)
            settings |= {"watch.group": group} if group and fits_a_line(group) else {}  # else all partitions are read
            with watching_node(settings) as address:
                given |= {"bootstrap": address, "overrides": {}}
                if told_early:
                    return function(**given, pace=ReadingPace())
                wait_until_read(address, group)
                return function(**given)

    for option in (
        click.option("--broker-log", "broker_logs", multiple=True, cls=ConnectionOption, metavar="PATH",
                     help="Also read this server log of a broker, or a folder of logs; - is standard input; may "
                          "be repeated."),
        click.option("--since", type=Duration(), cls=ConnectionOption, metavar="AGE",
                     help="Cover only the last AGE, such as 24h; older positions are skipped."),
        click.option("--segments", multiple=True, cls=ConnectionOption, metavar="PATH",
                     help="Read copies of a broker's __consumer_offsets folders instead of asking a node; may be "
                          "repeated."),
        click.option("--kafka", cls=ConnectionOption, metavar="HOST:PORT",
                     help="Read the groups of this Kafka instead of asking a node; nothing is written there."),
    ):  # fmt: skip
        run = option(run)
    return run  # type: ignore[return-value]


@contextmanager
def logs_as_files(paths: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """The same paths, with a file in place of standard input: a child has another one."""
    if "-" not in paths:
        yield paths
        return
    with tempfile.NamedTemporaryFile(suffix=".log") as file:
        shutil.copyfileobj(sys.stdin.buffer, file)
        file.flush()
        yield tuple(file.name if path == "-" else path for path in paths)


def watching_settings(
    kafka: str | None, segments: tuple[str, ...], since_ms: int | None, broker_logs: tuple[str, ...] = ()
) -> dict[str, str]:
    """Settings of a node that watches this."""
    settings = {"watch.enable": "true", "watch.broker.log": ",".join(broker_logs)}
    if since_ms is not None:
        settings["watch.since.ms"] = str(since_ms)
    if kafka is not None:
        settings |= {"engine": "kafka://" + kafka.removeprefix("kafka://")} | kafka_settings(current_command_config())
    else:
        settings["watch.segments"] = ",".join(segments)
    return settings


def fits_a_line(value: str) -> bool:
    """Whether a properties file can say this: it has neither escapes nor continued lines.

    >>> fits_a_line("orders"), fits_a_line("a\\nb"), fits_a_line(" a")
    (True, False, False)
    """
    return value.splitlines() == [value] and value == value.strip() and "\\" not in value


# A child that watches
# --------------------


@contextmanager
def watching_node(settings: Mapping[str, str]) -> Iterator[str]:
    """A node on loopback that ends with this process. Its HOST:PORT. Raises CommandError with what it said."""
    for name, value in settings.items():
        if value and not fits_a_line(value):
            raise CommandError(
                f"the value of {name} has a line break, a backslash, or a space at an end",
                "expected one line of plain text",
                code=Exit.USAGE,
            )
    lines = {**settings, "listeners": "127.0.0.1:0", "http.listeners": "", "logging.level": "error"}
    with tempfile.NamedTemporaryFile("w", suffix=".properties") as file:  # which only this user can read
        file.writelines(f"{name}={value}\n" for name, value in lines.items())
        file.flush()
        command = [sys.executable, "-m", "muster.cli", "serve", "--announce", "--until-eof", "--config", file.name]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("MUSTER_")}
        child = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment, text=True
        )
        try:
            assert child.stdout is not None
            assert child.stderr is not None
            line = child.stdout.readline()
            if not line:
                said = [each for each in child.stderr.read().splitlines() if each.startswith("error: ")]
                sentence = said[-1].removeprefix("error: ") if said else "the node that was to watch did not start"
                raise CommandError(sentence, code=Exit.UNHEALTHY)
            announced = json.loads(line)
            yield f"{announced['host']}:{announced['port']}"
        finally:
            assert child.stdin is not None
            child.stdin.close()
            try:
                child.wait(5)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()


class ReadingPace:
    """Shows on a terminal how far reading is, and ends what goes on failing."""

    def __init__(self) -> None:
        self._tells = sys.stderr.isatty()
        self._said, self._since_s = "", time.monotonic()

    def pause(self, sentence: str) -> None:
        """Before the next question. sentence: why the last one was not answered, or not for all groups. Raises
        Unhealthy where that is a failure that has not changed for long."""
        said = sentence.rpartition(LOADING)[2]
        if said != self._said:
            self._said, self._since_s = said, time.monotonic()
            if self._tells:
                print(f"\r\x1b[K{said}", end="", file=sys.stderr, flush=True)
        elif time.monotonic() - self._since_s > PATIENCE_S and not any(each in said for each in READING_ON):
            raise Unhealthy(said, f"expected to read on within {PATIENCE_S:g} s") from None
        time.sleep(PAUSE_S)

    def clear(self) -> None:
        """Leave the line to what is printed next."""
        if self._tells and self._said:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def wait_until_read(address: str, group: str | None) -> None:
    """Until it answers for the group, or for all. Raises Unhealthy when it goes on failing."""
    from muster.client import Admin
    from muster.client.errors import ClientError, GroupNotFound

    with Admin(bootstrap_servers=address, client_id="muster-cli", default_api_timeout_ms=300) as admin:
        pace = ReadingPace()
        while True:
            try:
                if group:
                    admin.explain(group, 1)
                else:
                    admin.list_groups()
            except GroupNotFound:
                break
            except ClientError as error:
                pace.pause(str(error))
            else:
                break
        pace.clear()
        tell_what_is_hidden(admin)


def tell_what_is_hidden(admin: "Admin") -> None:
    """What a node cannot see of the Kafka that it watches, on standard error."""
    ConditionTeller().tell(admin)


class ConditionTeller:
    """Says what a node cannot see of the Kafka that it watches, on standard error: each sentence once while it lasts,
    and that it is over."""

    def __init__(self) -> None:
        self._said = ""

    def tell(self, admin: "Admin") -> None:
        said = next((each.sentence for each in admin.conditions() if each.name == WATCHED_KAFKA), "")
        if said != self._said:
            notice(said or f"over: {self._said}")
            self._said = said


# Properties of Kafka's clients
# -----------------------------

LOGIN = re.compile(r"""(username|password)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'([^']*)')""")
SAME = {
    "security.protocol": "engine.kafka.security.protocol",
    "sasl.mechanism": "engine.kafka.sasl.mechanism",
    "ssl.truststore.location": "engine.kafka.ssl.truststore.location",
    "ssl.ca.location": "engine.kafka.ssl.truststore.location",
    "ssl.keystore.location": "engine.kafka.ssl.keystore.location",
    "ssl.key.password": "engine.kafka.ssl.key.password",
    "sasl.username": "engine.kafka.sasl.username",
    "sasl.password": "engine.kafka.sasl.password",
}
"""Java's and librdkafka's names."""


def kafka_settings(properties: Mapping[str, str]) -> dict[str, str]:
    """A node's settings that say the same as a Kafka client's properties. Raises CommandError for stores that are not
    PEM files; what says nothing of the connection is passed over.

    >>> kafka_settings({"sasl.jaas.config": 'x.PlainLoginModule required username="a" password="b c";'})
    {'engine.kafka.sasl.username': 'a', 'engine.kafka.sasl.password': 'b c'}
    """
    settings = {SAME[name]: value for name, value in properties.items() if name in SAME}
    settings |= {name: value for name, value in properties.items() if name.startswith("engine.kafka.")}
    for name, one, other in LOGIN.findall(properties.get("sasl.jaas.config", "")):
        settings[f"engine.kafka.sasl.{name}"] = re.sub(r"\\(.)", r"\1", one) or other
    for store in ("truststore", "keystore"):
        kind = properties.get(f"ssl.{store}.type", "PEM")
        location = properties.get(f"ssl.{store}.location", "")
        if kind.upper() != "PEM" or location.endswith((".jks", ".p12", ".pfx")):
            raise CommandError(
                f"ssl.{store}.location is {location} ({kind})",
                "expected a PEM file",
                "convert it: keytool -importkeystore into PKCS12, then openssl pkcs12 -in FILE -out FILE.pem -nodes",
                code=Exit.USAGE,
            )
    unused = [name for name in properties if name not in SAME and name.startswith(("sasl.login", "sasl.oauth"))]
    if unused:
        notice(f"these properties say nothing to a node that watches: {', '.join(sorted(unused))}")
    return settings
