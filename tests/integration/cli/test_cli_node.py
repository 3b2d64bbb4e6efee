"""The commands against a real node, as somebody at a prompt would use them."""

import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import redirect_stderr, redirect_stdout
from itertools import count
from pathlib import Path
from typing import NamedTuple
from unittest import mock

import pytest

from muster.cli.main import main
from muster.client import Admin, Consumer
from tests.support.node import NodeProcess, running_node
from tests.support.pace import pace

pytestmark = pytest.mark.integration
MUSTER = str(Path(sys.executable).with_name("muster"))
PATIENCE_S = 60
names = (f"topic-{number}" for number in count())


class Done(NamedTuple):
    code: int
    out: str
    err: str


class Prompt:
    """Runs the command line against one node: in this process, or with `start` in one of its own."""

    def __init__(self, address: str) -> None:
        self.environment = {"MUSTER_BOOTSTRAP": address, "NO_COLOR": "1"}

    def __call__(self, *arguments: str, stdin: str = "") -> Done:
        given, out, err = (io.TextIOWrapper(io.BytesIO(text), newline="") for text in (stdin.encode(), b"", b""))
        before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            with (
                mock.patch.dict(os.environ, self.environment),
                mock.patch.object(sys, "stdin", given),
                redirect_stdout(out),
                redirect_stderr(err),
            ):
                code = main(arguments)
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
        return Done(code, text_of(out), text_of(err))

    def json(self, *arguments: str) -> object:
        done = self(*arguments, "-o", "json")
        assert done.code == 0, done.err
        return json.loads(done.out)

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [MUSTER, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            text=True,
            env=os.environ | self.environment,
        )


def text_of(stream: io.TextIOWrapper) -> str:
    stream.seek(0)
    return stream.read()


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    with running_node(tmp_path_factory.mktemp("cli") / "data", {"group.initial.rebalance.delay.ms": "100"}) as running:
        yield running


@pytest.fixture
def muster(node: NodeProcess) -> Prompt:
    return Prompt(node.address)


@pytest.fixture
def topic(muster: Prompt) -> str:
    """A topic of three partitions with three lines, one in each of two and none in the last."""
    name = next(names)
    assert muster("topics", "create", name, "--partitions", "3").code == 0
    sent = muster("produce", "--topic", name, "--key-regex", "^(.)", stdin="a1\na2\nb1\n")
    assert sent == Done(0, "", f"3 lines to {name}\n")
    return name


def lines(text: str) -> list[str]:
    return sorted(text.splitlines())


def test_a_topic_is_created_described_widened_and_deleted(muster: Prompt) -> None:
    name = next(names)
    assert muster("topics", "create", name, "--partitions", "2", "--config", "retention.ms=3600000").code == 0
    assert f"{name}" in muster("topics", "list").out
    described = muster.json("topics", "describe", name)
    assert isinstance(described, dict)
    assert [partition["records"] for partition in described["partitions"]] == [0, 0]
    assert described["configs"]["retention.ms"] == "3600000"
    assert muster("topics", "add-partitions", name, "5") == Done(0, "", f"{name} has 5 partitions now\n")
    assert muster("topics", "delete", name) == Done(0, "", f"deleted {name}\n")
    assert name not in muster("topics", "list").out


def test_settings_of_a_topic_are_changed(muster: Prompt) -> None:
    name = next(names)
    assert muster("topics", "create", name, "--config", "retention.ms=3600000").code == 0
    tried = muster("topics", "alter", name, "--config", "max.message.bytes=200", "--dry-run")
    assert tried == Done(0, "", f"{name}: max.message.bytes would be 200, was 1048588\n")
    done = muster("topics", "alter", name, "--config", "max.message.bytes=200", "--unset", "retention.ms")
    assert done.code == 0
    assert f"{name}: max.message.bytes is 200, was 1048588\n{name}: retention.ms is " in done.err
    assert "the topic takes 200 (max.message.bytes)" in muster("produce", "--topic", name, stdin="x" * 300 + "\n").err
    described = muster.json("topics", "describe", name)
    assert isinstance(described, dict)
    assert described["configs"]["retention.ms"] != "3600000"
    wrong = muster("topics", "alter", name, "--config", "max.message.bytes=few")
    assert (wrong.code, "'max.message.bytes' is 'few'; expected a whole number" in wrong.err) == (2, True)
    nothing = muster("topics", "alter", name)
    assert (nothing.code, "expected --config KEY=VALUE or --unset KEY" in nothing.err) == (2, True)
    assert muster("topics", "alter", "__consumer_offsets", "--config", "retention.ms=1").code == 2


