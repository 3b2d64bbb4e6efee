"""`muster log`: the batches of a real data directory, whole and damaged."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from muster.cli.main import cli
from muster.storage.broker.broker import Broker
from muster.storage.config import LogSettings
from muster.storage.records.batch import encode_batch

NOW_MS = 1_700_000_000_000


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """One topic with three batches, closed cleanly."""
    folder = tmp_path / "data"
    broker = Broker(str(folder), LogSettings())
    broker.create_topic("lines", 1)
    for number in range(3):
        broker.append("lines", 0, encode_batch([(NOW_MS, b"key", b"value %d" % number, ())]), NOW_MS)
    broker.close()
    return folder


def log_file(data: Path) -> Path:
    return data / "lines-0" / f"{0:020d}.log"


def damage(data: Path) -> None:
    """Flip one bit in the second batch: valid records follow it, so this is no torn tail."""
    raw = bytearray(log_file(data).read_bytes())
    raw[len(raw) // 2] ^= 1
    log_file(data).write_bytes(raw)


def run(*words: str) -> Result:
    return CliRunner().invoke(cli, ["log", *words], standalone_mode=False)


def test_dump_tells_batches_and_records_as_json(data: Path) -> None:
    done = run("dump", "--records", "--json", str(log_file(data)))
    rows = [json.loads(line) for line in done.output.splitlines()]
    assert done.return_value == 0
    assert [row["base_offset"] for row in rows] == [0, 1, 2]
    assert bytes.fromhex(rows[1]["records"][0]["value"]) == b"value 1"
    assert all(row["file"] == str(log_file(data)) and row["crc_ok"] for row in rows)


def test_dump_of_damage_is_exit_code_1_and_says_where(data: Path) -> None:
    damage(data)
    done = run("dump", "--json", str(log_file(data)))
    assert done.return_value == 1
    assert [json.loads(line).get("crc_ok") for line in done.output.splitlines()].count(False) == 1


def test_verify_finds_the_damage_and_changes_nothing(data: Path) -> None:
    assert run("verify", str(data)).return_value == 0
    damage(data)
    before = log_file(data).read_bytes()
    done = run("verify", "-o", "json", str(data))
    assert done.return_value == 1
    (finding,) = json.loads(done.stdout)
    assert finding["first_offset"] == 1
    assert log_file(data).read_bytes() == before


def test_recover_asks_first_and_then_takes_out_the_damage_alone(data: Path) -> None:
    damage(data)
    before = log_file(data).read_bytes()
    told = run("recover", "--dry-run", "-o", "json", str(data))
    assert "1 damaged place would be taken out; nothing was changed" in told.stderr
    (place,) = json.loads(told.stdout)
    assert (place["first_offset"], place["next_offset"]) == (1, 2)
    assert log_file(data).read_bytes() == before
    run("recover", "--yes", str(data))
    rows = map(json.loads, run("dump", "--records", "--json", str(log_file(data))).output.splitlines())
    assert [(row["base_offset"], len(row["records"])) for row in rows] == [(0, 1), (1, 0), (2, 1)]
    assert len(log_file(data).read_bytes()) < len(before)
    assert run("verify", str(data)).return_value == 0
