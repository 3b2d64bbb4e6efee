"""Jars that two processes fetch at the same time, as two test workers do on a new machine."""

import subprocess
from pathlib import Path
from typing import Any

import pytest

from muster.workshop.bench import kafka_peer


def test_jars_that_another_process_fetched_meanwhile_are_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(kafka_peer.shutil, "which", lambda name: name)
    folder = tmp_path / "muster" / "jars" / "org.example_a_1"

    def fetched_twice(command: list[str], **how: Any) -> subprocess.CompletedProcess[str]:
        folder.mkdir()
        (folder / "a.jar").touch()
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(kafka_peer.subprocess, "run", fetched_twice)
    assert kafka_peer.find_jars("org.example:a:1") == [folder / "a.jar"]
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]
