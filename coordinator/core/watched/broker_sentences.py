"""What a broker's own log says of its groups: the sentences of Kafka 2.0 to 4.1, one line each.

The sentences are those of Kafka's GroupCoordinator (2.x and 3.x) and GroupMetadataManager (4.x, and KIP-848). A name
in them may hold anything, other sentences included. A line that can be read in two ways is not read at all. Kafka
writes a client's line breaks as they are, so a client can write whole lines into the log: a broker's log is as good
evidence as its clients are trusted.
"""

import re
from calendar import timegm
from collections.abc import Callable, Iterable
from enum import Enum
from typing import NamedTuple

MAX_LINE = 8_192
"""Characters. No sentence on a group is longer, unless a name in it is."""
MAX_QUOTE = 300
MAX_REASON = 255
MAX_NAMED = 50
"""Members that one sentence names; Kafka removes all late ones in one."""


class SentenceKind(Enum):
    """What a sentence tells."""

    JOINED = "joined"
    REJOINED = "joined again"
    LEFT = "left"
    EXPIRED = "its session expired"
    LATE_JOIN = "did not join again in time"
    LATE_SYNC = "did not fetch its share in time"
    LATE_RELEASE = "did not give up its partitions in time"
    REPLACED = "its static member came back"
    TOO_LARGE = "the group was loaded, and is too large"
    PREPARING = "a rebalance begins"
    STABILIZED = "all members have joined"
    ASSIGNED = "the leader's plan is in"
    EMPTIED = "the group is empty"
    EPOCH = "the group epoch rose"


class BrokerSentence(NamedTuple):
    """One sentence on one group.

    member_ids: whom it names; of a static member's return the new id, then the old. generation: PREPARING has the old
    one, the others the one that has come; an epoch is one, too; -1: it has none. about: what a rebalance begins with.
    reason: the client's own words. wall_ms: the log's clock as if it were UTC, unless `zoned`; -1: the line has no
    time. text: the sentence as it can be quoted.
    """

    group_id: str
    kind: SentenceKind
    text: str
    member_ids: tuple[str, ...] = ()
    generation: int = -1
    about: SentenceKind | None = None
    reason: str = ""
    metadata_hash: str = ""
    wall_ms: int = -1
    zoned: bool = False


def read_sentence(line: str) -> BrokerSentence | None:
    """The sentence of this line; None: it has none on a group, or it can be read in two ways."""
    if len(line) > MAX_LINE:
        return None
    prefix = PREFIX.match(line)
    if prefix is None:
        return None
    text = line[prefix.end() :].rstrip("\r\n")
    logger = LOGGER.search(text)
    if logger is not None:
        text = text[: logger.start()]
    fields = only_reading(SENTENCES, text)
    if fields is None or (logger is not None and ".coordinator.group." not in logger[1]):
        return None
    kind, named = fields
    sentence = BrokerSentence(
        group_id=named["group"],
        kind=kind,
        text=quote(text, MAX_QUOTE),
        member_ids=members_of(named),
        generation=int(named.get("generation") or -1),
        reason=said_reason(named),
        metadata_hash=named.get("hash") or "",
    )
    if kind is SentenceKind.PREPARING:
        sentence = with_beginning(sentence, named.get("why") or "")
    return with_time(sentence, prefix[0])


def with_beginning(sentence: BrokerSentence, why: str) -> BrokerSentence:
    """The rebalance that begins, with what it begins for."""
    fields = only_reading(BEGINNINGS, why.removesuffix("."))
    if fields is None:
        return sentence
    about, named = fields
    return sentence._replace(about=about, member_ids=members_of(named), reason=said_reason(named))


def with_time(sentence: BrokerSentence, before: str) -> BrokerSentence:
    """before: what the line has before the sentence."""
    found = TIME.search(before)
    if found is None:
        return sentence
    *moment, fraction, zone = found.groups()
    try:
        seconds = timegm(tuple(map(int, moment)))
    except ValueError:
        return sentence  # of a thirteenth month
    millis = int((fraction or "0").ljust(3, "0")[:3])
    wall_ms = (seconds - offset_s(zone or "Z")) * 1000 + millis
    return sentence._replace(wall_ms=wall_ms, zoned=zone is not None)


