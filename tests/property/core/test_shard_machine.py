"""Whatever happens to a shard, in whatever order, the rules hold (checks: tests/support/shard_checks.py)."""

from collections.abc import Iterable

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from muster.assignors.data.consumer_protocol import Subscription, encode_assignment, encode_subscription
from muster.coordinator.core.model import events
from muster.coordinator.core.model.effects import Effects, JoinReply, OffsetCommitReply, Reply
from muster.coordinator.core.model.records import Record
from muster.coordinator.core.model.types import CommittedOffset, GroupState, Limits, MemberIdentity, Protocol, TimerKey
from muster.coordinator.core.shard import Shard
from muster.coordinator.errors import ErrorCode
from tests.support.shard_checks import check_shard
from tests.support.stories.script import hard_state

GROUPS = st.sampled_from(["g", "g", "g", "h"])
INSTANCES = st.sampled_from([None, None, None, "i1", "i2"])
OFFERS = st.sampled_from([("range",), ("range", "sticky"), ("sticky", "range"), ("sticky",)])
TOPICS = st.sampled_from([("t",), ("t", "u")])
SESSIONS = st.sampled_from([6_000, 10_000, 30_000])
SHARES = st.lists(st.integers(0, 3), max_size=4, unique=True)
INDEX = st.integers(0, 11)
SELDOM = st.sampled_from([False, False, False, True])

Caller = tuple[str, str | None, int]
"""member id, group instance id, generation: what a client believes."""


