"""The sentences of Kafka's log on groups, as 2.8, 3.9 and 4.1 write them, and what is not one."""

import pytest

from muster.coordinator.core.watched.broker_sentences import (
    MAX_LINE,
    MAX_QUOTE,
    BrokerSentence,
    SentenceKind,
    read_sentence,
)

MEMBER = "app-1-0b4c6bd1-0c58-4b6f-8d2a-6f2d3a3a4d11"
OTHER = "app-2-5d1f7a06-91c5-4a1c-9f34-0e3c8f9d2a77"


def read(message: str, logger: str = "kafka.coordinator.group.GroupCoordinator") -> BrokerSentence:
    sentence = read_sentence(f"[2026-11-29 16:00:00,123] INFO [GroupCoordinator 1]: {message} ({logger})\n")
    assert sentence is not None
    return sentence


def test_a_rebalance_of_2_8_says_which_member_failed() -> None:
    failed = read(f"Member {MEMBER} in group orders has failed, removing it from the group")
    assert (failed.group_id, failed.kind, failed.member_ids) == ("orders", SentenceKind.EXPIRED, (MEMBER,))
    begins = read(
        "Preparing to rebalance group orders in state PreparingRebalance with old generation 7 (__consumer_offsets-12) "
        f"(reason: removing member {MEMBER} on heartbeat expiration)"
    )
    assert (begins.kind, begins.generation, begins.about) == (SentenceKind.PREPARING, 7, SentenceKind.EXPIRED)
    assert begins.member_ids == (MEMBER,)
    assert read("Stabilized group orders generation 8 (__consumer_offsets-12)").generation == 8
    assigned = read(
        "Assignment received from leader for group orders for generation 8. "
        "The group has 2 members, 0 of which are static."
    )
    assert (assigned.kind, assigned.generation, assigned.member_ids) == (SentenceKind.ASSIGNED, 8, ())
    emptied = read("Group orders with generation 9 is now empty (__consumer_offsets-12)")
    assert (emptied.kind, emptied.generation) == (SentenceKind.EMPTIED, 9)


def test_2_0_gives_no_reason() -> None:
    begins = read("Preparing to rebalance group orders with old generation 7 (__consumer_offsets-12)")
    assert (begins.group_id, begins.generation, begins.about) == ("orders", 7, None)


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (
            f"Member[group.instance.id None, member.id {MEMBER}] in group orders has left, removing it from the group",
            "",
        ),
        (
            f"Member MemberMetadata(memberId={MEMBER}, groupInstanceId=None, clientId=app-1, clientHost=/10.0.0.7, "
            "sessionTimeoutMs=45000, rebalanceTimeoutMs=300000, supportedProtocols=List(range)) has left group orders "
            "through explicit `LeaveGroup`; client reason: the consumer is being closed",
            "the consumer is being closed",
        ),
        (
            f"[Group orders] Member {MEMBER} has left group through explicit `LeaveGroup` request; "
            "client reason: not provided",
            "",
        ),
        (
            f"[GroupId orders] Dynamic member {MEMBER} has left group through explicit `LeaveGroup` request; "
            "client reason: consumer poll timeout has expired.",
            "consumer poll timeout has expired.",
        ),
        (f"[GroupId orders] Member {MEMBER} left the consumer group.", ""),
        (f"[GroupId orders] Static Member {MEMBER} with instance id i1 left the consumer group.", ""),
    ],
)
def test_a_member_leaves_in_each_version_s_words(message: str, reason: str) -> None:
    left = read(message)
    assert (left.group_id, left.kind, left.member_ids, left.reason) == ("orders", SentenceKind.LEFT, (MEMBER,), reason)


@pytest.mark.parametrize(
    ("why", "about", "members", "reason"),
    [
        (f"Adding new member {MEMBER} with group instance id None", SentenceKind.JOINED, (MEMBER,), ""),
        (f"Removing member {MEMBER} on LeaveGroup; client reason: bye", SentenceKind.LEFT, (MEMBER,), "bye"),
        (f"explicit `LeaveGroup` request for ({MEMBER}, {OTHER}) members.", SentenceKind.LEFT, (MEMBER, OTHER), ""),
        (f"Removing Set({MEMBER}) on pending sync request expiration", SentenceKind.LATE_SYNC, (MEMBER,), ""),
        (
            f"Leader {MEMBER} re-joining group during Stable; client reason: cached metadata has changed",
            SentenceKind.REJOINED,
            (MEMBER,),
            "cached metadata has changed",
        ),
        (
            f"Updating metadata for member {MEMBER} during Stable; client reason: not provided",
            SentenceKind.REJOINED,
            (MEMBER,),
            "",
        ),
        (
            f"Updating metadata for static member {MEMBER} with instance id i1; client reason: x",
            SentenceKind.REJOINED,
            (MEMBER,),
            "x",
        ),
        ("something that a later version says", None, (), ""),
    ],
)
def test_a_rebalance_says_what_it_begins_for(
    why: str, about: SentenceKind | None, members: tuple[str, ...], reason: str
) -> None:
    begins = read(
        f"Preparing to rebalance group g in state Stable with old generation 3 (__consumer_offsets-1) (reason: {why})"
    )
    assert (begins.generation, begins.about, begins.member_ids, begins.reason) == (3, about, members, reason)


