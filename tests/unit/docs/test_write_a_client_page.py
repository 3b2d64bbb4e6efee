"""docs/write-a-client.md names only calls, fields, messages and codes that the contracts have."""

import re
from itertools import chain
from pathlib import Path

import grpc
from google.protobuf.descriptor import Descriptor, FileDescriptor

from muster.coordinator.config import known_settings
from muster.coordinator.rpc.v1 import (
    control_service_pb2,
    coordinator_service_pb2,
    errors_pb2,
    fence_service_pb2,
    transaction_service_pb2,
)
from muster.storage.rpc.v1 import broker_service_pb2

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "write-a-client.md").read_text(encoding="utf-8")
PROSE = re.sub(r"^```\w*\n.*?^```$", "", PAGE, flags=re.MULTILINE | re.DOTALL)
QUOTED = set(re.findall(r"`([^`\n]+)`", PROSE))
CONTRACTS: list[FileDescriptor] = [
    module.DESCRIPTOR
    for module in (
        coordinator_service_pb2,
        control_service_pb2,
        fence_service_pb2,
        transaction_service_pb2,
        broker_service_pb2,
    )
]
OF_OTHERS = {"RetryInfo", "ErrorInfo", "BadRequest", "ConsumerProtocolSubscription", "ConsumerProtocolAssignment"}
"""Messages of google.rpc, and Kafka's encodings."""
NOT_FIELDS = {"go_package"}


def messages() -> list[Descriptor]:
    return [message for contract in CONTRACTS for message in contract.message_types_by_name.values()]


def test_every_field_exists() -> None:
    fields = {field.name for message in messages() for field in message.fields}
    named = {word for word in QUOTED if re.fullmatch(r"[a-z]+(?:_[a-z]+)+", word)} - NOT_FIELDS
    assert len(named) > 30
    assert named <= fields


def test_every_call_and_message_exists() -> None:
    services = [service for contract in CONTRACTS for service in contract.services_by_name.values()]
    calls = {method.name for service in services for method in service.methods}
    known = {service.name for service in services} | {message.name for message in messages()} | {"ErrorCode"}
    named = {word for word in QUOTED if re.fullmatch(r"[A-Z][a-z]+(?:[A-Z][a-z]+)*", word)} - OF_OTHERS
    assert len(named & calls) > 10
    assert named <= calls | known


def test_every_code_exists() -> None:
    known = {name.removeprefix("ERROR_CODE_") for name, _ in errors_pb2.ErrorCode.items()}
    known |= {status.name for status in grpc.StatusCode}
    named = {word for word in QUOTED if re.fullmatch(r"[A-Z]+(?:_[A-Z]+)*", word)} - {"M"}
    assert len(named) > 15
    assert named <= known


def test_every_contract_and_setting_exists() -> None:
    files = set(chain(re.findall(r"`((?:coordinator|storage)/rpc/v1/\w+\.proto)`", PAGE)))
    assert len(files) == 5
    assert all((ROOT / "proto" / "muster" / file).is_file() for file in files)
    assert "grpc.max.streams.per.connection" in QUOTED
    assert {word for word in QUOTED if re.fullmatch(r"(?:grpc|group)(?:\.[a-z]+)+", word)} <= set(known_settings())
