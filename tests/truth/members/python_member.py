"""One group member, a process of its own, by a client that nobody here wrote, or by ours over gRPC.

Run as `python python_member.py JOB`, a JSON object: library, address, group, name, topics and more (scene.py). It
commits each `commit_ms`; 0: as its client does by default or not at all, -1: not at all. The programs in other
languages beside this one speak alike. A member says on standard output, one JSON object a line:
`{"assigned": [["topic", 0], ...]}` whenever that changes, `{"fatal": "..."}` when its client gives up, and
`{"closed": true}` when it has left in good order. It takes a command a line on standard input: `stop-polling`,
`resume`, `subscribe a,b`, `pattern ^x`, `read-on` (leaves the group, and goes on reading what it had), `close` (leaves
in good order, ends), `exit` (ends without a word). It ends when its standard input does.
SIGUSR1: where its threads are, on standard error.
"""

import asyncio
import contextlib
import faulthandler
import json
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Iterable
from typing import Any, Protocol

POLL_S = 0.1


def say(**what: object) -> None:
    print(json.dumps(what), flush=True)


class Commands:
    """What was told on standard input and has not been done."""

    def __init__(self) -> None:
        self._told: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        for line in sys.stdin:
            if line.strip() == "exit":
                os._exit(0)
            self._told.put(line.strip())
        os._exit(0)

    def next(self) -> tuple[str, list[str]] | None:
        """The word, and what follows it."""
        try:
            word, _, rest = self._told.get_nowait().partition(" ")
        except queue.Empty:
            return None
        return word, rest.split(",") if rest else []


class Member(Protocol):
    """A client as this program uses it."""

    def subscribe(self, topics: list[str]) -> None: ...

    def pattern(self, pattern: str) -> None: ...

    def poll(self) -> None: ...

    def assignment(self) -> Iterable[tuple[str, int]]: ...

    def close(self) -> None: ...


class Confluent:
    def __init__(self, job: dict[str, Any]) -> None:
        from confluent_kafka import Consumer

        settings: dict[str, Any] = {
            "bootstrap.servers": job["address"],
            "group.id": job["group"],
            "client.id": job["name"],
            "auto.offset.reset": "earliest",
            "topic.metadata.refresh.interval.ms": job["metadata_ms"],
            "max.poll.interval.ms": job["poll_ms"],
            "reconnect.backoff.max.ms": 500,
            "allow.auto.create.topics": False,
            "error_cb": self._error,
        }
        if job["commit_ms"]:
            settings |= {
                "enable.auto.commit": job["commit_ms"] > 0,
                "auto.commit.interval.ms": max(job["commit_ms"], 1),
            }
        if job.get("instance"):
            settings["group.instance.id"] = job["instance"]
        if job["protocol"] == "consumer":
            settings["group.protocol"] = "consumer"
            if job["poll_ms"] <= 45_000:
                settings["max.poll.interval.ms"] = job["poll_ms"]
        else:
            settings |= {
                "partition.assignment.strategy": ",".join(job["assignors"]),
                "session.timeout.ms": job["session_ms"],
                "heartbeat.interval.ms": job["heartbeat_ms"],
            }
        self._consumer = Consumer(settings)
        self._incremental = job["protocol"] == "consumer" or "cooperative-sticky" in job["assignors"]

    def _error(self, error: Any) -> None:
        if error.fatal():
            say(fatal=error.name())

    def subscribe(self, topics: list[str]) -> None:
        self._consumer.subscribe(topics)

    def pattern(self, pattern: str) -> None:
        self._consumer.subscribe([pattern])

    def poll(self) -> None:
        self._consumer.consume(100, POLL_S)

    def assignment(self) -> Iterable[tuple[str, int]]:
        return [(each.topic, each.partition) for each in self._consumer.assignment()]

    def read_on(self) -> None:
        had = self._consumer.assignment()
        self._consumer.unsubscribe()
        while self._consumer.assignment():  # or what is on its way would take them away again
            self.poll()
        (self._consumer.incremental_assign if self._incremental else self._consumer.assign)(had)

    def close(self) -> None:
        self._consumer.close()


class KafkaPython:
    def __init__(self, job: dict[str, Any]) -> None:
        from kafka import KafkaConsumer
        from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
        from kafka.coordinator.assignors.range import RangePartitionAssignor
        from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
        from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor

        known = {
            "range": RangePartitionAssignor,
            "roundrobin": RoundRobinPartitionAssignor,
            "sticky": StickyPartitionAssignor,
            "cooperative-sticky": CooperativeStickyAssignor,
        }
        self._consumer = KafkaConsumer(
            bootstrap_servers=job["address"],
            group_id=job["group"],
            client_id=job["name"],
            group_instance_id=job.get("instance"),
            partition_assignment_strategy=[known[name] for name in job["assignors"]],
            auto_offset_reset="earliest",
            # not by default: a commit of a deleted topic's partition would hold up its next join
            enable_auto_commit=job["commit_ms"] > 0,
            auto_commit_interval_ms=max(job["commit_ms"], 1),
            session_timeout_ms=job["session_ms"],
            heartbeat_interval_ms=job["heartbeat_ms"],
            max_poll_interval_ms=job["poll_ms"],
            metadata_max_age_ms=job["metadata_ms"],
            reconnect_backoff_max_ms=500,
            allow_auto_create_topics=False,
        )

    def subscribe(self, topics: list[str]) -> None:
        self._consumer.subscribe(topics)

    def pattern(self, pattern: str) -> None:
        self._consumer.subscribe(pattern=pattern)

    def poll(self) -> None:
        from kafka.errors import FencedInstanceIdError, KafkaConnectionError

        try:
            with contextlib.suppress(KafkaConnectionError):  # its poll raises while the node is away
                self._consumer.poll(int(POLL_S * 1000))
        except FencedInstanceIdError:
            say(fatal="FENCED_INSTANCE_ID")
            raise SystemExit from None

    def assignment(self) -> Iterable[tuple[str, int]]:
        return [(each.topic, each.partition) for each in self._consumer.assignment()]

    def read_on(self) -> None:
        had = self._consumer.assignment()
        self._consumer.unsubscribe()
        self._consumer.assign(had)

    def close(self) -> None:
        self._consumer.close()


