"""The clients by which a situation is played: how a member is started by each, and what each can do."""

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MEMBERS = Path(__file__).parent / "members"


class NotInstalled(Exception):
    """This client is not to be had on this machine, with the reason."""


@dataclass(frozen=True, slots=True)
class Client:
    """One column of the table: a library, and how its groups share.

    `mode`: eager, cooperative or kip848. `can`: what not every client can, by these words: `static`
    (group.instance.id), `poll-interval` (max.poll.interval.ms), `pattern`, `resubscribe` (another subscription of a
    running member), `two-assignors` (a list of strategies), `missing-topic` (subscribes to a topic that is not there).
    """

    name: str
    library: str
    mode: str
    can: frozenset[str]
    command: Callable[[Mapping[str, Any]], list[str]]

    @property
    def protocol(self) -> str:
        return "consumer" if self.mode == "kip848" else "classic"

    @property
    def assignor(self) -> str:
        """What a member offers unless the situation says otherwise."""
        return "cooperative-sticky" if self.mode == "cooperative" else "range"

    @property
    def by_kafka(self) -> bool:
        """It comes by Kafka's door."""
        return self.library != "muster"


def python_command(job: Mapping[str, Any]) -> list[str]:
    return [sys.executable, str(MEMBERS / "python_member.py"), json.dumps(job)]


ALL = frozenset({"static", "poll-interval", "pattern", "resubscribe", "two-assignors", "missing-topic"})
EAGER, COOPERATIVE, KIP848 = "eager", "cooperative", "kip848"
NO_LIST = ALL - {"two-assignors"}

CLIENTS = (
    Client("confluent", "confluent-kafka", EAGER, ALL, python_command),
    Client("confluent-coop", "confluent-kafka", COOPERATIVE, ALL, python_command),
    Client("confluent-848", "confluent-kafka", KIP848, NO_LIST, python_command),
    Client("kafka-python", "kafka-python", EAGER, ALL, python_command),
    Client("kafka-python-coop", "kafka-python", COOPERATIVE, ALL, python_command),
    Client("aiokafka", "aiokafka", EAGER, ALL, python_command),
    Client("muster", "muster", EAGER, ALL, python_command),
    Client("muster-coop", "muster", COOPERATIVE, ALL, python_command),
    Client("muster-848", "muster", KIP848, NO_LIST, python_command),
)


def clients_named(wanted: tuple[str, ...]) -> list[Client]:
    """Those whose name, library or mode is among the words; all without any. Raises `LookupError` for a word that
    names none."""
    if not wanted:
        return list(CLIENTS)
    found = [each for each in CLIENTS if {each.name, each.library, each.mode} & set(wanted)]
    known = {word for each in CLIENTS for word in (each.name, each.library, each.mode)}
    if unknown := set(wanted) - known:
        raise LookupError(f"no client is called {', '.join(sorted(unknown))}; known are {', '.join(sorted(known))}")
    return found
