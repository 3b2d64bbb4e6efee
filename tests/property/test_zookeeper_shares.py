"""Both assignments of the ZooKeeper era: each member computes alone, together they own everything once."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.assignors.api import Member, Snapshot
from muster.assignors.registry import resolve
from muster.assignors.run import run
from muster.client.members.zookeeper_assignment import (
    ConsumerGroupView,
    GroupRegistration,
    ZookeeperStrategy,
    compute_share,
)

TOPICS = ("t", "u", "v")
partitions = st.dictionaries(st.sampled_from(TOPICS), st.integers(0, 12))
names = st.lists(st.sampled_from([f"c{number}" for number in range(12)]), min_size=1, max_size=8, unique=True)
streams = st.dictionaries(st.sampled_from(TOPICS), st.integers(1, 3), min_size=1)


def everybody(view: ConsumerGroupView, strategy: ZookeeperStrategy) -> Counter[tuple[str, int]]:
    owned: Counter[tuple[str, int]] = Counter()
    for member in view.members:
        owned.update(compute_share(member, view, strategy).keys())
    return owned


@given(st.dictionaries(st.sampled_from([f"c{n}" for n in range(12)]), streams, min_size=1, max_size=8), partitions)
def test_ranges_cover_what_is_subscribed_to_exactly_once(
    subscriptions: dict[str, dict[str, int]], counts: dict[str, int]
) -> None:
    view = ConsumerGroupView({name: GroupRegistration(wanted) for name, wanted in subscriptions.items()}, counts, (1,))
    read = {topic for topics in subscriptions.values() for topic in topics}
    assert everybody(view, ZookeeperStrategy.RANGE) == Counter(
        (t, n) for t, count in counts.items() if t in read for n in range(count)
    )
    for topic, count in counts.items():
        threads = Counter[tuple[str, int]]()
        for member in view.members:
            for (owned_topic, _), stream in compute_share(member, view, ZookeeperStrategy.RANGE).items():
                threads[member, stream] += owned_topic == topic
        loads = [threads[m, s] for m, topics in subscriptions.items() for s in range(topics.get(topic, 0))]
        assert not loads or max(loads) - min(loads) <= 1
        assert sum(loads) == (count if topic in read else 0)


@given(names, partitions, streams)
def test_round_robin_deals_evenly_over_all_topics(
    members: list[str], counts: dict[str, int], wanted: dict[str, int]
) -> None:
    equal = dict.fromkeys(wanted, 2)
    view = ConsumerGroupView(dict.fromkeys(members, GroupRegistration(equal)), counts, (1,))
    owned = everybody(view, ZookeeperStrategy.ROUNDROBIN)
    assert owned == Counter((t, n) for t in equal for n in range(counts.get(t, 0)))
    loads = Counter[tuple[str, int]]()
    for member in members:
        loads.update((member, stream) for stream in compute_share(member, view, ZookeeperStrategy.ROUNDROBIN).values())
    every = [loads[member, stream] for member in members for stream in range(2)]
    assert max(every) - min(every) <= 1


@pytest.mark.parametrize(
    ("strategy", "assignor"), [(ZookeeperStrategy.RANGE, "range"), (ZookeeperStrategy.ROUNDROBIN, "roundrobin-legacy")]
)
@given(members=names, counts=partitions)
def test_with_one_stream_each_it_is_what_the_assignor_of_that_name_gives(
    strategy: ZookeeperStrategy, assignor: str, members: list[str], counts: dict[str, int]
) -> None:
    """Two implementations, one written for a leader with the whole group before it: they agree."""
    counts = {topic: count for topic, count in counts.items() if count}
    view = ConsumerGroupView(dict.fromkeys(members, GroupRegistration(dict.fromkeys(counts, 1))), counts, (1,))
    snapshot = Snapshot(topics=counts, members=[Member(name, tuple(counts)) for name in members], assignor=assignor)
    plan = run(resolve(assignor), snapshot).to_dict()
    for name in members:
        planned = {(topic, number) for topic, numbers in plan[name].items() for number in numbers}
        assert set(compute_share(name, view, strategy)) == planned
