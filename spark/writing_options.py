"""What writing to `format("muster")` understands: the option names of Spark's Kafka sink, and what it lacks.

Spark hands options over as text, with their names in lower case. Unknown names are refused with the nearest known one,
names that mean nothing here with the reason.
"""

import difflib
from collections.abc import Mapping
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from muster.client.config import ClientConfig, load
from muster.client.errors import ConfigError
from muster.client.group_protocols import to_dotted
from muster.client.security_config import show_property
from muster.spark.errors import OptionError
from muster.spark.kafka_options import IGNORED_WRITING, KAFKA_PREFIX, NO_OPTIONS, IgnoredOptions
from muster.storage.wording import describe_allowed

ALWAYS = "the sink decides it: see exactlyOnce, txnAppId and txnVersion"
READS_NOTHING = "a write reads nothing; say where rows go by the option topic or a topic column"
AS_COLUMNS = "keys and values come as string or binary columns"
REFUSED_WRITING = {
    "key.serializer": AS_COLUMNS,
    "value.serializer": AS_COLUMNS,
    "interceptor.classes": "records are written as columns, no interceptor would see them",
    "partitioner.class": "a partition column says where a row goes; without one the key does, as in Kafka",
    "enable.idempotence": ALWAYS,
    "transactional.id": ALWAYS,
    "transaction.timeout.ms": ALWAYS,
    "group.id": "a write is no member of a group; exactly-once goes by the query's id, or by txnAppId and txnVersion",
    "subscribe": READS_NOTHING,
    "subscribepattern": READS_NOTHING,
    "assign": READS_NOTHING,
    "startingoffsets": READS_NOTHING,
    "includeheaders": "a headers column is written when there is one",
    "path": "topics are no files; name one by the option topic, or rows by a topic column",
}
ACCEPTED_WRITING = frozenset({"checkpointlocation", "queryname", "outputmode"})
"""What Spark passes on, though it is for Spark itself."""


class WriteOptions(BaseModel):
    """The checked options of one write. Properties of the client, such as bootstrap.servers, are in `client`."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    topic: str | None = Field(None, min_length=1, description="Where all rows go; wins over a topic column.")
    compression: Literal["none", "gzip", "snappy", "lz4", "zstd"] = Field(
        "none", alias="compression.type", description="none, gzip, snappy, lz4 or zstd."
    )
    batch_size: int = Field(
        512 << 10,
        alias="batch.size",
        ge=1024,
        le=16 << 20,
        description="Bytes of one record batch, before compression.",
    )
    max_request_size: int = Field(
        4 << 20, alias="max.request.size", ge=1024, le=32 << 20, description="Bytes of one request, about."
    )
    delivery_timeout_ms: int = Field(
        120_000, alias="delivery.timeout.ms", ge=1, description="When to give a request up, retries included."
    )
    acks: Literal["all", "-1"] = Field("all", description="all: a task counts as done when its records are on disk.")
    exactly_once: bool = Field(
        True, alias="exactlyOnce", description="Whether a stream's batches are staged and committed; false appends."
    )
    delivery: Literal["exactly-once", "at-least-once"] | None = Field(
        None, description="Of a stream: exactly-once, the default, or at-least-once, which is exactlyOnce=false."
    )
    txn_app_id: str | None = Field(
        None,
        alias="txnAppId",
        pattern=r"^[a-zA-Z0-9_-][a-zA-Z0-9._-]{0,180}$",
        description="Makes a batch write exactly-once: who writes. Letters, digits, '.', '_' and '-'.",
    )
    txn_version: int | None = Field(
        None, alias="txnVersion", ge=0, le=2**62, description="Which of its writes this is; each once, upwards."
    )
    client: dict[str, str] = Field(default_factory=dict, repr=False, description="Properties of the client.")
    ignored: tuple[str, ...] = Field((), description="What was taken and means nothing here, with the reason.")
    streaming: bool = Field(False, description="Which kind of write this is.")

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.batch_size > self.max_request_size:
            raise ValueError(
                f"batch.size={self.batch_size} is above max.request.size={self.max_request_size}, so that a full batch "
                "would fit into no request; expected at most as much: lower batch.size or raise max.request.size"
            )
        if (self.txn_app_id is None) != (self.txn_version is None):
            raise ValueError("txnAppId and txnVersion go together: who writes, and which of its writes this is")
        if self.streaming and self.txn_app_id is not None:
            raise ValueError("txnAppId and txnVersion are for batch writes; a stream has its query's id and batch ids")
        for name, alias in (("exactly_once", "exactlyOnce"), ("delivery", "delivery")):
            if not self.streaming and name in self.model_fields_set:
                raise ValueError(
                    f"{alias} is for streams; a batch write becomes exactly-once by txnAppId and txnVersion"
                )
        if self.delivery is not None and "exactly_once" in self.model_fields_set and self.stages != self.exactly_once:
            raise ValueError(
                f"delivery={self.delivery} and exactlyOnce={self.exactly_once} contradict each other; keep one"
            )
        return self

    @property
    def stages(self) -> bool:
        """Whether a stream's batches are staged and committed."""
        return self.exactly_once if self.delivery is None else self.delivery == "exactly-once"

    def client_config(self) -> ClientConfig:
        return load(ClientConfig, self.client, {"default_api_timeout_ms": self.delivery_timeout_ms})


