"""Whether the certificate that Kafka's clients are shown is for the names by which they ask for brokers."""

from collections.abc import Callable, Iterable
from typing import Final

from muster.coordinator.config import Settings

NAMES: Final = "broker-names"
NAMED: Final = 5


def broker_names_sentence(settings: Settings, brokers: Iterable[int], covers: Callable[[str], bool]) -> str:
    """Empty where there is nothing to tell. covers: whether the certificate is for a host of this name.

    >>> from muster.coordinator.config import load_settings
    >>> settings = load_settings(None, {"engine": "kafka://b:9092", "engine.kafka.broker.hosts": "b-$(id).example"})
    >>> broker_names_sentence(settings, [2, 1], {"b-1.example"}.__contains__).partition(":")[0]
    'the certificate that kafka.listeners shows is not for b-2.example'
    >>> broker_names_sentence(settings, [1], {"b-1.example"}.__contains__)
    ''
    """
    if not settings.engine_kafka_broker_hosts:
        return ""
    names = [settings.broker_host(each) for each in sorted(brokers)]
    missing = [name for name in names if not covers(name)]
    if not missing:
        return ""
    more = f" and {len(missing) - NAMED} more" if len(missing) > NAMED else ""
    return (
        f"the certificate that kafka.listeners shows is not for {', '.join(missing[:NAMED])}{more}: clients that check "
        f"names cannot reach these brokers; have one made whose alternative names are each of them, or one with a * "
        f"for the first part (engine.kafka.broker.hosts is {settings.engine_kafka_broker_hosts})"
    )
