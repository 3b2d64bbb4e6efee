"""Runs stories of the protocol against a real `Shard` on a virtual clock.

A story is a text file: a command, `----`, and the trace it must leave; blocks are separated by an empty line, `#`
starts a comment. `pytest --rewrite` writes the real traces back; read the diff before you commit it.

After every command the records so far are replayed into a second shard, whose hard state must equal the live one.
"""

import json
import shlex
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from muster.coordinator.core.model import events
from muster.coordinator.core.model.effects import (
    CentralReply,
    ConsumerHeartbeatReply,
    Effects,
    PushReply,
    TxnOffsetCommitReply,
)
from muster.coordinator.core.model.events import HeldBack
from muster.coordinator.core.model.ledger import entry_with_settlement
from muster.coordinator.core.model.plan import Plan, PlanRequest, compute_plan
from muster.coordinator.core.model.records import Record, TxnOffsetsStored
from muster.coordinator.core.model.shadow_scoring import ShadowRequest
from muster.coordinator.core.model.types import Limits, TimerKey
from muster.coordinator.core.shard import Shard
from muster.coordinator.errors import ErrorCode
from muster.coordinator.observability.views.incidents import find_incidents
from muster.coordinator.observability.views.member_names import names_of
from muster.coordinator.runtime.deadlines import deadline_shift_ms
from muster.coordinator.server.services.group_responses import build_rebalance
from tests.sim.checkers.replay import what_waits
from tests.support.stories.balance_stage import BalanceStage
from tests.support.stories.central_stage import CentralStage
from tests.support.stories.classic_stage import ClassicStage, Client
from tests.support.stories.consumer_stage import ConsumerStage
from tests.support.stories.control_stage import ControlStage
from tests.support.stories.fence_stage import FenceStage
from tests.support.stories.observed_stage import ObservedStage
from tests.support.stories.offset_stage import OffsetStage
from tests.support.stories.rights_stage import RightsStage
from tests.support.stories.story import milliseconds, pairs
from tests.support.stories.trace import describe_records, describe_reply
from tests.support.stories.trial_stage import TrialStage
from tests.support.stories.txn_stage import TxnStage

NO_REPLY = "parked"


