"""Kafka's verdict for damage at every byte of a log of five batches, and ours, which must be no laxer."""

import contextlib
from typing import Any

from muster.storage.records.batch import read_batches
from muster.storage.records.scan import BatchFault, Order, walk_checked
from tests.fakes.memory_files import MemoryFiles
from tests.vectors.log.golden import files, sidecar

GOOD = "recover-good"


def cases() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = sidecar("recover-cases")["cases"]
    return found


def damaged(case: dict[str, Any]) -> bytes:
    good = files()[f"{GOOD}.bin"]
    match case["kind"]:
        case "truncate":
            return good[: case["at"]]
        case "tail":
            return good + bytes.fromhex(case["append_hex"])
        case "duplicated-log":
            return good + good
        case "zero-hole":
            return good[: case["at"]] + bytes(len(good) - case["at"])
    changed = bytearray(good)
    changed[case["at"]] ^= 1 << int(case["kind"].removeprefix("flip"))
    return bytes(changed)


def intact(data: bytes) -> int:
    """How many bytes of the file our recovery believes."""
    disk = MemoryFiles()
    disk.make_dir("/d")
    disk.put("/d/x", data)
    first = next(read_batches(files()[f"{GOOD}.bin"])).base_offset
    end = 0
    with contextlib.suppress(BatchFault):
        for head in walk_checked(disk.open("/d/x"), 0, len(data), Order(first, first)):
            end = head.end
    return end


def in_epoch(at: int) -> bool:
    """Whether the byte belongs to a leader epoch: no checksum covers it, and a larger one is no contradiction."""
    batches = list(read_batches(files()[f"{GOOD}.bin"]))
    return any(batch.position + 12 <= at < batch.position + 16 for batch in batches)


def test_a_cut_file_is_believed_as_far_as_kafka_believes_it() -> None:
    cut = [case for case in cases() if case["kind"] in ("truncate", "zero-hole")]
    assert len(cut) > 700
    assert [intact(damaged(case)) for case in cut] == [case["valid_bytes"] for case in cut]


def test_no_flipped_bit_is_believed() -> None:
    flips = [case for case in cases() if case["kind"].startswith("flip")]
    assert len(flips) > 1400
    for case in flips:
        ours = intact(damaged(case))
        assert ours <= case["valid_bytes"], case
        assert ours <= case["at"] or in_epoch(case["at"]), case


def test_nothing_behind_the_end_is_believed() -> None:
    size = len(files()[f"{GOOD}.bin"])
    tails = [case for case in cases() if case["kind"] in ("tail", "duplicated-log")]
    assert tails
    # Kafka believes a second copy of the log; its offsets go back, so it cannot be.
    assert {intact(damaged(case)) for case in tails} == {size}
