"""Who has what in groups of every kind, as balance is told by it."""

from muster.assignors.data.consumer_protocol import encode_assignment
from muster.coordinator.core.central.group import CentralGroup
from muster.coordinator.core.classic.group import ClassicGroup, ClassicMember
from muster.coordinator.core.consumer.group import ConsumerGroup
from muster.coordinator.core.groups.group import ObservedGroup
from muster.coordinator.core.model.events import GroupObserved
from muster.coordinator.core.model.types import Limits
from muster.coordinator.core.shard import Shard
from muster.coordinator.observability.metrics.series import OwnerCache

T = bytes(15) + b"t"
STATE = Shard(Limits(), 0).state


def classic(**shares: tuple[int, ...]) -> ClassicGroup:
    group = ClassicGroup("g")
    for name, partitions in shares.items():
        blob = encode_assignment({"t": partitions})
        group.members.add(ClassicMember(name, None, "", "", 1, 1, (), assignment=blob))
    return group


def test_a_kip_848_group_s_owners_by_the_names_that_topics_have_now() -> None:
    group = ConsumerGroup("g", owners={T: {0: "a", 1: "b"}, bytes(16): {0: "a"}})
    state = Shard(Limits(), 0).state
    state.topic_names = {T: "t"}
    assert OwnerCache().of(group, state) == {"t": {0: "a", 1: "b"}}


def test_a_central_group_s_are_what_is_stored() -> None:
    group = CentralGroup("g", owned={"a": {"t": (0, 2)}})
    assert OwnerCache().of(group, STATE) == {"t": {0: "a", 2: "a"}}


def test_a_zookeeper_group_s_are_its_claims() -> None:
    group = ObservedGroup("g", GroupObserved("g", (), {("t", 1): "a"}), 1)
    assert OwnerCache().of(group, STATE) == {"t": {1: "a"}}


def test_a_classic_group_s_are_read_once_a_generation() -> None:
    shares, group = OwnerCache(), classic(a=(0,), b=(1,))
    first = shares.of(group, STATE)
    assert first == {"t": {0: "a", 1: "b"}}
    assert shares.of(group, STATE) is first
    group.members["a"].assignment = encode_assignment({"t": (0, 1)})
    group.members["b"].assignment = encode_assignment({})
    group.generation += 1
    assert shares.of(group, STATE) == {"t": {0: "a", 1: "a"}}


def test_the_members_that_went_have_nothing_any_more() -> None:
    shares, group = OwnerCache(), classic(a=(0,), b=(1,))
    shares.of(group, STATE)
    group.members.remove(group.members["b"])
    assert shares.of(group, STATE) == {"t": {0: "a"}}
