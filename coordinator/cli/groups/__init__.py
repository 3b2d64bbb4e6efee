"""`muster groups`: look into consumer groups, and explain their rebalances."""

import click

from muster.coordinator.cli.common.lazy import LazyCommand, LazyGroup

GROUPS_COMMANDS = {
    "list": LazyCommand("muster.coordinator.cli.groups.listing:list_", "List groups."),
    "describe": LazyCommand(
        "muster.coordinator.cli.groups.describe:describe", "Show positions and lag, or the group's state."
    ),
    "members": LazyCommand("muster.coordinator.cli.groups.members:members", "Show members and what they own."),
    "explain": LazyCommand(
        "muster.coordinator.cli.groups.explain:explain", "Tell why the group rebalanced, each time."
    ),
    "history": LazyCommand("muster.coordinator.cli.groups.explain:history", "One line per rebalance."),
    "shadow": LazyCommand(
        "muster.coordinator.cli.groups.shadow:shadow", "Show what other assignors would have decided."
    ),
    "canary": LazyCommand(
        "muster.coordinator.cli.control.canary:canary", "Try another assignor for a while, with a way back."
    ),
    "promote": LazyCommand("muster.coordinator.cli.control.canary:promote", "The canary becomes the setting."),
    "rollback": LazyCommand("muster.coordinator.cli.control.canary:rollback", "The canary goes."),
    "settings": LazyCommand("muster.coordinator.cli.groups.settings:settings", "Show what is set for the group."),
    "set": LazyCommand(
        "muster.coordinator.cli.groups.settings:set_", "Set something for the group, such as assignor.options."
    ),
    "unset": LazyCommand("muster.coordinator.cli.groups.settings:unset", "Unset it again."),
    "freeze": LazyCommand("muster.coordinator.cli.control.freeze:freeze", "Nobody who lives loses a partition."),
    "deploy": LazyCommand(
        "muster.coordinator.cli.control.deploy:deploy", "Members are started anew; what one leaves waits for it."
    ),
    "drain": LazyCommand("muster.coordinator.cli.control.drain:drain", "Move a member's partitions away; it stays."),
    "undrain": LazyCommand("muster.coordinator.cli.control.drain:undrain", "Let it have partitions again."),
    "pin": LazyCommand("muster.coordinator.cli.control.pin:pin", "A partition belongs to a certain member."),
    "unpin": LazyCommand("muster.coordinator.cli.control.pin:unpin", "It does no longer."),
    "resume": LazyCommand("muster.coordinator.cli.control.resume:resume", "End all that is held of the group."),
    "reset-offsets": LazyCommand(
        "muster.coordinator.cli.groups.reset:reset_offsets", "Move the positions of an inactive group."
    ),
    "delete-offsets": LazyCommand("muster.coordinator.cli.groups.delete:delete_offsets", "Forget positions of topics."),
    "migrate-offsets": LazyCommand(
        "muster.coordinator.cli.groups.migrate:migrate_offsets",
        "Copy positions from ZooKeeper to the coordinator, or back.",
    ),
    "remove-members": LazyCommand(
        "muster.coordinator.cli.groups.remove:remove_members", "Send members away, as an operator."
    ),
    "delete": LazyCommand("muster.coordinator.cli.groups.delete:delete", "Delete groups without members."),
}


@click.group(cls=LazyGroup, lazy=GROUPS_COMMANDS)
def groups() -> None:
    """Look into consumer groups, and explain their rebalances."""
