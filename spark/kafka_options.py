"""Options of Spark's Kafka source and sink that Muster refuses or ignores, each with its reason.

An option that would change the records, or who may read them, is refused. An option that only tunes Kafka's client is
accepted and ignored, with one warning that names it, so that a job can move to this source by changing the name of
its format.
"""

import logging
from collections.abc import Iterable, Mapping
from functools import cache

from muster.spark.read_options import OptionError

log = logging.getLogger("muster.spark")

KAFKA_PREFIX = "kafka."
SECURITY = "security.protocol"
PLAINTEXT = "PLAINTEXT"
KAFKA_KEYSTORES = (
    "certificates and keys come as PEM here, in the file that ssl.truststore.location or ssl.keystore.location names"
)
KAFKA_LOGINS = "a login over gRPC is a token: set token.file (on driver and executors) or token"
SECRETS = ("ssl.", "sasl.", "security.providers")

CATALOG = "provider"
"""What Spark's catalog says beside a table's own options, and nobody else."""

NO_TABLE = (
    "Spark keeps the options of a catalog's table from data sources in Python, so a table of this source could be made "
    "but neither read nor written; CREATE TEMPORARY VIEW name USING muster OPTIONS (...) makes a view that can"
)
NO_OPTIONS = (
    "no option at all came from Spark, which keeps those of a catalog's table from data sources in Python; "
    "CREATE TEMPORARY VIEW name USING muster OPTIONS (...) instead of a table, or give the options with each "
    "statement: FROM name WITH ('bootstrap.servers' = '...', ...), INSERT INTO name WITH (...)"
)

SERIALIZED_HERE = "keys and values come as binary columns; cast or decode them in the query"
REFUSED_READING = {
    "key.deserializer": SERIALIZED_HERE,
    "value.deserializer": SERIALIZED_HERE,
    "key.serializer": SERIALIZED_HERE,
    "value.serializer": SERIALIZED_HERE,
    "interceptor.classes": "records are read as columns, no interceptor would see them",
    "enable.auto.commit": "the source commits what finished batches have read; commitOffsets=false turns that off",
    "auto.offset.reset": "startingOffsets says where to begin, startingOffsetsFallback where nothing is committed",
    "topic": "it names where to write; to read, use subscribe, subscribePattern or assign",
    "path": "topics are no files; use subscribe, subscribePattern or assign, and load() without a path",
    "continuous": "Spark's Python data sources do not take part in continuous processing",
}

BY_TIME = "retries go by default.api.timeout.ms"
NO_LONG_POLL = "a task asks for what is there already, and waits for nothing"
TRANSPORT = "connections are gRPC's"
METRICS = "there is no Kafka client to measure"
CLIENT_ONLY = {
    "client.dns.lookup": TRANSPORT,
    "connections.max.idle.ms": TRANSPORT,
    "enable.metrics.push": METRICS,
    "metadata.recovery.rebootstrap.trigger.ms": "all of bootstrap.servers are tried in turn",
    "metadata.recovery.strategy": "all of bootstrap.servers are tried in turn",
    "metric.reporters": METRICS,
    "metrics.num.samples": METRICS,
    "metrics.recording.level": METRICS,
    "metrics.sample.window.ms": METRICS,
    "receive.buffer.bytes": TRANSPORT,
    "send.buffer.bytes": TRANSPORT,
    "socket.connection.setup.timeout.max.ms": TRANSPORT,
    "socket.connection.setup.timeout.ms": TRANSPORT,
}
IGNORED_READING = {
    **CLIENT_ONLY,
    "allow.auto.create.topics": "reading creates no topic",
    "auto.commit.interval.ms": "progress is committed with each batch",
    "check.crcs": "checksums are always looked at",
    "exclude.internal.topics": "a pattern means the topics it matches",
    "fetch.max.wait.ms": NO_LONG_POLL,
    "fetch.min.bytes": NO_LONG_POLL,
    "fetchOffset.numRetries": BY_TIME,
    "fetchOffset.retryIntervalMs": BY_TIME,
    "groupIdPrefix": "no group is made up; group.id makes the query a member of one",
    "max.poll.records": "arrowRows sets the rows of an Arrow batch, maxOffsetsPerTrigger the records of a micro-batch",
    "share.acknowledgement.mode": "no share group is joined",
}
STREAM_ONLY = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay", "maxBytesPerTrigger")
"""Taken in a batch query too, as by Spark's own source; a batch reads what there is."""

IN_A_BATCH = "a batch query has no triggers"

ONE_AT_A_TIME = "a task sends one request while it prepares the next"
IGNORED_WRITING = {
    **CLIENT_ONLY,
    "buffer.memory": "a task holds batch.size bytes per partition, and 64 MiB at most",
    "compression.gzip.level": "records are compressed at the codec's usual level",
    "compression.lz4.level": "records are compressed at the codec's usual level",
    "compression.zstd.level": "records are compressed at the codec's usual level",
    "linger.ms": "a task sends a batch when it is full, and the rest at its end; nothing lingers",
    "max.in.flight.requests.per.connection": ONE_AT_A_TIME,
    "metadata.max.idle.ms": "a task asks for the partitions of its topics once",
    "partitioner.adaptive.partitioning.enable": "without a key rows take turns",
    "partitioner.availability.timeout.ms": "without a key rows take turns",
    "retries": "retries go by time: delivery.timeout.ms",
}


class IgnoredOptions:
    """What was taken and means nothing, found by lower-case names; `notes` says each with its reason."""

    def __init__(self, reasons: Mapping[str, str]) -> None:
        self._reasons = {name.lower(): (name, why) for name, why in reasons.items()}
        self.notes: list[str] = []
        self._secrets: list[str] = []

    def note_option(self, given: str, value: str) -> bool:
        """Whether this option is one of them. What belongs to a secured connection is `secured`'s.

        >>> found = IgnoredOptions({"fetch.min.bytes": "nothing waits"})
        >>> found.note_option("kafka.fetch.min.bytes", "1"), found.note_option("subscribe", "t"), found.notes
        (True, False, ['kafka.fetch.min.bytes (nothing waits)'])
        """
        name = given.lower().removeprefix(KAFKA_PREFIX)
        prefix = given[: len(given) - len(name)]
        if name.startswith(SECRETS):
            self._secrets.append(given)
            return True
        if (found := self._reasons.get(name)) is None:
            return False
        self.notes.append(f"{prefix}{found[0]} ({found[1]})")
        return True

    def secured(self, client: dict[str, str]) -> None:
        """What was said of TLS and logins beyond what a client knows; over a plain connection none of it, which is
        taken out of `client`. Raises OptionError."""
        if client.get(SECURITY, PLAINTEXT).strip().upper() == PLAINTEXT:
            idle = [name for name in client if name.startswith("ssl.")]
            self.notes += [f"{given} ({SECURITY} is {PLAINTEXT})" for given in (*self._secrets, *idle)]
            for name in idle:
                del client[name]
        elif self._secrets:
            given = self._secrets[0]
            why = KAFKA_LOGINS if given.lower().removeprefix(KAFKA_PREFIX).startswith("sasl.") else KAFKA_KEYSTORES
            raise OptionError(f"{given} cannot be set here: {why}")


@cache
def _warn(what: str) -> None:
    log.warning("taken, but without effect here: %s", what)


def warn_of_ignored(notes: Iterable[str]) -> None:
    """One warning for all of them, and one only: Spark makes sources again and again in the same process."""
    if notes := tuple(notes):
        _warn("; ".join(notes))
