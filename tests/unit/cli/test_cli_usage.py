"""What the command line says to wrong input, and what it costs to ask for help."""

import os
import re
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping
from unittest import mock

import click
import pytest

from muster.cli.common import options
from muster.cli.common.commands import (
    CommandError,
    ConnectionOption,
    Exit,
    LazyGroup,
    Unhealthy,
    exit_code_of,
    run_command,
)
from muster.cli.common.options import require_listening_node
from muster.cli.main import COMMANDS, cli, main
from muster.client import errors as client
from muster.client.aio.admin import AdminConfig
from muster.client.config import load
from muster.storage.errors import DataDirectoryError, StorageError

HEAVY = {"grpc", "pydantic", "numpy", "rich", "yaml", "structlog", "asyncio", "google.protobuf", "uvloop", "storage"}


HUGE = "99999999999999999999"
LONG = "g" * 5_000


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(arguments)
    out, err = capsys.readouterr()
    return code, out, err


@pytest.mark.parametrize("arguments", [["--help"], ["groups", "--help"], ["serv"]])
def test_help_and_typing_errors_import_nothing_heavy(arguments: list[str]) -> None:
    program = (
        "import sys; from muster.cli.main import main; "
        f"main({arguments!r}); print(*sorted({HEAVY!r} & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stderr.splitlines()[-1] == ""


def test_help_names_every_command_that_is_not_hidden(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "--help")
    assert code == Exit.OK
    assert isinstance(cli, LazyGroup)
    shown = [line.split()[0] for line in out.splitlines() if re.match(r"  [a-z]", line)]
    assert [name for name in shown if name in cli.lazy] == cli.list_commands(click.Context(cli))
    assert "demo-worker" not in shown


@pytest.mark.parametrize(
    ("arguments", "headings"),
    [
        ([], ["Run", "Groups", "Topics and records", "Security", "Operate", "Develop"]),
        (["groups"], ["Inspect", "Rebalances", "Settings", "Canary", "Overrides", "Positions", "Remove"]),
        (["cluster"], ["Commands"]),
    ],
)
def test_help_shows_commands_under_headings(
    arguments: list[str], headings: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    _, out, _ = run(capsys, *arguments, "--help")
    assert re.findall(r"^(\w[\w ]*):$", out, re.MULTILINE) == ["Options", *headings]


def test_a_line_of_help_is_a_sentence_of_at_most_twelve_words() -> None:
    """The line in the table, and the first line of each command's own help, by which groups list their commands."""
    groups = [cli, *(command for command in commands(cli) if isinstance(command, LazyGroup))]
    lines = [line for group in groups if isinstance(group, LazyGroup) for _, line in group.lazy.values() if line]
    hidden = {name for name, (_, line) in COMMANDS["Hidden"].items() if not line}
    helps = [command.help or "" for command in commands(cli) if command.name not in hidden]
    lines += [" ".join(text.strip().partition("\n\n")[0].split()) for text in helps]
    assert len(lines) > 150
    assert [line for line in lines if len(line.split()) > 12 or not line[0].isupper() or not line.endswith(".")] == []


def test_a_command_shows_its_own_options_before_those_of_the_connection() -> None:
    for command in commands(cli):
        last = [isinstance(param, ConnectionOption) for param in command.params]
        assert last == sorted(last), command.name


def test_an_error_that_says_nothing_is_told_by_its_name(capsys: pytest.CaptureFixture[str]) -> None:
    def silent() -> None:
        raise TimeoutError

    assert run_command(silent) == Exit.FAILURE
    assert capsys.readouterr().err == "error: TimeoutError, without a reason\n"


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("muster he", {"health"}),
        ("muster groups d", {"describe", "delete", "delete-offsets", "deploy", "drain"}),
        ("muster serve --da", {"--data"}),
    ],
)
def test_a_shell_completes_commands_and_options(typed: str, offered: set[str]) -> None:
    asked = os.environ | {"_MUSTER_COMPLETE": "bash_complete", "COMP_WORDS": typed, "COMP_CWORD": str(typed.count(" "))}
    program = "import sys; from muster.cli.main import main; sys.exit(main([]))"
    done = subprocess.run([sys.executable, "-c", program], env=asked, capture_output=True, text=True)
    assert {line.partition(",")[2] for line in done.stdout.split()} == offered


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_completion_script_of_a_shell_is_printed(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "completion", shell)
    assert code == Exit.OK
    assert f"_MUSTER_COMPLETE={shell}_complete" in out


def commands(group: click.Group) -> list[click.Command]:
    """Those of a group and of the groups below it, hidden ones too."""
    context = click.Context(group)
    names = list(group.lazy) if isinstance(group, LazyGroup) else group.list_commands(context)
    found = [group.get_command(context, name) for name in names]
    below = [deeper for command in found if isinstance(command, click.Group) for deeper in commands(command)]
    return [command for command in found if command is not None] + below