class ShardMachine(RuleBasedStateMachine):
    """Clients of all kinds, lawful and confused, on one shard with a virtual clock."""

    @initialize(
        delay=st.sampled_from([0, 3_000]), size=st.sampled_from([2, 100]), ledger=st.sampled_from([1, 3, 10_000])
    )
    def start(self, delay: int, size: int, ledger: int) -> None:
        self.limits = Limits(
            initial_rebalance_delay_ms=delay,
            new_member_join_timeout_ms=40_000,
            max_group_size=size,
            offsets_retention_ms=60_000,
            offsets_retention_check_ms=50_000,
            ledger_max_entries=ledger,
        )
        self.now_ms = 1_000
        self.timers: dict[TimerKey, int] = {}
        self.open: dict[int, events.Request] = {}
        self.forgotten: set[int] = set()
        self.callers: dict[str, list[Caller]] = {"g": [("ghost", None, 1)], "h": [("ghost", None, 1)]}
        self.generations: dict[str, int] = {}
        self.next_id = 0
        self.records: list[Record] = []
        self.mirror = Shard(self.limits, 0)
        self.shard = Shard(self.limits, 0)
        self.step(events.Loaded())
        self.everyone_is_served("g", ["i1", None, None][: size + 1], [[0], [1], [2, 3]])

    # -- members

    @rule(group=GROUPS, instances=st.lists(INSTANCES, max_size=2), shares=st.lists(SHARES, max_size=3))
    def everyone_is_served(self, group: str, instances: list[str | None], shares: list[list[int]]) -> None:
        """A lawful stretch, so that later events meet groups in every state: newcomers join, all sync."""
        for instance in instances:
            self.join(group, ("", instance, -1), ("range", "sticky"), ("t",), 10_000, True)
        self.everyone_rejoins(group)
        live = self.shard.groups.get(group)
        while live is not None and live.state is GroupState.PREPARING_REBALANCE:
            self.advance_to(self.timers[live.join_timer])
        self.everyone_syncs(group, shares)

    @rule(group=GROUPS, instance=INSTANCES, offer=OFFERS, topics=TOPICS, session=SESSIONS, old=st.booleans())
    def newcomer(
        self, group: str, instance: str | None, offer: tuple[str, ...], topics: tuple[str, ...], session: int, old: bool
    ) -> None:
        self.join(group, ("", instance, -1), offer, topics, session, old)

    @rule(group=GROUPS, index=INDEX, offer=OFFERS, topics=TOPICS, session=SESSIONS)
    def rejoin(self, group: str, index: int, offer: tuple[str, ...], topics: tuple[str, ...], session: int) -> None:
        self.join(group, self.caller(group, index), offer, topics, session, False)

    @rule(group=GROUPS)
    def everyone_rejoins(self, group: str) -> None:
        """What makes deep states likely: all members that are called back come."""
        live = self.shard.groups.get(group)
        for member in list(live.members.values()) if live and live.state is GroupState.PREPARING_REBALANCE else []:
            if not member.joining:
                offer = tuple(protocol.name for protocol in member.protocols)
                self.join(group, (member.id, member.group_instance_id, 0), offer, ("t",), 10_000, False)

    @rule(group=GROUPS, index=INDEX, shares=st.lists(SHARES, max_size=3))
    def sync(self, group: str, index: int, shares: list[list[int]]) -> None:
        self.send_sync(group, self.caller(group, index), shares)

    @rule(group=GROUPS, shares=st.lists(SHARES, min_size=1, max_size=3))
    def everyone_syncs(self, group: str, shares: list[list[int]]) -> None:
        live = self.shard.groups.get(group)
        for member in list(live.members.values()) if live and live.state is GroupState.COMPLETING_REBALANCE else []:
            self.send_sync(group, (member.id, member.group_instance_id, live.generation), shares)

    @rule(group=GROUPS, index=INDEX)
    def heartbeat(self, group: str, index: int) -> None:
        member_id, instance, generation = self.caller(group, index)
        self.ask(events.Heartbeat(self.request(), group, member_id, instance, generation))

    @rule(group=GROUPS, indexes=st.lists(INDEX, min_size=1, max_size=3), operator=st.sampled_from(["", "", "ops"]))
    def leave(self, group: str, indexes: list[int], operator: str) -> None:
        callers = [self.caller(group, index) for index in indexes]
        who = tuple(MemberIdentity(member_id, instance) for member_id, instance, _ in callers)
        self.ask(events.LeaveGroup(self.request(), group, who, operator))

    @rule(group=GROUPS, really=SELDOM)
    def operator_clears_the_group(self, group: str, really: bool) -> None:
        if really:
            self.ask(events.LeaveGroup(self.request(), group, (), "ops", everyone=True))

    @precondition(lambda self: self.open)
    @rule(data=st.data())
    def connection_breaks(self, data: st.DataObject) -> None:
        request_id = data.draw(st.sampled_from(sorted(self.open)))
        group = self.open.pop(request_id).group_id
        self.forgotten.add(request_id)
        self.step(events.Forget(group, request_id))

    # -- offsets and groups

    @rule(group=GROUPS, index=INDEX, topic=st.sampled_from("tuv"))
    def commit(self, group: str, index: int, topic: str) -> None:
        member_id, instance, generation = self.caller(group, index)
        live = self.shard.groups.get(group)
        entitled = live is not None and (
            (generation < 0 and live.state is GroupState.EMPTY)
            or (
                member_id in live.members
                and (instance is None or live.static.get(instance) == member_id)
                and generation == live.generation == live.members[member_id].generation
                and live.state is not GroupState.COMPLETING_REBALANCE
            )
        )
        request = events.OffsetCommit(
            self.request(), group, member_id, instance, generation, {(topic, 0): CommittedOffset(self.next_id)}
        )
        reply = self.ask(request)
        assert isinstance(reply, OffsetCommitReply)
        accepted = reply.code is ErrorCode.NONE
        # KIP-345, KAFKA: a fenced, unknown or old member never moves a position.
        assert accepted == (entitled or (live is None and generation < 0))

    @rule(group=GROUPS)
    def simple_commit(self, group: str) -> None:
        positions = {("v", 1): CommittedOffset(self.next_id)}
        self.ask(events.OffsetCommit(self.request(), group, "", None, -1, positions))

    @rule(group=GROUPS)
    def delete(self, group: str) -> None:
        self.ask(events.DeleteGroup(self.request(), group))

    @rule(group=GROUPS)
    def plan_owners(self, group: str) -> None:
        self.ask(events.DescribeGroup(self.request(), group))
        self.ask(events.ExplainGroup(self.request(), group))
        self.ask(events.OffsetFetch(self.request(), group, None))
        self.ask(events.OffsetDelete(self.request(), group, (("v", 1),)))

    # -- time and failure

    @rule(ms=st.sampled_from([1, 1_000, 3_000, 5_000, 15_000, 50_000]))
    def advance(self, ms: int) -> None:
        self.advance_to(self.now_ms + ms)

    def advance_to(self, until_ms: int) -> None:
        while due := sorted((at_ms, key) for key, at_ms in self.timers.items() if at_ms <= until_ms):
            at_ms, key = due[0]
            del self.timers[key]
            self.now_ms = at_ms
            self.step(events.TimerFired(key, at_ms))
        self.now_ms = until_ms

    @rule(really=SELDOM)
    def crash_and_reload(self, really: bool) -> None:
        """Nobody who was parked hears anything; the log brings the rest back."""
        if not really:
            return
        self.forgotten |= self.open.keys()
        self.open.clear()
        self.reload()

    @rule(really=SELDOM)
    def move_away_and_back(self, really: bool) -> None:
        if not really:
            return
        self.step(events.Unload())
        assert not self.open, "a parked request was not answered"
        assert not self.timers
        self.reload()

    @invariant()
    def the_rules_hold(self) -> None:
        if not hasattr(self, "shard"):
            return
        check_shard(self.shard)
        assert self.timers == self.shard.state.deadlines
        assert hard_state(self.mirror) == hard_state(self.shard)
        assert set(self.open) == set(self.parked()) - self.forgotten

    # -- machinery

    def caller(self, group: str, index: int) -> Caller:
        """Someone who is in the group and knows where it stands, or someone who was once answered."""
        live = self.shard.groups.get(group)
        members = list(live.members.values()) if live else []
        known = [(m.id, m.group_instance_id, live.generation) for m in members if live]
        known += self.callers[group][-4:]
        return known[index % len(known)]

    def request(self) -> int:
        self.next_id += 1
        return self.next_id

    def join(
        self, group: str, who: Caller, offer: Iterable[str], topics: tuple[str, ...], session: int, old: bool
    ) -> None:
        member_id, instance, _ = who
        blob = encode_subscription(Subscription(version=1, topics=topics))
        request = events.JoinGroup(
            request_id=self.request(),
            group_id=group,
            member_id=member_id,
            group_instance_id=instance,
            client_id="c",
            client_host="host",
            session_timeout_ms=session,
            rebalance_timeout_ms=15_000,
            protocol_type="consumer",
            protocols=tuple(Protocol(name, blob) for name in offer),
            fresh_id=str(self.next_id),
            require_known_member_id=not old,
            supports_skip_assignment=not old,
        )
        self.ask(request)

    def send_sync(self, group: str, who: Caller, shares: list[list[int]]) -> None:
        member_id, instance, generation = who
        live = self.shard.groups.get(group)
        members = list(live.members) if live else []
        plan = tuple(
            (member, encode_assignment({"t": sorted(share)})) for member, share in zip(members, shares, strict=False)
        )
        self.ask(events.SyncGroup(self.request(), group, member_id, instance, generation, None, None, plan))

    def ask(self, request: events.Request) -> Reply | None:
        """The reply, or None when the request is parked."""
        self.open[request.request_id] = request
        replies = dict(self.step(request).replies)
        return replies.get(request.request_id)

    def step(self, event: events.Event) -> Effects:
        effects = self.shard.step(event, self.now_ms)
        self.records += effects.records
        for record in effects.records:
            self.mirror.apply(record)
        for key, at_ms in effects.timers.items():
            if at_ms is None:
                self.timers.pop(key, None)
            else:
                assert at_ms >= self.now_ms
                self.timers[key] = at_ms
        for request_id, reply in effects.replies:
            self.hear(request_id, reply)
        self.generations_grow()
        return effects

    def hear(self, request_id: int, reply: Reply) -> None:
        if request_id in self.forgotten:
            return
        assert request_id in self.open, f"request {request_id} was answered twice"
        assert reply.code is ErrorCode.NONE or reply.message, "a refusal says why"
        request = self.open.pop(request_id)
        if isinstance(request, events.JoinGroup) and isinstance(reply, JoinReply) and reply.member_id:
            who = (reply.member_id, request.group_instance_id, reply.generation)
            self.callers[request.group_id].append(who)

    def generations_grow(self) -> None:
        """A group's generation never falls while the process lives; only a deleted group starts anew."""
        live = {group.id: group.generation for group in self.shard.groups.values()}
        for group_id, generation in live.items():
            assert generation >= self.generations.get(group_id, 0)
        self.generations = live

    def parked(self) -> list[int]:
        members = [member for group in self.shard.groups.values() for member in group.members.values()]
        waiting = [request for member in members for request in (member.join_request, member.sync_request)]
        return [request for request in waiting if request is not None]

    def reload(self) -> None:
        self.timers.clear()
        self.shard, self.mirror = self.mirror, Shard(self.limits, 0)
        for record in self.records:
            self.mirror.apply(record)
        self.generations = {}
        self.step(events.Loaded())


TestShardMachine = ShardMachine.TestCase
TestShardMachine.settings = settings(
    max_examples=100,
    stateful_step_count=60,
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)
