"""The node's listeners: their certificates, and what stands open to whom."""

from collections.abc import Iterator

from muster.coordinator.config.addresses import WITH_SASL, Door, parse_door
from muster.coordinator.config.security.doors import open_doors
from muster.coordinator.config.security.tls import DOORS
from muster.coordinator.doctor.facts import Facts
from muster.coordinator.doctor.finding import Found


def ends_soon(facts: Facts) -> Iterator[Found]:
    """A certificate that a listener shows ends within 14 days."""
    return of_kind(facts, "certificate-ends")


def ended(facts: Facts) -> Iterator[Found]:
    """A certificate that a listener shows has ended."""
    return of_kind(facts, "certificate-ended")


def not_read(facts: Facts) -> Iterator[Found]:
    """A certificate's file has changed, and cannot be used."""
    return of_kind(facts, "certificate-not-read")


def of_kind(facts: Facts, kind: str) -> Iterator[Found]:
    for trouble in facts.node.troubles:
        if trouble.name.partition(":")[0] == kind:
            yield Found(trouble.sentence, (f"condition {trouble.name}",))


def stands_open(facts: Facts) -> Iterator[Found]:
    """Other machines reach a listener that is plaintext, or where nobody is asked for rights."""
    settings = facts.node.settings
    doors = {name: door for name, setting in DOORS.items() if (door := door_of(settings.get(setting, ""))) is not None}
    for listener, address, why in open_doors(doors, settings.get("authorizer", "none")):
        yield Found(f"{listener} is {address}: {why}", (f"authorizer is {settings.get('authorizer', 'none')}",))


def door_of(text: str) -> Door | None:
    """None where nothing is served; a node of another version may speak what is not known here."""
    try:
        return parse_door(text, WITH_SASL) if text else None
    except ValueError:
        return None
