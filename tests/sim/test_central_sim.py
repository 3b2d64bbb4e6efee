"""Central groups under faults: no seed breaks a rule, and every rule can be broken."""

from collections import Counter
from collections.abc import Sequence

import pytest

from muster.client.members import actions as act
from muster.client.members.central_member import CentralMemberMachine
from muster.coordinator.core.central import group_task, registration, task_parts
from muster.coordinator.core.central.group import CentralMember as KnownMember
from muster.coordinator.core.central.group import CentralState
from muster.coordinator.runtime import shards
from muster.coordinator.runtime.engine import Engine
from tests.fakes.memory_group_log import MemoryGroupLog
from tests.sim import mutants
from tests.sim.central.run import FATES, run_central

pytestmark = pytest.mark.sim

SEEDS = 20
SLICED_SEEDS = 10
SEEDS_PER_MUTANT = 30


class StubbornMember(CentralMemberMachine):
    """Fetches on although nothing has been heard for a session."""

    @property
    def lease_end_ms(self) -> int | None:
        return None


class HastyMember(CentralMemberMachine):
    """Says that it has stopped before its application has let go."""

    def _release_partitions(self, *arguments: object, **more: object) -> None:
        super()._release_partitions(*arguments, **more)  # type: ignore[arg-type]
        if arguments[0] is act.Revoke:
            self._say_stopped()


def first_violation(
    seeds: range, machine: type[CentralMemberMachine] = CentralMemberMachine, engine: type[Engine] = Engine
) -> str:
    return next((found for seed in seeds if (found := run_central(seed, machine, make_engine=engine).violation)), "")


def test_no_seed_breaks_a_rule() -> None:
    census: Counter[str] = Counter()
    for seed in range(SEEDS):
        run = run_central(seed)
        assert not run.violation, f"seed {seed}: {run.violation}"
        census.update(run.census)
    wanted = {*FATES, "lines cut", "node crashes", "slow callbacks", "failures reported"}
    assert not [word for word in sorted(wanted) if not census[word]]
    assert not [state for state in CentralState if not census[f"state {state.value}"] and state.value != "Assigning"]


def test_no_seed_breaks_a_rule_in_groups_that_are_rebalanced_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever happens between two slices: members and nodes die, topics grow, callbacks are slow."""
    monkeypatch.setattr(group_task, "ORDERS_IN_STEP", 1)
    monkeypatch.setattr(task_parts, "ENTRIES_IN_SLICE", 1)
    monkeypatch.setattr(shards, "ROWS_AT_ONCE", 1)
    for seed in range(SLICED_SEEDS):
        run = run_central(seed)
        assert not run.violation, f"seed {seed}: {run.violation}"


def test_a_seed_is_the_same_run_every_time() -> None:
    assert run_central(7).digest == run_central(7).digest


@pytest.mark.parametrize("machine", [StubbornMember, HastyMember])
def test_members_that_break_a_rule_are_caught(machine: type[CentralMemberMachine]) -> None:
    assert "ownership" in first_violation(range(SEEDS_PER_MUTANT), machine)


@pytest.mark.parametrize("engine", [mutants.HurriedEngine, mutants.RingingEngine, mutants.UnawareEngine])
def test_a_node_that_expires_whom_it_has_not_heard_is_caught(engine: type[Engine]) -> None:
    assert "WhoSentInTimeIsNotExpired" in first_violation(range(SEEDS_PER_MUTANT), engine=engine)


def test_a_coordinator_that_keeps_nothing_for_who_is_lost_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(KnownMember, "lease_end_ms", property(lambda member: member.heard_ms))
    assert "ownership" in first_violation(range(SEEDS_PER_MUTANT))


def test_a_coordinator_that_lets_a_lost_one_go_on_with_anything_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def gone_at_once(group, member, trigger, step):  # type: ignore[no-untyped-def]
        member.may_fetch = False
        lose(group, member, trigger, step)

    lose = registration.lose_member
    monkeypatch.setattr(registration, "lose_member", gone_at_once)
    assert "ownership" in first_violation(range(SEEDS_PER_MUTANT))


def test_a_coordinator_that_passes_over_offsets_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registration, "keep_positions", lambda *_: None)
    assert "offsets" in first_violation(range(SEEDS_PER_MUTANT))


def test_a_log_that_only_says_that_it_flushed_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def pretend(log: MemoryGroupLog, shards: Sequence[int]) -> None:
        log.flushes += 1

    monkeypatch.setattr(MemoryGroupLog, "flush", pretend)
    assert first_violation(range(SEEDS_PER_MUTANT))
