"""Rounds of a Connect cluster, as stories: what each worker has after every rebalance, and the delay that follows.

    cluster connectors=2 tasks=4 max-delay=300000     tasks are per connector
    add w2 / remove w2 / configure connectors=3       what happens between two rebalances
    advance 150000                                    milliseconds
    rebalance [failed]                                failed: no worker receives its share

Totals are sorted, connectors first, as in the traces that the protocol's authors published.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from muster.client.members.delayed_rebalance import DelayedLeaderState, DelayedRound, plan_round
from tests.support.stories.story import Block, pairs, read_story, write_story

STORIES = sorted((Path(__file__).parent / "connect").glob("*.txt"))


@dataclass
class Cluster:
    """Workers that do what the leader says, when they hear it."""

    max_delay_ms: int = 0
    kinds: tuple[frozenset[str], ...] = ()
    workers: dict[str, tuple[str, ...]] = field(default_factory=dict)
    leader: str = ""
    state: DelayedLeaderState = field(default_factory=DelayedLeaderState)
    now_ms: int = 1_000
    generation: int = 0
    completed: int = -1
    tasks: int = 0

    def run(self, command: str) -> list[str]:
        name, *words = command.split()
        return list(getattr(self, f"do_{name}")(words))

    def do_cluster(self, words: list[str]) -> Iterator[str]:
        options = {key: int(value) for key, value in pairs(words).items()}
        self.max_delay_ms, self.tasks = options["max-delay"], options["tasks"]
        yield from self.do_configure([f"connectors={options['connectors']}"])

    def do_configure(self, words: list[str]) -> Iterator[str]:
        count = int(pairs(words)["connectors"])
        connectors = frozenset(f"c{number}" for number in range(count))
        self.kinds = (connectors, frozenset(f"{name}/t{task}" for name in connectors for task in range(self.tasks)))
        yield "ok"

    def do_add(self, words: list[str]) -> Iterator[str]:
        self.workers.update(dict.fromkeys(words, ()))
        yield "ok"

    def do_remove(self, words: list[str]) -> Iterator[str]:
        for worker in words:
            del self.workers[worker]
        yield "ok"

    def do_give(self, words: list[str]) -> Iterator[str]:
        """give w2 c0: it works on that too, whoever else does."""
        worker, *resources = words
        self.workers[worker] = tuple(sorted({*self.workers[worker], *resources}))
        yield "ok"

    def do_advance(self, words: list[str]) -> Iterator[str]:
        self.now_ms += int(words[0])
        yield "ok"

    def do_rebalance(self, words: list[str]) -> Iterator[str]:
        if self.leader not in self.workers:
            # The reference: whoever leads next knows nothing of what was before.
            self.leader, self.state, self.completed = min(self.workers), DelayedLeaderState(), -1
        self.generation += 1
        asked = DelayedRound(self.generation, self.completed, self.kinds, self.workers)
        decision = plan_round(self.state, asked, self.now_ms, self.max_delay_ms)
        self.state = decision.state
        if "failed" not in words:
            self.completed = self.generation
            self.workers = dict(decision.shares)
        yield f"delay={decision.delay_ms} {self.totals()}"
        for worker, resources in decision.revoked.items():
            yield f"  {worker} lets go of {','.join(resources)}"

    def totals(self) -> str:
        counts = [sorted(len(kind.intersection(held)) for held in self.workers.values()) for kind in self.kinds]
        return " ".join(f"[{','.join(map(str, count))}]" for count in counts)


@pytest.mark.parametrize("path", STORIES, ids=lambda path: path.stem)
def test_the_leader_decides_as_told(path: Path, request: pytest.FixtureRequest) -> None:
    blocks: list[Block] = read_story(path)
    cluster = Cluster()
    traces = [cluster.run(block.command[0]) if block.command else [] for block in blocks]
    if request.config.getoption("--rewrite"):
        write_story(path, blocks, traces)
        return
    for block, trace in zip(blocks, traces, strict=True):
        assert trace == block.expected, f"{path.name}: {block.command}"