def test_a_running_node_tells_its_settings(muster: Prompt) -> None:
    changed = muster.json("settings", "--running", "--changed")
    assert isinstance(changed, list)
    found = {row["setting"]: (row["value"], row["default"]) for row in changed}
    assert found["group.initial.rebalance.delay.ms"] == ("100", "3000")
    assert "log.dirs" in found
    assert "auto.create.topics.enable" not in found


def test_lines_of_equal_keys_stay_in_order(muster: Prompt, topic: str) -> None:
    done = muster("consume", "--topic", topic, "--from-beginning", "--max-messages", "3")
    assert done.code == 0
    assert lines(done.out) == ["a1", "a2", "b1"]
    assert done.out.index("a1") < done.out.index("a2")


def test_a_member_of_a_group_goes_on_where_the_group_stopped(muster: Prompt, topic: str) -> None:
    arguments = ("consume", "--topic", topic, "--group", f"g-{topic}", "--from-beginning")
    first = muster(*arguments, "--max-messages", "3")
    assert lines(first.out) == ["a1", "a2", "b1"]
    assert f"assigned: {topic}[0-2] (generation 1; member joined" in first.err
    muster("produce", "--topic", topic, stdin="c1\n")
    assert muster(*arguments, "--max-messages", "1").out == "c1\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_consumer_that_is_told_to_stop_leaves_its_group_at_once(
    number: signal.Signals, muster: Prompt, topic: str
) -> None:
    group = f"g-{topic}"
    process = muster.start("consume", "--topic", topic, "--group", group, "--from-beginning")
    assert process.stdout is not None
    read = [process.stdout.readline().strip() for _ in range(3)]
    process.send_signal(number)
    _, err = process.communicate(timeout=PATIENCE_S * pace())
    assert process.returncode == 0
    assert sorted(read) == ["a1", "a2", "b1"]
    assert "3 messages" in err
    described = muster.json("groups", "describe", group)
    assert isinstance(described, list)
    assert sum(row["lag"] for row in described) == 0
    history = muster.json("groups", "history", group)
    assert isinstance(history, list)
    assert history[-1]["cause"] == "member left"


def test_a_reader_that_goes_away_ends_the_consumer_without_a_traceback(muster: Prompt, topic: str) -> None:
    process = muster.start("consume", "--topic", topic, "--from-beginning")
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.close()
    muster("produce", "--topic", topic, stdin="d1\n" * 1000)
    assert process.stderr is not None
    assert "Traceback" not in process.stderr.read()
    assert process.wait(PATIENCE_S * pace()) == 1
    process.stderr.close()


def test_a_group_is_looked_into(muster: Prompt, node: NodeProcess, topic: str) -> None:
    group = f"g-{topic}"
    with Consumer(bootstrap_servers=node.address, group_id=group, client_id="looker") as consumer:
        consumer.subscribe(topic)
        while not consumer.assignment():
            consumer.poll(0.05)
        state = muster.json("groups", "describe", group, "--state")
        members = muster("groups", "members", group, "-o", "wide")
        offsets = muster("groups", "describe", "--group", group)
        refused = muster("groups", "reset-offsets", group, "--all-topics", "--to", "start", "--execute")
        kept = muster("groups", "delete", group)
        needed = muster("groups", "delete-offsets", group, "--topic", topic)
    assert isinstance(state, list)
    assert (state[0]["state"], state[0]["members"], state[0]["generation"]) == ("Stable", 1, 1)
    assert f"{topic}(0,1,2)" in members.out
    heading = "GROUP TOPIC PARTITION CURRENT-OFFSET LOG-END-OFFSET LAG CONSUMER-ID HOST CLIENT-ID"
    assert offsets.out.splitlines()[0].split() == heading.split()
    assert offsets.out.count("looker") >= 3
    assert refused.code == 5
    assert f"can only be reset if the group '{group}' is inactive, but the current state is Stable" in refused.err
    assert kept.code == 5
    assert "NON_EMPTY_GROUP" in kept.err
    assert needed.code == 5
    assert needed.err.startswith(f"error: GROUP_SUBSCRIBED_TO_TOPIC: {topic}-0: a member of the group is subscribed")
    listed = muster.json("groups", "list")
    assert isinstance(listed, list)
    assert group in [row["group"] for row in listed]


