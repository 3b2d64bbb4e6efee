"""Jars by Maven's coordinates, for peers that come from elsewhere: kept in the user's cache, fetched once."""

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

FETCH_S = 600
POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>muster.bench</groupId><artifactId>peers</artifactId><version>1</version>
  <dependencies>{dependencies}</dependencies>
</project>
"""
DEPENDENCY = "<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version></dependency>"
SAID_CHARS = 300


class JarsUnavailable(Exception):
    """Jars that cannot be had here; the text says why."""


def find_jars(*coordinates: str) -> list[Path]:
    """The jars of `GROUP:ARTIFACT:VERSION` and all they need. Raises NotFetched."""
    folder = cache_folder() / "jars" / "+".join(name.replace(":", "_") for name in coordinates)
    if not folder.exists():
        fetch_jars(coordinates, folder)
    return sorted(folder.glob("*.jar"))


def fetch_jars(coordinates: Sequence[str], folder: Path) -> None:
    if (mvn := shutil.which("mvn")) is None:
        raise JarsUnavailable(f"mvn is not on the PATH, and {', '.join(coordinates)} was not fetched before")
    coming = folder.with_name(f"{folder.name}.{os.getpid()}")
    coming.mkdir(parents=True)
    try:
        pom = coming / "pom.xml"
        pom.write_text(POM.format(dependencies="".join(DEPENDENCY.format(*name.split(":")) for name in coordinates)))
        command = [mvn, "-q", "-B", "-f", str(pom), "dependency:copy-dependencies", f"-DoutputDirectory={coming}"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=FETCH_S, check=False)
        if done.returncode:
            said = " ".join((done.stdout + done.stderr).split())[:SAID_CHARS]
            raise JarsUnavailable(f"Maven has no {', '.join(coordinates)}: {said}")
        coming.rename(folder)
    except subprocess.TimeoutExpired:
        raise JarsUnavailable(f"Maven did not fetch {', '.join(coordinates)} within {FETCH_S} s") from None
    finally:
        shutil.rmtree(coming, ignore_errors=True)


def cache_folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "muster"
