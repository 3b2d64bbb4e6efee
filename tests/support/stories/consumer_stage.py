"""What stories can say of KIP-848 groups: `given-consumer`, `target`, `enter`, `beat`, `depart`, `planned`, `resolved`.

A topic's id is its name, filled up to 16 bytes; one that is made anew gets another by `anew=TOPIC`.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from muster.coordinator.core.consumer.group import ConsumerMemberState
from muster.coordinator.core.consumer.target import match_topics
from muster.coordinator.core.model import events
from muster.coordinator.core.model.effects import ConsumerHeartbeatReply, Effects, ResolveRegex
from muster.coordinator.core.model.plan import Plan, PlanRequest, plan_inline
from muster.coordinator.core.model.records import (
    CanaryForgotten,
    ConsumerMemberDeleted,
    ConsumerMemberStored,
    CurrentDeleted,
    CurrentStored,
    GroupEpochDeleted,
    GroupEpochStored,
    HoldsEnded,
    Record,
    RegexDeleted,
    SettingsUnset,
    Shares,
    TargetDeleted,
    TargetEpochDeleted,
    TargetEpochStored,
    TargetStored,
)
from muster.coordinator.core.model.shadow_scoring import ShadowRequest
from tests.support.stories.story import pairs, topic_map

NOTHING_SAID = "none"


@dataclass
class ConsumerSide:
    """What a KIP-848 member remembers: its epoch, and what it was given last."""

    epoch: int = 0
    assigned: Shares = field(default_factory=dict)


TOMBSTONES: dict[str, type[Any]] = {
    "CanaryStored": CanaryForgotten,
    "ConsumerMemberStored": ConsumerMemberDeleted,
    "CurrentStored": CurrentDeleted,
    "GroupEpochStored": GroupEpochDeleted,
    "HoldsStored": HoldsEnded,
    "RegexStored": RegexDeleted,
    "SettingsStored": SettingsUnset,
    "TargetEpochStored": TargetEpochDeleted,
    "TargetStored": TargetDeleted,
}


def stands_for(record: Record) -> tuple[str, ...]:
    """What kind of record it is, and what it is kept under, as far as it is of a KIP-848 group's member."""
    kind, group_id = type(record).__name__, getattr(record, "group_id", "")
    member_id = getattr(record, "member_id", getattr(record, "regex", None))
    return (kind, group_id) if member_id is None else (kind, group_id, member_id)