def offset_s(zone: str) -> int:
    """How much a zone is ahead of UTC, in seconds.

    >>> offset_s("+05:30"), offset_s("-0300"), offset_s("Z")
    (19800, -10800, 0)
    """
    if zone == "Z":
        return 0
    minutes = int(zone[1:3]) * 60 + int(zone[-2:])
    return -60 * minutes if zone[0] == "-" else 60 * minutes


def quote(text: str, most: int) -> str:
    """The words as they may stand in a sentence of ours: in one line, without control characters, and not too long.

    >>> quote("ended" + chr(27) + "[2J", 99), quote("abcdef", 3)
    ('ended?[2J', 'abc...')
    """
    cut = text if len(text) <= most else f"{text[:most]}..."
    return cut if cut.isprintable() else "".join(char if char.isprintable() else "?" for char in cut)


def said_reason(named: dict[str, str]) -> str:
    """A client's own words; a broker writes "not provided" where there are none."""
    reason = quote(named.get("reason") or "", MAX_REASON)
    return "" if reason == "not provided" else reason


def members_of(named: dict[str, str]) -> tuple[str, ...]:
    """The members that the fields name, at most MAX_NAMED."""
    if many := named.get("members"):
        return tuple(many.split(", ", MAX_NAMED)[:MAX_NAMED])
    return tuple(each for each in (named.get("member"), named.get("former")) if each)


# The sentences
# -------------

LEVELS = "TRACE|DEBUG|INFO|WARN|ERROR|FATAL"
PREFIX = re.compile(
    rf"(?:(?!\b(?:{LEVELS})\b).){{0,200}}\b(?:{LEVELS})\b\]?\s+(?:\[[\w.-]{{1,80}}\] )?"
    r"\[GroupCoordinator[^\]\[]{0,200}\]:? "
)
"""By Kafka's own pattern `[%d] %p %m (%c)`, and by those with a thread's name before or behind the message. What stands
before the level is a time, and perhaps what a collector of logs has put there. A client's words come behind it."""
LOGGER = re.compile(r" \(((?:kafka|org\.apache\.kafka)\.[\w.$]+)\)(?: \[[\w.-]{1,80}\])?$")
TIME = re.compile(r"(\d{4})-(\d\d)-(\d\d)[ T](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9}))?(Z|[+-]\d\d:?\d\d)?")

Reading = Callable[[str], re.Match[str] | None]
Shape = tuple[SentenceKind, Reading, Reading]


FIELD = re.compile(r"(?<!\?P)<(\w+)>")
FIELDS = {
    "group": ".{1,300}",
    "member": r"\S{1,300}",
    "former": r"\S{1,300}",
    "instance": r"\S{1,300}",
}
"""How long what a field stands for may be, so that no line takes long to read; `.+` is what others stand for."""


def shapes(*rows: tuple[SentenceKind, str]) -> tuple[Shape, ...]:
    """Patterns in which `<name>` stands for a text: each once as short, and once as long as it can be."""
    return tuple((kind, reading(pattern, "?"), reading(pattern, "")) for kind, pattern in rows)


def reading(pattern: str, length: str) -> Reading:
    named = FIELD.sub(lambda field: f"(?P<{field[1]}>{FIELDS.get(field[1], '.+')}{length})", pattern)
    return re.compile(named, re.DOTALL).fullmatch


def only_reading(known: Iterable[Shape], text: str) -> tuple[SentenceKind, dict[str, str]] | None:
    """The fields of the text, if it has one shape and can be read in one way only."""
    for kind, short, long in known:
        if (found := short(text)) is None:
            continue
        other = long(text)
        return (kind, found.groupdict()) if other is not None and other.groups() == found.groups() else None
    return None


PARTITION = r"(?: \(__consumer_offsets-\d+\))?"
NUMBER = r"(?P<generation>\d+)"
GROUP = r"\[Group(?:Id)? <group>\] "
REASON = "(?:; client reason: <reason>)?"
SEVERAL = r"(?:Set\(|\[|KeySet\(|HashSet\()<members>[\])]"

