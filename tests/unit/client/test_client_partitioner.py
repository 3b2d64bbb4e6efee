"""Keys go where Kafka's own producer sends them. Vectors: values that Kafka's and librdkafka's own tests expect."""

import pytest

from muster.client.records.accumulator import choose_partition, murmur2

SIGNED = [
    (b"21", -973932308),
    (b"foobar", -790332482),
    (b"a-little-bit-long-string", -985981536),
    (b"a-little-bit-longer-string", -1486304829),
    (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
    (b"abc", 479470107),
]
UNSIGNED = [
    (b"kafka", 0xD067CF64),
    (b"giberish123456789", 0x8F552B0C),
    (b"1234", 0x9FC97B14),
    (b"234", 0xE7C009CA),
    (b"34", 0x873930DA),
    (b"4", 0x5A4B5CA1),
    (b"PreAmbleWillBeRemoved,ThePrePartThatIs", 0x78424F1C),
    (b"", 0x106E08D9),
]


@pytest.mark.parametrize(("key", "hashed"), SIGNED)
def test_hashes_are_those_of_the_java_client(key: bytes, hashed: int) -> None:
    assert murmur2(key) == hashed % 2**32


@pytest.mark.parametrize(("key", "hashed"), UNSIGNED)
def test_hashes_are_those_of_librdkafka(key: bytes, hashed: int) -> None:
    assert murmur2(key) == hashed


def test_the_sign_is_cut_off_before_the_remainder_is_taken() -> None:
    assert choose_partition(b"foobar", 7) == (-790332482 & 0x7FFFFFFF) % 7
    assert {choose_partition(b"%d" % n, 3) for n in range(50)} == {0, 1, 2}
