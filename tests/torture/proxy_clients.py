"""Kafka's own clients at three nodes over a real Kafka, of which one after the other is killed or stopped, and comes
back.

Groups of three kinds read what is written all the while. In the end every record was read, each partition has one
owner, that Kafka has none of the groups, and no client was ever seen with a connection to the broker itself.

    python -m tests.torture.proxy_clients --seconds 60
"""

import argparse
import random
import tempfile
import time
from contextlib import ExitStack
from os import pathsep
from pathlib import Path
from typing import Final

from muster.workshop.bench.kafka_peer import KAFKA, find_jars
from tests.interop.kafka_broker import kafka_broker
from tests.support.kafka.stage import Stage, stage
from tests.support.kafka_backend.proxy_nodes import LONG_SESSION_MS, ProxyNodes, proxy_nodes

GROUPS: Final = {
    "range": ("confluent", "kafka-python", "aiokafka"),
    "cooperative-sticky": ("confluent", "kafka-python"),
    "consumer": ("confluent", "confluent"),
}
"""By assignor: the members' libraries."""
MORE: Final = {"session_ms": str(LONG_SESSION_MS), "metadata_ms": "1000"}
SHORT: Final = "group.min.session.timeout.ms=1000"
UP_S, DOWN_S = (1.0, 4.0), (0.0, 6.0)
"""How long all nodes are up, and one is down, at least and at most."""
EACH: Final = 5
"""Records for a partition, between two things that happen."""


def trouble(nodes: ProxyNodes, plays: list[Stage], seconds: float, rng: random.Random) -> int:
    """How many nodes it struck."""
    ends, struck = time.monotonic() + seconds, 0
    while time.monotonic() < ends:
        node = nodes.nodes[rng.choice(list(nodes.nodes))]
        (node.kill if rng.random() < 0.5 else node.stop)()
        struck += 1
        meanwhile(nodes, plays, rng.uniform(*DOWN_S))
        node.start()
        meanwhile(nodes, plays, rng.uniform(*UP_S))
    return struck


def meanwhile(nodes: ProxyNodes, plays: list[Stage], seconds: float) -> None:
    """Records come, and nobody speaks to the broker itself."""
    ends = time.monotonic() + seconds
    while True:
        for play in plays:
            play.send(EACH)
        assert nodes.past_muster([worker for play in plays for worker in play.workers]) == []
        if time.monotonic() >= ends:
            return


def run(seconds: float, seed: int) -> None:
    with ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        kafka = stack.enter_context(kafka_broker(pathsep.join(map(str, find_jars(KAFKA))), place / "kafka", SHORT))
        nodes = stack.enter_context(proxy_nodes(kafka, "torture", place, 3))
        plays = [stack.enter_context(stage(nodes, assignor)) for assignor in GROUPS]
        for play, libraries in zip(plays, GROUPS.values(), strict=True):
            for library in libraries:
                play.start(library, **MORE)
        for play in plays:
            play.until_shared(*play.workers)
        struck = trouble(nodes, plays, seconds, random.Random(seed))
        for play in plays:
            play.until_all_read()
            play.until_shared(*play.workers)
            play.until_committed()
        assert nodes.groups_upstream().isdisjoint(play.group for play in plays)
        sent = sum(sum(play.sent) for play in plays)
        print(f"{struck} nodes struck in {seconds:g} s, {sent} records: all were read, no group upstream")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    run(given.seconds, given.seed)
