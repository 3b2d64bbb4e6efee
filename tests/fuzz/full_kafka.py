"""Requests of Kafka's protocol in which one list has as many entries as the frame holds, for every list there is.

They come from the schema's notation: a new API is among them by being there.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

from muster.coordinator.kafka.codec.codec import encode, encode_uvarint, fields_in_version, is_flexible, struct
from muster.coordinator.kafka.codec.messages import STRUCT, FieldSchema, all_messages
from muster.coordinator.kafka.protocol import APIS

ZEROS = {"string": "", "bytes": b"", "records": b"", "uuid": bytes(16), "bool": False}


class Listing(NamedTuple):
    """One list of one version of a request."""

    api: str
    version: int
    fields: tuple[FieldSchema, ...]
    """From the request's own field down to the list."""

    @property
    def path(self) -> str:
        return self.fields[-1].path

    @property
    def word(self) -> str:
        return f"{self.path} of version {self.version}"

    def frame(self, size: int) -> bytes:
        """The request's body in about so many bytes, all of them entries of the list."""
        name = f"{self.api}Request"
        none, one = (b"".join(encode(name, self.version, self._message(count))) for count in (0, 1))
        at = next(at for at, (left, right) in enumerate(zip(none, one, strict=False)) if left != right)
        length = len(one) - len(none)
        entry = one[at + 1 : at + 1 + length]
        count = size // length
        if is_flexible(name, self.version) and self.fields[-1].flexible:
            return none[:at] + encode_uvarint(count + 1) + entry * count + none[at + 1 :]
        return none[: at - 3] + count.to_bytes(4, "big") + entry * count + none[at + 1 :]

    def _message(self, count: int) -> Any:
        return self._made(f"{self.api}Request", all_messages()[f"{self.api}Request"].fields, 0, count)

    def _made(self, path: str, fields: list[FieldSchema], depth: int, count: int) -> Any:
        """One struct; `count` entries in the list that is meant, one in each that leads to it."""
        made = struct(path)()
        for one in fields_in_version(fields, self.version):
            setattr(made, one.name, self._value(one, depth, count))
        return made

    def _value(self, one: FieldSchema, depth: int, count: int) -> Any:
        led = depth < len(self.fields) and one is self.fields[depth]
        if one.array and not led:
            return []
        if one.array:
            entries = count if depth + 1 == len(self.fields) else 1
            entry = self._made(one.path, one.fields, depth + 1, count) if one.type == STRUCT else ZEROS.get(one.type, 0)
            return [entry] * entries
        if one.type == STRUCT:
            return self._made(one.path, one.fields, depth + led, count)
        return ZEROS.get(one.type, 0)


def listings() -> Iterator[Listing]:
    """Every list of every request that is served, in the first version that has it and in the last."""
    for api in APIS:
        for fields in lists_in(all_messages()[f"{api.name}Request"].fields):
            served = [v for v in range(api.first, api.last + 1) if all(v in one.versions for one in fields)]
            for version in sorted({served[0], served[-1]} if served else ()):
                yield Listing(api.name, version, fields)


def lists_in(fields: list[FieldSchema], above: tuple[FieldSchema, ...] = ()) -> Iterator[tuple[FieldSchema, ...]]:
    for one in fields:
        here = (*above, one)
        if one.array:
            yield here
        yield from lists_in(one.fields, here)
