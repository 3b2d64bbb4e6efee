"""What the page brings: where it is from, that it is unchanged, that it is small, that it asks no other host."""

import hashlib
import json
import re
from pathlib import Path

from muster.coordinator.web.pages.rendering import FOLDER, TEMPLATES

MOST_BYTES = 150_000
VENDOR = FOLDER / "vendor"


def files() -> list[Path]:
    return [each for each in FOLDER.rglob("*") if each.is_file()]


def test_every_library_has_its_version_licence_and_hash_in_one_file() -> None:
    listed = {row["file"]: row for row in json.loads((VENDOR / "versions.json").read_text())}
    there = {each.name for each in VENDOR.iterdir()} - {"versions.json", "LICENSES.txt"}
    assert listed.keys() == there
    for name, row in listed.items():
        assert hashlib.sha256((VENDOR / name).read_bytes()).hexdigest() == row["sha256"], name
        assert re.fullmatch(r"\d+\.\d+\.\d+", row["version"])
        assert row["licence"] in ("MIT", "0BSD")


def test_all_of_it_is_under_150_kb() -> None:
    assert sum(each.stat().st_size for each in files()) < MOST_BYTES


def test_no_page_has_a_style_or_a_script_of_its_own_or_asks_another_host() -> None:
    for template in TEMPLATES.glob("*.html"):
        text = template.read_text()
        assert not re.search(r"\sstyle=|<style|\son\w+=|javascript:|https?://|//[\w-]+\.", text), template.name
        assert all("src=" in tag for tag in re.findall(r"<script[^>]*>", text)), template.name
    for own in ("muster.css", "muster.js"):
        assert not re.search(r"https?://|url\(|@import", (FOLDER / own).read_text()), own


def test_what_a_form_sends_and_a_page_asks_for_is_the_true_name() -> None:
    """What is shown has control characters spelt out; a form with such a name would speak of another one."""
    for template in TEMPLATES.glob("*.html"):
        sent = re.findall(r'(?:value|hx-get)="{{ ([^}]*) }}"|<option{', template.read_text())
        assert all(expression.endswith("|exact") for expression in sent), (template.name, sent)


def test_nothing_switches_autoescape_off() -> None:
    for template in TEMPLATES.glob("*.html"):
        assert not re.search(r"\|\s*safe|autoescape", template.read_text()), template.name


def test_times_are_utc_of_24_hours_also_where_the_script_writes_them() -> None:
    """The chart's axis had AM and PM, beside the UTC of the page."""
    script = (FOLDER / "muster.js").read_text()
    assert not re.findall(
        r"DateTimeFormat|toLocale(?:Date|Time)\w*|new Date\([^()]*\)\.(?:toLocale|get[A-Z])\w*", script
    )
    assert re.findall(r"tzDate: .*", script), "uPlot lays its axis out by the reader's zone"
    assert all('"Etc/UTC"' in line for line in re.findall(r"tzDate: .*", script))
