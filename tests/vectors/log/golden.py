"""The golden vectors, unpacked once per test session into memory."""

import json
import tarfile
from functools import cache
from pathlib import Path
from typing import Any

ARCHIVE = Path(__file__).parent / "golden.tar.xz"


@cache
def files() -> dict[str, bytes]:
    with tarfile.open(ARCHIVE, "r:xz") as archive:
        members = [member for member in archive.getmembers() if member.isfile()]
        return {Path(m.name).name: archive.extractfile(m).read() for m in members}  # type: ignore[union-attr]


@cache
def sidecar(name: str) -> Any:
    return json.loads(files()[f"{name}.json"])


@cache
def spec(name: str) -> Any:
    return json.loads(files()[f"{name}.spec.json"])


def names(prefix: str = "") -> list[str]:
    return sorted(name[:-4] for name in files() if name.endswith(".bin") and name.startswith(prefix))
