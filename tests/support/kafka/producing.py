"""A producer as a process of its own, by a client that nobody here wrote.

Run as `python state_log_io.py LIBRARY ADDRESS TOPIC PARTITIONS`. It sends each line of its standard input, the number
that it says to that partition in turn, with acks=all, and says on standard output, one JSON list a line, what was
acknowledged: the number, the partition, the offset. It ends with its input, once all is acknowledged or has failed.
"""

import asyncio
import json
import sys
import threading
from typing import Any

PATIENCE_S = 120


def said(number: int, partition: int, offset: int) -> None:
    sys.stdout.write(json.dumps([number, partition, offset]) + "\n")
    sys.stdout.flush()


def by_confluent(address: str, topic: str, partitions: int) -> None:
    from confluent_kafka import Producer

    producer = Producer(
        {"bootstrap.servers": address, "enable.idempotence": True, "linger.ms": 5, "log_level": 0}
        | {"socket.timeout.ms": 5_000, "request.timeout.ms": 4_500}
    )

    def answered(error: Any, message: Any) -> None:
        if error is None:
            said(int(message.value()), message.partition(), message.offset())

    over = threading.Event()

    def hear() -> None:
        while not over.is_set():
            producer.poll(0.1)

    hearing = threading.Thread(target=hear)
    hearing.start()
    for line in sys.stdin:
        number = int(line)
        producer.produce(topic, str(number).encode(), partition=number % partitions, on_delivery=answered)
    producer.flush(PATIENCE_S)
    over.set()
    hearing.join()


def by_kafka_python(address: str, topic: str, partitions: int) -> None:
    from kafka import KafkaProducer

    producer = KafkaProducer(
        bootstrap_servers=address, acks="all", retries=1_000, reconnect_backoff_max_ms=500, request_timeout_ms=5_000
    )

    def then(number: int, future: Any) -> None:
        future.add_callback(lambda where: said(number, where.partition, where.offset))

    for line in sys.stdin:
        number = int(line)
        then(number, producer.send(topic, str(number).encode(), partition=number % partitions))
    producer.flush(PATIENCE_S)


def by_aiokafka(address: str, topic: str, partitions: int) -> None:
    from aiokafka import AIOKafkaProducer

    async def produce() -> None:
        producer = AIOKafkaProducer(
            bootstrap_servers=address, enable_idempotence=True, acks="all", request_timeout_ms=60_000
        )
        await producer.start()
        lines: asyncio.Queue[str] = asyncio.Queue()
        loop = asyncio.get_running_loop()

        def read() -> None:
            for line in sys.stdin:
                loop.call_soon_threadsafe(lines.put_nowait, line)
            loop.call_soon_threadsafe(lines.put_nowait, "")

        threading.Thread(target=read, daemon=True).start()
        while line := await lines.get():
            number = int(line)
            sent = await producer.send(topic, str(number).encode(), partition=number % partitions)
            sent.add_done_callback(
                lambda done, number=number: said(number, done.result().partition, done.result().offset)
            )
        await producer.stop()

    asyncio.run(produce())


LIBRARIES = {"confluent": by_confluent, "kafka-python": by_kafka_python, "aiokafka": by_aiokafka}

if __name__ == "__main__":
    LIBRARIES[sys.argv[1]](sys.argv[2], sys.argv[3], int(sys.argv[4]))
