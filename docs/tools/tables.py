"""Tables of settings, drawn from the models that check them."""

from collections.abc import Callable, Iterable, Mapping

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from muster.client import config
from muster.coordinator.config import expected, known_settings
from muster.coordinator.config.settings import Settings
from muster.coordinator.errors import ErrorCode
from muster.storage.config import TopicSettings
from muster.storage.settings_text import describe_allowed as in_words
from muster.storage.settings_text import setting_as_text, to_dotted

CLIENTS = (config.ClientConfig, config.ProducerConfig, config.GroupConfig, config.WorkerConfig, config.ConsumerConfig)


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A table in Markdown; cells may hold anything but lines.

    >>> print(table(["a"], [["x|y"]]))
    | a |
    |---|
    | x\\|y |
    """
    lines = [list(head)]
    lines += [["---"] * len(lines[0])] + [list(row) for row in rows]
    drawn = ["| " + " | ".join(escaped(cell) for cell in line) + " |" for line in lines]
    return "\n".join([drawn[0], drawn[1].replace(" ", ""), *drawn[2:]])


def escaped(cell: str) -> str:
    """Bars between backticks end no cell, and a backslash would be shown there."""
    pieces = cell.replace("\n", " ").split("`")
    return "`".join(piece if at % 2 else piece.replace("|", "\\|") for at, piece in enumerate(pieces))


def code(text: str) -> str:
    """Text in backticks; nothing for nothing."""
    return f"`{text}`" if text else ""


def own_fields(model: type[BaseModel]) -> dict[str, FieldInfo]:
    """What a model adds to, or says otherwise than, the models below it, by dotted name."""
    inherited: dict[str, FieldInfo] = {}
    for base in model.__bases__:
        # A mix-in that is no client's own model belongs to the model that mixes it in.
        if issubclass(base, config.ClientConfig) and base in CLIENTS:
            inherited |= base.model_fields
    return {
        to_dotted(name): field
        for name, field in model.model_fields.items()
        if name not in inherited or inherited[name].default != field.default
    }


def client_properties(kind: str) -> str:
    """What one kind of client (`ConsumerConfig`) understands beyond the kinds below it."""
    return settings_table(own_fields(getattr(config, kind)), told=in_words)


def settings_table(fields: Mapping[str, FieldInfo], told: Callable[[FieldInfo], str] = expected) -> str:
    """Name, default, what is allowed and what it means."""
    rows = [[code(name), default_of(field), told(field), field.description or ""] for name, field in fields.items()]
    return table(["property", "default", "allowed", "meaning"], rows)


def default_of(field: FieldInfo) -> str:
    """The default as a properties file would have it; in words where it is made, or missing."""
    if field.is_required():
        return "the node's"
    return code(setting_as_text(field.get_default(call_default_factory=True)) or "") or "none"


def node_settings() -> str:
    """Every setting of a node, a part for each room of `coordinator/config`, in its order."""
    known = known_settings()
    parts = []
    for room in Settings.__bases__:
        assert issubclass(room, BaseModel)
        fields = [name for field in room.model_fields.values() if (name := field.alias or "") in known]
        title = (room.__doc__ or "").partition("\n")[0]
        heading = HEADINGS[room.__name__]
        parts.append(
            f"## {heading}\n\n{own_words(room, title)}{settings_table({name: known[name] for name in fields})}\n"
        )
    return "\n".join(parts)


HEADINGS = {
    "NodeSettings": "The node",
    "GrpcSettings": "gRPC",
    "KafkaSettings": "Kafka listener",
    "WaitingSettings": "Waiting requests and sessions",
    "GroupCoordinationSettings": "All groups",
    "ConsumerGroupSettings": "Consumer groups (KIP-848)",
    "CentralGroupSettings": "Central groups",
    "OffsetsSettings": "Offsets",
    "TransactionSettings": "Transactions",
    "ZooKeeperConnectionSettings": "ZooKeeper",
    "ClusterSettings": "Cluster",
    "KafkaBackendSettings": "Kafka-backed mode",
    "HttpSettings": "HTTP listener",
    "ObservationSettings": "Samples and autoscaler",
    "MetricsSettings": "Metrics",
    "TracingSettings": "Traces",
    "TlsSettings": "TLS and certificates",
    "AuthorizationSettings": "Authorization",
    "AuditSettings": "Audit log",
    "AuthenticationSettings": "Authentication",
    "QuotaSettings": "Quotas",
    "LogSettings": "Log",
}


def own_words(room: type[BaseModel], title: str) -> str:
    """A room's docstring, where it has one of its own."""
    return f"{title}\n\n" if "__doc__" in vars(room) and title else ""


def topic_settings() -> str:
    """What a topic may set for itself."""
    fields = {field.alias or name: field for name, field in TopicSettings.model_fields.items()}
    return settings_table(fields, told=in_words)


def error_codes() -> str:
    """The codes that a coordinator answers with."""
    return table(
        ["number", "name", "retriable", "meaning"],
        [[str(error.value), code(error.name), "yes" if error.retriable else "", error.meaning] for error in ErrorCode],
    )
