"""Runs stories of the protocol against a real `Shard` on a virtual clock.

A story is a text file: a command, `----`, and the trace it must leave; blocks are separated by an empty line, `#`
starts a comment. `pytest --rewrite` writes the real traces back; read the diff before you commit it.

After every command the records so far are replayed into a second shard, whose hard state must equal the live one.
"""

import shlex
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from assignors.user_data import encode_assignment
from coordinator.core import events
from coordinator.core.effects import CentralReply, ConsumerHeartbeatReply, Effects, PushReply
from coordinator.core.plan import Plan, PlanRequest, planned
from coordinator.core.records import Record
from coordinator.core.shard import Shard
from coordinator.core.types import CommittedOffset, Limits, MemberIdentity, TimerKey
from coordinator.errors import ErrorCode
from tests.support.central_stage import CentralStage
from tests.support.consumer_stage import ConsumerStage
from tests.support.observed_stage import ObservedStage
from tests.support.story import milliseconds, pairs, protocols_from, repeated, topic_map, topic_partition
from tests.support.trace import describe_record, describe_reply

NO_REPLY = "parked"


@dataclass
class Client:
    """What a member remembers between its requests."""

    name: str
    member_id: str = ""
    generation: int = -1
    instance: str | None = None
    options: dict[str, str] = field(default_factory=dict)
    """How it joins: what a story said once holds until it says otherwise."""


