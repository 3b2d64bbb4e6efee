"""Random messages of Kafka's protocol, from the schema alone."""

import random
from typing import Any

from muster.coordinator.kafka.codec.codec import struct
from muster.coordinator.kafka.codec.messages import STRUCT, FieldSchema, MessageSchema

WORDS = ["", "a", "group-1", "ünïcödé ☃", "x" * 130, "y" * 20_000]
INTS = {"int8": 7, "int16": 15, "int32": 31, "int64": 63}


def random_message(message: MessageSchema, version: int, rng: random.Random) -> Any:
    """A message with random values in every field of `version`; small numbers, large ones, nulls and empty arrays."""
    return random_struct(message.name, message.fields, version, rng)


def random_struct(path: str, fields: list[FieldSchema], version: int, rng: random.Random) -> Any:
    return struct(path)(**{one.name: random_field(one, version, rng) for one in fields if version in one.versions})


def random_field(one: FieldSchema, version: int, rng: random.Random) -> object:
    if one.tag is not None and rng.random() < 0.4:
        return one.default
    if version in one.nullable and rng.random() < 0.2:
        return None
    if one.tag is not None and one.type == STRUCT and not one.array:
        value = random_value(one, version, rng)
        return None if value == struct(one.path)() else value  # it is left out then
    if one.array:
        return [random_value(one, version, rng) for _ in range(rng.choice([0, 1, 2, 3]))]
    return random_value(one, version, rng)


def random_value(one: FieldSchema, version: int, rng: random.Random) -> object:
    match one.type:
        case kind if kind == STRUCT:
            return random_struct(one.path, one.fields, version, rng)
        case "bool":
            return rng.random() < 0.5
        case "string":
            return rng.choice(WORDS)
        case "bytes" | "records":
            return rng.randbytes(rng.choice([0, 1, 126, 127, 128, 300]))
        case "uuid":
            return rng.randbytes(16)
        case "float64":
            return rng.choice([0.0, -1.0, 1.5, 1e308, float("inf")])
    if one.name.endswith("error_code"):
        return rng.choice([0, 3, 25, 79, 82])
    high = 2 ** INTS[one.type] - 1
    return rng.choice([-high - 1, -1, 0, 1, high, rng.randint(-high - 1, high)])
