"""Rows of a request that are refused for themselves: taken out before the handler sees it, and put into its answer."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from google.protobuf.message import Message

from muster.coordinator.errors import ErrorCode

ROWS: Final[Mapping[str, tuple[str, str]]] = {
    "ConsumerGroupDescribe": ("group_ids", "groups"),
    "DescribeGroups": ("groups", "groups"),
    "DeleteGroups": ("groups_names", "results"),
    "OffsetCommit": ("topics", "topics"),
    "OffsetFetch": ("topics", "topics"),
    "OffsetDelete": ("topics", "topics"),
    "Metadata": ("topics", "topics"),
    "CreateTopics": ("topics", "topics"),
    "DeleteTopics": ("topic_names", "topics"),
    "CreatePartitions": ("topics", "results"),
    "DescribeConfigs": ("topics", "results"),
    "AlterConfigs": ("topics", "results"),
    "Produce": ("topic_data", "responses"),
    "Fetch": ("topics", "responses"),
    "MultiFetch": ("fetches", "results"),
    "ListOffsets": ("topics", "topics"),
    "DeleteRecords": ("topics", "topics"),
}
"""By the method's name: where its request has rows, and where its answer has what became of each."""

NAMES: Final = ("name", "topic", "group_id")
PARTS: Final = ("partitions", "partition_data", "partition_indexes")
INDEXES: Final = ("partition_index", "partition", "index")
NOT_KNOWN: Final = ("offset", "timestamp", "base_offset", "log_append_time_ms", "high_watermark", "last_stable_offset",
                    "log_start_offset", "low_watermark", "committed_offset", "committed_leader_epoch")  # fmt: skip
"""Figures that are -1 in a row that was refused."""

RowVerdict = tuple[ErrorCode, str]


class RefusedRow(NamedTuple):
    at: int
    row: Any
    verdict: RowVerdict


def split_refused_rows(
    request: Any, field: str, judge: Callable[[str], RowVerdict | None]
) -> tuple[Any, list[RefusedRow], int]:
    """The request without the rows that `judge` refuses, those rows, and how many are left. It stays as it is."""
    rows = getattr(request, field)
    refused = []
    for at, row in enumerate(rows):
        name = row if isinstance(row, str) else name_of_row(row)
        if name and (verdict := judge(name)) is not None:
            refused.append(RefusedRow(at, row, verdict))
    if not refused:
        return request, refused, len(rows)
    out = {each.at for each in refused}
    kept = [row for at, row in enumerate(rows) if at not in out]
    smaller = type(request)()
    for descriptor, value in request.ListFields():
        if descriptor.name != field:
            copy_field(smaller, descriptor.name, value)
    getattr(smaller, field).extend(kept)
    return smaller, refused, len(kept)


def copy_field(message: Any, name: str, value: Any) -> None:
    if isinstance(value, Message):
        getattr(message, name).CopyFrom(value)
    elif hasattr(value, "MergeFrom"):
        getattr(message, name).MergeFrom(value)
    else:
        setattr(message, name, value)


def name_of_row(row: Any) -> str:
    return str(next((getattr(row, name) for name in NAMES if hasattr(row, name)), ""))


def merge_refused_rows(answer: Any, field: str, refused: Sequence[RefusedRow], kept: int) -> Any:
    """The answer with the refused rows at their places; behind the others where it has another order."""
    rows = getattr(answer, field)
    answered = list(rows)
    made = [(each.at, fill_refused_row(rows.add(), each)) for each in refused]
    if len(answered) == kept:
        for at, row in made:
            answered.insert(at, row)
    else:
        answered += [row for _, row in made]
    ordered = [type(row).FromString(row.SerializeToString()) for row in answered]
    del rows[:]
    rows.extend(ordered)
    return answer


def fill_refused_row(row: Any, refused: RefusedRow) -> Any:
    """`row` of the answer says no to what the request's row asked for."""
    asked, (code, text) = refused.row, refused.verdict
    fields = row.DESCRIPTOR.fields_by_name
    for name in NAMES:
        if name in fields:
            setattr(row, name, asked if isinstance(asked, str) else name_of_row(asked))
    if "error_code" in fields:
        set_refusal(row, code, text)
    elif "result" in fields:  # of MultiFetch: one partition a row
        row.result.partition_index = asked.partition
        set_refusal(row.result, code, text)
    else:
        listed = row.partitions if "partitions" in fields else row.partition_responses
        for part in next(getattr(asked, name) for name in PARTS if hasattr(asked, name)):
            one = listed.add()
            setattr(one, index_field(one), part if isinstance(part, int) else getattr(part, index_field(part)))
            set_refusal(one, code, text)
    return row


def index_field(part: Any) -> str:
    return next(name for name in INDEXES if name in part.DESCRIPTOR.fields_by_name)


def set_refusal(row: Any, code: ErrorCode, text: str) -> None:
    fields = row.DESCRIPTOR.fields_by_name
    row.error_code = int(code)
    if "error_message" in fields:
        row.error_message = text
    for name in NOT_KNOWN:
        if name in fields and fields[name].containing_oneof is None:
            setattr(row, name, -1)
