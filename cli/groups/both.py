"""What `list`, `describe` and `members` say of groups that ZooKeeper holds, beside what they show."""

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

from muster.cli.common.output import notice

if TYPE_CHECKING:
    from muster.client import Admin
    from muster.client.described import GroupDescription, GroupListing

ZOOKEEPER = "zookeeper"
"""The type of groups that live in ZooKeeper."""


def warn_of_hidden_members(admin: "Admin", group: "GroupDescription") -> None:
    """On standard error: who is in the group and is not shown, or has nothing to show."""
    if group.members and group.protocol_type != ZOOKEEPER:
        warn_of_mixed_groups(
            each.group_id for each in admin.list_groups(types=[ZOOKEEPER]) if each.group_id == group.group_id
        )
    idle = [member.member_id for member in group.members if not member.topics]
    if idle and group.protocol_type == ZOOKEEPER:
        notice(
            f"Warning: no topic is known of {', '.join(idle)}: none fits its subscription, or its registration in "
            "ZooKeeper cannot be read, which the node's log says."
        )


def warn_of_duplicate_groups(groups: "Iterable[GroupListing]") -> None:
    """A group with members on both sides has a line for each."""
    lines = Counter(group.group_id for group in groups)
    warn_of_mixed_groups(group_id for group_id, count in lines.items() if count > 1)


def warn_of_mixed_groups(group_ids: Iterable[str]) -> None:
    """Consumers of the ZooKeeper era and a coordinator's members know nothing of each other, even under one name."""
    for group_id in group_ids:
        notice(
            f"Warning: Consumer group '{group_id}' has members that meet in ZooKeeper, and others at the coordinator. "
            "Each side reads every partition; stop one of them."
        )
