"""Snapshots as bytes, for the ledger: claims and lags as plain arrays, everything else as JSON.

Layout, little-endian: magic "MSNP", uint8 version, uint32 header length, header (JSON), then the arrays
in the order in which the header counts them: claims by member (int64 positions on the axis of all topics
in Java's order), lags by topic (int64).
"""

from __future__ import annotations

import json
import struct
from dataclasses import replace
from typing import Any

import numpy as np

from muster.assignors.api import Snapshot
from muster.assignors.data.axis import Axis
from muster.assignors.data.columns import table_of
from muster.assignors.data.member_table import MemberTable, TableMember
from muster.assignors.data.order import in_java_order
from muster.assignors.data.snapshot_json import decode_snapshot_json as json_load
from muster.assignors.data.snapshot_json import encode_snapshot_json as json_dump

MAGIC = b"MSNP"
VERSION = 1
MAX_HEADER = 64 * 1024 * 1024
_PREFIX = struct.Struct("<4sBI")


def encode_snapshot(snapshot: Snapshot) -> bytes:
    """The snapshot as bytes. Claims to partitions that do not exist are not kept: nobody may rely on them."""
    table = snapshot.members if isinstance(snapshot.members, MemberTable) else table_of(snapshot)
    lags = {topic: np.asarray(row, dtype="<i8") for topic, row in (snapshot.lags or {}).items()}
    bare = replace(snapshot, members=[], lags=None)
    header = {
        "snapshot": json.loads(json_dump(bare)),
        "subscriptions": [list(topics) for topics in table.subscriptions],
        "subscription_of": [int(kind) for kind in table.subscription_of],
        "rows": [[row.id, row.generation, row.instance_id, row.rack, row.user_data.hex()] for row in table.rows],
        "claims": [None if claim is None else len(claim) for claim in table.claims],
        "lags": None if snapshot.lags is None else {topic: len(row) for topic, row in lags.items()},
    }
    text = json.dumps(header, separators=(",", ":")).encode("utf-8", "surrogatepass")
    parts = [_PREFIX.pack(MAGIC, VERSION, len(text)), text]
    parts += [np.asarray(claim, dtype="<i8").tobytes() for claim in table.claims if claim is not None]
    parts += [row.tobytes() for row in lags.values()]
    return b"".join(parts)


def decode_snapshot(blob: bytes) -> Snapshot:
    """Read what `encode_snapshot` wrote; ValueError when the bytes are cut short, foreign or contradict themselves."""
    if len(blob) < _PREFIX.size:
        raise ValueError(f"a binary snapshot has at least {_PREFIX.size} bytes; here are {len(blob)}")
    magic, version, size = _PREFIX.unpack_from(blob)
    if magic != MAGIC or version != VERSION:
        raise ValueError(f"this is no binary snapshot of version {VERSION}: it starts with {blob[:5]!r}")
    if size > min(MAX_HEADER, len(blob) - _PREFIX.size):
        raise ValueError(f"binary snapshot: a header of {size} bytes does not fit into {len(blob)} bytes")
    try:
        header = json.loads(blob[_PREFIX.size : _PREFIX.size + size].decode("utf-8", "surrogatepass"))
        return _assemble(header, blob, _PREFIX.size + size)
    except (KeyError, IndexError, TypeError, UnicodeDecodeError, ValueError, RecursionError) as error:
        raise ValueError(f"binary snapshot: its parts do not fit together ({error})") from None


def _assemble(header: dict[str, Any], blob: bytes, start: int) -> Snapshot:
    bare = Snapshot(**json_load(json.dumps(header["snapshot"])))
    axis = Axis.of(_topics(bare), bare.topics)
    reader = _Arrays(blob, start)
    rows = [
        TableMember(word, int(generation), instance, rack, bytes.fromhex(data))
        for word, generation, instance, rack, data in header["rows"]
    ]
    subscriptions = [tuple(topics) for topics in header["subscriptions"]]
    kinds = [int(kind) for kind in header["subscription_of"]]
    if any(not 0 <= kind < len(subscriptions) for kind in kinds):
        raise ValueError("a member has a subscription that is not listed")
    claims = [None if count is None else reader.take(count, axis.size) for count in header["claims"]]
    lags = header["lags"]
    return Snapshot(
        topics=bare.topics,
        members=MemberTable(rows, subscriptions, kinds, axis, claims),
        lags=None if lags is None else {topic: reader.take(count, None) for topic, count in lags.items()},
        racks=bare.racks,
        assignor=bare.assignor,
        options=bare.options,
        stale=bare.stale,
    )


def _topics(snapshot: Snapshot) -> list[str]:
    return in_java_order(topic for topic, count in snapshot.topics.items() if count > 0)


class _Arrays:
    def __init__(self, blob: bytes, at: int) -> None:
        self.blob, self.at = blob, at

    def take(self, count: int, below: int | None) -> Any:
        end = self.at + 8 * count
        if count < 0 or end > len(self.blob):
            raise ValueError(f"{count} numbers at offset {self.at} do not fit into {len(self.blob)} bytes")
        row = np.frombuffer(self.blob, dtype="<i8", count=count, offset=self.at)
        if below is not None and count and (int(row.min()) < 0 or int(row.max()) >= below):
            raise ValueError(f"a claim lies beyond the {below} partitions there are")
        self.at = end
        return row
