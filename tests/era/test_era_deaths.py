"""Members of both kinds that die, freeze or lose their session: what is read twice, and for how long it may be."""

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import TypeAlias

import pytest

from muster.coordinator.zookeeper.local_ensemble import LocalEnsemble
from tests.era.mixed_group import ALLOWED_MS, MixedGroup, RecordStream
from tests.era.releases import SCALA, OldProgram
from tests.support.node import NodeProcess, running_node
from tests.support.zookeeper.consumers import create, plain

pytestmark = pytest.mark.integration

Told: TypeAlias = Callable[[str, object], None]


PARTITIONS = 6
names = (f"d{number}" for number in count())


@pytest.fixture(scope="module")
def connect(zookeeper_server: LocalEnsemble) -> str:
    return f"{zookeeper_server.connect}/era-deaths"


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory, connect: str) -> Iterator[NodeProcess]:
    settings = {"kafka.listeners": "127.0.0.1:0", "zookeeper.connect": connect}
    with running_node(tmp_path_factory.mktemp("deaths") / "node", settings) as node:
        yield node


@pytest.fixture
def group(tmp_path: Path, node: NodeProcess, connect: str) -> Iterator[MixedGroup]:
    with plain(connect) as client, MixedGroup(tmp_path, connect, client) as group:
        yield group


@pytest.fixture
def topic(node: NodeProcess) -> str:
    create(node, **{(name := next(names)): PARTITIONS})
    return name


@pytest.mark.parametrize("release", SCALA)
def test_after_a_kill_what_was_not_committed_is_read_again_and_nothing_else(
    node: NodeProcess, group: MixedGroup, topic: str, release: str, record_property: Told
) -> None:
    """A member of each kind dies; its nodes stay until its session ends, and the others retry for as long."""
    group.begin_at(topic, PARTITIONS)
    again: list[int] = []
    with RecordStream(node, **{topic: PARTITIONS}) as stream:
        group.start_own("a", topic)
        group.start_old(release, "m", "--topic", topic)
        group.start_process("p", topic)
        assert group.settle(6) == ["a"] * 2 + ["m"] * 2 + ["p"] * 2
        for victim in ("m", "p"):
            seen = len(group.read)
            group.wait_for(lambda until=seen + 100: len(group.read) > until, "all read for a while")
            had, died_ms = group.owned_by(victim), group.mark()
            read = group.kill(victim)
            places = group.positions()
            again += [n for n in read if n // PARTITIONS >= places[topic, n % PARTITIONS]]
            group.settle(6)
            unread_ms = group.claimed_after_ms(died_ms, had)
            assert 0 <= unread_ms <= ALLOWED_MS, f"{victim} was dead for so long until its partitions were claimed"
            record_property(f"claimed after ms: {victim}", unread_ms)
    assert group.drain(stream.sent) == sorted(again)
    record_property("repeats", len(again))


@pytest.mark.parametrize("release", SCALA)
def test_a_member_whose_session_ended_gives_up_its_share_and_comes_back(
    node: NodeProcess, group: MixedGroup, topic: str, release: str, record_property: Told
) -> None:
    """First it ends while the member runs, then while it is frozen: on waking it reads what it had fetched.

    Until it registers anew, it may read what others have claimed meanwhile: the era knows no fencing.
    """
    group.begin_at(topic, PARTITIONS)
    with RecordStream(node, **{topic: PARTITIONS}) as stream:
        group.start_old(release, "m", "--topic", topic)
        group.start_process("p", topic)
        assert group.settle(6) == ["m"] * 3 + ["p"] * 3
        for name in ("m", "p"):
            since_ms = group.mark()
            group.end_session(name)
            twice_ms = group.registered_after_ms(name, since_ms)
            assert 0 <= twice_ms <= ALLOWED_MS, f"so long {name} had not heard that its session was over"
            record_property(f"may have read for ms: {name}", twice_ms)
            assert group.settle(6) == ["m"] * 3 + ["p"] * 3
        thawed = stream.sent
        for name, program in (("m", group.old["m"]), ("p", group.processes["p"])):
            had, since_ms = group.owned_by(name), group.mark()
            program.freeze()
            assert name not in group.settle(6, without=name)
            assert 0 <= group.claimed_after_ms(since_ms, had) <= ALLOWED_MS
            since_ms = group.mark()
            program.thaw() if isinstance(program, OldProgram) else program.wake()
            assert group.settle(6) == ["m"] * 3 + ["p"] * 3
            twice_ms = group.registered_after_ms(name, since_ms)
            assert 0 <= twice_ms <= ALLOWED_MS, f"so long {name} had not heard that its session was over"
            record_property(f"may have read for ms, thawed: {name}", twice_ms)
        settled = stream.sent
        seen = len(group.read)
        group.wait_for(lambda: len(group.read) > seen + 200, "both read on")
    again = group.drain(stream.sent)
    assert [number for number in again if number >= settled] == [], "each has its own again"
    record_property("repeats", (sum(number < thawed for number in again), sum(number >= thawed for number in again)))
