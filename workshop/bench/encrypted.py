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

from muster.workshop.bench.line import LoadConnection
from muster.workshop.bench.metrics import (
    COMPARED_MEMBERS,
    COMPARED_SETTINGS,
    Load,
    comparison_row,
    interleave_servers,
    send_steady_heartbeats,
)
from muster.workshop.bench.processes import LOAD_CORE, ServerProcess, Stopwatch, pinned, run_node
from muster.workshop.bench.records import kafka_address
from muster.workshop.bench.rows import BenchRow
from muster.workshop.bench.wire_members import KafkaMember

NO_GOAL: Final = 0.0


def measure_tls_cost(name: str, home: str) -> Iterator[BenchRow]:
    certificates = Path(home) / "certificates"
    made = [sys.executable, "-m", "muster.cli", "certs", "init", str(certificates), "--hosts", "127.0.0.1"]
    subprocess.run(made, check=True, stdout=subprocess.DEVNULL)
    encrypted = {
        "kafka.listeners": "SSL://127.0.0.1:0",
        "listener.name.kafka.ssl.keystore.location": str(certificates / "server.pem"),
    }
    plain, over_tls = str(Path(home) / "plain"), str(Path(home) / "encrypted")
    with (
        pinned(LOAD_CORE),
        run_node(plain, COMPARED_SETTINGS) as off,
        run_node(over_tls, COMPARED_SETTINGS | encrypted) as on,
    ):
        costs = asyncio.run(interleave_servers((off, on), partial(make_tls_load, on, certificates / "ca.pem")))
        yield comparison_row(f"{name}: a heartbeat by Kafka's door", costs, "plaintext", NO_GOAL)


async def make_tls_load(encrypted: ServerProcess, authority: Path, server: ServerProcess) -> Load:
    context = ssl.create_default_context(cafile=authority) if server is encrypted else None
    members = [
        KafkaMember(await LoadConnection.to(kafka_address(server), context), f"kafka-{number}")
        for number in range(COMPARED_MEMBERS)
    ]
    await asyncio.gather(*(member.join() for member in members))

    async def load(seconds: float) -> int:
        watch = Stopwatch()
        return sum(await asyncio.gather(*(send_steady_heartbeats(member, watch, seconds) for member in members)))

    return load