KNOWN_WRITING = {
    (field.alias or name).lower(): (field.alias or name)
    for name, field in WriteOptions.model_fields.items()
    if name not in ("client", "ignored", "streaming")
}
KNOWN_WRITING_CLIENT = {
    to_dotted(name): to_dotted(name) for name in ClientConfig.model_fields if name != "default_api_timeout_ms"
}


def check_write_options(options: Mapping[str, str], *, streaming: bool) -> WriteOptions:
    """Check the options of a write; OptionError names the first wrong one, what was expected, and what to do."""
    if not options:
        raise OptionError(NO_OPTIONS)
    own: dict[str, Any] = {}
    client: dict[str, str] = {}
    ignored = IgnoredOptions(IGNORED_WRITING)
    for given, value in options.items():
        name = given.lower()
        bare = name.removeprefix(KAFKA_PREFIX)
        if (why := REFUSED_WRITING.get(bare)) is not None:
            raise OptionError(f"{given} cannot be set here: {why}")
        if name in ACCEPTED_WRITING:
            continue
        if bare in KNOWN_WRITING and (name == bare or "." in bare or bare == "acks"):
            _put_write_option(own, KNOWN_WRITING[bare], value, given)
        elif bare in ("endpoints", "bootstrap.servers"):
            _put_write_option(client, "bootstrap.servers", value, given)
        elif bare in KNOWN_WRITING_CLIENT:
            _put_write_option(client, KNOWN_WRITING_CLIENT[bare], value, given)
        elif not ignored.take(given, value):
            raise OptionError(_unknown_write_option(given))
    if "bootstrap.servers" not in client:
        raise OptionError("bootstrap.servers is missing; set it to HOST:PORT of a node, as in 127.0.0.1:9290")
    ignored.secured(client)
    return _check_write(own, client, tuple(ignored.notes), streaming)


def _put_write_option(into: dict[str, Any], name: str, value: str, given: str) -> None:
    if into.setdefault(name, value) != value:
        both = f"{show_property(name, into[name])} and {show_property(name, value)}"
        raise OptionError(f"{given} is given twice: {both}; keep one")


def _check_write(
    own: dict[str, Any], client: dict[str, str], ignored: tuple[str, ...], streaming: bool
) -> WriteOptions:
    try:
        options = WriteOptions.model_validate({**own, "client": client, "ignored": ignored, "streaming": streaming})
        options.client_config()
    except ValidationError as error:
        raise OptionError(_explain_write_error(error)) from None
    except ConfigError as error:
        raise OptionError(str(error)) from None
    return options


def _unknown_write_option(given: str) -> str:
    names = {**KNOWN_WRITING, **KNOWN_WRITING_CLIENT}
    near = difflib.get_close_matches(given.lower().removeprefix(KAFKA_PREFIX), names, n=1, cutoff=0.6)
    hint = f"did you mean {names[near[0]]!r}?" if near else f"known here: {', '.join(sorted(names.values()))}"
    return f"{given!r} is not an option for writing; {hint}"


def _explain_write_error(error: ValidationError) -> str:
    fields = {field.alias or name: field for name, field in WriteOptions.model_fields.items()}
    told = []
    for problem in error.errors(include_url=False):
        if not problem["loc"]:
            told.append(problem["msg"].removeprefix("Value error, "))
            continue
        name = str(problem["loc"][0])
        told.append(f"{name}={problem['input']!r}: expected {describe_allowed(fields[name])}")
    return "; ".join(dict.fromkeys(told))
