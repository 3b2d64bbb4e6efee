"""gRPC requests in which one list has as many entries as the message holds, for every list there is.

They come from the services' descriptors: a new method is among them by being there.
"""

from collections.abc import Iterator
from typing import NamedTuple

from google.protobuf.descriptor import Descriptor, FieldDescriptor, MethodDescriptor

from muster.coordinator.kafka.codec.codec import encode_uvarint
from muster.coordinator.rpc.v1 import coordinator_service_pb2, externalscaler_service_pb2
from muster.storage.rpc.v1 import broker_service_pb2, staging_service_pb2

SERVICES = [
    service
    for module in (coordinator_service_pb2, externalscaler_service_pb2, broker_service_pb2, staging_service_pb2)
    for service in module.DESCRIPTOR.services_by_name.values()
]
NUMBERS = frozenset(
    {FieldDescriptor.CPPTYPE_INT32, FieldDescriptor.CPPTYPE_INT64, FieldDescriptor.CPPTYPE_ENUM}
    | {FieldDescriptor.CPPTYPE_UINT32, FieldDescriptor.CPPTYPE_UINT64, FieldDescriptor.CPPTYPE_BOOL}
)
LENGTH = 2


class Listing(NamedTuple):
    """One list of one method's request, or (`fields` empty) of nothing but fields that nobody knows."""

    method: MethodDescriptor
    fields: tuple[FieldDescriptor, ...]
    """From the request's own field down to the list."""
    packed: bool = False

    @property
    def word(self) -> str:
        path = ".".join(one.name for one in self.fields) or "fields that nobody knows"
        return f"{self.method.name} {path}{' packed' if self.packed else ''}"

    def message(self, size: int) -> bytes:
        """The request in about so many bytes, all of them entries of the list."""
        if not self.fields:
            return (encode_uvarint(9_999 << 3) + b"\0") * (size // 4)
        last = self.fields[-1]
        if self.packed:
            data = tagged(last, bytes(size))
        elif last.cpp_type in NUMBERS:
            data = (encode_uvarint(last.number << 3) + b"\0") * (size // 2)
        else:
            data = tagged(last, b"") * (size // 2)
        for one in reversed(self.fields[:-1]):
            data = tagged(one, data)
        return data


def tagged(field: FieldDescriptor, data: bytes) -> bytes:
    return encode_uvarint(field.number << 3 | LENGTH) + encode_uvarint(len(data)) + data


def listings() -> Iterator[Listing]:
    for service in SERVICES:
        for method in service.methods:
            yield Listing(method, ())
            for fields in lists_in(method.input_type):
                yield Listing(method, fields)
                if fields[-1].cpp_type in NUMBERS:
                    yield Listing(method, fields, packed=True)


def lists_in(message: Descriptor, above: tuple[FieldDescriptor, ...] = ()) -> Iterator[tuple[FieldDescriptor, ...]]:
    for field in message.fields:
        here = (*above, field)
        if field.is_repeated:
            yield here
        if field.message_type is not None:
            yield from lists_in(field.message_type, here)
