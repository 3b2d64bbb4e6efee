"""The node's listeners: their certificates, and what stands open to whom."""

from collections.abc import Iterator

from muster.coordinator.config.addresses import WITH_SASL, ListenerAddress, parse_listener
from muster.coordinator.config.listener_security import find_open_listeners
from muster.coordinator.config.tls import LISTENER_NAMES
from muster.coordinator.observability.doctor.facts import DoctorFacts
from muster.coordinator.observability.doctor.finding import RuleCase


def certificate_ends_soon(facts: DoctorFacts) -> Iterator[RuleCase]:
    """A certificate that a listener shows ends within 14 days."""
    return find_certificate_troubles(facts, "certificate-ends")


def certificate_ended(facts: DoctorFacts) -> Iterator[RuleCase]:
    """A certificate that a listener shows has ended."""
    return find_certificate_troubles(facts, "certificate-ended")


def certificate_not_read(facts: DoctorFacts) -> Iterator[RuleCase]:
    """A certificate's file has changed, and cannot be used."""
    return find_certificate_troubles(facts, "certificate-not-read")


def find_certificate_troubles(facts: DoctorFacts, kind: str) -> Iterator[RuleCase]:
    for trouble in facts.node.troubles:
        if trouble.name.partition(":")[0] == kind:
            yield RuleCase(trouble.sentence, (f"condition {trouble.name}",))


def listener_stands_open(facts: DoctorFacts) -> Iterator[RuleCase]:
    """Other machines reach a listener that is plaintext, or where nobody is asked for rights."""
    settings = facts.node.settings
    doors = {
        name: door
        for name, setting in LISTENER_NAMES.items()
        if (door := parse_known_listener(settings.get(setting, ""))) is not None
    }
    for listener, address, why in find_open_listeners(doors, settings.get("authorizer", "none")):
        yield RuleCase(f"{listener} is {address}: {why}", (f"authorizer is {settings.get('authorizer', 'none')}",))


def parse_known_listener(text: str) -> ListenerAddress | None:
    """None where nothing is served; a node of another version may speak what is not known here."""
    try:
        return parse_listener(text, WITH_SASL) if text else None
    except ValueError:
        return None
