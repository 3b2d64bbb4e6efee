"""The package `muster`: what it shows, what its import costs, and what a checkout adds to it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import muster
from muster import aio, errors

ROOT = Path(__file__).parents[2]


def run(*arguments: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], cwd=cwd, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("package", [muster, aio, errors], ids=lambda package: package.__name__)
def test_every_public_name_can_be_had(package: object) -> None:
    for name in package.__all__:  # type: ignore[attr-defined]
        assert getattr(package, name).__name__.rpartition(".")[2].removeprefix("Async") == name


def test_a_name_that_is_not_there_is_told() -> None:
    with pytest.raises(AttributeError, match="Consummer"):
        muster.Consummer  # noqa: B018


def test_the_import_loads_neither_grpc_nor_numpy() -> None:
    done = run("-c", "import sys, muster; print([n for n in ('grpc', 'numpy', 'pydantic') if n in sys.modules])")
    assert done.stdout == "[]\n", done.stderr


def test_every_error_of_the_clients_is_public() -> None:
    from muster.client import errors as theirs

    made = {name for name, kind in vars(theirs).items() if isinstance(kind, type) and issubclass(kind, Exception)}
    assert made <= set(errors.__all__)


@pytest.mark.parametrize("first", ["coordinator", "muster.coordinator"])
def test_a_checkouts_folder_is_the_same_module_by_a_second_name(first: str) -> None:
    script = (
        f"import {first}.core.model.events, coordinator.core.model.events as a, "
        "muster.coordinator.core.model.events as b, coordinator;"
        "import storage.records.batch as c, muster.storage.records.batch as d;"
        "import sys; sys.exit(not (a is b and c is d and coordinator.core.model.events is b))"
    )
    done = run("-c", script)
    assert done.returncode == 0, done.stderr


def test_a_module_that_is_not_there_is_told_by_either_name() -> None:
    done = run("-c", "import coordinator.nothing")
    assert "No module named 'coordinator.nothing'" in done.stderr


@pytest.mark.parametrize("module", ["muster", "cli"])
def test_the_command_is_there_without_a_script(module: str) -> None:
    done = run("-m", module, "--help")
    assert done.returncode == 0
    assert done.stdout.startswith("Usage: muster ")
    assert run("-m", module, "no-such-command").returncode == 2


def test_a_strangers_folders_of_our_rooms_names_are_theirs(tmp_path: Path) -> None:
    """`storage/` beside a script used to break Muster."""
    for name in ("storage", "coordinator", "assignors"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("mine = True\n")
    (tmp_path / "script.py").write_text(
        "import storage, coordinator, assignors, muster.assignors.registry, muster.storage.logs.log\n"
        "from muster import Consumer\n"
        "print(storage.mine, coordinator.mine, assignors.mine, Consumer.__name__)\n"
    )
    path = os.pathsep.join([str(tmp_path), str(ROOT)])
    done = subprocess.run(
        [sys.executable, "script.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "True True True Consumer\n", done.stderr