SENTENCES = shapes(
    (
        SentenceKind.PREPARING,
        rf"Preparing to rebalance group <group> in state \w+ with old generation {NUMBER}{PARTITION} "
        r"\(reason: <why>\)\.?",
    ),
    (
        SentenceKind.PREPARING,
        rf"Preparing to rebalance group <group> with old generation {NUMBER} \(__consumer_offsets-\d+\)",
    ),
    (SentenceKind.STABILIZED, rf"Stabilized group <group> generation {NUMBER}{PARTITION}(?: with \d+ members)?\.?"),
    (
        SentenceKind.ASSIGNED,
        rf"Assignment received from leader(?: <member>)? for group <group> for generation {NUMBER}"
        r"(?:\. The group has \d+ members, \d+ of which are static)?\.?",
    ),
    (SentenceKind.EMPTIED, rf"Group <group> with generation {NUMBER} is now empty{PARTITION}\.?"),
    (SentenceKind.EXPIRED, r"Member <member> in group <group> has failed, removing it from the group\.?"),
    (
        SentenceKind.LEFT,
        r"Member\[group\.instance\.id <instance>, member\.id <member>\] in group <group> has left, "
        "removing it from the group",
    ),
    (
        SentenceKind.LEFT,
        r"Member MemberMetadata\(memberId=<member>, groupInstanceId=<details>\) has left group <group> "
        f"through explicit `LeaveGroup`(?: request)?{REASON}",
    ),
    (
        SentenceKind.LEFT,
        rf"{GROUP}(?:Dynamic |Static )?[Mm]ember <member>(?: with instance id <instance>)? has left group "
        f"through explicit `LeaveGroup` request{REASON}",
    ),
    (SentenceKind.LATE_JOIN, rf"Group <group> removed dynamic members who haven't joined: {SEVERAL}"),
    (SentenceKind.LATE_SYNC, rf"Group <group> removed members who haven't sent their sync requests: {SEVERAL}"),
    (
        SentenceKind.REPLACED,
        rf"{GROUP}Static member with instance id <instance> re-joins the consumer group using the \w+ protocol\. "
        r"Created a new member <member> to replace the existing member <former>\.",
    ),
    (
        SentenceKind.JOINED,
        rf"{GROUP}(?:Member|Static member) <member>(?: with instance id <instance>)? joins the consumer group "
        r"using the \w+ protocol\.",
    ),
    (SentenceKind.EXPIRED, rf"{GROUP}Member <member> fenced from the group because the member session expired\.+"),
    (
        SentenceKind.LATE_RELEASE,
        rf"{GROUP}Member <member> fenced from the group because it failed to transition from epoch \d+ within \d+ms\.",
    ),
    (
        SentenceKind.LEFT,
        rf"{GROUP}(?:Member|Static [Mm]ember) <member>(?: with instance id <instance>)? "
        r"left the consumer group\.",
    ),
    (SentenceKind.EPOCH, rf"{GROUP}Bumped group epoch to {NUMBER}(?: with metadata hash (?P<hash>-?\d+))?\."),
)

BEGINNINGS = shapes(
    (SentenceKind.JOINED, f"Adding new member <member> with group instance id <instance>{REASON}"),
    (SentenceKind.LEFT, f"[Rr]emoving member <member> on LeaveGroup{REASON}"),
    (SentenceKind.LEFT, r"explicit `LeaveGroup` request for \(<members>\) members"),
    (SentenceKind.EXPIRED, r"removing member <member> on heartbeat expiration"),
    (SentenceKind.LATE_SYNC, rf"Removing {SEVERAL} on pending sync request expiration"),
    (SentenceKind.REJOINED, f"Updating metadata for static member <member> with instance id <instance>{REASON}"),
    (
        SentenceKind.REJOINED,
        r"Group's selectedProtocol will change because static member <member> with instance id <instance> joined "
        f"with change of protocol{REASON}",
    ),
    (
        SentenceKind.REJOINED,
        rf"(?:Updating metadata for member|[Ll]eader|Member) <member> (?:is )?(?:(?:re-)?joining group )?during "
        rf"\w+{REASON}",
    ),
    (SentenceKind.TOO_LARGE, r"Freshly-loaded group <group> is over capacity <details>"),
)
