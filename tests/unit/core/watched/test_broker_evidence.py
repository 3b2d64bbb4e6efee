"""A broker's log beside its records: what was inferred is settled, by generations and members and not by the clock.

`kafka_4_1_1/` was recorded at a Kafka 4.1.1 whose log is written three hours behind UTC: confluent-kafka that leaves,
is killed and exceeds its poll interval (`orders`), is static (`pay`), and speaks KIP-848 (`audit`); Java (`mail`).
"""

import lzma
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from muster.coordinator.core.model.records import GroupRecord
from muster.coordinator.core.model.types import (
    Cause,
    Certainty,
    FurtherTrigger,
    Outcome,
    RebalanceEntry,
    RebalancePhase,
    RebalanceSource,
)
from muster.coordinator.core.watched import broker_evidence
from muster.coordinator.core.watched.broker_evidence import BrokerEvidence
from muster.coordinator.core.watched.broker_sentences import read_sentence
from muster.coordinator.core.watched.endings import WHICH_CAME_FIRST
from muster.coordinator.core.watched.followed_evidence import MOST_OF_GROUP, FollowedEvidence, amend_seen_entry
from muster.coordinator.watch.segment_files import batch_end
from muster.coordinator.watch.watched_partition import WatchedPartition
from muster.storage.records.batch import view_at

RECORDED = Path(__file__).parent / "kafka_4_1_1"
HOUR_MS = 3_600_000


class Entries:
    """A sink that keeps each group's entries."""

    def __init__(self) -> None:
        self.found: dict[tuple[str, int, int], RebalanceEntry] = {}

    def take_fact(self, fact: GroupRecord) -> None:
        pass

    def take_entry(self, group_id: str, entry: RebalanceEntry) -> None:
        self.found[group_id, entry.previous_generation, entry.generation] = entry


@cache
def watched() -> dict[tuple[str, int, int], RebalanceEntry]:
    entries = Entries()
    for number in (0, 1):
        partition = WatchedPartition(entries, {})
        data = memoryview(lzma.decompress((RECORDED / f"offsets-{number}.log.xz").read_bytes()))
        at = 0
        while (end := batch_end(data, at)) is not None:
            batch = view_at(data, at, at)
            assert batch is not None
            partition.take_batches(batch.data)
            at = end
    return entries.found


@cache
def lines() -> tuple[str, ...]:
    return tuple((RECORDED / "server.log").read_text().splitlines(keepends=True))


def read_broker_log(lines: Iterable[str], zone_ms: int | None = None) -> BrokerEvidence:
    evidence = BrokerEvidence(zone_ms)
    evidence.take_lines(lines)
    return evidence


def settled(group: str, old: int, new: int, log: Iterable[str] | None = None) -> RebalanceEntry:
    return read_broker_log(lines() if log is None else log).settle(group, watched()[group, old, new])


def test_a_member_that_left_or_expired_did_one_of_them() -> None:
    before = watched()["audit", 2, 3]
    after = settled("audit", 2, 3)
    assert (after.cause, after.certainty, after.culprit) == (Cause.MEMBER_LEFT, Certainty.SAID, before.culprit)
    assert after.evidence == f"[GroupId audit] Member {before.culprit} left the consumer group."
    assert watched()["audit", 4, 5].certainty is Certainty.UNKNOWN
    expired = settled("audit", 4, 5)
    assert (expired.cause, expired.certainty) == (Cause.SESSION_EXPIRED, Certainty.SAID)
    assert {move.why for move in expired.moves} == {"its owner's session expired"}
    assert "(k2 at /127.0.0.1) was not heard of any more" in expired.detail


def test_what_silence_alone_does_not_tell_is_told() -> None:
    """Java's consumer says why it leaves."""
    assert watched()["mail", 2, 3].certainty is Certainty.UNKNOWN
    late = settled("mail", 2, 3)
    assert (late.cause, late.client_reason) == (Cause.POLL_TIMEOUT, "consumer poll timeout has expired.")
    assert late.certainty is Certainty.INFERRED  # a client's own words (EX-C2)
    assert {move.why for move in late.moves} == {"its owner left the group"}
    assert settled("orders", 6, 7).cause is Cause.MEMBER_LEFT
    assert [each.how for each in settled("mail", 3, 4).incarnations] == ["left"]