def test_a_rebalance_is_explained(muster: Prompt, node: NodeProcess, topic: str) -> None:
    group = f"g-{topic}"
    muster("consume", "--topic", topic, "--group", group, "--from-beginning", "--max-messages", "1")
    text = muster("groups", "explain", "--entries", group).out
    assert "Rebalance 1   generation 0 -> 1" in text
    assert "cause    member joined   by muster-cli at 127.0.0.1" in text
    assert "planned by muster-cli" in text
    assert f"{topic}[0-2]   nobody -> muster-cli" in text
    assert "cause    member left" in text
    told = muster.json("groups", "explain", "--entries", group, "--generation", "1", "--snapshots")
    assert isinstance(told, list)
    assert [entry["generation"] for entry in told] == [1]
    assert told[0]["snapshot"]["topics"] == {topic: 3}
    assert len(told[0]["moves"]) == 3


def test_positions_are_shown_first_and_moved_on_request(muster: Prompt, topic: str) -> None:
    group = f"g-{topic}"
    muster("consume", "--topic", topic, "--group", group, "--from-beginning", "--max-messages", "3")
    reset = ("groups", "reset-offsets", group, "--topic", topic)
    before = muster.json("groups", "describe", group)
    shown = muster(*reset, "--to", "start")
    assert shown.code == 0
    assert shown.out.splitlines()[0].split() == ["GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "NEW-OFFSET"]
    assert "Nothing was changed" in shown.err
    by_time = muster(*reset, "--to", "@2026-01-31T12:00:00Z")
    assert "Looking for the first records at or after 2026-01-31 " in by_time.err
    assert muster.json("groups", "describe", group) == before
    assert muster(*reset, "--to", "start", "--execute").code == 0
    after = muster.json("groups", "describe", group)
    assert isinstance(after, list)
    assert [row["current_offset"] for row in after] == [0, 0, 0]
    clamped = muster(*reset, "--to", "99", "--execute")
    assert "99 becomes" in clamped.err
    at_end = muster.json("groups", "describe", group)
    assert isinstance(at_end, list)
    assert sum(row["lag"] for row in at_end) == 0


def test_an_operator_sends_members_away(muster: Prompt, node: NodeProcess, topic: str) -> None:
    group = f"g-{topic}"
    with Consumer(bootstrap_servers=node.address, group_id=group, client_id="goer") as consumer:
        consumer.subscribe(topic)
        while not consumer.assignment():
            consumer.poll(0.05)
        stranger = muster("groups", "remove-members", group, "--member", "nobody", "--execute")
        assert (stranger.code, "has no member 'nobody'" in stranger.err) == (3, True)
        shown = muster("groups", "remove-members", group, "--all")
        assert ("goer" in shown.out, "Nobody was removed" in shown.err) == (True, True)
        done = muster("groups", "remove-members", group, "--all", "--reason", "a drill", "--execute")
        assert (done.code, done.err, "goer" in done.out) == (0, "", True)
    told = muster.json("groups", "explain", "--entries", group)
    assert isinstance(told, list)
    operator = [entry for entry in told if entry["cause"].lower().endswith("operator")]
    assert len(operator) == 1
    assert "a drill" in json.dumps(operator[0])


def test_records_are_printed_as_wanted_from_where_wanted(muster: Prompt) -> None:
    one, two = next(names), next(names)
    for name in (one, two):
        assert muster("topics", "create", name, "--partitions", "2").code == 0
    keyed = (
        "produce",
        "--topic",
        one,
        "--partition",
        "1",
        "--key-separator",
        ":",
        "--header",
        "h=1",
        "--header",
        "h=2",
    )
    assert muster(*keyed, stdin="a:1\nb:2\nc\n").code == 0
    assert muster("produce", "--topic", two, "--partition", "0", stdin="x\n").code == 0
    read = ("consume", "--topic", one, "--idle-timeout", "20")
    fields = muster(*read, "--from", "start", "--max-messages", "3", "--print", "partition,offset,key,value,headers")
    assert fields.out == "1\t0\ta\t1\th=1,h=2\n1\t1\tb\t2\th=1,h=2\n1\t2\t\tc\th=1,h=2\n"
    last = muster(*read, "--partition", "1", "--from", "-1", "--max-messages", "1", "-o", "json")
    told = json.loads(last.out)
    assert (told["offset"], told["key"], told["value"]) == (2, None, "c")
    assert told["headers"] == [{"name": "h", "value": "1"}, {"name": "h", "value": "2"}]
    assert muster(*read, "--partition", "1", "--from", "1", "--max-messages", "1").out == "2\n"
    assert muster(*read, "--from", "@-1h", "--max-messages", "1").out == "1\n"
    both = muster("consume", "--topic", one, "--topic", two, "--from", "start", "--max-messages", "4")
    assert lines(both.out) == ["1", "2", "c", "x"]
    as_group = ("--group", f"g-{one}", "--from-beginning", "--max-messages", "4")
    assert lines(muster("consume", "--topic", one, "--topic", two, *as_group).out) == ["1", "2", "c", "x"]


def test_lines_are_written_in_transactions(muster: Prompt) -> None:
    name = next(names)
    assert muster("topics", "create", name).code == 0
    written = ("produce", "--topic", name, "--transactional-id", name, "--commit-every", "2")
    assert muster(*written, stdin="a\nb\nc\n").err.endswith(f"3 lines to {name}\n")
    torn = muster(*written, "--set", "max.request.size=100", stdin="d\ne\nf\n" + "x" * 200 + "\n")
    assert torn.code != 0
    assert torn.err.startswith("error: lines 3-4 did not count: MESSAGE_TOO_LARGE")
    assert "2 lines before them counted" in torn.err
    read = ("consume", "--topic", name, "--from", "start", "--idle-timeout", "20", "--max-messages", "5")
    assert muster(*read, "--isolation-level", "read_committed").out == "a\nb\nc\nd\ne\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("consume", "--topic", "t", "--from", "+3"), "'+3' needs a group"),
        (("consume", "--topic", "t", "--group", "g", "--from", "3"), "--from and --partition do not work with --group"),
        (("consume", "--topic", "t", "--from-beginning", "--from", "3"), "both say where to begin"),
        (("consume", "--topic", "t", "--print", "size"), "'size' is not a field; expected some of topic, partition"),
        (("consume", "--topic", "^a", "--topic", "b", "--group", "g"), "is a pattern and stands alone"),
        (("produce", "--topic", "t", "--header", "h"), "'h' is not a header; expected NAME=VALUE"),
        (("produce", "--topic", "t", "--key-regex", "a", "--key-separator", ":"), "both say what the key is"),
        (("produce", "--topic", "t", "--commit-every", "3"), "--commit-every means nothing without --transactional-id"),
        (("groups", "remove-members", "g"), "expected --member, --instance or --all"),
    ],
)
def test_what_contradicts_itself_is_refused(muster: Prompt, arguments: tuple[str, ...], said: str) -> None:
    done = muster(*arguments)
    assert (done.code, done.out) == (2, "")
    assert said in done.err


