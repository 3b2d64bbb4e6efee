"""One group member as a process of its own, by a client that nobody here wrote, or by ours over gRPC.

Run as `python kafka_worker.py '{"library": ..., "address": ..., "group": ..., "topic": ..., ...}'`. It consumes,
commits what it has read, and says on standard output, one JSON object a line, what it is assigned and what it has read.
It leaves the group when its standard input ends.
"""

import asyncio
import contextlib
import json
import sys
import threading
import time
from collections.abc import Iterable
from typing import Any

POLL_S = 0.2
SESSION_MS, STATIC_SESSION_MS, HEARTBEAT_MS = 3_000, 30_000, 300
"""Static members are given time to come back."""
RECONNECT_MS = 500
METADATA_MS = 300_000
"""How long what is known of the cluster is good: the libraries' own default."""

stop = threading.Event()


def session_ms(told: dict[str, Any]) -> int:
    if told.get("session_ms"):
        return int(told["session_ms"])
    return STATIC_SESSION_MS if told.get("instance") else SESSION_MS


def say(**what: object) -> None:
    print(json.dumps(what), flush=True)


class Teller:
    """Says what is assigned whenever that changes, and which offsets were read."""

    def __init__(self) -> None:
        self._assigned: list[int] | None = None

    def assigned(self, partitions: Iterable[int]) -> None:
        now = sorted(partitions)
        if now != self._assigned:
            self._assigned = now
            say(assigned=now)

    def read(self, records: list[tuple[int, int]]) -> None:
        if records:
            say(read=records)


def by_confluent(told: dict[str, Any]) -> None:
    from confluent_kafka import Consumer, KafkaError, KafkaException

    settings: dict[str, Any] = {
        "bootstrap.servers": told["address"],
        "group.id": told["group"],
        "client.id": told["name"],
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }
    if told["assignor"] == "consumer":
        settings["group.protocol"] = "consumer"
    else:
        settings |= {"partition.assignment.strategy": told["assignor"], "session.timeout.ms": session_ms(told)}
        settings |= {"heartbeat.interval.ms": HEARTBEAT_MS}
    if told.get("socket_ms"):
        settings["socket.timeout.ms"] = int(told["socket_ms"])
    if told.get("poll_ms"):
        settings["max.poll.interval.ms"] = int(told["poll_ms"])
    if told.get("metadata_ms"):
        settings["topic.metadata.refresh.interval.ms"] = int(told["metadata_ms"])
    if told.get("instance"):
        settings["group.instance.id"] = told["instance"]
    consumer, teller = Consumer(settings), Teller()
    consumer.subscribe([told["topic"]])
    while not stop.is_set():
        messages = consumer.consume(500, POLL_S)
        teller.assigned(partition.partition for partition in consumer.assignment())
        records = [(message.partition(), message.offset()) for message in messages if not message.error()]
        teller.read(records)
        if records:
            try:
                consumer.commit(asynchronous=False)
            except KafkaException as refusal:
                error = refusal.args[0]
                if error.code() == KafkaError.FENCED_INSTANCE_ID:
                    say(fatal="FENCED_INSTANCE_ID")
                    return
                # Else the group moves on: the next commit says it again, if the partition is still ours.
    consumer.close()


def by_kafka_python(told: dict[str, Any]) -> None:
    from kafka import KafkaConsumer
    from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
    from kafka.coordinator.assignors.range import RangePartitionAssignor
    from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
    from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
    from kafka.errors import KafkaConnectionError, KafkaError

    known = {
        "range": RangePartitionAssignor,
        "roundrobin": RoundRobinPartitionAssignor,
        "sticky": StickyPartitionAssignor,
        "cooperative-sticky": CooperativeStickyAssignor,
    }
    consumer, teller = (
        KafkaConsumer(
            told["topic"],
            bootstrap_servers=told["address"],
            group_id=told["group"],
            client_id=told["name"],
            group_instance_id=told.get("instance"),
            partition_assignment_strategy=[known[told["assignor"]]],
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=session_ms(told),
            heartbeat_interval_ms=HEARTBEAT_MS,
            max_poll_interval_ms=int(told.get("poll_ms", 300_000)),
            metadata_max_age_ms=int(told.get("metadata_ms", METADATA_MS)),
            reconnect_backoff_max_ms=RECONNECT_MS,  # else it stays away for up to 30 s after a restart of the node
        ),
        Teller(),
    )
    while not stop.is_set():
        found: dict[Any, list[Any]] = {}
        with contextlib.suppress(KafkaConnectionError):  # its poll raises while the node is away
            found = consumer.poll(int(POLL_S * 1000))
        teller.assigned(partition.partition for partition in consumer.assignment())
        records = [(record.partition, record.offset) for batch in found.values() for record in batch]
        teller.read(records)
        if records:
            with contextlib.suppress(KafkaError):
                consumer.commit()
    consumer.close()