def test_what_is_inferred_beyond_the_log_stays_so_and_quotes_it() -> None:
    back = settled("orders", 3, 4)
    assert (back.cause, back.certainty) == (Cause.MEMBER_RESTARTED, Certainty.INFERRED)
    assert back.evidence.startswith('same client id and host; the broker says: "Preparing to rebalance group orders')


def test_what_is_recorded_stays_recorded() -> None:
    before, after = watched()["orders", 1, 2], settled("orders", 1, 2)
    assert after == replace(before, started_at_ms=after.started_at_ms)
    replaced = watched()["pay", 2, 2]
    assert settled("pay", 2, 2) is replaced


def test_each_member_that_went_is_told_of() -> None:
    emptied = settled("orders", 8, 9)
    assert (emptied.cause, emptied.certainty) == (Cause.SESSION_EXPIRED, Certainty.SAID)
    assert [(each.cause, each.certainty) for each in emptied.triggers] == [(Cause.SESSION_EXPIRED, Certainty.SAID)]
    assert emptied.also == tuple(each.detail for each in emptied.triggers)
    assert emptied.started_at_ms <= emptied.triggers[0].at_ms <= emptied.ended_at_ms


def test_an_epoch_that_came_for_its_topics_came_for_no_member() -> None:
    """The static member that was away for a moment set nothing off: it has an entry of its own."""
    grown = settled("audit", 6, 7)
    assert (grown.cause, grown.culprit) == (Cause.PARTITIONS_CHANGED, "")
    assert settled("audit", 6, 6).cause is Cause.STATIC_MEMBER_REPLACED


# Which sentences are an entry's
# ------------------------------


def test_the_beginning_is_known_in_any_zone() -> None:
    """The log is three hours behind; by its own clock the rebalance would have begun before the group was there."""
    entry = settled("mail", 4, 5)
    assert entry.ended_at_ms - entry.started_at_ms == 2_602
    shifted = [line.replace("[2026-11-29 13:", "[2026-11-29 21:") for line in lines()]
    assert settled("mail", 4, 5, shifted) == entry
    assert read_broker_log(shifted, 5 * HOUR_MS).settle("mail", watched()["mail", 4, 5]) == entry


def test_a_clock_that_is_wrong_changes_no_cause() -> None:
    wrong = [line.replace("[2026-11-29 13:2", "[2024-02-29 13:3") for line in lines()]
    entry = watched()["orders", 4, 5]
    after = settled("orders", 4, 5, wrong)
    assert (after.cause, after.certainty, after.started_at_ms) == (
        Cause.SESSION_EXPIRED,
        Certainty.SAID,
        entry.started_at_ms,
    )


def test_a_log_of_another_cluster_says_nothing() -> None:
    """It has groups of the same names in the same generations, and other members."""
    other = [line.replace("-", "-f").replace("ember ", "ember x") for line in lines()]
    for (group, old, new), entry in watched().items():
        assert settled(group, old, new, other) is entry


def test_a_log_that_begins_late_or_ends_early_says_what_it_has() -> None:
    at = next(number for number, line in enumerate(lines()) if "has failed" in line and "group orders" in line)
    for part in (lines()[at : at + 2], lines()[at : at + 1]):
        assert settled("orders", 4, 5, part).certainty is Certainty.SAID
    assert settled("orders", 4, 5, lines()[at + 2 :]) is watched()["orders", 4, 5]
    assert settled("orders", 4, 5, lines()[:at]) is watched()["orders", 4, 5]


def test_epochs_that_the_log_passes_over_are_told_by_their_members() -> None:
    """3.9 writes no sentence for an epoch that came because a member went."""
    older = [line for line in lines() if "group epoch to 3" not in line and "group epoch to 5" not in line]
    for old, cause in ((2, Cause.MEMBER_LEFT), (4, Cause.SESSION_EXPIRED)):
        after = settled("audit", old, old + 1, older)
        assert (after.cause, after.certainty) == (cause, Certainty.SAID)
    assert settled("audit", 3, 4, older).cause is Cause.MEMBER_RESTARTED


def test_a_group_that_was_made_anew_is_told_apart_by_its_members() -> None:
    again = [line.replace("fLWiEozaTKCtVwdG8o0nCw", "other") for line in lines()]
    assert settled("audit", 2, 3, [*again, *lines()]) == settled("audit", 2, 3)
    assert settled("audit", 2, 3, [*lines(), *again]) == settled("audit", 2, 3)


# Made entries
# ------------


