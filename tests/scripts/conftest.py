"""Collects every story in this tree as a test."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.stories.script import Stage
from tests.support.stories.story import read_story, write_story
from tests.support.stories.zookeeper_stage import ZookeeperStage

STAGES = {"zookeeper_member": ZookeeperStage}
"""By folder; everything else is a story of a shard."""


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> "StoryFile | None":
    return StoryFile.from_parent(parent, path=file_path) if file_path.suffix == ".txt" else None


class StoryFile(pytest.File):
    def collect(self) -> Iterator["Story"]:
        yield Story.from_parent(self, name=self.path.stem)


class Story(pytest.Item):
    def runtest(self) -> None:
        blocks = read_story(self.path)
        stage = STAGES.get(self.path.parent.name, Stage)()
        traces = [stage.run(block.command) if block.command else [] for block in blocks]
        if self.config.getoption("--rewrite"):
            write_story(self.path, blocks, traces)
            return
        for block, trace in zip(blocks, traces, strict=True):
            if trace != block.expected:
                raise AssertionError(
                    f"{self.path.name}: {block.command[0]}\n\nexpected\n  "
                    + "\n  ".join(block.expected)
                    + "\n\nbut the trace is\n  "
                    + "\n  ".join(trace)
                )

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException]) -> str:
        return str(excinfo.value) if excinfo.errisinstance(AssertionError) else str(super().repr_failure(excinfo))

    def reportinfo(self) -> tuple[Path, int, str]:
        return self.path, 0, f"story: {self.name}"