def by_one_that_insists(told: dict[str, Any]) -> None:
    """kafka-python, but it takes no share in a generation that nobody leads: it waits until it is out."""
    from kafka.coordinator.base import BaseCoordinator
    from kafka.errors import RebalanceInProgressError

    process = BaseCoordinator._process_join_group_response

    def insist(self: Any, response: Any, send_time: float) -> Any:
        found = process(self, response, send_time)
        if not found.leader:
            time.sleep(2 * int(told["poll_ms"]) / 1000)
            self.reset_generation()
            raise RebalanceInProgressError(self.group_id)
        return found

    BaseCoordinator._process_join_group_response = insist
    by_kafka_python(told)


def by_aiokafka(told: dict[str, Any]) -> None:
    asyncio.run(consume_by_aiokafka(told))


async def consume_by_aiokafka(told: dict[str, Any]) -> None:
    from aiokafka import AIOKafkaConsumer
    from aiokafka.errors import KafkaError

    consumer, teller = (
        AIOKafkaConsumer(
            told["topic"],
            bootstrap_servers=told["address"],
            group_id=told["group"],
            client_id=told["name"],
            group_instance_id=told.get("instance"),
            partition_assignment_strategy=aiokafka_assignors(told["assignor"]),
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=session_ms(told),
            heartbeat_interval_ms=HEARTBEAT_MS,
            metadata_max_age_ms=int(told.get("metadata_ms", METADATA_MS)),
        ),
        Teller(),
    )
    await consumer.start()
    while not stop.is_set():
        found = await consumer.getmany(timeout_ms=int(POLL_S * 1000))
        teller.assigned(partition.partition for partition in consumer.assignment())
        records = [(record.partition, record.offset) for batch in found.values() for record in batch]
        teller.read(records)
        if records:
            with contextlib.suppress(KafkaError):
                await consumer.commit()
    await consumer.stop()


def aiokafka_assignors(name: str) -> list[Any]:
    from aiokafka.coordinator.assignors.range import RangePartitionAssignor
    from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
    from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor

    known = (RangePartitionAssignor, RoundRobinPartitionAssignor, StickyPartitionAssignor)
    return [{assignor.name: assignor for assignor in known}[name]]


def by_grpc(told: dict[str, Any]) -> None:
    from muster.client import Consumer
    from muster.client.errors import ClientError

    settings = {"group_protocol": "consumer"}
    if told["assignor"] != "consumer":
        settings = {"partition_assignment_strategy": told["assignor"], "session_timeout_ms": session_ms(told)}
        settings |= {"heartbeat_interval_ms": HEARTBEAT_MS}
    consumer = Consumer(
        bootstrap_servers=told["grpc"],
        group_id=told["group"],
        client_id=told["name"],
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        **settings,
    )
    teller = Teller()
    consumer.subscribe(told["topic"])
    while not stop.is_set():
        records = [(message.partition, message.offset) for message in consumer.consume(500, POLL_S)]
        teller.assigned(partition.partition for partition in consumer.assignment())
        teller.read(records)
        if records:
            with contextlib.suppress(ClientError):
                consumer.commit()
    consumer.close()


LIBRARIES = {
    "confluent": by_confluent,
    "kafka-python": by_kafka_python,
    "insisting": by_one_that_insists,
    "aiokafka": by_aiokafka,
    "grpc": by_grpc,
}


def wait_for_end() -> None:
    sys.stdin.buffer.read()
    stop.set()


if __name__ == "__main__":
    job = json.loads(sys.argv[1])
    threading.Thread(target=wait_for_end, daemon=True).start()
    LIBRARIES[job["library"]](job)
    say(left=True)