def entry_of(cause: Cause, culprit: str, certainty: Certainty, also: tuple[FurtherTrigger, ...] = ()) -> RebalanceEntry:
    return RebalanceEntry(
        number=1,
        previous_generation=7,
        generation=8,
        protocol_type="consumer",
        protocol_name="range",
        cause=cause,
        culprit=culprit,
        culprit_client_id="app",
        culprit_client_host="/10.0.0.7",
        detail=f"member {culprit} (app at /10.0.0.7) did something",
        client_reason="",
        outcome=Outcome.COMPLETED,
        started_at_ms=1_000,
        ended_at_ms=2_000,
        certainty=certainty,
        triggers=also,
        also=tuple(each.detail for each in also),
        evidence=WHICH_CAME_FIRST if certainty is Certainty.INFERRED else "",
        source=RebalanceSource.WATCHED,
    )


Say = Callable[..., BrokerEvidence]


@pytest.fixture
def say() -> Say:
    def evidence(*messages: str) -> BrokerEvidence:
        return read_broker_log(f"[2026-11-29 16:00:00,123] INFO [GroupCoordinator 1]: {each}" for each in messages)

    return evidence


def begins(why: str) -> str:
    return (
        f"Preparing to rebalance group g in state Stable with old generation 7 (__consumer_offsets-1) (reason: {why})"
    )


ENDS = "Stabilized group g generation 8 (__consumer_offsets-1) with 2 members"


def test_of_several_things_the_log_says_which_came_first(say: Say) -> None:
    gone = FurtherTrigger(
        Cause.MEMBER_LEFT, "member b left, or its session expired", 2_000, "b", certainty=Certainty.UNKNOWN
    )
    entry = entry_of(Cause.MEMBER_JOINED, "a", Certainty.INFERRED, (gone,))
    joined = say(
        begins("Adding new member a with group instance id None; client reason: x"),
        "Member b in group g has failed, removing it from the group",
        ENDS,
    )
    after = joined.settle("g", entry)
    assert (after.cause, after.culprit, after.certainty) == (Cause.MEMBER_JOINED, "a", Certainty.SAID)
    assert [(each.cause, each.culprit, each.certainty) for each in after.triggers] == [
        (Cause.SESSION_EXPIRED, "b", Certainty.SAID)
    ]
    failed = say(
        "Member b in group g has failed, removing it from the group",
        begins("removing member b on heartbeat expiration"),
        ENDS,
    )
    after = failed.settle("g", entry)
    assert (after.cause, after.culprit, after.certainty) == (Cause.SESSION_EXPIRED, "b", Certainty.SAID)
    assert [(each.cause, each.culprit, each.certainty) for each in after.triggers] == [
        (Cause.MEMBER_JOINED, "a", Certainty.RECORDED)
    ]


def test_a_member_that_was_asked_and_did_not_come_is_late(say: Say) -> None:
    entry = entry_of(Cause.SESSION_EXPIRED, "b", Certainty.INFERRED)
    told = say(
        begins("Adding new member a with group instance id None"),
        "Group g removed dynamic members who haven't joined: Set(b)",
        ENDS,
    )
    after = told.settle("g", entry)
    assert (after.cause, after.culprit) == (Cause.MEMBER_JOINED, "a")
    assert [(each.cause, each.culprit) for each in after.triggers] == [(Cause.REBALANCE_TIMEOUT, "b")]


def test_a_rejoin_without_a_difference_is_explained(say: Say) -> None:
    entry = replace(entry_of(Cause.UNSPECIFIED, "", Certainty.UNKNOWN), incarnations=())
    named = replace(entry, members=watched()["orders", 1, 2].members)
    leader = named.members[0].member_id
    after = say(begins(f"Leader {leader} re-joining group during Stable; client reason: not provided"), ENDS).settle(
        "g", named
    )
    assert (after.cause, after.culprit, after.certainty) == (Cause.LEADER_REJOINED, leader, Certainty.SAID)
    worded = say(
        begins(f"Leader {leader} re-joining group during Stable; client reason: cached metadata has changed"), ENDS
    )
    after = worded.settle("g", named)
    assert (after.cause, after.certainty) == (Cause.PARTITIONS_CHANGED, Certainty.INFERRED)
    recorded = replace(named, cause=Cause.PARTITIONS_CHANGED, certainty=Certainty.RECORDED)
    assert worded.settle("g", recorded).certainty is Certainty.RECORDED