@dataclass
class Stage(ConsumerStage, CentralStage, ObservedStage):
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
    asked_plans: dict[str, PlanRequest] = field(default_factory=dict)

    def __post_init__(self) -> None:
        ConsumerStage.__init__(self)
        CentralStage.__init__(self)
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
        for anew in [topic for topic in options.pop("anew", "").split(",") if topic]:
            self.lives[anew] = self.lives.get(anew, 0) + 1
        counts = {topic: int(count) for topic, count in options.items()}
        changed = events.TopicsChanged(counts, deleted, self.topic_ids(list(counts)))
        yield from self.obeyed(self.step(changed)) or ["ok"]

    def do_advance(self, words: list[str], _lines: list[str]) -> Iterator[str]:
        """Let time pass: 500ms, 7d. What comes due fires; a retention check that finds nothing is silent."""
        until_ms = self.now_ms + milliseconds(words[0])
        quiet = True
        while due := sorted((at, key) for key, at in self.timers.items() if at <= until_ms):
            at_ms, key = due[0]
            del self.timers[key]
            self.now_ms = at_ms
            lines = self.obeyed(self.step(events.TimerFired(key, at_ms)))
            if lines or key[0] != "retention":
                yield f"{at_ms}ms timer {' '.join(key)}"
                quiet = False
            yield from ("  " + line for line in lines)
        self.now_ms = until_ms
        if quiet:
            yield "quiet"

    def do_reload(self, words: list[str], _lines: list[str]) -> Iterator[str]:
        """The process dies and the log is replayed: what was parked gets no answer. `reload t=2` finds that catalog."""
        self.shard = self.replayed()
        self.timers.clear()
        self.requests.clear()
        self.streams.clear()
        if words:
            counts = {topic: int(count) for topic, count in pairs(words).items()}
            yield from self.step(events.TopicsChanged(counts, ids=self.topic_ids(list(counts))))
        yield from self.step(events.Loaded()) or ["ok"]

    def do_unload(self, _words: list[str], _lines: list[str]) -> Iterator[str]:
        yield from self.obeyed(self.step(events.Unload())) or ["ok"]

    def do_timers(self, _words: list[str], _lines: list[str]) -> Iterator[str]:
        """What groups wait for, soonest first."""
        waiting = sorted((at, key) for key, at in self.timers.items() if key != ("retention",))
        yield from [f"{at}ms {' '.join(key)}" for at, key in waiting] or ["none"]

    # -- members

    def do_given(self, words: list[str], lines: list[str]) -> Iterator[str]:
        """given GROUP [options]; then NAME: PARTITION... [options] for each member, the leader first.

        The group as it is once all of them have joined together and fetched their shares.
        """
        group, *options = words
        shares = {}
        for name, _, rest in (line.partition(":") for line in lines):
            own = [word for word in rest.split() if "=" in word]
            shares[name] = " ".join(word for word in rest.split() if "=" not in word)
            list(self.do_join([group, name, *options, *own], []))
        while ("join", group) in self.timers:
            list(self.do_advance([f"{self.timers['join', group] - self.now_ms}ms"], []))
        plan = [f"{name}: {share}" for name, share in shares.items()]
        for name in shares:
            list(self.do_sync([group, name], plan))
        described = list(self.do_describe([group], []))
        yield from (line.replace("reply describe:", f"{self.now_ms}ms") for line in described)

    def do_restart(self, words: list[str], _lines: list[str]) -> Iterator[str]:
        """The client's process is started anew: it forgets its member id and generation, not its instance id."""
        client = self.client(*words)
        client.member_id, client.generation = "", -1
        yield "ok"

    def do_join(self, words: list[str], lines: list[str]) -> Iterator[str]:
        """Both steps of a join: a client that is sent back with an id comes again with it."""
        group, name, *rest = words
        client = self.client(group, name)
        known = client.member_id
        trace = list(self.do_ask(words, lines))
        if not known and client.member_id and any("MEMBER_ID_REQUIRED" in line for line in trace):
            records = [line for line in trace if line.startswith(("append", "ledger"))]
            trace = [*records, *self.do_ask([group, name, *rest], lines)]
        yield from trace

    def do_ask(self, words: list[str], _lines: list[str]) -> Iterator[str]:
        """One JoinGroup request, no more."""
        group, name, *rest = words
        client = self.client(group, name)
        said = pairs(rest)
        client.instance = instance_from(said, client)
        options = client.options = {**client.options, **said}
        once = {word: options.pop(word, "") for word in ("id", "reason")}
        prefix = client.instance or name
        self.drawn[prefix] += 1
        event = events.JoinGroup(
            request_id=self.request("join", client),
            group_id=group,
            member_id=once["id"] or client.member_id,
            group_instance_id=client.instance,
            client_id=name,
            client_host="host",
            session_timeout_ms=int(options.get("session", 10_000)),
            rebalance_timeout_ms=int(options.get("rebalance", 60_000)),
            protocol_type=options.get("type", "consumer"),
            protocols=protocols_from(options),
            fresh_id=str(self.drawn[prefix]),
            reason=once["reason"],
            require_known_member_id=int(options.get("v", 9)) >= 4,
            supports_skip_assignment=int(options.get("v", 9)) >= 9,
            remote_assignor=options.get("remote", ""),
            client_software=options.get("software", ""),
        )
        yield from self.asked(event)

    def do_sync(self, words: list[str], lines: list[str]) -> Iterator[str]:
        group, name, *rest = words
        options = pairs(rest)
        client = self.client(group, name)
        plan = dict(line.split(":", 1) for line in lines)
        event = events.SyncGroup(
            request_id=self.request("sync", client),
            group_id=group,
            member_id=options.get("id", client.member_id),
            group_instance_id=instance_from(options, client),
            generation=int(options.get("generation", client.generation)),
            protocol_type=options.get("type"),
            protocol_name=options.get("protocol"),
            assignments=tuple(
                (self.client(group, who.strip()).member_id, encode_assignment(topic_map(share.split())))
                for who, share in plan.items()
            ),
            snapshot=repeated(options.get("snapshot", "")).encode(),
            leader_state=repeated(options.get("state", "")),
            scheduled_delay_ms=milliseconds(options.get("delay", "0ms")),
        )
        yield from self.asked(event)

    def do_planner(self, words: list[str], _lines: list[str]) -> Iterator[str]:
        """planner later: every plan is put off; planner now: built-in assignors answer at once."""
        self.slow = words == ["later"]
        yield "ok"

    def plan(self, request: PlanRequest) -> Plan | None:
        return None if self.slow else super().plan(request)

    def do_answer(self, words: list[str], _lines: list[str]) -> Iterator[str]:
        """answer GROUP [error=WHY] [epoch=N]: what the assignor makes of the plan that was put off."""
        group, *rest = words
        options = pairs(rest)
        asked = self.asked_plans[group]
        made = None if "error" in options else planned(asked)
        epoch = int(options.get("epoch", asked.epoch))
        yield from self.obeyed(self.step(events.Planned(group, epoch, made, options.get("error", "")))) or ["quiet"]

    def do_heartbeat(self, words: list[str], _lines: list[str]) -> Iterator[str]:
        group, name, *rest = words
        options = pairs(rest)
        client = self.client(group, name)
        yield from self.asked(
            events.Heartbeat(
                self.request("heartbeat", client),
                group,
                options.get("id", client.member_id),
                instance_from(options, client),
                int(options.get("generation", client.generation)),
            )
        )

    def do_listen(self, words: list[str], _lines: list[str]) -> Iterator[str]:
        """The client's session stream asks to be told what its next heartbeat would hear."""
        group, name, *rest = words
        options = pairs(rest)
        client = self.client(group, name)
        request = self.request("listen", client)
        consumer = group in self.shard.consumer_groups
        if consumer:
            self.beats[request], self.listens[group, name] = (group, name), request
        generation = self.side(group, name).epoch if consumer else client.generation
        member_id = name if consumer else client.member_id
        yield from self.asked(
            events.Listen(
                request,
                group,
                options.get("id", member_id),
                instance_from(options, client),
                int(options.get("generation", generation)),
                consumer,
            )
        )

    def do_stream_lost(self, words: list[str], _lines: list[str]) -> Iterator[str]:
        """stream-lost GROUP NAME grace=TIME: the client's session stream breaks."""
        group, name, *rest = words
        yield from self.do_forget([group, name], [])
        grace_ms = milliseconds(pairs(rest)["grace"])
        yield from self.step(events.StreamLost(group, self.client(group, name).member_id, grace_ms))

    def do_leave(self, words: list[str], _lines: list[str]) -> Iterator[str]:
        """leave GROUP NAME... [reason=..] [by=OPERATOR]; NAME@INSTANCE names the instance too, @INSTANCE only that."""
        group, *rest = words
        options = pairs([word for word in rest if "=" in word])
        leavers = []
        for word in [word for word in rest if "=" not in word]:
            name, _, instance = word.partition("@")
            member_id = self.client(group, name).member_id or name if name else ""
            leavers.append(MemberIdentity(member_id, instance or None, options.get("reason", "")))
        event = events.LeaveGroup(
            self.request("leave", self.client(group, "*")),
            group,
            tuple(leavers),
            operator=options.get("by", ""),
            everyone="by" in options and not leavers,
        )
        yield from self.obeyed(self.asked(event))

    def do_forget(self, words: list[str], _lines: list[str]) -> Iterator[str]:
        """The connection of the client's parked request breaks."""
        group, name = words
        client = self.client(group, name)
        parked = max(
            request for request, (_, who) in self.requests.items() if who is client and request not in self.answered
        )
        del self.requests[parked]  # whatever is said to it now, nobody hears
        yield from self.step(events.Forget(group, parked)) or ["ok"]

    # -- offsets

    def do_commit(self, words: list[str], _lines: list[str]) -> Iterator[str]:
        """commit GROUP NAME topic-partition=offset[:metadata] ...; NAME `-` is a simple consumer."""
        group, name, *rest = words
        simple = name == "-"
        client = self.client(group, name)
        positions = [word for word in rest if "-" in word.split("=")[0]]
        options = pairs([word for word in rest if word not in positions])
        offsets = []
        for word in positions:
            where, _, what = word.partition("=")
            offset, _, metadata = what.partition(":")
            offsets.append((*topic_partition(where), CommittedOffset(int(offset), -1, repeated(metadata))))
        event = events.OffsetCommit(
            self.request("commit", client),
            group,
            "" if simple else options.get("id", client.member_id),
            None if simple else instance_from(options, client),
            int(options.get("generation", -1 if simple else client.generation)),
            tuple(offsets),
            retention_ms=milliseconds(options["retention"]) if "retention" in options else None,
            missing_group_code_is_illegal_generation=int(options.get("v", 9)) < 9,
        )
        yield from self.asked(event)

    def do_fetch(self, words: list[str], _lines: list[str]) -> Iterator[str]:
        group, *rest = words
        wanted = None if rest == ["all"] else tuple(topic_partition(word) for word in rest)
        yield from self.asked(events.OffsetFetch(self.request("fetch", self.client(group, "*")), group, wanted))

    def do_delete_offsets(self, words: list[str], _lines: list[str]) -> Iterator[str]:
        group, *rest = words
        wanted = tuple(topic_partition(word) for word in rest)
        yield from self.asked(
            events.OffsetDelete(self.request("delete-offsets", self.client(group, "*")), group, wanted)
        )

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
        yield from self.asked(events.DeleteGroup(request, words[0], "elsewhere" in words))

    def do_explain(self, words: list[str], _lines: list[str]) -> Iterator[str]:
        options = pairs(words[1:])
        event = events.ExplainGroup(
            self.request("explain", self.client(words[0], "*")),
            words[0],
            int(options.get("limit", 0)),
            int(options.get("generation", 0)),
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

    def step(self, event: events.Event) -> list[str]:
        effects = self.shard.step(event, self.now_ms)
        self.records += effects.records
        for key, at_ms in effects.timers.items():
            if at_ms is None:
                self.timers.pop(key, None)
            else:
                self.timers[key] = at_ms
        self.asked_plans.update({asked.group_id: asked for asked in effects.plans})
        return [*map(describe_record, effects.records), *self.put_off(effects), *self.replies(effects)]

    def replies(self, effects: Effects) -> Iterator[str]:
        for request, reply in effects.replies:
            if request not in self.requests:
                continue
            assert request not in self.answered, f"request {request} answered twice"
            self.answered.add(request)
            kind, client = self.requests[request]
            if isinstance(reply, CentralReply):
                yield from self.heard_central(request, reply)
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
        shard.state.topic_names, shard.state.topics_version = catalog.topic_names, catalog.topics_version
        for record in self.records:
            shard.apply(record)
        return shard

    def replay_equals_live(self) -> None:
        assert hard_state(self.replayed()) == hard_state(self.shard)


def hard_state(shard: Shard) -> tuple[object, object, object, object, object]:
    """What must survive: groups of every kind, offsets, ledger."""
    groups = {group.id: (group.stored, dict(group.offsets)) for group in shard.groups.values()}
    offsets = {group_id: dict(kept) for group_id, kept in shard.state.offsets.items() if kept}
    ledgers = {
        name: (dict(ledger.entries), dict(ledger.settlements), ledger.delay) for name, ledger in shard.ledgers.items()
    }
    return groups, ledgers, offsets, dict(shard.consumer_groups), dict(shard.central_groups)


def setting(text: str) -> int | str | tuple[str, ...]:
    if text.isdigit():
        return int(text)
    return tuple(text.split(",")) if "," in text else text


def instance_from(options: dict[str, str], client: Client) -> str | None:
    """instance=NAME, or instance=none for a request that does not name it; else what the client was started with."""
    instance = options.get("instance", client.instance)
    return None if instance == "none" else instance