def test_positions_and_groups_are_deleted(muster: Prompt, topic: str) -> None:
    group = f"g-{topic}"
    muster("consume", "--topic", topic, "--group", group, "--from-beginning", "--max-messages", "3")
    assert "Successful" in muster("groups", "delete-offsets", group, "--topic", f"{topic}:0,1").out
    left = muster.json("groups", "describe", group)
    assert isinstance(left, list)
    assert [row["partition"] for row in left] == [2]
    deleted = muster("groups", "delete", group)
    assert deleted == Done(0, "", f"Deletion of requested consumer groups ('{group}') was successful.\n")
    assert muster("groups", "describe", group).code == 3


def test_health_is_asked(muster: Prompt) -> None:
    assert muster("health") == Done(0, "SERVING\n", "")


def snapshot_of(data: Path) -> dict[str, bytes]:
    """Every file of a data directory that says something about topics, groups or records."""
    return {
        str(file.relative_to(data)): file.read_bytes()
        for file in sorted(data.rglob("*"))
        if file.is_file() and (file.suffix == ".log" or file.name in ("topics.json", "meta.properties"))
    }


BAD = [
    (("topics", "create", "{topic}"), 5, "Topic '{topic}' exists already"),
    (("topics", "create", "no/slash"), 2, "'no/slash' is no topic name; expected"),
    (("topics", "create", "huge", "--partitions", "1000000000"), 2, "exceed the node's limit"),
    (("topics", "create", "odd", "--config", "retention.m=1"), 2, "did you mean 'retention.ms'?"),
    (("topics", "create", "odd", "--config", "retention.ms=soon"), 2, "'soon'; expected a whole number from -1 to"),
    (("topics", "create", "t" * 5_000), 2, "(5,000 characters)"),
    (("topics", "add-partitions", "{topic}", "2"), 2, "cannot have 2 partitions; expected more than 3"),
    (("topics", "add-partitions", "missing", "2"), 3, "no topic 'missing'"),
    (("topics", "delete", "missing"), 3, "no topic 'missing'"),
    (("topics", "delete", "__consumer_offsets"), 2, "__consumer_offsets"),
    (("topics", "describe", "missing"), 3, "no topic 'missing'"),
    (("produce", "--topic", "missing"), 3, "no topic 'missing'"),
    (("produce", "--topic", "__rebalances"), 2, "__rebalances"),
    (("consume", "--topic", "missing", "--max-messages", "1"), 3, "no topic 'missing'"),
    (("groups", "describe", "missing"), 3, "no group 'missing'"),
    (("groups", "members", "missing"), 3, "no group 'missing'"),
    (("groups", "explain", "missing"), 3, "no group 'missing'"),
    (("groups", "delete", "missing"), 3, "no group 'missing'"),
    (("groups", "delete-offsets", "missing", "--topic", "{topic}"), 3, "no group 'missing'"),
    (("groups", "reset-offsets", "g", "--topic", "missing", "--to", "0"), 3, "no topic 'missing'"),
    (("groups", "reset-offsets", "g", "--topic", "{topic}:7", "--to", "0"), 2, "names partition '7'; expected numbers"),
    (("consume", "--topic", "{topic}", "--group", "g", "--set", "session.timeout.ms=4"), 2, "session.timeout.ms=4"),
    (
        ("consume", "--topic", "{topic}", "--group", "g", "--set", "partition.assignment.strategy=rnge"),
        2,
        "did you mean 'range'?",
    ),
    (
        (
            *("consume", "--topic", "{topic}", "--group", "g"),
            *("--set", "session.timeout.ms=400", "--set", "heartbeat.interval.ms=100"),
        ),
        2,
        "INVALID_SESSION_TIMEOUT",
    ),
]