class ConsumerStage:
    """Mixed into `Stage`, which gives it the shard, the clock and the clients."""

    slow: bool
    of_balance: Any

    def __init__(self) -> None:
        self.plans: dict[str, Plan | None] = {}
        self.sides: dict[tuple[str, str], ConsumerSide] = {}
        self.asked_regexes: dict[str, list[ResolveRegex]] = {}
        self.lives: dict[str, int] = {}
        self.beats: dict[int, tuple[str, str]] = {}
        self.listens: dict[tuple[str, str], int] = {}

    def plan(self, request: PlanRequest) -> Plan | None:
        """What the story said with `target`, once; else what the assignor says."""
        if request.group_id in self.plans:
            return self.plans.pop(request.group_id)
        return plan_inline(request)

    def topic_ids(self, topics: Iterator[str] | list[str]) -> dict[str, bytes]:
        return {topic: topic_id(topic, self.lives.get(topic, 0)) for topic in topics}

    def damage(self: Any, words: list[str]) -> tuple[list[str], tuple[Record, ...]]:
        """What `damaged=KIND:GROUP[:MEMBER]` names is taken off the records; its tombstones, and the other words.

        What `lost=KIND:GROUP` names is taken off, and nobody says so: explanations are not missed.
        """
        named = [word.removeprefix("damaged=").split(":") for word in words if word.startswith("damaged=")]
        lost = [word.removeprefix("lost=").split(":") for word in words if word.startswith("lost=")]
        tombstones = tuple(TOMBSTONES[kind](*key) for kind, *key in named)
        for kind, *key in named + lost:
            self.records = [record for record in self.records if stands_for(record) != (kind, *key)]
        return [word for word in words if not word.startswith(("damaged=", "lost="))], tombstones

    def do_given_consumer(self: Any, words: list[str], lines: list[str]) -> Iterator[str]:
        """given-consumer GROUP epoch=N; then NAME: PARTITION... for each member: a stable group, as loaded."""
        group, *rest = words
        epoch = int(pairs(rest).get("epoch", 10))
        facts: list[Record] = [GroupEpochStored(group, epoch), TargetEpochStored(group, epoch, 0)]
        for line in lines:
            name, _, share = line.partition(":")
            shares = topic_map([word for word in share.split() if "=" not in word])
            said = pairs([word for word in share.split() if "=" in word])
            topics = tuple(sorted(said.get("topics", ",".join(shares)).split(",")))
            had = {topic_id(topic): frozenset(partitions) for topic, partitions in shares.items()}
            held = {topic: dict.fromkeys(sorted(partitions), epoch) for topic, partitions in had.items()}
            facts += [
                ConsumerMemberStored(group, name, said.get("instance"), None, name, "host", topics, None, 60_000, None),
                TargetStored(group, name, had),
                CurrentStored(group, name, epoch, epoch - 1, ConsumerMemberState.STABLE, held, {}),
            ]
            self.side(group, name).epoch = epoch
            self.side(group, name).assigned = had
        self.records += facts
        yield from self.do_reload([], [])

    def do_target(self, words: list[str], lines: list[str]) -> Iterator[str]:
        """target GROUP; then NAME: PARTITION... : what the assignor will say next. `later`: nothing yet."""
        group, *rest = words
        if rest == ["later"]:
            self.plans[group] = None
        else:
            self.plans[group] = plan_from(lines)
        yield "ok"

    def do_enter(self: Any, words: list[str], _lines: list[str]) -> Iterator[str]:
        """A full request with epoch 0."""
        group, name, *rest = words
        self.side(group, name).assigned = {}
        said = {"topics": "foo", "timeout": "60000", "owned": "", "epoch": "0", **pairs(rest)}
        if "regex" in said and "topics" not in pairs(rest):
            said["topics"] = NOTHING_SAID
        yield from self.consumer_heartbeat(group, name, said)

    def do_beat(self: Any, words: list[str], _lines: list[str]) -> Iterator[str]:
        """Liveness only, or what the words add; owned=all says what the member was given last."""
        group, name, *rest = words
        yield from self.consumer_heartbeat(group, name, pairs(rest))

    def do_depart(self: Any, words: list[str], _lines: list[str]) -> Iterator[str]:
        """depart GROUP NAME [epoch=-2]"""
        group, name, *rest = words
        yield from self.consumer_heartbeat(group, name, {"epoch": "-1", **pairs(rest)})

    def do_planned(self: Any, words: list[str], lines: list[str]) -> Iterator[str]:
        """planned GROUP EPOCH [error text]; then NAME: PARTITION... : what was put off has come."""
        group, epoch, *error = words
        plan = None if error else plan_from(lines)
        yield from self.step(events.Planned(group, int(epoch), plan, " ".join(error))) or ["nothing"]

    def do_resolved(self: Any, words: list[str], _lines: list[str]) -> Iterator[str]:
        """resolved GROUP REGEX [first | error text]: the topics that match have been found; `first` as for `answer`."""
        group, regex, *error = words
        asked = self.asked_regexes[regex][0 if error == ["first"] else -1]
        error = [] if error == ["first"] else error
        topics = () if error else match_topics(asked)
        event = events.RegexResolved(group, regex, topics, asked.version, " ".join(error))
        yield from self.obeyed(self.step(event)) or ["nothing"]

    def do_describe_consumer(self: Any, words: list[str], _lines: list[str]) -> Iterator[str]:
        event = events.DescribeConsumerGroup(self.request("describe", self.client(words[0], "*")), words[0])
        yield from self.asked(event)

    def do_ride(self: Any, words: list[str], _lines: list[str]) -> Iterator[str]:
        """Like `beat`, up the stream on which the member listens; heard=yes: its sender has heard what was pushed."""
        group, name, *rest = words
        said = pairs(rest)
        heard = said.pop("heard", "no") == "yes"
        event = self.heartbeat_of(group, name, said)
        request = self.request("ride", self.client(group, name))
        self.beats[request] = (group, name)
        listening = None if heard else self.listens.get((group, name))
        yield from self.asked(events.SessionHeartbeat(request, event, listening))

    def consumer_heartbeat(self: Any, group: str, name: str, said: dict[str, str]) -> list[str]:
        return list(self.asked(self.heartbeat_of(group, name, said)))

    def heartbeat_of(self: Any, group: str, name: str, said: dict[str, str]) -> events.ConsumerHeartbeat:
        client, side = self.client(group, name), self.side(group, name)
        client.instance = said.get("instance", client.instance)
        names, owned = said.get("topics", NOTHING_SAID), said.get("owned", NOTHING_SAID)
        event = events.ConsumerHeartbeat(
            request_id=self.request("beat", client),
            group_id=group,
            member_id=said.get("id", name),
            member_epoch=int(said.get("epoch", side.epoch)),
            group_instance_id=None if client.instance == NOTHING_SAID else client.instance,
            rack_id=said.get("rack"),
            client_software=said.get("software", ""),
            rebalance_timeout_ms=int(said.get("timeout", -1)),
            topic_names=None if names == NOTHING_SAID else tuple(word for word in names.split(",") if word),
            topic_regex=said.get("regex"),
            server_assignor=said.get("assignor"),
            owned=None if owned == NOTHING_SAID else side.assigned if owned == "all" else owned_from(owned),
            client_id=said.get("client", name),
            client_host="host",
            ready=owned_from(said["ready"]) if "ready" in said else None,
            rights=self.rights_of(name),
            connection=int(said.get("connection", 0)),
        )
        self.beats[event.request_id] = (group, name)
        return event

    def learn(self, request: int, reply: ConsumerHeartbeatReply) -> None:
        if reply.code:
            return
        side = self.side(*self.beats[request])
        side.epoch = max(reply.member_epoch, 0)
        if reply.assignment is not None:
            side.assigned = reply.assignment

    def put_off(self, effects: Effects) -> Iterator[str]:
        for request in effects.plans:
            if isinstance(request, ShadowRequest):
                words = " ".join(candidate.word for candidate in request.candidates)
                yield f"put off: shadow {request.group_id} #{request.entry.number} {words}"
                continue
            if self.of_balance(request) and not self.slow:
                continue
            yield f"put off: plan {request.group_id} epoch={request.epoch} {request.assignor}"
        for regex in effects.regexes:
            self.asked_regexes.setdefault(regex.regex, []).append(regex)
            yield f"put off: resolve {regex.group_id} {regex.regex}"

    def side(self, group: str, name: str) -> ConsumerSide:
        return self.sides.setdefault((group, name), ConsumerSide())


def topic_id(topic: str, life: int = 0) -> bytes:
    return topic.encode().ljust(15, b"\0") + bytes([life])


def plan_from(lines: list[str]) -> Plan:
    shares = (line.partition(":") for line in lines)
    return {
        name: {topic: tuple(sorted(ps)) for topic, ps in topic_map(share.split()).items()} for name, _, share in shares
    }


def owned_from(text: str) -> Shares:
    owned = topic_map([word for word in text.split(",") if word])
    return {topic_id(topic): frozenset(partitions) for topic, partitions in owned.items()}
