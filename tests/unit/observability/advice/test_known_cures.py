"""Histories with a known cure: the first advice is the cure, and a group that is well gets none."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import pytest

from muster.coordinator.observability.advice.member_returns import MemberReturn
from muster.coordinator.observability.advice.membership_advice import needed_session_ms
from muster.coordinator.observability.advice.model import LEAST_SHARE, Advice, read_record
from muster.coordinator.observability.advice.plan_replay import replay_plans
from muster.coordinator.observability.advice.table import GroupAdvice, advise_group
from tests.support.group_history import GroupHistory

DAY_MS = 86_400_000


@cache
def rolling_deploy(assignor: str = "range", *, static: bool = False) -> GroupHistory:
    """Six members without group.instance.id are restarted one after the other."""
    history = GroupHistory(assignor)
    history.start("abcdef", static=static)
    history.live(60_000)
    for name in "abcdef":
        history.restart(name, 4_000)
        history.live(20_000)
    return history


@cache
def scaling(assignor: str = "range") -> GroupHistory:
    """Members come and go, and a topic grows."""
    history = GroupHistory(assignor, {"orders": 12, "refunds": 7})
    history.start("ab")
    history.live(30_000)
    for name in "cdef":
        history.start(name)
        history.live(30_000)
    for name in "fed":
        history.stop(name)
        history.live(30_000)
    history.grow("orders", 16)
    history.live(60_000)
    return history


@cache
def poison() -> GroupHistory:
    """Whoever has orders-3 does not poll in time; members that join meanwhile move it around."""
    history = GroupHistory("range", {"orders": 8})
    history.start("abc")
    history.live(30_000)
    for number in range(4):
        history.poll_late(next(n for n, c in history.running.items() if 3 in c.owned["orders"]), 8_000)
        history.live(30_000)
        history.start([f"x{number}"])
        history.live(9_000)
    return history


@cache
def slow_polls() -> GroupHistory:
    """Members poll late, each with a share of its own."""
    history = GroupHistory("cooperative-sticky")
    history.start("abcd")
    history.live(30_000)
    for name in "abcd":
        history.poll_late(name, 8_000)
        history.live(30_000)
    return history


@cache
def flapping() -> GroupHistory:
    """One process dies again and again; another member is restarted once."""
    history = GroupHistory("cooperative-sticky")
    history.start("abcd")
    history.live(30_000)
    for _ in range(6):
        history.restart("c", 2_000, orderly=False)
        history.live(40_000)
    history.restart("a", 3_000)
    history.live(60_000)
    return history


@cache
def pauses() -> GroupHistory:
    """Members are silent for longer than their session timeout of 10 s, and go on."""
    history = GroupHistory("range")
    history.start("abcd")
    history.live(30_000)
    for name in "abc":
        history.hang(name, 13_000)
        history.live(60_000)
    return history


@cache
def quiet() -> GroupHistory:
    """One restart in seven days."""
    history = GroupHistory("range", session_ms=1_800_000)
    history.start("abc")
    history.live(DAY_MS)
    history.restart("a", 4_000)
    history.live(6 * DAY_MS)
    return history


def advised(history: GroupHistory) -> GroupAdvice:
    return advise_group(history.examined(), history.topics, history.now_ms)


def first(history: GroupHistory) -> Advice:
    return advised(history).advice[0]


def test_a_rolling_deploy_without_static_ids_is_cured_by_static_membership() -> None:
    found = first(rolling_deploy())
    assert found.kind == "static-membership"
    assert found.settings == ("group.instance.id=NAME",)
    assert found.saves.rebalances == 12
    assert found.saves.moves == advised(rolling_deploy()).moves
    assert "6 restarts set off 12 of 13 rebalances" in found.sentence


def test_an_absence_that_outlasts_the_session_names_the_session_that_it_takes() -> None:
    history = GroupHistory("range", session_ms=6_000)
    history.start("abc")
    history.live(30_000)
    for name in "abc":
        history.restart(name, 7_000)
        history.live(30_000)
    found = next(each for each in advised(history).advice if each.kind == "static-membership")
    assert found.settings == ("group.instance.id=NAME", "session.timeout.ms=11000")
    assert any(line == "away for 7 s; half as much again is 11 s" for line in found.proof)


def test_the_session_is_for_99_of_100_absences_and_half_as_much_again() -> None:
    def away(*seconds: int) -> list[MemberReturn]:
        return [
            MemberReturn("a2", "a1", ("a", "", "h"), "restarted", 1_000 * each, 0, 1, frozenset()) for each in seconds
        ]

    assert needed_session_ms(away(*[8] * 198, 600, 600)) == 12_000, "two of 200 were away for ten minutes"
    assert needed_session_ms(away(*[8] * 197, 20, 600, 600)) == 30_000
    assert needed_session_ms(away(1, 1, 1)) == 6_000, "a broker allows no shorter one"
    assert needed_session_ms(away(3_600)) == 1_800_000, "nor a longer one"


def test_a_group_of_another_broker_that_only_scales_is_not_to_be_taken_over() -> None:
    """What would help it Kafka has: another assignor."""
    history = scaling()
    group = replace(history.examined(), ledger=tuple(history.watched_entries()))
    found = advise_group(group, history.topics, history.now_ms)
    assert found.advice[0].kind == "assignor"
    assert "adopt" not in [each.kind for each in found.advice]
    assert not any("engine adopt" in setting for each in found.advice for setting in each.settings)


def test_a_session_that_is_not_known_is_not_lowered() -> None:
    history = rolling_deploy()
    group = history.examined()
    members = tuple(replace(member, session_timeout_ms=None) for member in group.members)
    described = replace(group, description=replace(group.description, members=members))
    found = advise_group(described, history.topics, history.now_ms).advice[0]
    assert found.settings == ("group.instance.id=NAME",)
    assert "session.timeout.ms is not known, 45 s unless it is set, which is enough" in found.proof


def test_members_that_come_back_at_another_host_are_known_by_their_client_id() -> None:
    history = GroupHistory("range")
    history.start("abcdef")
    history.live(60_000)
    for at, name in enumerate("abcdef"):
        client = history.running[name]
        history.stop(name)
        history.live(5_000)
        history.start([name], host=f"10.1.0.{at}")
        assert history.running[name].host != client.host
        history.live(20_000)
    found = first(history)
    assert found.kind == "static-membership"
    assert "6 of them came from another host: they are taken for the same by client id and time" in found.proof


def test_static_members_are_not_told_to_be_static() -> None:
    history = rolling_deploy()
    group = history.examined()
    members = tuple(replace(member, group_instance_id=member.client_id) for member in group.members)
    described = replace(group, description=replace(group.description, members=members))
    kinds = [each.kind for each in advise_group(described, history.topics, history.now_ms).advice]
    assert "static-membership" not in kinds


def test_an_eager_group_that_scales_is_cured_by_a_cooperative_assignor() -> None:
    found = first(scaling())
    assert found.kind == "assignor"
    assert found.settings[-1] == "partition.assignment.strategy=cooperative-sticky"
    assert found.proof[0] == "9 plans of range made again from the same input: all come out as recorded"
    assert "cooperative-sticky: 26 moves, 73.7 partition-seconds without an owner" in found.proof
    assert found.saves.moves == 68 - 26


def test_a_partition_that_holds_up_whoever_has_it_is_named() -> None:
    found = first(poison())
    assert found.kind == "poison-partition"
    assert found.sentence == "Look at orders-3: 4 times a member did not poll in time, and it had orders-3 each time."
    assert "muster consume --topic orders --partition 3 --from 10000" in found.how


def test_late_polls_of_everybody_name_the_interval() -> None:
    found = first(slow_polls())
    assert found.kind == "poll-interval"
    # max.poll.interval.ms is 60 s, and they polled 8 s after it.
    assert found.settings == ("max.poll.interval.ms=102000", "max.poll.records=294")


def test_one_flapping_host_is_named() -> None:
    found = first(flapping())
    assert found.kind == "flapping-member"
    assert found.sentence.startswith("c at 10.0.0.3 restarted 6 times and set off 6 of 10 rebalances")
    assert [each.kind for each in advised(flapping()).advice] == ["flapping-member"]


def test_a_member_that_has_stopped_flapping_is_not_named() -> None:
    history = flapping()
    later_ms = history.now_ms + 2 * DAY_MS
    assert advise_group(history.examined(), history.topics, later_ms).advice == ()


def test_pauses_beyond_the_session_name_the_session_that_bridges_them() -> None:
    found = first(pauses())
    assert found.kind == "session-timeout"
    assert found.settings == ("session.timeout.ms=24000",)


def test_a_session_that_is_long_enough_by_now_is_not_raised() -> None:
    history = pauses()
    group = history.examined()
    members = tuple(replace(member, session_timeout_ms=24_000) for member in group.members)
    described = replace(group, description=replace(group.description, members=members))
    kinds = [each.kind for each in advise_group(described, history.topics, history.now_ms).advice]
    assert "session-timeout" not in kinds


def test_a_quiet_group_gets_no_advice() -> None:
    found = advised(quiet())
    assert found.advice == ()
    assert found.nothing_to_change == "Nothing to change: 3 rebalances in 7 days (1 restart and 1 start)."


def test_a_group_without_a_history_gets_no_advice() -> None:
    group = replace(quiet().examined(), ledger=())
    assert advise_group(group, {"orders": 12}, 0).nothing_to_change == "Nothing to change: no rebalance on record."


def test_a_window_leaves_out_what_was_before_it() -> None:
    history = rolling_deploy()
    found = advise_group(history.examined(), history.topics, history.now_ms, history.now_ms - 10_000)
    assert (found.rebalances, found.advice) == (0, ())


# What the assignor's plans show
# ------------------------------


def test_a_plan_that_is_not_the_assignors_own_is_told_and_nothing_is_advised_on_it() -> None:
    history = scaling()
    group = history.examined()
    entries = list(group.ledger)
    wrong = type(entries[0])()
    wrong.CopyFrom(entries[0])
    shares = wrong.members[0].assigned, wrong.members[1].assigned
    moved = shares[0][0].partitions.pop()
    shares[1][0].partitions.append(moved)
    found = advise_group(replace(group, ledger=(wrong, *entries[1:])), history.topics, history.now_ms)
    assert "assignor" not in [each.kind for each in found.advice]
    assert "1 plan of 9 is not what Muster's range makes of the same input" in found.not_judged[0]


def test_an_assignor_that_is_not_known_is_not_judged() -> None:
    history = scaling()
    group = history.examined()
    entries = []
    for entry in group.ledger:
        changed = type(entry)()
        changed.CopyFrom(entry)
        changed.snapshot_json = changed.snapshot_json.replace('"assignor":"range"', '"assignor":"mine"')
        changed.protocol_name = "mine"
        entries.append(changed)
    found = advise_group(replace(group, ledger=tuple(entries)), history.topics, history.now_ms)
    assert "assignor" not in [each.kind for each in found.advice]
    assert found.not_judged == ("mine is not an assignor that Muster knows: its plans are not made again",)


def test_a_cooperative_group_is_not_told_to_be_cooperative() -> None:
    found = advised(flapping())
    assert found.not_judged == ()
    assert "assignor" not in [each.kind for each in found.advice]


def test_members_without_a_cooperative_assignor_are_told_of_sticky() -> None:
    history = scaling()
    group = history.examined()
    members = tuple(replace(member, client_software="kafka-python 2.2.15") for member in group.members)
    described = replace(group, description=replace(group.description, members=members))
    (found,) = (
        each for each in advise_group(described, history.topics, history.now_ms).advice if each.kind == "assignor"
    )
    assert found.settings[-1] == "partition.assignment.strategy=sticky"
    # An eager assignor stops everybody as before.
    assert found.saves.of == "of the moves"


@pytest.mark.parametrize("made", [scaling, rolling_deploy])
@pytest.mark.parametrize("assignor", ["cooperative-sticky", "sticky"])
def test_what_is_forecast_of_an_assignor_is_what_a_group_with_it_sees(
    made: Callable[..., GroupHistory], assignor: str
) -> None:
    """The same comings and goings, once with range and once with the other: its moves are forecast exactly."""
    group = made().examined()
    forecast = replay_plans(read_record(group, made().topics, made().now_ms, 0)).others[assignor]
    real = advised(made(assignor))
    assert forecast.moves == real.moves
    # The time is taken from rounds of range, and rather too long than too short.
    assert real.partition_seconds <= forecast.seconds * 1.001 <= real.partition_seconds * 1.35


def test_static_members_see_the_rebalances_that_are_forecast_for_them() -> None:
    forecast = first(rolling_deploy())
    real = advised(rolling_deploy(static=True))
    assert real.rebalances == advised(rolling_deploy()).rebalances - forecast.saves.rebalances
    assert real.moves == advised(rolling_deploy()).moves - forecast.saves.moves == 0


@pytest.mark.parametrize("assignor", ["range", "roundrobin", "sticky", "cooperative-sticky"])
def test_plans_of_each_classic_assignor_come_out_as_recorded(assignor: str) -> None:
    """Of the coordinator's own ledger, and of what another broker's records tell."""
    history = scaling(assignor)
    group = history.examined()
    watched = replace(group, ledger=tuple(history.watched_entries()))
    for each in (group, watched):
        replay = replay_plans(read_record(each, history.topics, history.now_ms, 0))
        assert (replay.problem, replay.rounds) == ("", len(each.rebalances))


# Of another broker
# -----------------


@pytest.mark.parametrize(
    ("made", "kind"), [(rolling_deploy, "static-membership"), (scaling, "assignor"), (flapping, "flapping-member")]
)
def test_the_records_of_another_broker_give_the_same_advice(made: Callable[[], GroupHistory], kind: str) -> None:
    history = made()
    group = replace(history.examined(), ledger=tuple(history.watched_entries()))
    found = advise_group(group, history.topics, history.now_ms)
    assert found.advice[0].kind == kind
    assert found.not_judged == ()


def test_a_group_of_another_broker_may_be_taken_over() -> None:
    history = rolling_deploy()
    group = replace(history.examined(), ledger=tuple(history.watched_entries()))
    found = advise_group(group, history.topics, history.now_ms)
    (adopt,) = (each for each in found.advice if each.kind == "adopt")
    assert adopt.settings == ("muster engine adopt orders", "muster groups deploy orders")
    assert "adopt" not in [each.kind for each in advised(history).advice]


# What is always so
# -----------------

HISTORIES = (rolling_deploy, scaling, poison, slow_polls, flapping, pauses, quiet)


@pytest.mark.parametrize("made", HISTORIES)
def test_nothing_is_advised_that_saves_less_than_a_twentieth(made: Callable[[], GroupHistory]) -> None:
    assert all(each.saves.share >= LEAST_SHARE for each in advised(made()).advice)


@pytest.mark.parametrize("made", HISTORIES)
def test_what_helps_most_comes_first(made: Callable[[], GroupHistory]) -> None:
    weights = [each.saves.weight for each in advised(made()).advice]
    assert weights == sorted(weights, reverse=True)


@pytest.mark.parametrize("made", HISTORIES)
def test_the_order_in_which_entries_are_read_does_not_matter(made: Callable[[], GroupHistory]) -> None:
    history = made()
    group = history.examined()
    half = len(group.ledger) // 2
    batches = (*group.ledger[half:], *group.ledger[:half], *group.ledger[:3])
    again = advise_group(replace(group, ledger=batches), history.topics, history.now_ms)
    assert again.to_dict() == advised(history).to_dict()