def test_every_lazy_command_can_be_imported_and_has_a_help_text() -> None:
    everything = commands(cli)
    assert len(everything) > 15
    assert [command.name for command in everything if not (command.help or "").strip()] == []


@pytest.mark.parametrize("word", ["nan", "inf", "-inf"])
def test_no_range_of_numbers_takes_what_is_no_number(word: str) -> None:
    params = [param for command in commands(cli) for param in command.params]
    ranges = [param.type for param in params if isinstance(param.type, click.FloatRange)]
    assert len(ranges) > 5
    for kind in ranges:
        with pytest.raises(click.BadParameter):
            kind.convert(word, None, None)


@pytest.mark.parametrize(
    ("words", "others"),
    [
        ("drain --group g m", {"name": "m"}),
        ("drain m --group g", {"name": "m"}),
        ("drain g m --group g", {"name": "m"}),
        ("drain --group g g", {"name": "g"}),
        ("pin --group g orders:3 m", {"topic": "orders", "partition": 3, "name": "m"}),
        ("pin g orders:3 m --group g", {"topic": "orders", "partition": 3, "name": "m"}),
        ("set --group g a=b", {"pairs": ("a=b",)}),
        ("set --group g a=b c=d", {"pairs": ("a=b", "c=d")}),
        ("set g a=b --group g", {"pairs": ("a=b",)}),
        ("unset --group g key", {"keys": ("key",)}),
    ],
)
def test_a_group_that_an_option_names_leaves_the_words_to_the_other_arguments(
    words: str, others: dict[str, object]
) -> None:
    groups = cli.get_command(click.Context(cli), "groups")
    assert isinstance(groups, click.Group)
    verb, *arguments = words.split()
    command = groups.get_command(click.Context(groups), verb)
    assert command is not None
    given = command.make_context(verb, arguments).params
    assert {"group": given["group"], **{name: given[name] for name in others}} == {"group": "g", **others}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["serv"], "there is no command 'muster serv'; did you mean 'serve'?"),
        (["quux"], "there is no command 'muster quux'; expected one of serve, watch, settings"),
        (["groups", "thaw", "g"], "there is no command 'muster groups thaw'; did you mean 'resume'?"),
        (["groups", "hold", "g"], "there is no command 'muster groups hold'; did you mean 'freeze'?"),
        (["groups", "explian", "g"], "there is no command 'muster groups explian'; did you mean 'explain'?"),
        (["topics", "create"], "Missing argument 'NAME'"),
        (["topics", "create", "t", "--partitons", "3"], "--partitions"),
        (["topics", "create", "t", "--partitions", "0"], "0 is not in the range 1<=x<=2147483647"),
        (["topics", "list", "-o", "xml"], "'xml' is not one of 'table', 'wide', 'json', 'yaml', 'csv'"),
        (["topics", "list", "--set", "acks"], "'acks' is not a setting; expected key=value"),
        (["groups", "describe"], "no group is named; expected GROUP"),
        (["groups", "describe", ""], "the group's name is empty; expected GROUP"),
        (["groups", "describe", "a", "--group", "b"], "two groups are named, 'a' and 'b'; expected one"),
        (["groups", "drain", "a", "m", "--group", "b"], "two groups are named, 'a' and 'b'; expected one"),
        (["groups", "drain", "--group", "g"], "Missing argument 'MEMBER'"),
        (["groups", "set", "--group", "g"], "Missing argument 'KEY=VALUE...'"),
        (["groups", "reset-offsets", "g", "--topic", "t"], "no position is given"),
        (["groups", "reset-offsets", "g", "--topic", "t", "--to", "noon"], "'noon' is not a position; expected start"),
        (["groups", "reset-offsets", "g", "--to", "start"], "expected --topic or --all-topics"),
        (["assign", "--assignor", "rnge"], "did you mean 'range'?"),
        (["demo", "--workers", "0"], "0 is not in the range 1<=x<=16"),
        (["demo", "--assignor", "stiky"], "did you mean 'sticky'?"),
        (["demo", "--input", "/nonexistent/lines"], "cannot read /nonexistent/lines: No such file"),
        (["demo", "--key-regex", "("], "'(' is not a regular expression"),
        (["produce", "--topic", "t", "/nonexistent/lines"], "No such file or directory"),
        (["topics", "create", "t", "--partitions", HUGE], "is not in the range 1<=x<=2147483647"),
        (["topics", "add-partitions", "t", HUGE], "is not in the range 1<=x<=2147483647"),
        (["groups", "explain", "g", "--limit", HUGE], "is not in the range 1<=x<=2147483647"),
        (["groups", "explain", "g", "--generation", HUGE], "is not in the range 1<=x<=2147483647"),
        (["groups", "history", "g", "--limit", HUGE], "is not in the range 1<=x<=2147483647"),
        (["consume", "--topic", "^("], "'^(' is a pattern; expected one topic, or --group with it"),
        (["consume", "--topic", "^(", "--group", "g"], "'^(' is not a regular expression (missing )"),
        (["assign", "--assignor", "json:JSONDecoder"], "is not an assignor: it needs a name, a protocol"),
        (["assign", "--assignor", "nope:Nope"], "or set PYTHONPATH to the directory that holds it"),
        (["groups", "describe", LONG], "the group id 'gggggggggggggggggggg...' has 5,000 characters; expected at most"),
        (["groups", "delete", "g", LONG], "the group id 'gggggggggggggggggggg...' has 5,000 characters"),
        (["consume", "--topic", "t", "--group", LONG], "the group id 'gggggggggggggggggggg...' has 5,000"),
        (["topics", "create", "\udcff"], "is not UTF-8 text"),
    ],
)
def test_wrong_usage_is_one_line_with_a_remedy_and_exit_code_2(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as somebody:
        monkeypatch.setenv("MUSTER_BOOTSTRAP", f"127.0.0.1:{somebody.getsockname()[1]}")
        code, out, err = run(capsys, *arguments)
    assert (code, out) == (Exit.USAGE, "")
    assert err.startswith("error: ")
    assert said in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ["serve", "--set", "group.max.siz=3"],
            "--set: group.max.siz is not a setting of this node; did you mean group.max.size?",
        ),
        (["serve", "--set", "group.max.size=many"], "group.max.size is 'many', expected a whole number from 1"),
        (["serve", "--listen", "nowhere"], "listeners is 'nowhere', expected HOST:PORT"),
        (["serve", "--config", "/nonexistent/file"], "cannot read the settings in /nonexistent/file"),
        (["topics", "list", "--set", "clientid=x"], "client.id"),
        (["topics", "list", "--bootstrap", "nowhere"], "'nowhere' is not HOST:PORT"),
        (["topics", "list", "--set", "foo=1"], "'foo' is not a property of an admin client"),
        (
            ["consume", "--topic", "t", "--group", "g", "--set", "group.protocol=raft"],
            "group.protocol='raft': expected one of classic, consumer",
        ),
        (
            ["consume", "--topic", "t", "--group", "g", "--set", "partition.assignment.strategy=quux"],
            "name one of these, install its plugin, or name a class as package.module:Class",
        ),
        (["consume", "--topic", "t", "--set", "auto.offset.reset=middle"], "auto.offset.reset"),
    ],
)
def test_wrong_settings_and_properties_exit_with_2(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = run(capsys, *arguments)
    assert code == Exit.USAGE
    assert err.startswith("error: ")
    assert said in err


def test_a_settings_file_is_named_with_the_line_of_the_mistake(
    tmp_path_factory: pytest.TempPathFactory, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path_factory.mktemp("etc") / "coordinator.properties"
    file.write_text("node.id=1\nlog.dir=/tmp/x\n")
    code, _, err = run(capsys, "serve", "--config", str(file))
    assert code == Exit.USAGE
    assert f"{file}:2: log.dir is not a setting of this node; did you mean log.dirs?" in err


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (client.ConfigError("x"), Exit.USAGE),
        (client.InvalidTopic(17, "INVALID_TOPIC_EXCEPTION", "x"), Exit.USAGE),
        (client.UnknownTopic(3, "UNKNOWN_TOPIC_OR_PARTITION", "x"), Exit.NOT_FOUND),
        (client.GroupNotFound(69, "GROUP_ID_NOT_FOUND", "x"), Exit.NOT_FOUND),
        (client.TopicExists(36, "TOPIC_ALREADY_EXISTS", "x"), Exit.CONFLICT),
        (client.GroupNotEmpty(68, "NON_EMPTY_GROUP", "x"), Exit.CONFLICT),
        (client.Refused(23, "INCONSISTENT_GROUP_PROTOCOL", "x"), Exit.CONFLICT),
        (client.Refused(86, "GROUP_SUBSCRIBED_TO_TOPIC", "x"), Exit.CONFLICT),
        (client.Refused(112, "UNSUPPORTED_ASSIGNOR", "x"), Exit.USAGE),
        (client.Unreachable("127.0.0.1:1", 5, "asking"), Exit.UNHEALTHY),
        (client.MessageTooLarge(10, "MESSAGE_TOO_LARGE", "x"), Exit.FAILURE),
        (client.Refused(26, "INVALID_SESSION_TIMEOUT", "x"), Exit.USAGE),
        (client.DeliveryFailed(3, client.UnknownTopic(3, "UNKNOWN_TOPIC_OR_PARTITION", "x")), Exit.NOT_FOUND),
        (DataDirectoryError("held", 17), Exit.CONFLICT),
        (DataDirectoryError("foreign"), Exit.FAILURE),
        (StorageError("disk"), Exit.FAILURE),
        (PermissionError(13, "Permission denied", "/data"), Exit.FAILURE),
        (CommandError("x"), Exit.FAILURE),
        (Unhealthy("x"), Exit.UNHEALTHY),
        (KeyError("a bug"), None),
    ],
)
def test_each_kind_of_error_has_its_exit_code(error: Exception, code: Exit | None) -> None:
    assert exit_code_of(error) is code


