"""Groups of the ZooKeeper era under faults: no seed breaks a rule, and every rule can be broken."""

from collections import Counter

import pytest

from muster.client.members import zookeeper_events as zk
from muster.client.members.zookeeper_assignment import ZookeeperSession
from muster.client.members.zookeeper_member import ZookeeperMemberMachine, ZookeeperState
from tests.sim.era.run import run_era

pytestmark = pytest.mark.sim

SEEDS = 50
FEW = 10
SEEDS_PER_MUTANT = 40
WANTED = ("join", "kill", "close", "freeze", "cut", "grow", "broker", "delete", "expired", "refused")


class ShamelessMember(ZookeeperMemberMachine):
    """Takes its share whether or not its claims were granted."""

    def _claimed(self, answer: zk.OwnersClaimed) -> None:
        super()._claimed(zk.OwnersClaimed(answer.token, {}, answer.stamp))


class StubbornMember(ZookeeperMemberMachine):
    """Goes on as if its session had never ended."""

    def _session_changed(self, link: ZookeeperSession) -> None:
        if link is not ZookeeperSession.LOST:
            super()._session_changed(link)


class HastyMember(ZookeeperMemberMachine):
    """Releases before its application has let go: what it commits then is somebody else's."""

    def _let_go(self, then: object) -> None:
        nodes = set(self.nodes)
        super()._let_go(then)  # type: ignore[arg-type]
        if self.state is ZookeeperState.REVOKING:
            self._out.insert(0, zk.ReleaseOwners(-1, tuple(sorted(nodes))))


class DeafMember(ZookeeperMemberMachine):
    """Forgets a watch that fires in the middle of a rebalance."""

    def _look_again(self) -> None:
        if self.state in (ZookeeperState.STABLE, ZookeeperState.GAVE_UP):
            super()._look_again()


def test_few_seeds_break_no_rule() -> None:
    assert {seed: run.violation for seed in range(FEW) if (run := run_era(seed)).violation} == {}


@pytest.mark.timeout(300)
def test_no_seed_breaks_a_rule() -> None:
    met: Counter[str] = Counter()
    for seed in range(SEEDS):
        run = run_era(seed)
        assert not run.violation, f"seed {seed}: {run.violation}"
        met.update(run.census)
    assert [kind for kind in WANTED if not met[kind]] == []


def test_a_seed_is_one_run() -> None:
    assert run_era(5).digest == run_era(5).digest
    assert run_era(5).digest != run_era(6).digest


@pytest.mark.parametrize(
    ("mutant", "rule"),
    [
        (ShamelessMember, "ownership"),
        (HastyMember, "commits"),
        (DeafMember, "rest"),
        (StubbornMember, "ownership"),
    ],
    ids=lambda value: value if isinstance(value, str) else value.__name__,
)
def test_every_rule_can_be_broken(mutant: type[ZookeeperMemberMachine], rule: str) -> None:
    broken = (run_era(seed, mutant).violation for seed in range(SEEDS_PER_MUTANT))
    assert any(violation.startswith(rule) for violation in broken)


def test_too_few_retries_leave_partitions_without_an_owner_and_none_with_two() -> None:
    """The known fault of this generation: who gave up is woken by nobody until something changes again."""
    broken = Counter[str]()
    gave_up = 0
    for seed in range(SEEDS_PER_MUTANT):
        run = run_era(seed, retries=1, backoff_ms=500)
        broken[run.violation.partition(":")[0]] += 1
        gave_up += run.census["gave up"]
    assert gave_up > 0
    assert broken.keys() == {"", "rest"}, "what is at stake is time, not ownership"
