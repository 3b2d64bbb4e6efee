"""`muster groups`: look into consumer groups, and explain their rebalances."""

import click

from muster.cli.common.lazy import LazyCommand, LazyGroup

GROUPS_COMMANDS = {
    "list": LazyCommand("muster.cli.groups.listing:list_", "List groups."),
    "describe": LazyCommand("muster.cli.groups.describe:describe", "Show positions and lag, or the group's state."),
    "members": LazyCommand("muster.cli.groups.members:members", "Show members and what they own."),
    "explain": LazyCommand("muster.cli.groups.explain:explain", "Tell why the group rebalanced, each time."),
    "history": LazyCommand("muster.cli.groups.explain:history", "One line per rebalance."),
    "shadow": LazyCommand("muster.cli.groups.shadow:shadow", "Show what other assignors would have decided."),
    "canary": LazyCommand("muster.cli.groups.canary:canary", "Try another assignor for a while, with a way back."),
    "promote": LazyCommand("muster.cli.groups.canary:promote", "The canary becomes the setting."),
    "rollback": LazyCommand("muster.cli.groups.canary:rollback", "The canary goes."),
    "settings": LazyCommand("muster.cli.groups.settings:settings", "Show what is set for the group."),
    "set": LazyCommand("muster.cli.groups.settings:set_", "Set something for the group, such as assignor.options."),
    "unset": LazyCommand("muster.cli.groups.settings:unset", "Unset it again."),
    "freeze": LazyCommand("muster.cli.groups.freeze:freeze", "Nobody who lives loses a partition."),
    "deploy": LazyCommand("muster.cli.groups.deploy:deploy", "Members are started anew; what one leaves waits for it."),
    "drain": LazyCommand("muster.cli.groups.drain:drain", "Move a member's partitions away; it stays."),
    "undrain": LazyCommand("muster.cli.groups.drain:undrain", "Let it have partitions again."),
    "pin": LazyCommand("muster.cli.groups.pin:pin", "A partition belongs to a certain member."),
    "unpin": LazyCommand("muster.cli.groups.pin:unpin", "It does no longer."),
    "resume": LazyCommand("muster.cli.groups.resume:resume", "End all that is held of the group."),
    "reset-offsets": LazyCommand("muster.cli.groups.reset:reset_offsets", "Move the positions of an inactive group."),
    "delete-offsets": LazyCommand("muster.cli.groups.delete:delete_offsets", "Forget positions of topics."),
    "migrate-offsets": LazyCommand(
        "muster.cli.groups.migrate:migrate_offsets",
        "Copy positions from ZooKeeper to the coordinator, or back.",
    ),
    "remove-members": LazyCommand("muster.cli.groups.remove:remove_members", "Send members away, as an operator."),
    "delete": LazyCommand("muster.cli.groups.delete:delete", "Delete groups without members."),
}


@click.group(cls=LazyGroup, lazy=GROUPS_COMMANDS)
def groups() -> None:
    """Look into consumer groups, and explain their rebalances."""
