"""A node's data directory: whose versions may open it, and what happens when it goes while the node runs."""

import asyncio
from pathlib import Path

from muster.coordinator.config import load_settings
from muster.coordinator.server.backend.standalone_backend import DataDirectory
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


def test_older_versions_are_kept_out_before_anything_is_written_that_only_the_authorizer_may_give(
    tmp_path: Path,
) -> None:
    async def opened(authorizer: str, *, serves: bool) -> str:
        directory = DataDirectory(load_settings(None, {"log.dirs": str(tmp_path / "data"), "authorizer": authorizer}))

        async def agree() -> str:
            return "c9vPX0gkTYG0pVvlwLZ_sQ"

        await directory.open(agree)
        if serves:
            await directory.note_authorizer()
        await directory.close()
        return (tmp_path / "data" / "meta.properties").read_text().splitlines()[0]

    assert asyncio.run(opened("none", serves=True)) == "version=1"
    assert asyncio.run(opened("acl", serves=False)) == "version=2"
    assert asyncio.run(opened("none", serves=False)) == "version=2", "it did not come so far that it serves"
    assert asyncio.run(opened("none", serves=True)) == "version=1"
