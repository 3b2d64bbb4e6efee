"""Histories of a classic group over a real shard, on a virtual clock: clients join, plan, heartbeat, restart and hang.

The clients hear of a rebalance by a heartbeat, one after the other, and the leader plans with a real assignor from
what the members say. The ledger that comes of it is the group's own.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from muster.assignors.api import Member, RebalanceProtocol, Snapshot
from muster.assignors.data.values import readable_lag
from muster.assignors.registry import resolve
from muster.assignors.run import run
from muster.coordinator.core.model import events
from muster.coordinator.core.model.effects import DescribeReply
from muster.coordinator.core.model.ledger import entry_with_settlement
from muster.coordinator.core.model.records import GroupStored
from muster.coordinator.core.model.types import GroupState, Limits
from muster.coordinator.core.watched.classic_history import ClassicHistory
from muster.coordinator.observability.doctor.model import ExaminedGroup
from muster.coordinator.observability.read_model.group_mapper import map_group
from muster.coordinator.observability.read_model.groups import PartitionLag, TopicPartition
from muster.coordinator.rpc.v1.ledger_pb2 import Rebalance
from muster.coordinator.server.services.group_responses import build_described_group, build_rebalance
from tests.support.stories.script import Stage

GROUP = "orders"
BEAT_MS = 3_000
Owned = dict[str, list[int]]


@dataclass
class RunningClient:
    """A client process. `told`: it has heard of the rebalance and joined again."""

    name: str
    host: str
    instance: str = ""
    owned: Owned = field(default_factory=dict)
    told: bool = False


class GroupHistory:
    """A group of clients that use one assignor. `topics`: partitions of each."""

    def __init__(
        self, assignor: str = "range", topics: Mapping[str, int] | None = None, session_ms: int = 10_000, **limits: Any
    ) -> None:
        self.stage = Stage(Limits(**{"initial_rebalance_delay_ms": 0, "ledger_max_entries": 1_000} | limits))
        self.assignor = resolve(assignor)
        self.topics = dict(topics or {"orders": 12})
        self.session_ms = session_ms
        self.poll_ms = 60_000
        self.facts: list[tuple[int, GroupStored | tuple[str, int]]] = []
        """What a broker would keep of it, with times: generations, and partitions that were committed."""
        self._connections: dict[str, int] = {}
        self.running: dict[str, RunningClient] = {}
        self._do("topics", [f"{topic}={count}" for topic, count in self.topics.items()])

    # What happens
    # ------------

    def start(self, names: Iterable[str], *, static: bool = False, host: str = "") -> None:
        """Clients start at once; each at a host of its own."""
        for name in names:
            client = RunningClient(name, host or f"10.0.0.{len(self.running) + 1}", name if static else "")
            self.running[name] = client
            self._do("restart", [GROUP, name])
            self._connections[name] = self._connection(name) + 1
            self._join(client)
        self.settle()

    def restart(self, name: str, away_ms: int, *, orderly: bool = True) -> None:
        """Its process ends, leaves or not, and a new one comes after that long."""
        client = self.running.pop(name)
        if orderly:
            self._commit(client)
        if orderly and not client.instance:
            self._do("leave", [GROUP, name])
        elif not orderly:
            self._do("close", [GROUP, str(self._connection(name))])
        self.live(away_ms)
        self._do("restart", [GROUP, name])
        self.running[name] = replace(client, owned={}, told=False)
        self._connections[name] = self._connection(name) + 1
        self._join(self.running[name])
        self.settle()

    def stop(self, name: str) -> None:
        """It closes for good."""
        self._commit(self.running.pop(name))
        self._do("leave", [GROUP, name])
        self.settle()

    def hang(self, name: str, ms: int) -> None:
        """It says nothing for so long, and then goes on: its session may be over."""
        client = self.running.pop(name)
        self.live(ms)
        self._do("restart", [GROUP, name])
        self.running[name] = replace(client, owned={}, told=False)
        self._join(self.running[name])
        self.settle()

    def poll_late(self, name: str, extra_ms: int) -> None:
        """It does not poll in time, leaves for that, and comes back when it polls again."""
        client = self.running.pop(name)
        self._do("leave", [GROUP, name, "reason=consumer poll timeout has expired."])
        self.live(extra_ms)
        self._do("restart", [GROUP, name])
        self.running[name] = replace(client, owned={}, told=False)
        self._join(self.running[name])
        self.settle()

    def grow(self, topic: str, count: int) -> None:
        """The topic gets more partitions, and the leader notices."""
        self.topics[topic] = count
        self._do("topics", [f"{name}={number}" for name, number in self.topics.items()])
        leader = self.stage.shard.groups[GROUP].leader
        self._join(next(each for each in self.running.values() if self._id(each.name) == leader))
        self.settle()

    def live(self, ms: int) -> None:
        """Time passes, and everybody heartbeats."""
        until_ms = self.stage.now_ms + ms
        step_ms = max(BEAT_MS, self.session_ms // 3)
        while self.stage.now_ms < until_ms:
            self._advance(min(step_ms, until_ms - self.stage.now_ms))
            self._beat()
            self.settle()

    def settle(self) -> None:
        """Until everybody has a share, or nobody is there."""
        while self._state not in (GroupState.STABLE, GroupState.EMPTY, GroupState.DEAD):
            waiting = [client for client in self.running.values() if not client.told]
            for client in waiting if self._state is GroupState.PREPARING_REBALANCE else ():
                self._advance(BEAT_MS // len(self.running))
                self._join(client)
            if self._state is GroupState.PREPARING_REBALANCE:
                self._advance(min(1_000, self.session_ms // 10))
            if self._state is GroupState.COMPLETING_REBALANCE:
                self._plan()

    # What is known of it
    # -------------------

    def entries(self) -> list[Rebalance]:
        """The ledger with snapshots, oldest first."""
        ledger = self.stage.shard.ledgers[GROUP]
        return [
            build_rebalance(GROUP, entry_with_settlement(ledger, number), with_snapshot=True)
            for number in sorted(ledger.entries)
        ]

    def watched_entries(self) -> list[Rebalance]:
        """What another broker's records tell of the same group, oldest first."""
        history, entries = ClassicHistory(GROUP), []
        for at_ms, fact in self.facts:
            if isinstance(fact, GroupStored):
                entry = history.take_group(fact, at_ms, 0)
                if entry is not None:
                    entries.append(build_rebalance(GROUP, entry, with_snapshot=True))
            else:
                history.commits.note_commit(fact, at_ms)
        return entries

    def examined(self, lags: Mapping[str, Sequence[int]] | None = None, **more: Any) -> ExaminedGroup:
        """The group as the API tells of it. `lags`: of the partitions; each was committed at its end without."""
        event = events.DescribeGroup(self.stage.request("describe", self.stage.client(GROUP, "*")), GROUP)
        (reply,) = (reply for _, reply in self.stage.shard.step(event, self.stage.now_ms).replies)
        assert isinstance(reply, DescribeReply)
        described = map_group(build_described_group(GROUP, reply), "here:1")
        positions = {}
        for topic, count in self.topics.items():
            for number in range(count):
                waits = (lags or {}).get(topic, [0] * count)[number]
                tp = TopicPartition(topic, number)
                end = 10_000 + waits
                positions[tp] = PartitionLag(tp, 10_000, 0, end, readable_lag(10_000, 0, end), "", self.stage.now_ms)
        ledger = tuple(reversed(self.entries()))
        given: dict[str, Any] = {"positions": positions, "ledger": ledger} | more
        return ExaminedGroup(described, **given)

    @property
    def now_ms(self) -> int:
        return self.stage.now_ms

    # Inside
    # ------

    def _connection(self, name: str) -> int:
        return self._connections.setdefault(name, 1_000 * (len(self._connections) + 1))

    @property
    def _state(self) -> GroupState:
        group = self.stage.shard.groups.get(GROUP)
        return group.state if group is not None else GroupState.DEAD

    def _id(self, name: str) -> str:
        return self.stage.client(GROUP, name).member_id

    def _do(self, verb: str, words: list[str], lines: list[str] | None = None) -> list[str]:
        """Without `Stage.run`, which replays the whole log after each command."""
        known = len(self.stage.records)
        trace = list(getattr(self.stage, f"do_{verb}")(words, lines or []))
        self.facts += [(self.now_ms, each) for each in self.stage.records[known:] if isinstance(each, GroupStored)]
        return trace

    def _advance(self, ms: int) -> None:
        """Nobody may expire while the group settles, except those that hang."""
        self._do("advance", [f"{ms}ms"])

    def _beat(self) -> None:
        for client in self.running.values():
            self._do("heartbeat", [GROUP, client.name])
            self._commit(client)
            client.told = False

    def _commit(self, client: RunningClient) -> None:
        self.facts += [(self.now_ms, (topic, number)) for topic, share in client.owned.items() for number in share]

    def _join(self, client: RunningClient) -> None:
        owned = client.owned if self.assignor.protocol is RebalanceProtocol.COOPERATIVE else {}
        had = client.owned if self.assignor.name == "sticky" else {}
        words = [
            GROUP,
            client.name,
            f"protocols={self.assignor.name}",
            f"topics={','.join(self.topics)}",
            f"session={self.session_ms}",
            f"rebalance={self.poll_ms}",
            f"host={client.host}",
            f"connection={self._connection(client.name)}",
            f"owned={write_share(owned)}",
            f"had={write_share(had)}",
        ]
        client.told = True
        self._do("join", [*words, *([f"instance={client.instance}"] if client.instance else [])])

    def _said_by(self, client: RunningClient) -> Member:
        """What its subscription tells the leader, as `_join` writes it."""
        member = Member(self._id(client.name), tuple(self.topics), instance_id=client.instance or None)
        if self.assignor.protocol is RebalanceProtocol.COOPERATIVE:
            generation = self.stage.client(GROUP, client.name).generation - 1
            return replace(member, owned=dict(client.owned), generation=generation)
        if self.assignor.name == "sticky" and client.owned:
            return replace(member, owned=dict(client.owned), generation=1)
        return member

    def _plan(self) -> None:
        """The leader plans, and everybody fetches its share."""
        withhold = self.assignor.protocol is RebalanceProtocol.COOPERATIVE
        snapshot = Snapshot(self.topics, [self._said_by(client) for client in self.running.values()])
        plan = run(self.assignor, snapshot, withhold=withhold).to_dict()
        names = {self._id(client.name): client.name for client in self.running.values()}
        lines = [f"{names[member]}: {write_share(share, ' ')}" for member, share in plan.items()]
        leader = self.stage.shard.groups[GROUP].leader
        before = {name: client.owned for name, client in self.running.items()}
        for client in sorted(self.running.values(), key=lambda each: self._id(each.name) != leader):
            self._do("sync", [GROUP, client.name], lines if self._id(client.name) == leader else [])
            client.owned = {topic: list(share) for topic, share in plan[self._id(client.name)].items()}
            client.told = False
        if withhold:
            for name, client in self.running.items():
                if lost_share(before[name], client.owned):
                    self._advance(100)
                    self._join(client)


def write_share(share: Mapping[str, Iterable[int]], between: str = ",") -> str:
    return between.join(f"{topic}-{number}" for topic, numbers in share.items() for number in numbers)


def lost_share(before: Owned, now: Owned) -> set[tuple[str, int]]:
    had, has = ({(t, n) for t, ns in share.items() for n in ns} for share in (before, now))
    return had - has
