"""The examples of the reference that talk to a node do what they say."""

from pathlib import Path
from typing import Any

import pytest

from muster import Admin
from tests.support.node import NodeProcess
from tests.support.pages import examples, needs_node, reference

pytestmark = pytest.mark.integration


@pytest.mark.parametrize("page", reference(), ids=lambda page: page.stem)
def test_the_examples_of_a_page_run_one_after_the_other(page: Path, node: NodeProcess) -> None:
    with Admin(bootstrap_servers=node.address) as admin:
        admin.create_topic("orders", 1)
        names: dict[str, Any] = {"node": node.address}
        for example in examples(page):
            exec(compile(example, str(page), "exec"), names)
        admin.delete_topics(["orders"])


def test_there_are_examples_to_run() -> None:
    assert sum(needs_node(example) for page in reference() for example in examples(page)) >= 4