@dataclass
class Stage(
    ClassicStage,
    ConsumerStage,
    CentralStage,
    ObservedStage,
    OffsetStage,
    TrialStage,
    FenceStage,
    ControlStage,
    BalanceStage,
    RightsStage,
    TxnStage,
):
    """The shard under test, its clock and its clients."""

    limits: Limits = field(default_factory=Limits)
    shard: Shard = field(init=False)
    now_ms: int = 0
    timers: dict[TimerKey, int] = field(default_factory=dict)
    records: list[Record] = field(default_factory=list)
    clients: dict[tuple[str, str], Client] = field(default_factory=dict)
    drawn: Counter[str] = field(default_factory=Counter)
    requests: dict[int, tuple[str, Client]] = field(default_factory=dict)
    answered: set[int] = field(default_factory=set)
    next_request: int = 0
    slow: bool = False
    """Every plan is put off."""
    chores: list[events.Event] = field(default_factory=list)
    chores_wait: bool = False
    """What is left of something long waits for the story's word."""
    asked_plans: dict[str, list[PlanRequest]] = field(default_factory=dict)
    """By group: what its plans were to be made from, oldest first."""

    def __post_init__(self) -> None:
        ConsumerStage.__init__(self)
        CentralStage.__init__(self)
        TrialStage.__init__(self)
        BalanceStage.__init__(self)
        RightsStage.__init__(self)
        TxnStage.__init__(self)
        self.shard = Shard(self.limits, 0)
        self.shard.state.planner = self.plan
        self.step(events.Loaded())

    def run(self, command: list[str]) -> list[str]:
        words = shlex.split(command[0])
        trace = list(getattr(self, "do_" + words[0].replace("-", "_"))(words[1:], command[1:]))
        self.replay_equals_live()
        return trace

    # -- time, settings, life of the shard

    def do_limits(self, words: list[str], _lines: list[str]) -> Iterator[str]:
        """The process comes back with other settings."""
        self.limits = replace(self.limits, **{key: setting(value) for key, value in pairs(words).items()})
        yield from self.do_reload([], [])

    def do_topics(self, words: list[str], _lines: list[str]) -> Iterator[str]:
        options = pairs(words)
        deleted = tuple(options.pop("deleted", "").split(",")) if "deleted" in options else ()
        disowned = frozenset(filter(None, options.pop("disowned", "").split(",")))
        late_ms = milliseconds(options.pop("late", "0ms"))
        self.born_again(options)
        counts = {topic: int(count) for topic, count in options.items()}
        state = self.shard.state
        before = events.TopicsChanged(state.partitions, ids=state.topic_ids, disowned=state.disowned_topics)
        ids = self.topic_ids(list(counts))
        now = events.TopicsChanged(counts, deleted, ids, disowned=disowned, late_ms=late_ms)
        changes = events.compare_topics(before, now) if state.catalog_known else ()
        yield from self.obeyed(self.step(replace(now, changes=changes))) or ["ok"]

    def born_again(self, options: dict[str, str]) -> None:
        for topic in [topic for topic in options.pop("anew", "").split(",") if topic]:
            self.lives[topic] = self.lives.get(topic, 0) + 1

    def do_advance(self, words: list[str], _lines: list[str]) -> Iterator[str]:
        """Let time pass: 500ms, 7d. What comes due fires; a retention check that finds nothing is silent."""
        until_ms = self.now_ms + milliseconds(words[0])
        quiet = True
        while due := sorted((at, key) for key, at in self.timers.items() if at <= until_ms):
            at_ms, key = due[0]
            del self.timers[key]
            self.now_ms = at_ms
            lines = self.obeyed(self.step(events.TimerFired(key, at_ms)))
            if lines or key[0] not in ("retention", "balance"):
                yield f"{at_ms}ms timer {' '.join(key)}"
                quiet = False
            yield from ("  " + line for line in lines)
        self.now_ms = until_ms
        if quiet:
            yield "quiet"

    def do_stall(self, words: list[str], _lines: list[str]) -> Iterator[str]:
        """The node stands still: time goes by and nothing is done in it. No deadline comes in it."""
        stalled_ms = milliseconds(words[0])
        self.now_ms += stalled_ms
        moved_ms = deadline_shift_ms(stalled_ms)
        self.timers = {key: at_ms + moved_ms for key, at_ms in self.timers.items()}
        yield from self.obeyed(self.step(events.StoodStill(stalled_ms, moved_ms))) or ["ok"]
        assert self.timers == self.shard.state.deadlines

    def do_held(self, words: list[str], _lines: list[str]) -> Iterator[str]:
        """`held g a-1 20s`: what this member says is not read for so long, because of a quota."""
        group_id, member_id, time = words
        yield from self.obeyed(self.step(HeldBack(group_id, member_id, milliseconds(time)))) or ["ok"]

    def do_reload(self, words: list[str], _lines: list[str]) -> Iterator[str]:
        """The process dies and the log is replayed: what was parked gets no answer.

        `reload t=2` finds that catalog; with `anew=t` the topic was deleted and created again meanwhile. What
        `damaged=GroupEpochStored:g` or `damaged=TargetStored:g:a` names cannot be read any more.
        """
        words, damaged = self.damage(words)
        self.shard = self.replayed()
        self.timers.clear()
        self.chores.clear()
        self.asked_shadows.clear()
        self.brought.clear()
        self.requests.clear()
        self.streams.clear()
        if words:
            options = pairs(words)
            self.born_again(options)
            counts = {topic: int(count) for topic, count in options.items()}
            yield from self.step(events.TopicsChanged(counts, ids=self.topic_ids(list(counts))))
        yield from self.step(events.Loaded(damaged, topics=frozenset(self.shard.committed_to()))) or ["ok"]

    def do_clock(self, words: list[str], _lines: list[str]) -> Iterator[str]:
        """clock back=1h: the process dies, and comes back with the wall clock set back."""
        self.now_ms -= milliseconds(pairs(words)["back"])
        yield from self.do_reload([], [])

    def do_unload(self, _words: list[str], _lines: list[str]) -> Iterator[str]:
        yield from self.obeyed(self.step(events.Unload())) or ["ok"]

    def do_timers(self, _words: list[str], _lines: list[str]) -> Iterator[str]:
        """What groups wait for, soonest first."""
        waiting = sorted((at, key) for key, at in self.timers.items() if key != ("retention",))
        yield from [f"{at}ms {' '.join(key)}" for at, key in waiting] or ["none"]

    # -- plans that are put off

    def do_planner(self, words: list[str], _lines: list[str]) -> Iterator[str]:
        """planner later: every plan is put off; planner now: built-in assignors answer at once."""
        self.slow = words == ["later"]
        yield "ok"

    def plan(self, request: PlanRequest) -> Plan | None:
        return None if self.slow else super().plan(request)

    def do_answer(self, words: list[str], _lines: list[str]) -> Iterator[str]:
        """answer GROUP [error=WHY] [epoch=N] [first]: what the assignor makes of the last plan that was put off.

        `first`: of the one that the story put off first, however long ago.
        """
        group, *rest = words
        options = pairs([word for word in rest if word != "first"])
        asked = self.asked_plans[group][0 if "first" in rest else -1]
        made = None if "error" in options else compute_plan(asked)
        epoch = int(options.get("epoch", asked.epoch))
        yield from self.obeyed(self.step(events.Planned(group, epoch, made, options.get("error", "")))) or ["quiet"]

    # -- views

    def do_describe(self, words: list[str], _lines: list[str]) -> Iterator[str]:
        yield from self.asked(events.DescribeGroup(self.request("describe", self.client(words[0], "*")), words[0]))

    def do_list(self, words: list[str], _lines: list[str]) -> Iterator[str]:
        options = pairs(words)
        states = tuple(options["states"].split(",")) if "states" in options else ()
        types = tuple(options["types"].split(",")) if "types" in options else ()
        yield from self.asked(events.ListGroups(self.request("list", self.client("", "*")), states, types))

    def do_delete(self, words: list[str], _lines: list[str]) -> Iterator[str]:
        """delete GROUP [elsewhere]: with the word, the edge deletes what ZooKeeper holds."""
        request = self.request("delete", self.client(words[0], "*"))
        by = next((word.removeprefix("by=") for word in words if word.startswith("by=")), "")
        yield from self.asked(events.DeleteGroup(request, words[0], "elsewhere" in words, by))

    def do_explain(self, words: list[str], _lines: list[str]) -> Iterator[str]:
        options = pairs(words[1:])
        event = events.ExplainGroup(
            self.request("explain", self.client(words[0], "*")),
            words[0],
            int(options.get("limit", 0)),
            int(options.get("generation", 0)),
        )
        yield from self.asked(event)

    def do_incidents(self, words: list[str], _lines: list[str]) -> Iterator[str]:
        """incidents GROUP: what has happened to it, by all that its ledger has."""
        ledger = self.shard.ledgers[words[0]]
        entries = [
            build_rebalance(words[0], entry_with_settlement(ledger, number), with_snapshot=False)
            for number in sorted(ledger.entries)
        ]
        for found in find_incidents(entries, names_of(entries)):
            yield f"{found.kind} ({', '.join(map(str, found.entries))}): {found.sentence}"

    def do_settings(self, words: list[str], _lines: list[str]) -> Iterator[str]:
        yield from self.asked(events.DescribeSettings(self.request("settings", self.client(words[0], "*")), words[0]))

    def do_set(self, words: list[str], lines: list[str]) -> Iterator[str]:
        """set GROUP [version=N] [dry], and below it a line for each setting: NAME VALUE, as JSON; NAME unset."""
        options = pairs([word for word in words[1:] if word != "dry"])
        wanted = dict(line.split(" ", 1) for line in lines)
        event = events.AlterSettings(
            self.request("set", self.client(words[0], "*")),
            words[0],
            {name: json.loads(text) for name, text in wanted.items() if text != "unset"},
            tuple(name for name, text in wanted.items() if text == "unset"),
            int(options["version"]) if "version" in options else None,
            "dry" in words,
            operator="operator at here",
        )
        yield from self.asked(event)

    # -- machinery

    def client(self, group: str, name: str) -> Client:
        return self.clients.setdefault((group, name), Client(name))

    def request(self, kind: str, client: Client) -> int:
        self.next_request += 1
        self.requests[self.next_request] = (kind, client)
        return self.next_request

    def asked(self, event: events.Request) -> list[str]:
        lines = self.step(event)
        if event.request_id not in self.answered:
            lines.append(NO_REPLY)
        return lines

    def do_chores(self, words: list[str], _lines: list[str]) -> Iterator[str]:
        """chores later: what is left of something long waits until the story says so; chores now."""
        self.chores_wait = words == ["later"]
        yield "ok"

    def do_chore(self, _words: list[str], _lines: list[str]) -> Iterator[str]:
        """One slice of what is left."""
        yield from self.one_step(self.chores.pop(0)) or ["quiet"]

    def step(self, event: events.Event) -> list[str]:
        lines = self.one_step(event)
        while self.brought or (self.chores and not self.chores_wait):
            lines += self.one_step((self.brought or self.chores).pop(0))
        return lines

    def one_step(self, event: events.Event) -> list[str]:
        effects = self.shard.step(event, self.now_ms)
        self.chores += effects.chores
        self.records += effects.records
        for key, at_ms in effects.timers.items():
            if at_ms is None:
                self.timers.pop(key, None)
            else:
                self.timers[key] = at_ms
        for asked in effects.plans:
            if isinstance(asked, ShadowRequest):
                self.asked_shadows.setdefault(asked.group_id, []).append(asked)
            else:
                self.asked_plans.setdefault(asked.group_id, []).append(asked)
        self.measurements(effects)
        return [*describe_records(effects.records), *self.put_off(effects), *self.replies(effects)]

    def replies(self, effects: Effects) -> Iterator[str]:
        for request, reply in effects.replies:
            if request not in self.requests:
                continue
            assert request not in self.answered, f"request {request} answered twice"
            self.answered.add(request)
            kind, client = self.requests[request]
            if isinstance(reply, CentralReply):
                yield from self.heard_central(request, reply)
            if isinstance(reply, TxnOffsetCommitReply):
                self.may_be_written(request, reply)
            told = reply.consumer if isinstance(reply, PushReply) else reply
            if isinstance(told, ConsumerHeartbeatReply):
                self.learn(request, told)
            if kind == "join":
                if reply.code in (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED):
                    client.member_id = reply.member_id
                if reply.code is ErrorCode.NONE:
                    client.generation = reply.generation
            name = "" if client.name == "*" else f" {client.name}"
            first, *more = describe_reply(reply).split("\n")
            yield f"reply {kind}{name}: {first.strip()}"
            yield from more

    def replayed(self) -> Shard:
        shard = Shard(self.limits, 0)
        shard.state.planner = self.plan
        catalog = self.shard.state
        shard.state.partitions, shard.state.topic_ids = catalog.partitions, catalog.topic_ids
        shard.state.topic_names = catalog.topic_names
        for record in self.records:
            shard.apply(record)
        return shard

    def replay_equals_live(self) -> None:
        again = self.replayed()
        assert hard_state(again) == hard_state(self.shard)
        if any(isinstance(record, TxnOffsetsStored) for record in self.records):
            assert what_waits(again) == what_waits(self.shard)


def hard_state(shard: Shard) -> tuple[object, ...]:
    """What must survive: groups of every kind, offsets, ledger, and when the node stood still."""
    groups = {group.id: (group.stored, dict(group.offsets)) for group in shard.groups.values()}
    offsets = {group_id: dict(kept) for group_id, kept in shard.state.offsets.items() if kept}
    ledgers = {
        name: (dict(ledger.entries), dict(ledger.settlements), dict(ledger.shadows), ledger.delay)
        for name, ledger in shard.ledgers.items()
    }
    members = dict(shard.consumer_groups), dict(shard.central_groups)
    beside = dict(shard.state.stalls), dict(shard.state.settings), list(shard.state.farewells.items())
    trials = dict(shard.state.canaries), dict(shard.state.holds), dict(shard.state.balanced)
    fences = {group_id: dict(kept) for group_id, kept in shard.state.fences.items()}, set(shard.state.fence_ids)
    return groups, ledgers, offsets, *members, *beside, *trials, fences


def setting(text: str) -> int | str | tuple[str, ...]:
    if text.isdigit():
        return int(text)
    return tuple(text.split(",")) if "," in text else text
