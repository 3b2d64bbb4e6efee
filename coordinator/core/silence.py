"""Who is not heard, and is not silent."""

from muster.coordinator.core.value import value


@value
class HeldBack:
    """For `for_ms` from now nothing that a member says is read, because of a quota: so it is not silent."""

    group_id: str
    member_id: str
    for_ms: int