@pytest.mark.parametrize(("arguments", "code", "said"), BAD, ids=lambda value: str(value)[:50])
def test_bad_input_is_refused_with_a_reason_and_changes_nothing_on_disk(
    arguments: Sequence[str], code: int, said: str, muster: Prompt, node: NodeProcess, topic: str
) -> None:
    before = snapshot_of(node.data)
    done = muster(*(argument.format(topic=topic) for argument in arguments), stdin="line\n")
    assert done.code == code, done
    assert done.err.startswith("error: ") or "\nerror: " in done.err
    assert said.format(topic=topic) in done.err
    assert "Traceback" not in done.err
    assert snapshot_of(node.data) == before


def test_a_line_over_the_limit_ends_the_sending_and_is_named(muster: Prompt, topic: str) -> None:
    done = muster("produce", "--topic", topic, stdin=f"small\n{'x' * (2 << 20)}\nnever sent\n")
    assert done.code == 1
    assert "line 2: MESSAGE_TOO_LARGE" in done.err
    assert "max.request.size" in done.err
    assert "go on with line 2; 1 line arrived" in done.err
    found = muster("consume", "--topic", topic, "--from-beginning", "--max-messages", "4").out
    assert lines(found) == ["a1", "a2", "b1", "small"]


def test_a_line_over_the_topics_own_limit_is_refused_by_the_node_and_named(muster: Prompt) -> None:
    name = next(names)
    muster("topics", "create", name, "--config", "max.message.bytes=1000")
    done = muster("produce", "--topic", name, "--set", "batch.size=0", stdin=f"first\n{'x' * 5000}\nlast\n")
    assert done.code == 1
    assert "line 2 did not arrive; the first because: MESSAGE_TOO_LARGE" in done.err
    assert "max.message.bytes" in done.err
    assert done.err.endswith("; 2 lines arrived\n")
    assert lines(muster("consume", "--topic", name, "--from-beginning", "--max-messages", "2").out) == ["first", "last"]


