"""Kafka's own programs of 0.8.2 to 1.1, from Maven's jars, as processes: the judges of what is told to clients of old.

`make era` fetches the jars, into build/era, and fails where they cannot be had; elsewhere what is missing is skipped.
"""

import os
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Final

import pytest

HERE: Final = Path(__file__).parent
JARS: Final = HERE.parents[1] / "build" / "era"
SCALA: Final = {"0.8.2.2": "2.11", "0.9.0.1": "2.11", "0.10.2.2": "2.11", "0.11.0.3": "2.11", "1.1.1": "2.12"}
"""Releases, by which Scala they were built."""
PROGRAM_S: Final = 90


@cache
def jars_of(release: str) -> Path:
    """Where they are; skips, or fails where they are demanded (MUSTER_ERA)."""
    place = JARS / release
    wanted = os.environ.get("MUSTER_ERA") == "1"
    missing = [program for program in ("java", "mvn") if shutil.which(program) is None]
    if not any(place.glob("kafka_*.jar")):
        if not wanted or missing:
            (pytest.fail if wanted else pytest.skip)(
                f"no jars of Kafka {release} in {place.relative_to(HERE.parents[1])}: "
                + (f"{' and '.join(missing)} not installed" if missing else "'make era' fetches them")
            )
        fetch(release, place)
    if "java" in missing:
        (pytest.fail if wanted else pytest.skip)("java is not installed")
    return place


def fetch(release: str, place: Path) -> None:
    command = ["mvn", "--quiet", "--batch-mode", "--file", str(HERE / "pom.xml"), "dependency:copy-dependencies"]
    told = [f"-Dscala={SCALA[release]}", f"-Dkafka={release}", f"-DoutputDirectory={place}"]
    subprocess.run([*command, *told], check=True, timeout=600)


def run_program(release: str, program: str, *arguments: str, said: str = "") -> str:
    """What a program of that release prints. It runs on the Java of today."""
    classpath = f"{jars_of(release)}/*"
    command = ["java", "-Xmx128m", "-XX:+UseSerialGC", "-cp", classpath, program, *arguments]
    done = subprocess.run(command, input=said, capture_output=True, text=True, timeout=PROGRAM_S, check=False)
    assert done.returncode == 0, f"{program} of {release} ended with {done.returncode}: {done.stderr[-2000:]}"
    return done.stdout
