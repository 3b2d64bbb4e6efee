"""A data directory that this program cannot vouch for is refused in one sentence, and left as it is."""

import logging
import os
from pathlib import Path

import pytest

from muster.storage.broker.broker import Broker
from muster.storage.config import LogSettings
from muster.storage.errors import DataDirectoryError
from muster.storage.files import RealFiles, read_file, replace_file
from tests.fakes.memory_files import MemoryFiles
from tests.unit.storage.logs import T0, batch

META = "/data/meta.properties"
CATALOG = "/data/topics.json"


@pytest.fixture
def files() -> MemoryFiles:
    made = MemoryFiles()
    broker = Broker("/data", LogSettings(), files=made)
    broker.create_topic("t", 1)
    broker.close()
    return made


@pytest.mark.parametrize(
    ("path", "before", "after", "says"),
    [
        (META, b"version=1", b"version=99", "has version 99, this program knows versions 1 and 2"),
        (META, b"version=1\n", b"", "it has no line version="),
        (META, b"node.id=1\n", b"", "it has no line node.id="),
        (META, b"node.id=1\n", b"node.id=x\n", "invalid literal"),
        (CATALOG, b'"partitions": 1', b'"partitions": "many"', "partitions"),
    ],
)
def test_what_cannot_be_vouched_for_is_refused(
    files: MemoryFiles, path: str, before: bytes, after: bytes, says: str
) -> None:
    written = read_file(files, path)
    assert before in written
    replace_file(files, path, written.replace(before, after))
    with pytest.raises(DataDirectoryError) as refusal:
        Broker("/data", LogSettings(), files=files)
    sentence = str(refusal.value)
    assert says in sentence
    assert path in sentence
    assert "\n" not in sentence
    assert "http" not in sentence
    assert read_file(files, path) == written.replace(before, after)


def modes(top: Path) -> set[str]:
    """The modes of a directory and all in it."""
    return {oct(path.stat().st_mode & 0o7777) for path in [top, *top.rglob("*")] if path.is_dir() or path.is_file()}


def test_nobody_but_the_owner_may_read_what_is_written(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        broker = Broker(tmp_path / "above" / "data")
        broker.create_topic("t", 1)
        broker.append("t", 0, batch(b"secret"), T0)
        broker.log("t", 0).roll(T0)
        broker.close()
        RealFiles().make_dir(str(tmp_path / "above" / "data" / "sinks" / "s" / "1"))
    finally:
        os.umask(before)
    assert modes(tmp_path / "above") == {"0o700", "0o600"}


def test_a_directory_that_was_open_to_others_is_closed_and_that_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    Broker(tmp_path / "data").close()
    (tmp_path / "data").chmod(0o755)
    with caplog.at_level(logging.WARNING):
        Broker(tmp_path / "data").close()
        Broker(tmp_path / "data").close()
    assert modes(tmp_path / "data") == {"0o700", "0o600"}
    told = [record.getMessage() for record in caplog.records if "0755" in record.getMessage()]
    assert told == [f"The data directory {tmp_path}/data had mode 0755; it has 0700 now, for its owner alone."]


def test_a_directory_that_cannot_be_closed_to_others_is_told_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    Broker(tmp_path / "data").close()
    (tmp_path / "data").chmod(0o750)

    def refused(path: str, mode: int) -> None:
        raise PermissionError(1, "Operation not permitted", path)

    monkeypatch.setattr(os, "chmod", refused)
    Broker(tmp_path / "data").close()
    assert "its mode cannot be changed: Operation not permitted. Run chmod 700" in caplog.text
