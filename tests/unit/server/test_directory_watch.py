"""A data directory that goes while the node runs."""

from pathlib import Path

from muster.coordinator.server.backend.upkeep import DirectoryWatch


def made(directory: Path) -> Path:
    directory.mkdir()
    (directory / ".lock").write_text("1\n")
    return directory


def test_one_that_is_there_is_nothing_to_stop_for(tmp_path: Path) -> None:
    watch = DirectoryWatch(made(tmp_path / "data"))
    assert watch.gone() is None
    (tmp_path / "data" / ".lock").write_text("22\n")
    assert watch.gone() is None


def test_one_that_was_moved_away_or_made_anew_is(tmp_path: Path) -> None:
    watch = DirectoryWatch(made(tmp_path / "data"))
    (tmp_path / "data").rename(tmp_path / "elsewhere")
    gone = watch.gone()
    assert gone is not None
    assert f"The data directory {tmp_path}/data was removed, moved or unmounted" in str(gone)
    assert gone.holder is None, "the exit code says failure, not that somebody has it"
    made(tmp_path / "data")
    assert watch.gone() is not None, "another one in its place is not the one that is written to"
    (tmp_path / "data" / ".lock").unlink()
    (tmp_path / "data").rmdir()
    (tmp_path / "elsewhere").rename(tmp_path / "data")
    assert watch.gone() is None
