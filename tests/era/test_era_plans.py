"""Plans of the ZooKeeper era: the assignors of each old release, reading the same znodes, are the judges of ours."""

import random
import re
from collections.abc import Mapping

import pytest
from kazoo.client import KazooClient

from muster.client.members.zookeeper_assignment import (
    BLACK_LIST,
    OFFSETS_TOPIC,
    STATIC,
    TRANSACTIONS_TOPIC,
    WHITE_LIST,
    ClaimedShare,
    ConsumerGroupView,
    GroupRegistration,
    ZookeeperStrategy,
    compute_share,
    find_era_rules,
)
from muster.coordinator.zookeeper import layout
from muster.coordinator.zookeeper.consumer_group import registered_pattern
from tests.era.releases import SCALA, run_program
from tests.support.zookeeper.consumers import plain

pytestmark = pytest.mark.integration

WORLDS, GROUPS = 5, 10
"""Chroots with topics of their own for each release and strategy, and groups in each."""
TOPICS = ("orders", "orders.eu", "bills-7", "tmp_x", "a", "__mine", OFFSETS_TOPIC, TRANSACTIONS_TOPIC)
EXPRESSIONS = (
    "orders.*",
    "orders,bills.*",
    ".*",
    "[a-b].*",
    "tmp_x|a",
    "__.*",
    "(?:^orders).*",
    "no-such",
    r"orders\.\w+",
)
REFUSAL = (
    "error java.lang.IllegalArgumentException: requirement failed: Round-robin assignment is allowed only if all "
    "consumers in the group subscribe to the same topics"
)


def draw_partitions(chance: random.Random) -> dict[str, int]:
    return {topic: chance.randint(1, 25) for topic in chance.sample(TOPICS, chance.randint(1, len(TOPICS)))}


def draw_registration(chance: random.Random) -> GroupRegistration:
    pattern = chance.choice((STATIC, STATIC, WHITE_LIST, BLACK_LIST))
    if pattern != STATIC:
        return GroupRegistration({chance.choice(EXPRESSIONS): chance.randint(1, 3)}, pattern)
    topics = chance.sample(TOPICS, chance.randint(1, 4))
    return GroupRegistration({topic: chance.choice((1, 1, 2, 12)) for topic in topics})


def draw_members(chance: random.Random, strategy: ZookeeperStrategy) -> dict[str, GroupRegistration]:
    """Members whose names sort otherwise as text than as numbers; round robin prefers equal registrations."""
    names = chance.sample([f"g_{host}-{number}" for host in ("h", "H", "h-1") for number in (2, 10, 100)], 5)
    one = draw_registration(chance)
    return {
        name: one if strategy is ZookeeperStrategy.ROUNDROBIN and chance.random() < 0.8 else draw_registration(chance)
        for name in names[: chance.randint(1, 5)]
    }


def write_topics(client: KazooClient, partitions: Mapping[str, int]) -> None:
    for topic, number in partitions.items():
        client.create(layout.topic_path(topic), layout.topic_json({each: [1] for each in range(number)}), makepath=True)


def write_members(client: KazooClient, group: str, members: Mapping[str, GroupRegistration]) -> None:
    for name, each in members.items():
        body = layout.ConsumerZnode(each.subscription, registered_pattern(each), 1_700_000_000_000)
        client.create(layout.consumer_path(group, name), body.to_json(), makepath=True)


def read_plan(line: str, consumer: str) -> ClaimedShare:
    """`Map([t,0] -> c-0, ...)` until 0.11, `Map(t-0 -> c-0, ...)` from 1.0 on."""
    found = re.findall(r"\[?([\w.-]+)[,-](\d+)\]? -> ([\w.-]+)-(\d+)", line)
    assert {owner for *_, owner, _ in found} <= {consumer}, line
    return {(topic, int(number)): int(stream) for topic, number, _, stream in found}


@pytest.mark.parametrize("strategy", list(ZookeeperStrategy), ids=lambda each: each.value)
@pytest.mark.parametrize("release", SCALA)
def test_the_plan_is_that_of_the_old_release(zookeeper: str, release: str, strategy: ZookeeperStrategy) -> None:
    """One program of the release plans for every member of every group. Each chroot has topics of its own."""
    chance = random.Random(f"{release} {strategy.value}")
    asked: list[tuple[ConsumerGroupView, str, bool]] = []
    lines: list[str] = []
    for world in range(WORLDS):
        chroot, partitions = f"{zookeeper}/{world}", draw_partitions(chance)
        server, slash, below = chroot.partition("/")
        with plain(server) as client:
            client.ensure_path(slash + below)
        with plain(chroot) as client:
            write_topics(client, partitions)
            for number in range(GROUPS):
                view = ConsumerGroupView(draw_members(chance, strategy), partitions, (1,))
                write_members(client, f"g{number}", view.members)
                for name in view.members:
                    asked.append((view, name, excludes := chance.random() < 0.7))
                    lines.append("\t".join((chroot, strategy.value, f"g{number}", name, str(excludes).lower())))
    told = run_program(release, "OldPlans", said="".join(f"{line}\n" for line in lines)).split("\n")[:-1]
    judged = 0
    for (view, name, excludes), line in zip(asked, told, strict=True):
        mine = plan(name, view, strategy, excludes, release)
        if mine is None:
            assert line.startswith(REFUSAL), f"{name} of {view}: {line}"
            continue
        assert read_plan(line, name) == mine, f"{name} of {view}: {line}"
        judged += bool(mine)
    assert judged > 20, "some plans have something in them"


def plan(
    name: str, view: ConsumerGroupView, strategy: ZookeeperStrategy, excludes: bool, release: str
) -> ClaimedShare | None:
    """Ours; None: a refusal, as round robin had it until 0.9."""
    try:
        return compute_share(name, view, strategy, excludes, find_era_rules(release))
    except ValueError:
        return None
