"""By which entry of the lists something is decided, in words: for who asks why."""

from collections.abc import Sequence

from muster.coordinator.security.authorizer import ALLOWED_BY, applies_to
from muster.coordinator.security.identity import Identity
from muster.coordinator.security.model import Acl, Operation, PatternType, Permission, ResourceType


def find_deciding_entry(
    about: Sequence[Acl], who: Identity, operation: Operation, *, allow_if_none: bool = False
) -> tuple[Acl | None, str]:
    """`about` are all entries for the resource; the one that decides, and why, in one sentence."""
    mine = [acl for acl in about if applies_to(acl, who)]
    for acl in mine:
        if acl.permission is Permission.DENY and acl.operation in (operation, Operation.ALL):
            return acl, f"no: {describe_entry(acl)}, and what is denied is denied"
    by = ALLOWED_BY.get(operation, frozenset({operation, Operation.ALL}))
    for acl in mine:
        if acl.permission is Permission.ALLOW and acl.operation in by:
            implied = f", which allows {operation.name}" if acl.operation is not operation else ""
            return acl, f"yes: {describe_entry(acl)}{implied}"
    if not about and allow_if_none:
        return None, "yes: no entry names it, and allow.everyone.if.no.acl.found is true"
    if not about:
        return None, "no: no entry names it"
    return (
        None,
        f"no: of {len(about)} entries about it, none allows {operation.name} to {who.principal} from {who.host}",
    )


def describe_entry(acl: Acl) -> str:
    """
    >>> about = ResourceType.TOPIC, PatternType.PREFIXED, "or"
    >>> describe_entry(Acl(*about, "User:bob", "*", Operation.READ, Permission.ALLOW))
    "User:bob is allowed READ on TOPIC 'or...' from anywhere"
    """
    what = "allowed" if acl.permission is Permission.ALLOW else "denied"
    name = f"'{acl.name}...'" if acl.pattern is PatternType.PREFIXED else f"'{acl.name}'"
    of = acl.resource_type.name if acl.resource_type is ResourceType.CLUSTER else f"{acl.resource_type.name} {name}"
    where = "from anywhere" if acl.host == "*" else f"from {acl.host}"
    return f"{acl.principal} is {what} {acl.operation.name} on {of} {where}"
