"""`muster demo --balance`: a partition becomes hot, the load is made even within the budget, and then nothing moves."""

import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from muster.cli.demo.processes import DemoProcesses
from muster.client import Admin, Consumer, Producer
from muster.coordinator.rpc.v1.ledger_pb2 import Rebalance, RebalanceCause

BALANCE_GROUP, BALANCE_TOPIC, PARTITIONS, MEMBERS = "balanced", "orders", 12, 3
BUDGET = 4
BALANCE_SETTINGS: dict[str, Any] = {
    "balance": "act",
    "balance.sample.ms": 1_000,
    "balance.cooldown.ms": 600_000,
    "balance.move.budget": BUDGET,
}
USUAL, HOT = 5, 100
"""Records a turn to a partition, and to the hot one."""
AT_MOST_S = 60.0
"""So long each part of the story may take."""
AFTER_S = 12.0
"""So long is looked on, once the load is even: as long as it takes to decide four times."""


class BalanceDemo:
    """Members live in this process, and take turns with whoever writes."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._hot = -1

    def run(self) -> bool:
        """Whether it went as it should."""
        with ExitStack() as stack:
            children = stack.enter_context(DemoProcesses(self._folder))
            address = children.start_node(["--data", str(self._folder / "data")]).address
            admin = stack.enter_context(Admin(bootstrap_servers=address))
            admin.create_topic(BALANCE_TOPIC, PARTITIONS)
            self._producer = stack.enter_context(Producer(bootstrap_servers=address))
            common: dict[str, Any] = {
                "bootstrap_servers": address,
                "group_id": BALANCE_GROUP,
                "group_protocol": "consumer",
            }
            self._members = [
                stack.enter_context(Consumer(client_id=f"member-{n}", auto_commit_interval_ms=200, **common))
                for n in range(MEMBERS)
            ]
            for member in self._members:
                member.subscribe([BALANCE_TOPIC])
            return self._play(admin)

    def _play(self, admin: Admin) -> bool:
        if not self._turns_until(lambda: sorted(map(len, self._shares())) == [4, 4, 4]):
            return explain_shortfall("the group did not come to rest")
        print(f"3 members, 4 partitions each: {describe_shares(self._shares())}")
        admin.alter_group_settings(BALANCE_GROUP, BALANCE_SETTINGS)
        self._hot = min(self._shares()[0])
        print(f"{BALANCE_TOPIC}-{self._hot} becomes {HOT // USUAL} times as hot as the others")
        if not self._turns_until(lambda: bool(fetch_balance_rebalances(admin))):
            return explain_shortfall("nothing was moved")
        entry = fetch_balance_rebalances(admin)[0]
        print(f"rebalance {entry.number}, LAG_IMBALANCE: {entry.detail}")
        ends = time.monotonic() + AFTER_S
        self._turns_until(lambda: time.monotonic() > ends)
        entries = fetch_balance_rebalances(admin)
        moved = Counter((move.topic, move.partition) for each in entries for move in each.moves)
        print(f"afterwards: {describe_shares(self._shares())}")
        print(f"{len(entries)} rebalance(s), {moved.total()} moves, none twice: {max(moved.values()) == 1}")
        return max(moved.values()) == 1 and all(len(each.moves) <= BUDGET for each in entries)

    def _turns_until(self, done: Callable[[], bool]) -> bool:
        """Write and read, in turns, until it is so; False: it took too long."""
        ends = time.monotonic() + AT_MOST_S
        while not done():
            if time.monotonic() > ends:
                return False
            for partition in range(PARTITIONS):
                for _ in range(HOT if partition == self._hot else USUAL):
                    self._producer.produce(BALANCE_TOPIC, b"x", partition=partition)
            for member in self._members:
                member.consume(1_000, 0.05)
        return True

    def _shares(self) -> list[list[int]]:
        return [sorted(place.partition for place in member.assignment()) for member in self._members]


def fetch_balance_rebalances(admin: Admin) -> Sequence[Rebalance]:
    """Rebalances for the sake of balance that moved something, oldest first."""
    found = [
        each for each in admin.explain(BALANCE_GROUP) if each.cause == RebalanceCause.REBALANCE_CAUSE_LAG_IMBALANCE
    ]
    return [each for each in reversed(found) if each.moves]


def describe_shares(shares: list[list[int]]) -> str:
    return "; ".join(f"member-{n} has {', '.join(map(str, share)) or 'nothing'}" for n, share in enumerate(shares))


def explain_shortfall(why: str) -> bool:
    print(why)
    return False
