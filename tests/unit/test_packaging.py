"""What an installed Muster brings with it, and nothing else."""

import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    out = tmp_path_factory.mktemp("wheel")
    source = out / "source"
    files = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    ).stdout.split(b"\0")
    for name in filter(None, map(bytes.decode, files)):
        if name.startswith("tests/") or not (ROOT / name).exists():
            continue
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, source / name, follow_symlinks=False)
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(out), str(source)]
    subprocess.run(build, check=True, capture_output=True)
    return zipfile.ZipFile(next(out.glob("*.whl")))


def test_the_wheel_installs_its_packages_and_nothing_else(wheel: zipfile.ZipFile) -> None:
    names = {name.split("/")[0] for name in wheel.namelist()}
    packages = {name for name in names if not name.endswith((".dist-info", ".data"))}
    assert packages == {"muster", "pyspark_muster"}
    rooms = {name.split("/")[1] for name in wheel.namelist() if name.startswith("muster/") and name.count("/") > 1}
    assert rooms == {"assignors", "cli", "client", "coordinator", "spark", "storage", "workshop"}


def test_the_wheel_brings_the_contracts_for_other_languages(wheel: zipfile.ZipFile) -> None:
    """Below the prefix, at the paths by which they import each other; and nothing else goes there."""
    shared = {name.partition(".data/data/")[2] for name in wheel.namelist() if ".data/" in name}
    protos = (path.relative_to(ROOT / "proto") for path in (ROOT / "proto").rglob("*.proto"))
    assert shared == {f"share/muster/proto/{path.as_posix()}" for path in protos}


def test_every_package_is_typed_and_the_licence_is_there(wheel: zipfile.ZipFile) -> None:
    names = wheel.namelist()
    assert "muster/py.typed" in names
    assert any(name.endswith("licenses/LICENSE") for name in names)


def test_the_page_s_templates_and_assets_are_there(wheel: zipfile.ZipFile) -> None:
    """As in the checkout, file by file; without them the listener would answer nothing but JSON."""
    names = set(wheel.namelist())
    for folder in ("templates", "assets", "assets/vendor"):
        there = [each for each in (ROOT / "coordinator" / "web" / folder).iterdir() if each.is_file()]
        assert there
        assert {f"muster/coordinator/web/{folder}/{each.name}" for each in there} <= names
    assert "muster/cli/demo/recorded/watched_billing.log.gz" in names, "make demo-watch tells of it without Java"


def test_extras_and_command_are_those_promised() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert {"spark", "zookeeper", "dev", "all"} <= project["optional-dependencies"].keys()
    assert project["scripts"] == {"muster": "muster.cli.main:main"}
    assert project["license"] == "Apache-2.0"


def test_all_is_every_extra_that_a_user_may_be_told_of() -> None:
    """`muster certs init` and `--engine` failed after the line of the README that promises all."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    (line,) = extras["all"]
    named = set(line.removeprefix("muster-groups[").removesuffix("]").split(","))
    assert named == extras.keys() - {"all", "dev", "docs", "fuzz"}


def test_install_lines_name_extras_that_exist_and_need_no_index() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"].keys()
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    text = "\n".join(page.read_text(encoding="utf-8") for page in pages)
    assert not re.findall(r"pip install\s+'?muster-groups", text), "the name is on no index"
    named = {each for found in re.findall(r"pip install\s+'\.\[([a-z,]+)\]'", text) for each in found.split(",")}
    assert {"web", "spark", "all"} <= named <= extras


def test_dependencies_are_ranges() -> None:
    """Only the code generator is pinned: what it writes depends on its version."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    everything = [
        *project["dependencies"],
        *(word for extra in project["optional-dependencies"].values() for word in extra),
    ]
    pinned = [word for word in everything if "==" in word.split(";")[0]]
    assert all(word.startswith("grpcio-tools==") for word in pinned), pinned
    assert not [word for word in everything if "://" in word or "@" in word]
