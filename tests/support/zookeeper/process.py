"""A consumer as a program: reads, commits by itself after every record, and prints what happens, one JSON per line."""

import json
import sys
from typing import Any

from muster.client import Consumer
from muster.client.errors import ClientError


def say(kind: str, **facts: Any) -> None:
    print(json.dumps({"kind": kind, **facts}), flush=True)


def main() -> None:
    properties, topic = json.loads(sys.argv[1]), sys.argv[2]

    def told(kind: str) -> Any:
        return lambda _consumer, partitions, event: say(
            kind, partitions=[list(tp) for tp in partitions], cause=event.cause.name, detail=event.detail
        )

    with Consumer({**properties, "enable.auto.commit": False}) as consumer:
        consumer.subscribe(topic, told("assigned"), told("revoked"), told("lost"))
        while True:
            try:
                message = consumer.poll(0.1)
                say("alive", id=consumer.memberid())
                if message is None:
                    # What is committed again and again shows what a commit is worth.
                    if consumer.assignment():
                        consumer.commit(offsets={tp: consumer.position(tp) for tp in consumer.assignment()})
                        say("committed")
                    continue
                say("record", partition=message.partition, value=(message.value or b"").decode())
                consumer.commit(message)
                say("committed")
            except ClientError as error:
                say("error", error=type(error).__name__, message=str(error))


if __name__ == "__main__":
    main()
