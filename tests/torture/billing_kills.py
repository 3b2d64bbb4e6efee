"""The workers of `muster demo --exactly-once` under kills of workers and the node, mostly in mid-transaction:
`python -m tests.torture.billing_kills --rounds 100`.

Our own client reads, works and writes. At the end each order has to be billed exactly once, whatever was killed or
frozen, and the group's offsets have to be those of all orders.
"""

import argparse
import os
import random
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from muster.cli.demo.exactly_once_demo import (
    WORKERS,
    BillingProof,
    ExactlyOnceDemo,
    prove_billing,
    read_bills,
)

FAULTS: Final = ("worker-1", "worker-2", "workers", "node", "node and worker-1", "freeze")
HELD_S: Final = 6.0
"""How long to wait for both workers to have a transaction open; one without partitions has none."""


class BillingKills(ExactlyOnceDemo):
    """`run` tells whether each order was billed exactly once; `proof` has the figures."""

    def __init__(self, folder: Path, rounds: int, seed: int) -> None:
        super().__init__(folder)
        self._rounds = rounds
        self._random = random.Random(seed)
        self._alive: dict[str, int] = {}
        self.proof: BillingProof | None = None

    def _play(self) -> bool:
        self._begin_missing()
        self._until(self._is_shared, "two workers share the partitions")
        for number in range(self._rounds):
            what = self._random.choice(FAULTS)
            self._say(f"round {number + 1}: {what}")
            self._strike(what)
            self._begin_missing()
            self._write_orders()
        self._until(self._is_all_committed, f"the offsets of all {len(self._orders):,} orders are committed")
        self._children.stop(WORKERS)
        committed, everything = (
            read_bills(self._address, "read_committed"),
            read_bills(self._address, "read_uncommitted"),
        )
        proof = self.proof = prove_billing(self._orders, committed, everything)
        self._say(str(proof))
        return not (proof.missing or proof.repeated or proof.wrong) and proof.billed == proof.due

    def _strike(self, what: str) -> None:
        if what == "freeze":
            pid = self._alive[self._random.choice(WORKERS)]
            os.kill(pid, signal.SIGSTOP)
            time.sleep(self._random.uniform(1, 6))
            os.kill(pid, signal.SIGCONT)
            return
        self._hold_both()
        if self._random.random() < 0.5:
            self._let_go()  # the kill meets commits under way
            time.sleep(self._random.uniform(0, 0.08))
        killed = WORKERS if what == "workers" else [name for name in WORKERS if name in what]
        for name in killed:
            self._children.kill(name)
            del self._alive[name]
        if "node" in what:
            self._children.kill("node")
            self._children.start_node(self._node, listen=self._address)
        self._let_go()

    def _hold_both(self) -> None:
        """Most rounds begin with a transaction of each worker open, its bills flushed."""
        before = {name: self._times(name, "open", pid) for name, pid in self._alive.items()}
        for diary in self._diaries.values():
            diary.hold.touch()
        self._write_orders()
        deadline = time.monotonic() + HELD_S
        while any(self._times(name, "open", self._alive[name]) == count for name, count in before.items()):
            if time.monotonic() > deadline:
                return
            time.sleep(0.05)

    def _let_go(self) -> None:
        for diary in self._diaries.values():
            diary.hold.unlink(missing_ok=True)

    def _begin_missing(self) -> None:
        for name in WORKERS:
            if name not in self._alive:
                self._alive[name] = self._start(name)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="muster-torture-") as folder:
        return 0 if BillingKills(Path(folder), options.rounds, options.seed).run() else 1


if __name__ == "__main__":
    sys.exit(main())
