"""`muster groups`: look into consumer groups, and explain their rebalances."""

import click

from muster.coordinator.cli.common.lazy import Lazy, LazyGroup

COMMANDS = {
    "list": Lazy("muster.coordinator.cli.groups.listing:list_", "List groups."),
    "describe": Lazy(
        "muster.coordinator.cli.groups.describe:describe", "Show positions and lag, or the group's state."
    ),
    "members": Lazy("muster.coordinator.cli.groups.members:members", "Show members and what they own."),
    "explain": Lazy("muster.coordinator.cli.groups.explain:explain", "Tell why the group rebalanced, each time."),
    "history": Lazy("muster.coordinator.cli.groups.explain:history", "One line per rebalance."),
    "shadow": Lazy("muster.coordinator.cli.groups.shadow:shadow", "Show what other assignors would have decided."),
    "canary": Lazy(
        "muster.coordinator.cli.control.canary:canary", "Try another assignor for a while, with a way back."
    ),
    "promote": Lazy("muster.coordinator.cli.control.canary:promote", "The canary becomes the setting."),
    "rollback": Lazy("muster.coordinator.cli.control.canary:rollback", "The canary goes."),
    "settings": Lazy("muster.coordinator.cli.groups.settings:settings", "Show what is set for the group."),
    "set": Lazy(
        "muster.coordinator.cli.groups.settings:set_", "Set something for the group, such as assignor.options."
    ),
    "unset": Lazy("muster.coordinator.cli.groups.settings:unset", "Unset it again."),
    "freeze": Lazy("muster.coordinator.cli.control.freeze:freeze", "Nobody who lives loses a partition."),
    "deploy": Lazy(
        "muster.coordinator.cli.control.deploy:deploy", "Members are started anew; what one leaves waits for it."
    ),
    "drain": Lazy("muster.coordinator.cli.control.drain:drain", "Move a member's partitions away; it stays."),
    "undrain": Lazy("muster.coordinator.cli.control.drain:undrain", "Let it have partitions again."),
    "pin": Lazy("muster.coordinator.cli.control.pin:pin", "A partition belongs to a certain member."),
    "unpin": Lazy("muster.coordinator.cli.control.pin:unpin", "It does no longer."),
    "resume": Lazy("muster.coordinator.cli.control.resume:resume", "End all that is held of the group."),
    "reset-offsets": Lazy(
        "muster.coordinator.cli.groups.reset:reset_offsets", "Move the positions of an inactive group."
    ),
    "delete-offsets": Lazy("muster.coordinator.cli.groups.delete:delete_offsets", "Forget positions of topics."),
    "migrate-offsets": Lazy(
        "muster.coordinator.cli.groups.migrate:migrate_offsets",
        "Copy positions from ZooKeeper to the coordinator, or back.",
    ),
    "remove-members": Lazy("muster.coordinator.cli.groups.remove:remove_members", "Send members away, as an operator."),
    "delete": Lazy("muster.coordinator.cli.groups.delete:delete", "Delete groups without members."),
}


@click.group(cls=LazyGroup, lazy=COMMANDS)
def groups() -> None:
    """Look into consumer groups, and explain their rebalances."""