def raiser(error: BaseException) -> Callable[[], object]:
    def fail() -> object:
        raise error

    return fail


def test_an_expected_error_is_printed_line_by_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(raiser(CommandError("a is wrong", "expected b", "do c\nd is wrong as well"))) == Exit.FAILURE
    assert capsys.readouterr().err == "error: a is wrong; expected b; do c\nerror: d is wrong as well\n"


def test_a_bug_keeps_its_traceback() -> None:
    with pytest.raises(ZeroDivisionError):
        run_command(raiser(ZeroDivisionError()))


def test_ctrl_c_ends_quietly(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(raiser(KeyboardInterrupt())) == Exit.INTERRUPTED
    assert capsys.readouterr().err == ""


def test_an_unreachable_node_is_named_and_exits_with_4(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, "topics", "list", "--bootstrap", "127.0.0.1:1", "--set", "default.api.timeout.ms=200")
    assert code == Exit.UNHEALTHY
    assert "listing topics: no answer from 127.0.0.1:1" in err
    assert "muster serve" in err


@pytest.mark.parametrize(
    "arguments",
    [("topics", "list"), ("consume", "--topic", "t"), ("produce", "--topic", "t"), ("groups", "list"), ("health",)],
)
def test_a_port_that_refuses_is_said_without_trying_on(
    arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing but the look itself is done: a client would try for ten seconds, or for sixty."""
    with (
        mock.patch("grpc.insecure_channel"),
        mock.patch("muster.client.calls.transport.Transport") as transport,
    ):
        code, out, err = run(capsys, *arguments, "--bootstrap", "127.0.0.1:1")
    assert (code, out, transport.called) == (Exit.UNHEALTHY, "", False)
    assert err.startswith("error: 127.0.0.1:1 refuses connections: nothing listens there; expected a node that serves")


def test_one_of_several_nodes_that_listens_is_enough() -> None:
    with socket.create_server(("127.0.0.1", 0)) as somebody:
        require_listening_node(["127.0.0.1:1", f"127.0.0.1:{somebody.getsockname()[1]}"])
    with pytest.raises(Unhealthy, match=r"127\.0\.0\.1:1 refuses .*, no\.such\.host\.invalid:9 cannot be found"):
        require_listening_node(["127.0.0.1:1", "no.such.host.invalid:9"])


def test_whoever_waits_for_a_node_is_told_before_the_end(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("muster.client.calls.transport.QUIET_MS", 0)
    _, _, err = run(capsys, "topics", "list", "--bootstrap", "127.0.0.1:1", "--set", "default.api.timeout.ms=200")
    told, failed = err.splitlines()
    assert told == "listing topics: 127.0.0.1:1 cannot be reached; trying again"
    assert failed.startswith("error: ")


def test_commands_that_ask_once_give_up_sooner_than_the_library_unless_told_otherwise() -> None:
    def patience(properties: Mapping[str, object]) -> object:
        return load(AdminConfig, properties, {}).default_api_timeout_ms

    with mock.patch("muster.client.Admin", patience), socket.create_server(("127.0.0.1", 0)) as somebody:
        address = f"127.0.0.1:{somebody.getsockname()[1]}"
        assert options.connect_admin(address, {}) == options.ONE_SHOT_PATIENCE_MS
        assert options.connect_admin("127.0.0.1:1", {"default.api.timeout.ms": "300"}) == 300
    assert patience({}) == 60_000


@pytest.mark.parametrize("command", ["verify", "recover"])
def test_a_data_directory_that_is_not_there_is_not_found(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "log", command, "/nonexistent/data")
    assert (code, out) == (Exit.NOT_FOUND, "")
    assert err.startswith("error: there is no directory /nonexistent/data; expected a node's data directory")


def test_the_environment_names_the_node(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("MUSTER_BOOTSTRAP", "127.0.0.1:2")
    code, _, err = run(capsys, "health", "--timeout", "0.05")
    assert code == Exit.UNHEALTHY
    assert "127.0.0.1:2 gave no answer within 0.05 s" in err
