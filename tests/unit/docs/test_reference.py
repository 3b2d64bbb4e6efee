"""The reference says what the code has: what it is made of is looked at here, `make docs` puts it together."""

import ast
import posixpath
import re
from pathlib import Path
from typing import Any

import click
import griffe
import pytest
import yaml

from docs.tools import commands, contracts, examples, hooks, ledger, tables, twins
from muster.assignors import registry
from muster.client import Admin, Consumer, aio, config, errors
from muster.coordinator.config import known_settings
from muster.coordinator.core.model.types import RebalanceEntry
from muster.storage.config import TopicSettings
from tests.support.pages import PAGES as ALL_PAGES
from tests.support.pages import examples as shown_examples
from tests.support.pages import needs_node, reference

ROOT = Path(__file__).parents[3]
PAGES = ROOT / "docs"
SITE = ROOT / "mkdocs.yml"
CALLED = [(page, *call) for page in sorted(PAGES.rglob("*.md")) for call in hooks.MADE.findall(page.read_text())]


def named(drawn: str) -> set[str]:
    """The first cells of a table."""
    return set(re.findall(r"^\| `([^`]+)`", drawn, re.MULTILINE))


def places(nav: list[Any]) -> list[str]:
    found = []
    for entry in nav:
        for place in entry.values() if isinstance(entry, dict) else [entry]:
            found += places(place) if isinstance(place, list) else [place]
    return found


@pytest.mark.parametrize("kind", [config.ProducerConfig, config.WorkerConfig, config.ConsumerConfig])
def test_every_property_of_a_client_is_in_a_table_with_its_meaning(kind: type[config.ClientConfig]) -> None:
    shown = set()
    for model in (each for each in tables.CLIENTS if issubclass(kind, each)):
        drawn = tables.client_properties(model.__name__)
        assert "|  |" not in drawn, f"a property of {model.__name__} has no meaning"
        shown |= named(drawn)
    assert shown == {config.to_dotted(name) for name in kind.model_fields}


def test_a_default_that_a_worker_takes_otherwise_is_said_with_it() -> None:
    assert "`cooperative-sticky`" in tables.client_properties("WorkerConfig")
    assert "`range,cooperative-sticky`" in tables.client_properties("GroupConfig")
    assert "session.timeout.ms" not in named(tables.client_properties("WorkerConfig"))


def test_every_setting_of_a_node_and_a_topic_is_in_a_table() -> None:
    assert named(tables.node_settings()) == set(known_settings())
    assert named(tables.topic_settings()) == {field.alias for field in TopicSettings.model_fields.values()}


def leaves(command: click.Command, words: str) -> list[str]:
    if not isinstance(command, click.Group):
        return [words]
    context = click.Context(command)
    return [
        leaf
        for name in command.list_commands(context)
        if (child := command.get_command(context, name)) is not None
        for leaf in leaves(child, f"{words} {name}")
    ]


@pytest.mark.parametrize("name", list(commands.commands()))
def test_a_command_has_a_page_with_all_below_it(name: str) -> None:
    page = commands.page(name)
    for words in leaves(commands.commands()[name], f"muster {name}"):
        assert re.search(rf"^#+ `{words}`$", page, re.MULTILINE), words
    assert f"({name}.md)" in commands.overview()


def test_an_option_tells_what_it_takes_and_its_default() -> None:
    page = commands.page("groups")
    (output, *_) = re.findall(r"^\| `-o, --output` \| (.*) \|$", page, re.MULTILINE)
    assert "default: table" in output
    assert "One of table, wide, json" in output


def test_every_field_and_call_of_the_contracts_is_explained() -> None:
    assert contracts.unsaid() == []


def test_a_contract_tells_types_comments_and_what_is_meant_everywhere() -> None:
    page = contracts.page("coordinator_service")
    assert "| `JoinGroup` | [JoinGroupRequest](coordinator_service.md#joingrouprequest) |" in page
    assert "| `error_code` | 1 | [ErrorCode](errors.md#errorcode) | NONE, or why the request" in page
    assert "map of string to string" in page
    assert "Long poll: answered when the join phase" in page
    assert "buf:lint" not in page


def test_the_ledgers_page_tells_every_field_of_an_entry() -> None:
    entry = ledger.rows(RebalanceEntry)
    assert named(entry) == set(RebalanceEntry.__match_args__)
    assert not re.findall(r"^.*\|  \|$", ledger.fields().replace("| field | JSON |  |", ""), re.MULTILINE)