def test_a_member_that_exceeded_its_poll_interval_leaves_by_itself(say: Say) -> None:
    """librdkafka gives no reason: what was inferred from its return stays, but for an end that contradicts it."""
    entry = replace(
        entry_of(Cause.POLL_TIMEOUT, "new", Certainty.INFERRED),
        incarnations=tuple(
            replace(each, member_id="new", previous_id="old") for each in watched()["orders", 3, 4].incarnations
        ),
    )
    left = say(
        "[Group g] Member old has left group through explicit `LeaveGroup` request; client reason: not provided",
        begins("explicit `LeaveGroup` request for (old) members."),
        ENDS,
    )
    after = left.settle("g", entry)
    assert (after.cause, after.certainty) == (Cause.POLL_TIMEOUT, Certainty.INFERRED)
    assert "has left group" in after.evidence
    failed = say(
        "Member old in group g has failed, removing it from the group",
        begins("removing member old on heartbeat expiration"),
        ENDS,
    )
    after = failed.settle("g", entry)
    assert (after.cause, after.culprit, after.certainty) == (Cause.SESSION_EXPIRED, "old", Certainty.SAID)


def test_rounds_without_a_plan_are_one_rebalance(say: Say) -> None:
    entry = replace(entry_of(Cause.MEMBER_JOINED, "a", Certainty.INFERRED), generation=9)
    told = say(
        begins("removing member c on heartbeat expiration"),
        "Stabilized group g generation 8 (__consumer_offsets-1) with 1 members",
        begins("Adding new member a with group instance id None").replace("generation 7", "generation 8"),
        "Stabilized group g generation 9 (__consumer_offsets-1) with 2 members",
    )
    after = told.settle("g", entry)
    assert (after.cause, after.culprit) == (Cause.SESSION_EXPIRED, "c")
    assert [(each.cause, each.certainty) for each in after.triggers] == [(Cause.MEMBER_JOINED, Certainty.RECORDED)]


def test_memory_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_evidence, "MAX_SENTENCES", 20)
    evidence = read_broker_log(lines())
    assert evidence.skipped["sentence older than those that are kept"] == evidence.sentences - 20
    assert evidence.settle("audit", watched()["audit", 2, 3]) is watched()["audit", 2, 3]
    assert evidence.settle("orders", watched()["orders", 8, 9]).certainty is Certainty.SAID


def test_a_round_has_a_limit(say: Say) -> None:
    many = [f"Member m{number} in group g has failed, removing it from the group" for number in range(1_000)]
    evidence = say(*many, begins("removing member m0 on heartbeat expiration"), ENDS)
    assert sum(evidence.skipped.values()) >= 900
    assert evidence.settle("g", entry_of(Cause.MEMBER_LEFT, "m1", Certainty.UNKNOWN)).certainty is Certainty.SAID


# A log that is still being written
# ---------------------------------


def test_what_the_log_says_after_the_record_amends_the_entry() -> None:
    evidence, entry = FollowedEvidence(), watched()["audit", 2, 3]
    assert evidence.settle("audit", entry) is entry
    sentences = [each for line in lines() if (each := read_sentence(line)) is not None]
    amended = [each for each in evidence.take_sentences(sentences) if each.entry.generation == entry.generation]
    assert [(each.group_id, each.amends, each.entry) for each in amended] == [("audit", True, settled("audit", 2, 3))]
    assert evidence.take_sentences(sentences[:1]) == [], "it says no more than it did"


def test_only_the_newest_rebalances_of_a_group_wait_for_the_log() -> None:
    evidence = FollowedEvidence()
    told = [entry for (group, _, _), entry in watched().items() if group == "audit"]
    for entry in told:
        evidence.settle("audit", entry)
    sentences = [each for line in lines() if (each := read_sentence(line)) is not None]
    newest = {each.generation for each in told[-MOST_OF_GROUP:]}
    assert {each.entry.generation for each in evidence.take_sentences(sentences)} <= newest


def test_an_amended_entry_keeps_what_looks_have_seen() -> None:
    told = settled("audit", 2, 3)
    phases = (RebalancePhase("join", 7),)
    moves = tuple(replace(move, unowned_at_least_ms=5) for move in watched()["audit", 2, 3].moves)
    kept = replace(watched()["audit", 2, 3], number=9, phases=phases, moves=moves)
    amended = amend_seen_entry(kept, told)
    assert (amended.number, amended.phases, amended.cause) == (9, phases, told.cause)
    assert [(move.why, move.unowned_at_least_ms) for move in amended.moves] == [(move.why, 5) for move in told.moves]
