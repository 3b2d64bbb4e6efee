"""What members are called: one name for each in one whole answer, in tables, sentences and pages alike.

A member goes by its client id. Where several members have the same one, the group.instance.id or the host tells them
apart, else a few letters of the member id. A member that is in the group has the better name than one that was.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

if TYPE_CHECKING:
    from muster.coordinator.rpc.v1.ledger_pb2 import Rebalance

MEMBER_ID: Final = re.compile(r"^(?P<client>.*)-(?P<start>[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12})$")
"""A client id or group instance id, and the UUID that the coordinator added."""
ZOOKEEPER_ID: Final = re.compile(r"^.*_(?P<client>[^_]+)-\d{10,}-(?P<start>[0-9a-f]{8})$")
"""What consumers of the ZooKeeper era call themselves: the group, the host, when they began, and a bit of a UUID."""
BARE_ID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
"""A UUID and nothing else, as members by KIP-848 choose it."""
LETTERS: Final = 4
LETTERS_ALONE: Final = 8
"""Of an id with nothing else to go by."""


class KnownMember(NamedTuple):
    """What is known of a member beside its id; empty where nothing is."""

    client_id: str = ""
    instance_id: str = ""
    host: str = ""


UNKNOWN: Final = KnownMember()


class NamedMember(Protocol):
    """A member as a group's description has it."""

    @property
    def member_id(self) -> str: ...
    @property
    def client_id(self) -> str: ...
    @property
    def client_host(self) -> str: ...
    @property
    def group_instance_id(self) -> str | None: ...


class Names:
    """The name of each member, by id. Who is unknown is called by whatever is given."""

    def __init__(self, known: Mapping[str, KnownMember], present: Iterable[str] = (), *, full: bool = False) -> None:
        """`present`: who is in the group, of those known. `full`: everybody goes by the whole id."""
        self._known = {member: about for member, about in known.items() if member}
        self._short = {member: member for member in self._known} if full else name_members(self._known, {*present})
        self._longest_first = sorted(self._short, key=len, reverse=True)

    @classmethod
    def of_ids(cls, member_ids: Iterable[str], *, full: bool = False) -> "Names":
        """Where nothing but ids is known."""
        return cls(dict.fromkeys(member_ids, UNKNOWN), full=full)

    @classmethod
    def of_members(cls, members: Iterable[NamedMember]) -> "Names":
        """Of a group as it is described."""
        return cls({member.member_id: known_member(member) for member in members})

    def __getitem__(self, member_id: str) -> str:
        return self._short.get(member_id, member_id)

    def in_text(self, text: str) -> str:
        """A sentence with names in place of ids, and without what the name says already.

        >>> names = Names({"a-1": KnownMember("a")})
        >>> names.in_text("member a-1 (a, librdkafka 2.3 at 10.0.0.1) left")
        'a (librdkafka 2.3 at 10.0.0.1) left'
        """
        found = [member for member in self._longest_first if member in text]
        if not found:
            return text
        ids = "|".join(map(re.escape, found))
        return re.sub(
            rf"(?<![\w-])(?P<word>[Mm]ember )?(?P<id>{ids})(?![\w-])(?: \((?P<about>[^()]*)\))?", self._said, text
        )

    def _said(self, found: re.Match[str]) -> str:
        word, member, about = found["word"] or "", found["id"], found["about"]
        name = self._short[member]
        if about is None:
            return f"{word}{name}"
        rest = about.removeprefix(self._known[member].client_id or "no client id")
        if rest == about or not rest.startswith((", ", " at ")):
            return f"{word}{name} ({about})"
        if rest.startswith(" at "):
            return name if name.endswith(f"@{rest.removeprefix(' at ')}") else f"{name}{rest}"
        return f"{name} ({rest.removeprefix(', ')})"


def known_member(member: NamedMember) -> KnownMember:
    return KnownMember(member.client_id, member.group_instance_id or "", member.client_host)


def names_of(entries: "Iterable[Rebalance]", members: Iterable[NamedMember] = (), *, full: bool = False) -> Names:
    """Over all members that the entries mention. `members`: the group as it is described; without, whoever was in the
    newest plan counts as present."""
    given = list(entries)
    known: dict[str, KnownMember] = {}
    for entry in given:
        note_members(known, entry)
    here = {member.member_id: known_member(member) for member in members}
    present = here.keys() or present_members(given)
    return Names(known | here, present, full=full)


