"""The peer in C: librdkafka's mock cluster, one broker, in a process of its own.

Run as `python -m muster.workshop.bench.mock_cluster`; it ends when its standard input does.
"""

import json
import sys

PATIENCE_S = 10.0


def serve() -> None:
    from confluent_kafka import Producer

    # The client that brings the cluster to life does nothing else: its processor time is that of the broker.
    owner = Producer({"test.mock.num.brokers": 1, "topic.metadata.refresh.interval.ms": -1})
    (broker,) = owner.list_topics(timeout=PATIENCE_S).brokers.values()
    print(json.dumps({"event": "listening", "host": broker.host, "port": broker.port}), flush=True)
    sys.stdin.buffer.read()


if __name__ == "__main__":
    serve()
