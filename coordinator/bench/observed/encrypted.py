"""What TLS costs: heartbeats to a node that speaks it at Kafka's door, against one that does not, round by round.

No goal: the cipher's work is the cipher's. Handshakes are not in it: members keep their connections.
"""

import asyncio
import ssl
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final

from muster.coordinator.bench.observed.metrics import MEMBERS, SETTINGS, Load, beats, interleaved, row
from muster.coordinator.bench.processes import LOAD_CORE, Server, Stopwatch, node, pinned
from muster.coordinator.bench.rows import Row
from muster.coordinator.bench.wire.line import Line
from muster.coordinator.bench.wire.members import WireMember
from muster.coordinator.bench.wire.records import kafka_address

NO_GOAL: Final = 0.0


def measure(name: str, home: str) -> Iterator[Row]:
    certificates = Path(home) / "certificates"
    made = [sys.executable, "-m", "muster.coordinator.cli", "certs", "init", str(certificates), "--hosts", "127.0.0.1"]
    subprocess.run(made, check=True, stdout=subprocess.DEVNULL)
    encrypted = {
        "kafka.listeners": "SSL://127.0.0.1:0",
        "listener.name.kafka.ssl.keystore.location": str(certificates / "server.pem"),
    }
    plain, over_tls = str(Path(home) / "plain"), str(Path(home) / "encrypted")
    with pinned(LOAD_CORE), node(plain, SETTINGS) as off, node(over_tls, SETTINGS | encrypted) as on:
        costs = asyncio.run(interleaved((off, on), partial(of_server, on, certificates / "ca.pem")))
        yield row(f"{name}: a heartbeat by Kafka's door", costs, "plaintext", NO_GOAL)


async def of_server(encrypted: Server, authority: Path, server: Server) -> Load:
    context = ssl.create_default_context(cafile=authority) if server is encrypted else None
    members = [
        WireMember(await Line.to(kafka_address(server), context), f"kafka-{number}") for number in range(MEMBERS)
    ]
    await asyncio.gather(*(member.join() for member in members))

    async def load(seconds: float) -> int:
        watch = Stopwatch()
        return sum(await asyncio.gather(*(beats(member, watch, seconds) for member in members)))

    return load