def present_members(entries: "Iterable[Rebalance]") -> set[str]:
    """The members of the newest plan that gave anybody anything."""
    newest = max((entry for entry in entries if entry.members), key=lambda entry: entry.number, default=None)
    return {member.member_id for member in newest.members} if newest is not None else set()


def note_members(known: dict[str, KnownMember], entry: "Rebalance") -> None:
    """Add whomever an entry mentions, and what it knows of them."""

    def note(member: str, client_id: str = "", host: str = "", instance_id: str = "") -> None:
        before = known.get(member, UNKNOWN)
        known[member] = KnownMember(
            client_id or before.client_id, instance_id or before.instance_id, host or before.host
        )

    note(entry.culprit, entry.culprit_client_id, entry.culprit_client_host)
    for trigger in entry.triggers:
        note(trigger.culprit, trigger.culprit_client_id, trigger.culprit_client_host)
    for member in entry.members:
        note(member.member_id, member.client_id, member.client_host, member.group_instance_id)
    for end in {move.source for move in entry.moves} | {move.target for move in entry.moves}:
        known.setdefault(end, UNKNOWN)
    for phase in entry.phases:
        for waited in phase.waited_for:
            note(waited)
        for wait in phase.waits:
            note(wait.member_id, wait.client_id)
    for incarnation in entry.incarnations:
        note(incarnation.member_id)
        note(incarnation.previous_id, known[incarnation.member_id].client_id)
    for late in entry.late_fetches:
        note(late.member_id)
    known.pop("", None)


# How a name is found
# -------------------


def name_members(known: Mapping[str, KnownMember], present: Collection[str]) -> dict[str, str]:
    """A name for each, no two alike: first for those who are there, then for those who were."""
    here = {member: about for member, about in known.items() if member in present} if present else dict(known)
    gone = {member: about for member, about in known.items() if member not in here}
    names = name_all(here, frozenset(), (by_instance, by_host))
    names |= name_all(gone, frozenset(names.values()), ())
    return names


Tell = Callable[[str, KnownMember], str]
"""What to call a member of this plain name."""


def name_all(members: Mapping[str, KnownMember], taken: frozenset[str], tells: Iterable[Tell]) -> dict[str, str]:
    namesakes: dict[str, list[str]] = defaultdict(list)
    for member in sorted(members):
        namesakes[plain_name(member, members[member])].append(member)
    names: dict[str, str] = {}
    used = {*taken}
    for plain, same in namesakes.items():
        alone = len(same) == 1 and plain not in taken and not ZOOKEEPER_ID.match(same[0])
        named = {same[0]: plain} if alone else tell_apart(plain, same, members, tells)
        for member, name in named.items():
            # Somebody may be called what another one's letters make.
            names[member] = member if name in used else name
            used.add(names[member])
    return names


def tell_apart(
    plain: str, same: list[str], members: Mapping[str, KnownMember], tells: Iterable[Tell]
) -> dict[str, str]:
    for tell in tells:
        named = {member: tell(plain, members[member]) for member in same}
        if all(named.values()) and len({*named.values()}) == len(same) > 1:
            return named
    rest = {member: letters_of(plain, member) for member in same}
    kept = LETTERS
    while kept < max(map(len, rest.values())) and len({word[:kept] for word in rest.values()}) < len(rest):
        kept += 1
    return {member: f"{plain}-{word[:kept]}" for member, word in rest.items()}


def by_instance(plain: str, about: KnownMember) -> str:
    return about.instance_id


def by_host(plain: str, about: KnownMember) -> str:
    return f"{plain}@{about.host}" if about.host else ""


def plain_name(member: str, about: KnownMember) -> str:
    """What somebody chose for it, else its id or the beginning of it."""
    if about.client_id:
        return about.client_id
    if BARE_ID.fullmatch(member):
        return member[:LETTERS_ALONE]
    made = MEMBER_ID.match(member) or ZOOKEEPER_ID.match(member)
    return (made["client"] or "member") if made else member


def letters_of(plain: str, member: str) -> str:
    """The part of an id that its plain name does not have."""
    made = MEMBER_ID.match(member) or ZOOKEEPER_ID.match(member)
    return made["start"] if made else member.removeprefix(f"{plain}-")