def test_members_that_are_late_are_named() -> None:
    late = read(f"Group orders removed dynamic members who haven't joined: Set({MEMBER}, {OTHER})")
    assert (late.kind, late.member_ids) == (SentenceKind.LATE_JOIN, (MEMBER, OTHER))
    late = read(
        f"[GroupId g] Member {MEMBER} fenced from the group because it failed to transition from epoch 4 "
        "within 300000ms."
    )
    assert (late.kind, late.member_ids) == (SentenceKind.LATE_RELEASE, (MEMBER,))


@pytest.mark.parametrize("ends", ["", ".", ".."])
def test_a_session_of_kip_848_ends(ends: str) -> None:
    expired = read(f"[GroupId g] Member {MEMBER} fenced from the group because the member session expired{ends or '.'}")
    assert expired.kind is SentenceKind.EXPIRED


def test_epochs_have_a_hash_since_4_1() -> None:
    assert read("[GroupId g] Bumped group epoch to 5.").metadata_hash == ""
    epoch = read("[GroupId g] Bumped group epoch to 5 with metadata hash -77.")
    assert (epoch.kind, epoch.generation, epoch.metadata_hash) == (SentenceKind.EPOCH, 5, "-77")


@pytest.mark.parametrize(
    ("before", "wall_ms", "zoned"),
    [
        ("[2026-11-29 16:00:00,123] INFO ", 1_795_968_000_123, False),
        ("2026-11-29T16:00:00.123Z INFO ", 1_795_968_000_123, True),
        ("2026-11-29T16:00:00.123+05:30 INFO ", 1_795_968_000_123 - 19_800_000, True),
        ("kafka-0 [2026-11-29 16:00:00] INFO [data-plane-kafka-request-handler-3] ", 1_795_968_000_000, False),
        ("[2026-13-29 16:00:00,123] INFO ", -1, False),
        ("INFO ", -1, False),
    ],
)
def test_the_time_is_as_exact_as_the_line_has_it(before: str, wall_ms: int, zoned: bool) -> None:
    sentence = read_sentence(f"{before}[GroupCoordinator 1]: Stabilized group g generation 8 with 2 members")
    assert sentence is not None
    assert (sentence.wall_ms, sentence.zoned) == (wall_ms, zoned)


# What is not to be trusted
# -------------------------


def test_a_line_that_can_be_read_in_two_ways_is_not_read() -> None:
    """The group of this name, or group `a`, of which the name tells a lie."""
    name = f"a in state Stable with old generation 3 (reason: removing member {MEMBER} on heartbeat expiration)"
    line = (
        f"[2026-11-29 16:00:00,123] INFO [GroupCoordinator 1]: Preparing to rebalance group {name} in state Stable "
        f"with old generation 0 (reason: Adding new member {OTHER} with group instance id null)."
    )
    assert read_sentence(line) is None


def test_a_client_s_words_are_no_sentence() -> None:
    forged = f"[GroupCoordinator 1]: Member {MEMBER} in group g has failed, removing it from the group"
    assert read_sentence(f"[2026-11-29 16:00:00,123] INFO client id is INFO {forged}") is None
    assert read_sentence(f"[2026-11-29 16:00:00,123] WARN [Client] {forged} (kafka.network.Processor)") is None
    assert read_sentence(f"a client says {forged}") is None


def test_a_quote_is_short_and_in_one_line() -> None:
    words = "\x1b[2J\x07" + "x" * 1_000
    left = read(
        f"[Group g] Member {MEMBER} has left group through explicit `LeaveGroup` request; client reason: {words}"
    )
    assert left.text.isprintable()
    assert left.reason.isprintable()
    assert len(left.text) <= MAX_QUOTE + 3


def test_lines_that_are_too_long_are_passed_over() -> None:
    assert read_sentence("[2026-11-29 16:00:00,123] INFO [GroupCoordinator 1]: " + "x" * MAX_LINE) is None


@pytest.mark.parametrize(
    "part",
    [
        "with old generation 3 (reason: ",
        "Member in group ",
        ", member.id a] in group ",
        "a" * 9,
        "[GroupId a] ",
        "INFO ",
    ],
)
def test_no_line_takes_long(part: str) -> None:
    for start in ("Preparing to rebalance group ", "Member[group.instance.id ", "Member ", "[GroupId ", ""):
        line = f"[2026-11-29 16:00:00,123] INFO [GroupCoordinator 1]: {start}{part * (7_000 // len(part))}"
        assert read_sentence(line) is None
