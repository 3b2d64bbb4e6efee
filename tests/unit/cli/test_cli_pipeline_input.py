"""Wrong words to `muster pipeline` get one line each, and leave nothing behind."""

import subprocess
import sys
from pathlib import Path

import pytest

from muster.cli.common.commands import Exit
from muster.cli.main import main


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--utilisation", "nan"], "'--utilisation': 'nan' is not a number; expected one in the range 0.01<=x<=10"),
        (["--skew", "nan"], "'--skew': 'nan' is not a number"),
        (["--weight", "lag=x"], "--weight: lag=x has no number; expected CRITERION=NUMBER"),
        (["--weight", "lag=nan"], "the weight of 'lag' is nan; expected 0 or more"),
        (["--spark", "nonsense"], "'--spark': 'nonsense' is no Spark master; expected local[2]"),
        (["--spark", "local[0]"], "'local[0]' is no Spark master"),
        (["--spark", "spark://here"], "'spark://here' is no Spark master"),
    ],
)
def test_a_wrong_word_is_one_line(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pipeline", "backtest", *words]) == Exit.USAGE
    err = capsys.readouterr().err
    assert said in err
    assert err.count("\n") == 1


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").touch()
    wanted = tmp_path / "file" / "out"
    assert main(["pipeline", "backtest", "--out", str(wanted)]) == Exit.FAILURE
    assert f"--out {wanted} cannot be made: Not a directory" in capsys.readouterr().err


def test_work_that_wrote_nothing_leaves_no_folder(tmp_path: Path) -> None:
    before, new = tmp_path / "before", tmp_path / "new"
    before.mkdir()
    for folder in (before, new):
        assert main(["pipeline", "backtest", "--weight", "lag=x", "--out", str(folder)]) == Exit.USAGE
    assert before.is_dir()
    assert not new.exists()


@pytest.mark.parametrize("command", ["backtest", "analytics"])
def test_without_pyarrow_a_pipeline_says_what_to_install(command: str, tmp_path: Path) -> None:
    program = (
        "import sys\nsys.modules['pyarrow'] = None\nfrom muster.cli.main import main\n"
        f"sys.exit(main(['pipeline', '{command}', '--out', 'out']))"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stderr == "error: Parquet files need pyarrow; install it with: pip install 'muster-groups[spark]'\n"
    assert done.returncode == Exit.FAILURE