def test_every_byte_before_the_line_feed_belongs_to_the_record(muster: Prompt) -> None:
    name = next(names)
    muster("topics", "create", name)
    assert muster("produce", "--topic", name, stdin="dos\r\nodd\r\r\n\nopen\r").code == 0
    found = muster("consume", "--topic", name, "--from-beginning", "--max-messages", "4").out
    assert found == "dos\r\nodd\r\r\n\nopen\r\n"


@pytest.mark.parametrize("kind", ["Raises", "Forgets"])
def test_a_plugin_that_fails_is_named_in_the_explanation(kind: str, muster: Prompt, topic: str) -> None:
    group = f"g-{topic}"
    plugin = f"partition.assignment.strategy=tests.support.plugins:{kind}"
    done = muster(
        *("consume", "--topic", topic, "--group", group, "--from-beginning", "--max-messages", "3", "--set", plugin)
    )
    # The group gets a plain plan instead, and the ledger keeps the reason.
    assert lines(done.out) == ["a1", "a2", "b1"]
    told = muster("groups", "explain", "--entries", group).out
    assert f"FAILED: assignor '{kind.lower()}'" in told
    assert "the group got this plan instead: range" in told


def test_the_admin_sees_what_the_prompt_created(node: NodeProcess, topic: str) -> None:
    with Admin(bootstrap_servers=node.address) as admin:
        assert admin.list_topics()[topic] == 3


def test_a_rebalance_under_way_says_whom_it_waits_for_and_until_when(
    muster: Prompt, node: NodeProcess, topic: str
) -> None:
    group = f"g-{topic}"
    given = {"bootstrap.servers": node.address, "group.id": group, "partition.assignment.strategy": "range"}
    with Consumer({**given, "client.id": "idle"}) as idle, Consumer({**given, "client.id": "eager"}) as eager:
        idle.subscribe(topic)
        while not idle.assignment():
            idle.poll(0.05)
        # Nobody polls the idle one any more, so it does not give its partitions up to let the other one in.
        eager.subscribe(topic)
        with Admin(bootstrap_servers=node.address) as admin:
            while not admin.describe_group(group).waiting_for:
                eager.poll(0.05)
        state = muster.json("groups", "describe", group, "--state")
        noticed = muster("groups", "describe", group).err
        idle.poll(1)
    assert isinstance(state, list)
    assert state[0]["state"] == "PreparingRebalance"
    assert [member.split("-")[0] for member in state[0]["waiting_for"]] == ["idle"]
    assert state[0]["waiting_until"] is not None
    assert f"Warning: Consumer group '{group}' is rebalancing. It waits for idle until " in noticed
