"""Users, lists, tokens and quotas on their way between nodes: messages from values, and back."""

from typing import Any

from muster.coordinator.errors import code_of
from muster.coordinator.kafka.codec.codec import struct
from muster.coordinator.replication.wire.words import (
    SecurityAsked,
    SecurityChange,
    SecurityChanged,
    SecurityRead,
    SecurityWritten,
)

# -- ReadSecurity -----------------------------------------------------------------------------------------------------


def read_request(asked: SecurityAsked) -> Any:
    return struct("ReadSecurityRequest")(
        offset=asked.offset, last_epoch=asked.last_epoch, max_wait_ms=asked.max_wait_ms
    )


def read_asked(request: Any) -> SecurityAsked:
    return SecurityAsked(request.offset, request.last_epoch, max(request.max_wait_ms, 0))


def read_response(read: SecurityRead) -> Any:
    return struct("ReadSecurityResponse")(
        error_code=read.error,
        start_offset=read.start,
        high_watermark=read.high_watermark,
        end_offset=read.end,
        anew=read.anew,
        records=read.records,
    )


def read_answered(response: Any) -> SecurityRead:
    return SecurityRead(
        code_of(response.error_code),
        response.start_offset,
        response.high_watermark,
        response.end_offset,
        response.anew,
        bytes(response.records),
    )


# -- WriteSecurity ----------------------------------------------------------------------------------------------------


def write_request(changed: SecurityChanged) -> Any:
    row = struct("WriteSecurityRequest.changes")
    return struct("WriteSecurityRequest")(
        base_offset=changed.base,
        last_epoch=changed.last_epoch,
        changes=[row(key=each.key, value=each.value) for each in changed.changes],
    )


def write_asked(request: Any) -> SecurityChanged:
    changes = (
        SecurityChange(bytes(each.key), None if each.value is None else bytes(each.value)) for each in request.changes
    )
    return SecurityChanged(request.base_offset, request.last_epoch, tuple(changes))


def write_response(written: SecurityWritten) -> Any:
    return struct("WriteSecurityResponse")(error_code=written.error, end_offset=written.end)


def write_answered(response: Any) -> SecurityWritten:
    return SecurityWritten(code_of(response.error_code), response.end_offset)
