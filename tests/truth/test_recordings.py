"""What is concluded from the records that real brokers kept, by golden recordings: see recordings.py."""

from functools import cache

import pytest

from tests.truth.judge import RIGHT, WRONG, Verdict
from tests.truth.recordings import judge_recording, load_all
from tests.truth.reports import ToldByRecords

RECORDINGS = {each.name: each for each in load_all()}
KIP848 = [name for name, each in RECORDINGS.items() if name.endswith("-848")]

MOST_RIGHT = 0.95


@cache
def judged(name: str) -> tuple[Verdict, ToldByRecords]:
    return judge_recording(RECORDINGS[name])


@pytest.mark.parametrize("name", RECORDINGS)
def test_nothing_false_is_told(name: str) -> None:
    verdict, told = judged(name)
    assert verdict.word != WRONG, f"{verdict.reasons}\n{told.text(RECORDINGS[name].since_ms)}"


@pytest.mark.parametrize("name", KIP848)
def test_nothing_false_is_told_without_topics_names_and_the_broker_s_setting(name: str) -> None:
    verdict, told = judge_recording(RECORDINGS[name], alone=True)
    assert verdict.word != WRONG, f"{verdict.reasons}\n{told.text(RECORDINGS[name].since_ms)}"


def test_causes_and_culprits_are_right_in_most() -> None:
    others = {name: judged(name)[0] for name in RECORDINGS if judged(name)[0].word != RIGHT}
    assert 1 - len(others) / len(RECORDINGS) >= MOST_RIGHT, others
