"""How many groups and members a user has at once: those that live, of which the user has spoken here."""

from collections.abc import Callable
from typing import Final, NamedTuple

from muster.coordinator.security.names import GROUP_COUNT, MEMBER_COUNT
from muster.coordinator.security.quotas import NodeQuotas

POLICY_VIOLATION: Final = 44
GROUP_MAX_SIZE_REACHED: Final = 81

JOIN_GRACE_S: Final = 5.0
"""Who has asked to join so lately counts, whether or not the group has heard of it yet."""

MembershipCheck = Callable[[str, str], bool]
"""Whether a group has this member."""


class QuotaRefusal(NamedTuple):
    code: int
    sentence: str


class UserCounts:
    """Kept only while such a quota is set: after a restart, members are known again with their next heartbeat."""

    def __init__(self, quotas: NodeQuotas, alive: MembershipCheck = lambda group, member: True) -> None:
        self._quotas = quotas
        self.alive = alive
        """Given by whoever has the groups, as soon as there are any."""
        self._of: dict[str, dict[tuple[str, str], float]] = {}

    def note(self, user: str, group: str, member: str, now_s: float) -> None:
        """This member speaks for the user."""
        if self._limits(user) != (None, None):
            self._of.setdefault(user, {})[group, member] = now_s

    def refusal(self, user: str, group: str, member: str, now_s: float) -> QuotaRefusal | None:
        """Why somebody may not join; None: it may."""
        groups, members = self._limits(user)
        if groups is None and members is None:
            self._of.pop(user, None)
            return None
        mine = self._of.setdefault(user, {})
        if member and (group, member) in mine and self.alive(group, member):
            return None
        for one, noted_s in list(mine.items()):
            if now_s - noted_s > JOIN_GRACE_S and not self.alive(*one):
                del mine[one]
        others = [one for one in mine if one != (group, member)]
        if members is not None and len(others) >= members:
            return QuotaRefusal(
                GROUP_MAX_SIZE_REACHED,
                f"user {user} has {len(others)} members of groups, as many as its quota allows ({MEMBER_COUNT})",
            )
        theirs = {each for each, _ in others}
        if groups is not None and group not in theirs and len(theirs) >= groups:
            return QuotaRefusal(
                POLICY_VIOLATION,
                f"user {user} has members in {len(theirs)} groups, as many as its quota allows ({GROUP_COUNT})",
            )
        return None

    def _limits(self, user: str) -> tuple[int | None, int | None]:
        return self._quotas.count_of(GROUP_COUNT, user), self._quotas.count_of(MEMBER_COUNT, user)
