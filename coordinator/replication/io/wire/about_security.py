"""Users, lists, tokens and quotas on their way between nodes: messages from values, and back."""

from typing import Any

from muster.coordinator.errors import error_code_of
from muster.coordinator.kafka.codec.codec import struct
from muster.coordinator.replication.io.wire.words import (
    SecurityChange,
    SecurityQuery,
    SecurityRecords,
    SecurityUpdate,
    SecurityUpdateResult,
)

# -- ReadSecurity -----------------------------------------------------------------------------------------------------


def security_read_request(asked: SecurityQuery) -> Any:
    return struct("ReadSecurityRequest")(
        offset=asked.offset, last_epoch=asked.last_epoch, max_wait_ms=asked.max_wait_ms
    )


def parse_security_read(request: Any) -> SecurityQuery:
    return SecurityQuery(request.offset, request.last_epoch, max(request.max_wait_ms, 0))


def security_read_response(read: SecurityRecords) -> Any:
    return struct("ReadSecurityResponse")(
        error_code=read.error,
        start_offset=read.start,
        high_watermark=read.high_watermark,
        end_offset=read.end,
        anew=read.anew,
        records=read.records,
    )


def parse_security_read_response(response: Any) -> SecurityRecords:
    return SecurityRecords(
        error_code_of(response.error_code),
        response.start_offset,
        response.high_watermark,
        response.end_offset,
        response.anew,
        bytes(response.records),
    )


# -- WriteSecurity ----------------------------------------------------------------------------------------------------


def security_write_request(changed: SecurityUpdate) -> Any:
    row = struct("WriteSecurityRequest.changes")
    return struct("WriteSecurityRequest")(
        base_offset=changed.base,
        last_epoch=changed.last_epoch,
        changes=[row(key=each.key, value=each.value) for each in changed.changes],
    )


def parse_security_write(request: Any) -> SecurityUpdate:
    changes = (
        SecurityChange(bytes(each.key), None if each.value is None else bytes(each.value)) for each in request.changes
    )
    return SecurityUpdate(request.base_offset, request.last_epoch, tuple(changes))


def security_write_response(written: SecurityUpdateResult) -> Any:
    return struct("WriteSecurityResponse")(error_code=written.error, end_offset=written.end)


def parse_security_write_response(response: Any) -> SecurityUpdateResult:
    return SecurityUpdateResult(error_code_of(response.error_code), response.end_offset)
