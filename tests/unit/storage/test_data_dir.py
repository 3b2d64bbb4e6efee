"""A data directory that this program cannot vouch for is refused in one sentence, and left as it is."""

import pytest

from storage.broker import Broker
from storage.config import LogSettings
from storage.errors import DataDirectoryError
from storage.files import read_file, replace_file
from tests.fakes.memory_files import MemoryFiles

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
        (META, b"version=1", b"version=99", "has version 99, this program knows version 1"),
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
