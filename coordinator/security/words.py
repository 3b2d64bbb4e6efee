"""What is told to who lacks a right, if they may know: which, on what, for whom, and how it is granted."""

from shlex import quote

from muster.coordinator.security.identity import Identity
from muster.coordinator.security.model import CLUSTER_NAME, Operation, ResourceType

RESOURCE_FLAGS = {
    ResourceType.TOPIC: "--topic",
    ResourceType.GROUP: "--group",
    ResourceType.TRANSACTIONAL_ID: "--transactional-id",
    ResourceType.USER: "--user-principal",
}
MAX_SHOWN_NAME_CHARS = 300
"""Of a name that is told back."""


def describe_missing_right(who: Identity, operation: Operation, kind: ResourceType, name: str) -> str:
    """
    >>> from muster.coordinator.security.identity import Identity, Principal
    >>> describe_missing_right(Identity(Principal("User", "bob"), "10.0.0.7"), Operation.READ, ResourceType.GROUP,
    ... "billing")
    "User:bob at 10.0.0.7 lacks READ on GROUP 'billing'; \
muster acls add --allow-principal User:bob --operation READ --group billing"
    """
    shown = name if len(name) <= MAX_SHOWN_NAME_CHARS else name[:MAX_SHOWN_NAME_CHARS] + "..."
    what = "CLUSTER" if kind is ResourceType.CLUSTER and name == CLUSTER_NAME else f"{kind.name} {shown!r}"
    return (
        f"{who.principal} at {who.host} lacks {operation.name} on {what}; {grant_command(who, operation, kind, shown)}"
    )


def grant_command(who: Identity, operation: Operation, kind: ResourceType, name: str) -> str:
    """The command by which an administrator gives it."""
    of = "--cluster" if kind is ResourceType.CLUSTER else f"{RESOURCE_FLAGS.get(kind, '--topic')} {quote(name)}"
    return f"muster acls add --allow-principal {quote(str(who.principal))} --operation {operation.name} {of}"
