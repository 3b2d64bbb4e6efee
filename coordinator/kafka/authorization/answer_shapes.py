"""The table of answer shapes: where an API's answer has room for a refusal.

`SHAPES` has a row for each API that the interpreter in `table_judges` can judge. Which names the request has, and which
right each of them needs, is in the table of rights (`coordinator.security.rights`); field types, versions and defaults
are in the schema. A row here says the rest: the list of refused rows, its name field, and constants that Kafka sends
in a refusal where the schema has another default. APIs without a row have a judge in code (`guard.CODE_JUDGES`).
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeAlias

from muster.coordinator.kafka.codec.codec import struct

# Kinds of shapes
# ---------------

Constants: TypeAlias = Mapping[str, object]
NO_CONSTANTS: Final[Constants] = MappingProxyType({})

RefusalWriter: TypeAlias = Callable[[str, Any, dict[str, Any]], Any]
"""Makes an answer: its path, the request, and the code and message of the refusal."""


class Whole(NamedTuple):
    """A refusal is the whole answer: the code, the message where the answer has one, and constants.

    A constant of None is left out in versions that have no null for the field.
    """

    constants: Constants = NO_CONSTANTS
    write: RefusalWriter | None = None
    """For an answer that has the code in rows that mirror the request."""
    asked: str = ""
    """Where the request names topics, of an API whose answer leaves out the others that the caller may not see."""


class Parts(NamedTuple):
    """Rows within a row, which a refusal copies from the request: a topic's partitions."""

    requested: str = "partitions"
    key: str = "partition_index"
    """Empty: the request lists plain numbers."""
    constants: Constants = NO_CONSTANTS
    answered: str = "partitions"
    answered_key: str = "partition_index"


class Rows(NamedTuple):
    """The names are in a list of the request. Refused rows are taken out, and appended to a list of the answer."""

    answered: str
    key: str = "name"
    parts: Parts | None = None
    """The code is in these, not in the row."""
    constants: Constants = NO_CONSTANTS
    always_ask: bool = False
    """The handler is called even if every row is refused."""


class LeftOut(NamedTuple):
    """Nothing is refused. Rows of the answer that the caller may not see are left out."""


Shape: TypeAlias = Whole | Rows | LeftOut

# Answers that mirror the request
# -------------------------------


def refuse_creations(path: str, request: Any, refusal: dict[str, Any]) -> Any:
    return struct(path)(results=[struct(f"{path}.results")(**refusal) for _ in request.creations])


def refuse_deletions(path: str, request: Any, refusal: dict[str, Any]) -> Any:
    return struct(path)(filter_results=[struct(f"{path}.filter_results")(**refusal) for _ in request.filters])


def refuse_markers(path: str, request: Any, refusal: dict[str, Any]) -> Any:
    """A row for each partition of each marker: there is no code for the whole, and no message."""
    row, topic_row, part = (struct(f"{path}.markers{below}") for below in ("", ".topics", ".topics.partitions"))
    code = refusal["error_code"]

    def refuse_topic(topic: Any) -> Any:
        parts = [part(partition_index=number, error_code=code) for number in topic.partition_indexes]
        return topic_row(name=topic.name, partitions=parts)

    return struct(path)(
        markers=[
            row(producer_id=marker.producer_id, topics=[refuse_topic(topic) for topic in marker.topics])
            for marker in request.markers
        ]
    )


def refuse_quota_entries(path: str, request: Any, refusal: dict[str, Any]) -> Any:
    row, part = struct(f"{path}.entries"), struct(f"{path}.entries.entity")
    return struct(path)(
        entries=[
            row(
                entity=[part(entity_type=one.entity_type, entity_name=one.entity_name) for one in entry.entity],
                **refusal,
            )
            for entry in request.entries
        ]
    )


def refuse_users(path: str, request: Any, refusal: dict[str, Any]) -> Any:
    names = dict.fromkeys(one.name for one in (*request.deletions, *request.upsertions))
    return struct(path)(results=[struct(f"{path}.results")(user=name, **refusal) for name in names])


def refuse_described_users(path: str, request: Any, refusal: dict[str, Any]) -> Any:
    """A row for each user that is named, and no code for the whole, of which librdkafka 2.16 dies."""
    names = dict.fromkeys(one.name for one in request.users or ())
    if not names:
        return struct(path)(**refusal)
    return struct(path)(results=[struct(f"{path}.results")(user=name, **refusal) for name in names])


def refuse_elections(path: str, request: Any, refusal: dict[str, Any]) -> Any:
    """Version 0 has no code for the whole. A request for all partitions is not told which there are."""
    topic_row = struct(f"{path}.replica_election_results")
    row = struct(f"{path}.replica_election_results.partition_result")
    rows = [
        topic_row(
            topic=topic.topic, partition_result=[row(partition_id=number, **refusal) for number in topic.partitions]
        )
        for topic in request.topic_partitions or ()
    ]
    return struct(path)(error_code=refusal["error_code"], replica_election_results=rows)


# The table
# ---------

SHAPES: Final[Mapping[str, Shape]] = {
    "ListOffsets": Rows("topics", parts=Parts(), always_ask=True),
    "OffsetForLeaderEpoch": Rows("topics", "topic", Parts(key="partition", answered_key="partition"), always_ask=True),
    "JoinGroup": Whole({"protocol_name": None}),
    "Heartbeat": Whole(),
    "LeaveGroup": Whole(),
    "SyncGroup": Whole(),
    "ListGroups": LeftOut(),
    "DeleteRecords": Rows("topics", parts=Parts(constants={"low_watermark": -1})),
    "AddOffsetsToTxn": Whole(),
    "EndTxn": Whole(),
    "TxnOffsetCommit": Rows("topics", parts=Parts()),
    "WriteTxnMarkers": Whole(write=refuse_markers),
    "DescribeAcls": Whole(),
    "CreateAcls": Whole(write=refuse_creations),
    "DeleteAcls": Whole(write=refuse_deletions),
    "CreatePartitions": Rows("results"),
    "DeleteGroups": Rows("results", "group_id"),
    "ElectLeaders": Whole(write=refuse_elections, asked="topic_partitions.topic"),
    "AlterPartitionReassignments": Whole(),
    "ListPartitionReassignments": Whole(asked="topics.name"),
    "OffsetDelete": Rows("topics", parts=Parts(), always_ask=True),
    "DescribeClientQuotas": Whole({"entries": None}),
    "AlterClientQuotas": Whole(write=refuse_quota_entries),
    "DescribeProducers": Rows("topics", parts=Parts(requested="partition_indexes", key="")),
    "ListTransactions": LeftOut(),
    "DescribeUserScramCredentials": Whole(write=refuse_described_users),
    "AlterUserScramCredentials": Whole(write=refuse_users),
}
"""By API. Each has the right to one name, to the cluster, or to each name of one list, whatever the request says."""