def test_twins_are_shown_as_the_methods_that_they_are() -> None:
    extension = griffe.load_extensions(twins.Twins)
    package = griffe.load("muster", search_paths=[ROOT], extensions=extension, try_relative_path=False)
    consumer, admin = (package[f"client.sync.{name}"] for name in ("consumer.Consumer", "admin.Admin"))
    position = consumer["position"]
    assert position.is_function
    assert [parameter.name for parameter in position.parameters] == ["self", "partition"]
    assert position.docstring.value == Consumer.position.__doc__
    assert str(admin["watch"].returns).startswith("Iterator[")
    for client in (consumer, admin):
        public = [name for name in client.members if not name.startswith("_")]
        assert all(client[name].is_function and client[name].docstring for name in public)
    assert {name for name in admin.members if not name.startswith("_")} == {
        name for name in vars(Admin) if not name.startswith("_")
    }
    assert "```pycon" in package["client.types.TopicPartition"].docstring.value


def test_examples_become_code_and_stay_as_they_are_between_fences() -> None:
    assert examples.fenced("a\n\n>>> 1\n1\n\nb") == "a\n\n```pycon\n>>> 1\n1\n```\n\nb"
    once = examples.fenced(">>> 1\n1")
    assert once == "```pycon\n>>> 1\n1\n```"


@pytest.mark.parametrize("client", [getattr(aio, name) for name in aio.__all__])
def test_every_public_method_of_a_client_says_what_it_does(client: type) -> None:
    assert [name for name, each in vars(client).items() if not name.startswith("_") and not each.__doc__] == []


def test_every_page_has_its_place_and_every_place_its_page() -> None:
    nav = set(places(yaml.safe_load(SITE.read_text())["nav"]))
    written = {str(page.relative_to(PAGES)) for page in PAGES.rglob("*.md")}
    assert nav == written | set(hooks.BESIDE.values())


@pytest.mark.parametrize(("page", "module", "function", "arguments"), CALLED)
def test_what_a_page_asks_to_be_made_can_be_made(page: Path, module: str, function: str, arguments: str) -> None:
    line = f"<!-- made: {module}.{function}{arguments} -->"
    assert len(hooks.with_made(line)) > 60


def test_every_link_of_a_page_leads_to_a_page() -> None:
    made = {f"reference/cli/{name}.md" for name in commands.commands()} | set(hooks.BESIDE.values())
    sources = {str(page.relative_to(PAGES)): page for page in PAGES.rglob("*.md")}
    sources |= {page: ROOT / source for source, page in hooks.BESIDE.items()}
    lost = []
    for uri, source in sources.items():
        for _, target, _ in hooks.LINK.findall(hooks.leading(source.read_text(encoding="utf-8"), uri)):
            place = posixpath.normpath(posixpath.join(posixpath.dirname(uri), target))
            if place not in made and not (PAGES / place).is_file():
                lost.append(f"{uri} leads to {target}")
    assert lost == []


def test_a_page_that_would_load_from_another_host_is_refused() -> None:
    for asked in ('<script src="https://x/y.js">', '<link rel=stylesheet href="//x/y.css">', "url(https://x/f.woff2)"):
        assert hooks.FOREIGN.search(asked), asked
    assert not hooks.FOREIGN.search('<a href="https://x">there</a>')
    assert yaml.safe_load(SITE.read_text())["theme"]["font"] is False


def test_the_pages_of_assignors_and_errors_cover_what_there_is() -> None:
    assert {f"{name}.md" for name in registry.known()} <= {page.name for page in (PAGES / "assignors").glob("*.md")}
    undocumented = [each.__name__ for each in vars(errors).values() if isinstance(each, type) and not each.__doc__]
    assert undocumented == []


@pytest.mark.parametrize("page", [page for page in ALL_PAGES if shown_examples(page)], ids=lambda page: page.stem)
def test_the_examples_of_a_page_are_python(page: Path) -> None:
    for example in shown_examples(page):
        compile(example, str(page), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


@pytest.mark.parametrize("page", reference(), ids=lambda page: page.stem)
def test_the_examples_of_the_reference_do_what_they_say(page: Path) -> None:
    """Those that need a node run in tests/integration/client."""
    for example in shown_examples(page):
        if not needs_node(example):
            exec(compile(example, str(page), "exec"), {})
