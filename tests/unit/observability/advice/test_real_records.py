"""What a real Kafka had on record of real clients' groups: their plans come out again, and advice holds no surprise."""

from collections import Counter
from dataclasses import replace
from functools import cache

from muster.coordinator.observability.advice.model import read_record
from muster.coordinator.observability.advice.plan_replay import read_decisions, replay_plans
from muster.coordinator.observability.advice.recorded_decisions import DIFFERS, REPRODUCED, compare_with_record
from muster.coordinator.observability.advice.table import GroupAdvice, advise_group
from muster.coordinator.observability.doctor.model import ExaminedGroup
from muster.coordinator.observability.read_model.groups import GroupDescription
from muster.coordinator.server.services.group_responses import build_rebalance
from tests.truth.recordings import load_all, read_batches

SOON_MS = 1_000


@cache
def recorded_groups() -> dict[str, ExaminedGroup]:
    """By situation and client, of the newest broker."""
    found = {}
    for each in load_all():
        read = read_batches(each.batches, each.topic_ids, each.session_ms).entries.get(each.group, ())
        entries = tuple(build_rebalance(each.group, entry, with_snapshot=True) for entry in read)
        described = GroupDescription(each.group, "Stable", "consumer", "", 0, "", "n:1", ())
        kind = "consumer" if "848" in each.client else "classic"
        found[f"{each.situation}.{each.client}"] = ExaminedGroup(described, kind, ledger=entries)
    return found


def advised(group: ExaminedGroup) -> GroupAdvice:
    return advise_group(group, {}, max((entry.ended_at_ms for entry in group.ledger), default=0) + SOON_MS)


def test_every_plan_by_range_comes_out_as_recorded() -> None:
    """Of librdkafka, Java, kafka-python and aiokafka."""
    plans = 0
    for name, group in recorded_groups().items():
        if name.partition(".")[2] not in ("confluent", "java", "kafka-python", "aiokafka"):
            continue
        replay = replay_plans(read_record(group, {}, 2**60, 0))
        assert replay.problem == "", name
        plans += replay.rounds
    assert plans > 100


def test_nearly_every_plan_of_each_library_comes_out_as_recorded_or_as_good() -> None:
    """Not those of kafkajs, nor some that were made just after a topic was deleted."""
    plans: Counter[str] = Counter()
    differing: list[str] = []
    for name, group in recorded_groups().items():
        situation, _, client = name.partition(".")
        if client == "kafkajs":
            continue
        for _, decision in read_decisions(read_record(group, {}, 2**60, 0).rounds):
            plans[client] += 1
            if compare_with_record(decision)[0] != REPRODUCED:
                differing.append(situation)
    assert len(plans) == 9
    assert min(plans.values()) > 80
    assert set(differing) <= {"topic-deleted", "topic-remade"}
    assert len(differing) < 0.01 * sum(plans.values())


def test_a_cooperative_plan_that_is_less_even_or_moves_more_does_not_come_out() -> None:
    """librdkafka leaves the last partitions to a member that has too many; Muster the first."""
    group = recorded_groups()["all-stopped-and-started.confluent-coop"]
    decisions = [decision for _, decision in read_decisions(read_record(group, {}, 2**60, 0).rounds)]
    differing = [each for each in decisions if "dealt out otherwise" in compare_with_record(each)[1]]
    assert differing
    for each in differing:
        (member, share), *_ = ((member, share) for member, share in each.shares.items() if share)
        (topic, partitions), *_ = share.items()
        poorer = replace(each, shares={**each.shares, member: {**share, topic: partitions[1:]}})
        assert compare_with_record(poorer)[0] == DIFFERS
        assert compare_with_record(replace(each, source="leader"))[0] == DIFFERS


def test_a_rolling_restart_of_librdkafka_clients_is_told_what_would_have_helped() -> None:
    found = advised(recorded_groups()["rolling-restart.confluent"])
    assert {each.kind for each in found.advice} == {"assignor", "static-membership", "adopt", "kip-848"}
    static = next(each for each in found.advice if each.kind == "static-membership")
    assert "6 restarts set off 12 of 18 rebalances" in static.sentence
    # Its members were away for two seconds and had one partition each, and eager rounds took half a second.
    assert found.advice[0].kind == "assignor"


def test_plans_of_kafkajs_are_its_own_and_nothing_is_said_about_its_assignor() -> None:
    """It deals out in another order than Kafka's round robin, and has neither a cooperative assignor nor KIP-848."""
    found = advised(recorded_groups()["rolling-restart.kafkajs"])
    assert [each.kind for each in found.advice] == ["static-membership", "adopt"]
    assert "is not what Muster's roundrobin makes of the same input" in found.not_judged[0]


def test_one_thing_that_happened_once_is_no_reason_for_a_change() -> None:
    once = (
        "leave-with-close",
        "killed",
        "member-frozen",
        "restarted",
        "poll-exceeded-and-back",
        "static-restart-within",
    )
    for name, group in recorded_groups().items():
        if name.partition(".")[0] in once and name.endswith(".confluent"):
            assert advised(group).advice == (), name
