"""Whatever members of both protocols do, in whatever order, the rules of a KIP-848 group hold.

After every step the story runner holds the replayed log against the live state.
"""

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from muster.coordinator.core.consumer.group import AWAY, ConsumerGroup, ConsumerGroupState, cells
from muster.coordinator.core.model.types import Outcome
from muster.coordinator.core.shard import Shard
from muster.coordinator.runtime.kafka_records import decode_group, encode
from muster.coordinator.runtime.ports import KeyValue
from muster.coordinator.runtime.record_fields import SkippedRecord
from tests.support.stories.script import Stage, hard_state

MEMBERS = st.sampled_from(["a", "b", "c"])
OLDER = st.sampled_from(["x", "y"])
TOPICS = st.sampled_from(["t", "t,u", "u", ""])
OWNED = st.sampled_from(["owned=all", "owned=all", "", "owned=", "owned=t-0", "owned=t-0,t-1,t-2,t-3"])
EPOCHS = st.sampled_from(["", "", "", "epoch=1", "epoch=2", "epoch=99"])
ROUNDS = 30
"""Of a second each: patterns are looked up every ten seconds at most."""


class ConsumerMachine(RuleBasedStateMachine):
    @initialize(interval=st.sampled_from([0, 1_000]), policy=st.sampled_from(["bidirectional", "disabled"]))
    def start(self, interval: int, policy: str) -> None:
        self.stage = Stage()
        self.say(f"limits consumer_assignment_interval_ms={interval} consumer_migration_policy={policy}")
        self.say("topics t=4 u=2")
        self.highest = 0

    def say(self, *command: str) -> list[str]:
        return self.stage.run(list(command))

    # -- members of the consumer protocol

    @rule(name=MEMBERS, topics=TOPICS, timeout=st.sampled_from([5_000, 60_000]))
    def enter(self, name: str, topics: str, timeout: int) -> None:
        self.say(f"enter g {name} topics={topics} timeout={timeout}")

    @rule(name=MEMBERS, owned=OWNED, epoch=EPOCHS)
    def beat(self, name: str, owned: str, epoch: str) -> None:
        self.say(f"beat g {name} {owned} {epoch}")

    @rule(name=MEMBERS, topics=TOPICS, assignor=st.sampled_from(["range", "uniform"]))
    def change(self, name: str, topics: str, assignor: str) -> None:
        self.say(f"beat g {name} topics={topics} assignor={assignor}")

    @rule(name=MEMBERS)
    def depart(self, name: str) -> None:
        self.say(f"depart g {name}")

    @rule(process=st.sampled_from(["i1", "i2"]))
    def static_member_starts(self, process: str) -> None:
        self.say(f"enter g {process} topics=t instance=i")

    @rule(process=st.sampled_from(["i1", "i2"]), epoch=st.sampled_from([-1, -2, -2]))
    def static_member_goes(self, process: str, epoch: int) -> None:
        self.say(f"depart g {process} instance=i epoch={epoch}")

    @rule(name=MEMBERS, regex=st.sampled_from(["t.*", "[tu]", ""]))
    def subscribe_by_pattern(self, name: str, regex: str) -> None:
        self.say(f"beat g {name} regex={regex}")

    @rule()
    def patterns_are_resolved(self) -> None:
        for regex in list(self.stage.asked_regexes):
            self.say(f"resolved g {regex}")
        self.stage.asked_regexes.clear()

    # -- members of the classic protocol

    @rule(name=OLDER, owned=st.sampled_from(["", "t-0", "t-0,t-1,u-0"]))
    def join(self, name: str, owned: str) -> None:
        self.say(f"join g {name} topics=t,u owned={owned} session=20000 rebalance=20000")

    @rule(name=OLDER)
    def sync(self, name: str) -> None:
        self.say(f"sync g {name}", f"{name}: t-0")

    @rule(name=OLDER)
    def classic_heartbeat(self, name: str) -> None:
        self.say(f"heartbeat g {name}")

    @rule(name=OLDER)
    def leave(self, name: str) -> None:
        self.say(f"leave g {name}")

    # -- the world

    @rule(names=st.sampled_from(["", "a ghost", "@i"]))
    def operator_removes(self, names: str) -> None:
        self.say(f"leave g {names} by=ops")

    @rule(name=MEMBERS)
    def commit(self, name: str) -> None:
        self.say(f"commit g {name} id={name} generation={self.stage.side('g', name).epoch} t-0=5 t-1=6")

    @rule(ms=st.sampled_from([1, 1_000, 6_000, 21_000, 46_000]))
    def advance(self, ms: int) -> None:
        self.say(f"advance {ms}ms")

    @rule(topics=st.sampled_from(["t=4 u=2", "t=6 u=2", "t=4 deleted=u", "t=4 u=2 anew=u"]))
    def topics_change(self, topics: str) -> None:
        self.say(f"topics {topics}")

    @rule()
    def plan_takes_long(self) -> None:
        self.say("target g later")

    @rule(error=st.sampled_from(["", "it failed"]))
    def plan_arrives(self, error: str) -> None:
        group = self.group()
        if group is None or not group.progress.planning:
            return
        shares = [f"{name}: " for name in group.members]
        self.say(f"planned g {group.progress.asked} {error}", *shares)

    @rule()
    def reload(self) -> None:
        self.say("reload")

    # -- what must hold

    def group(self) -> ConsumerGroup | None:
        return self.stage.shard.consumer_groups.get("g")

    @invariant()
    def an_id_is_one_kind_of_group(self) -> None:
        if hasattr(self, "stage"):
            assert not self.stage.shard.groups.keys() & self.stage.shard.consumer_groups.keys()

    @invariant()
    def nobody_holds_what_another_holds(self) -> None:
        group = self.group() if hasattr(self, "stage") else None
        for member in group.members.values() if group else ():
            for cell in cells(member.holds):
                assert group is not None
                assert group.owner(*cell) == member.id

    @invariant()
    def epochs_are_in_order(self) -> None:
        group = self.group() if hasattr(self, "stage") else None
        if group is None:
            return
        assert group.target_epoch <= group.epoch
        assert group.unsettled == {member.id for member in group.members.values() if not group.has_its_target(member)}
        assert all(member.epoch == AWAY or 0 <= member.epoch <= group.target_epoch for member in group.members.values())

    @invariant()
    def everyone_is_watched_and_nobody_else(self) -> None:
        group = self.group() if hasattr(self, "stage") else None
        if group is None:
            return
        deadlines = self.stage.shard.state.deadlines
        assert all(group.session_timer(member_id) in deadlines for member_id in group.members)
        assert {key[2] for key in deadlines if len(key) == 3 and key[1] == "g"} <= group.members.keys()
        waits = group.epoch > group.target_epoch and bool(group.members) and not group.progress.planning
        assert waits == (group.assign_timer in deadlines)

    @invariant()
    def every_epoch_with_a_target_is_explained(self) -> None:
        group = self.group() if hasattr(self, "stage") else None
        ledger = self.stage.shard.ledgers.get("g") if hasattr(self, "stage") else None
        if group is None or ledger is None:
            return
        for entry in ledger.entries.values():
            moved_nothing = entry.outcome is Outcome.MEMBER_CHANGED
            assert entry.generation == entry.previous_generation + (not moved_nothing)
            assert entry.detail
            assert entry.outcome is not Outcome.EMPTIED or not entry.members
        for settlement in ledger.settlements.values():
            assert settlement.number in ledger.entries
            assert 0 <= sum(ms for _, _, ms in settlement.unowned) <= settlement.unowned_partition_ms

    def teardown(self) -> None:
        """When members of the new protocol do what they should, everyone soon has its target."""
        group = self.group() if hasattr(self, "stage") else None
        if hasattr(self, "stage"):
            self.compaction_changes_nothing()
        if group is None or any(member.classic is not None for member in group.members.values()):
            return
        self.stage.plans.clear()
        for _ in range(ROUNDS):
            self.one_round(group)
        assert group.state in (ConsumerGroupState.STABLE, ConsumerGroupState.EMPTY)
        for member in group.members.values():
            held = set(cells(member.assigned))
            assert held == set(cells(group.target_of(member)))

    def compaction_changes_nothing(self) -> None:
        """Only the newest record of each key, by its bytes: the state they give is the same."""
        latest: dict[bytes, KeyValue] = {}
        for stored in (KeyValue(*entry) for entry in encode(self.stage.records).groups):
            latest.pop(stored.key, None)
            latest[stored.key] = stored
        shard = Shard(self.stage.limits, 0)
        for stored in latest.values():
            record = decode_group(stored)
            assert not isinstance(record, SkippedRecord)
            shard.apply(record)
        assert without_explanations(shard) == without_explanations(self.stage.shard)

    def one_round(self, group: ConsumerGroup) -> None:
        if group.progress.planning:
            self.say(f"planned g {group.progress.asked}", *(f"{name}: " for name in group.members))
        self.patterns_are_resolved()
        self.say("advance 1000ms")
        for name in list(group.members):
            instance = f"instance={group.members[name].instance_id or 'none'}"
            if any("_" in line for line in self.say(f"beat g {name} owned=all {instance}")):
                self.say(f"enter g {name} topics=t {instance}")


def without_explanations(shard: Shard) -> tuple[object, ...]:
    """What the groups' own log keeps: all but the ledger, also of deleted groups, and when the node stood still."""
    groups, _, offsets, consumer_groups, central_groups, _, group_settings, _, *rest = hard_state(shard)
    return groups, offsets, consumer_groups, central_groups, group_settings, *rest


ConsumerMachine.TestCase.settings = settings(
    max_examples=80, stateful_step_count=30, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
TestConsumerMachine = ConsumerMachine.TestCase
