"""The page on Spark names every option for reading, and its examples are Python."""

import ast
import re
from pathlib import Path

import pytest

from muster.spark.kafka_options import REFUSED_READING as REFUSED
from muster.spark.options import KNOWN, check_read_options

PAGE = (Path(__file__).parents[3] / "docs" / "spark.md").read_text()
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize("name", sorted(KNOWN.values()))
def test_every_option_is_on_the_page(name: str) -> None:
    assert re.search(rf"\b{re.escape(name)}\b", PAGE), f"docs/spark.md says nothing of {name}"


@pytest.mark.parametrize("example", EXAMPLES)
def test_examples_are_python(example: str) -> None:
    ast.parse(example)


def test_options_in_examples_are_options() -> None:
    given = dict(re.findall(r'\.option\("([\w.]+)", "?([^")]+)"?\)', "".join(read_examples())))
    assert given, "the page shows how options are set"
    assert not set(map(str.lower, given)) & set(map(str.lower, REFUSED))
    settings = {name: value for name, value in given.items() if name not in ("path", "checkpointLocation", "topic")}
    assert check_read_options(settings, streaming=True).topics == ("orders",)


def read_examples() -> list[str]:
    """Those that read; what a sink takes is another matter."""
    return [part for example in EXAMPLES for part in re.findall(r"spark\.read\w*\..*?\.load\(\)", example, re.DOTALL)]
