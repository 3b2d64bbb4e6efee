"""Whatever bytes come, a message or one error comes of them; and what comes of them is written as the same bytes."""

import random

from hypothesis import example, given, settings
from hypothesis import strategies as st

from muster.coordinator.kafka.codec.codec import MalformedFrame, decode_frame, encode
from muster.coordinator.kafka.codec.messages import all_messages
from tests.support.kafka.messages import random_message

CASES = [(name, version) for name, message in all_messages().items() for version in message.versions]
WHICH = st.sampled_from(CASES)
MUTATION = st.tuples(st.floats(0, 1), st.sampled_from(["cut", "flip", "insert", "grow", "repeat"]), st.integers(0, 255))


def decoded_or_refused(name: str, version: int, data: bytes) -> None:
    try:
        message = decode_frame(name, version, data)
    except MalformedFrame:
        return
    again = b"".join(encode(name, version, message))
    assert decode_frame(name, version, again) == message


@settings(deadline=None, max_examples=400)
@given(WHICH, st.binary(max_size=200))
@example(("ApiVersionsResponse", 3), bytes(7) + b"\xff" * 9)
def test_any_bytes(which: tuple[str, int], data: bytes) -> None:
    decoded_or_refused(*which, data)


@settings(deadline=None, max_examples=600)
@given(WHICH, st.integers(0, 2**32), st.lists(MUTATION, min_size=1, max_size=4))
def test_messages_that_were_tampered_with(
    which: tuple[str, int], seed: int, mutations: list[tuple[float, str, int]]
) -> None:
    name, version = which
    data = bytearray(
        b"".join(encode(name, version, random_message(all_messages()[name], version, random.Random(seed))))
    )
    for where, how, byte in mutations:
        at = int(where * len(data))
        match how:
            case "cut":
                del data[at:]
            case "flip" if data:
                data[min(at, len(data) - 1)] ^= byte
            case "insert":
                data[at:at] = bytes([byte]) * (1 + byte % 5)
            case "grow":
                data[at : at + 4] = b"\x7f\xff\xff\xff"
            case "repeat":
                data += data[at:]
    decoded_or_refused(name, version, bytes(data))