class Muster:
    def __init__(self, job: dict[str, Any]) -> None:
        from muster.client import Consumer

        settings: dict[str, Any] = {"group_protocol": job["protocol"]}
        if job["protocol"] == "classic":
            settings |= {
                "partition_assignment_strategy": ",".join(job["assignors"]),
                "session_timeout_ms": job["session_ms"],
                "heartbeat_interval_ms": job["heartbeat_ms"],
            }
        if job.get("instance"):
            settings["group_instance_id"] = job["instance"]
        self._consumer = Consumer(
            bootstrap_servers=job["grpc"],
            group_id=job["group"],
            client_id=job["name"],
            auto_offset_reset="earliest",
            max_poll_interval_ms=job["poll_ms"],
            metadata_max_age_ms=job["metadata_ms"],
            **settings,
        )

    def subscribe(self, topics: list[str]) -> None:
        self._consumer.subscribe(topics)

    def pattern(self, pattern: str) -> None:
        self._consumer.subscribe([pattern])

    def poll(self) -> None:
        from muster.client.errors import ClientError

        with contextlib.suppress(ClientError):
            self._consumer.consume(100, POLL_S)

    def assignment(self) -> Iterable[tuple[str, int]]:
        return [(each.topic, each.partition) for each in self._consumer.assignment()]

    def close(self) -> None:
        self._consumer.close()


class Aiokafka:
    """Its client lives on a loop that a thread runs, as a program's would."""

    def __init__(self, job: dict[str, Any]) -> None:
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()
        self._consumer = self._run(self._make(job))

    def _run(self, awaited: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(awaited, self._loop).result()

    async def _make(self, job: dict[str, Any]) -> Any:
        from aiokafka import AIOKafkaConsumer
        from aiokafka.coordinator.assignors.range import RangePartitionAssignor
        from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
        from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor

        known = {
            each.name: each for each in (RangePartitionAssignor, RoundRobinPartitionAssignor, StickyPartitionAssignor)
        }
        consumer = AIOKafkaConsumer(
            bootstrap_servers=job["address"],
            group_id=job["group"],
            client_id=job["name"],
            group_instance_id=job.get("instance"),
            partition_assignment_strategy=[known[name] for name in job["assignors"]],
            auto_offset_reset="earliest",
            # not by default: a commit of a deleted topic's partition would hold up its next join
            enable_auto_commit=job["commit_ms"] > 0,
            auto_commit_interval_ms=max(job["commit_ms"], 1),
            session_timeout_ms=job["session_ms"],
            heartbeat_interval_ms=job["heartbeat_ms"],
            max_poll_interval_ms=job["poll_ms"],
            rebalance_timeout_ms=max(job["poll_ms"], job["session_ms"]),
            metadata_max_age_ms=job["metadata_ms"],
        )
        await consumer.start()
        return consumer

    def _in_loop(self, call: Any, *arguments: Any, **named: Any) -> Any:
        async def do() -> Any:
            return call(*arguments, **named)

        return self._run(do())

    def subscribe(self, topics: list[str]) -> None:
        self._in_loop(self._consumer.subscribe, topics)

    def pattern(self, pattern: str) -> None:
        self._in_loop(self._consumer.subscribe, pattern=pattern)

    def poll(self) -> None:
        from aiokafka.errors import KafkaError

        with contextlib.suppress(KafkaError):
            self._run(self._consumer.getmany(timeout_ms=int(POLL_S * 1000)))

    def assignment(self) -> Iterable[tuple[str, int]]:
        return [(each.topic, each.partition) for each in self._consumer.assignment()]

    def close(self) -> None:
        self._run(self._consumer.stop())


LIBRARIES: dict[str, Any] = {
    "confluent-kafka": Confluent,
    "kafka-python": KafkaPython,
    "aiokafka": Aiokafka,
    "muster": Muster,
}


def consume(member: Member, commands: Commands) -> None:
    """Until it is told to close."""
    told: list[list[Any]] | None = None
    polls = True
    while True:
        while command := commands.next():
            match command:
                case "stop-polling", _:
                    polls = False
                    say(stopped=True)
                case "resume", _:
                    polls = True
                case "subscribe", topics:
                    member.subscribe(topics)
                case "pattern", [pattern]:
                    member.pattern(pattern)
                case "read-on", _:
                    member.read_on()  # type: ignore[attr-defined]
                    say(reads_on=True)
                case "close", _:
                    member.close()
                    say(closed=True)
                    return
        if not polls:
            time.sleep(POLL_S)
            continue
        member.poll()
        now = sorted([topic, partition] for topic, partition in member.assignment())
        if now != told:
            told = now
            say(assigned=now)


def main() -> None:
    job = json.loads(sys.argv[1])
    faulthandler.register(signal.SIGUSR1)
    commands = Commands()
    member = LIBRARIES[job["library"]](job)
    if job.get("pattern"):
        member.pattern(job["pattern"])
    else:
        member.subscribe(job["topics"])
    consume(member, commands)
    os._exit(0)  # no thread of a client's keeps it


if __name__ == "__main__":
    main()
