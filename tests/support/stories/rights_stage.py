"""What stories can say of rights: `rights NAME TOPIC...`, which the member says with each request from then on."""

from collections.abc import Iterator
from typing import Any

from muster.coordinator.core.model.rights import Rights, RightsAnew, TopicNames, TopicRights


class RightsStage:
    """Mixed into `Stage`."""

    def __init__(self) -> None:
        self.may: dict[str, TopicRights] = {}

    def rights_of(self, name: str) -> Rights:
        return self.may.get(name)

    def do_rights(self: Any, words: list[str], _lines: list[str]) -> Iterator[str]:
        """rights NAME [unheard] TOPIC... : it may read these (`foo*`: all that begin so; `-foo`: that never).

        The lists have changed, and the shard is told; `unheard`: it is not.
        """
        name, *topics = words
        unheard = topics[:1] == ["unheard"]
        topics = topics[1:] if unheard else topics
        read, never = (names_of([t.lstrip("-") for t in topics if t.startswith("-") is no]) for no in (False, True))
        self.may[name] = TopicRights(name, read=read, never_read=never, describe=read)
        yield from ["ok"] if unheard else self.obeyed(self.step(RightsAnew({name: self.may[name]}))) or ["quiet"]


def names_of(topics: list[str]) -> TopicNames:
    prefixes = tuple(topic.rstrip("*") for topic in topics if topic.endswith("*"))
    return TopicNames(frozenset(topic for topic in topics if not topic.endswith("*")), prefixes)
