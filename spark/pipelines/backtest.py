"""Many replays: every history under every candidate and seed, in this process or on Spark's executors.

Both runners call the same pure function for one job and give the same rows, in the same order, digit for digit.
Spark gets the list of jobs as a small table; histories are made or unpacked where they are replayed, and rows come
back as Arrow.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import astuple, dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

from muster.assignors.api import AssignorError
from muster.spark.assignor_deadline import DEADLINE_MS, PluginOverran
from muster.spark.pipelines.candidates import BacktestCandidate
from muster.spark.pipelines.replaying import HandoverModel, replay
from muster.spark.pipelines.scoring import SCORE_FIELDS, ReplayScore
from muster.spark.pipelines.synthetic import SyntheticPlan
from muster.spark.pipelines.trace import GroupTrace

MAX_JOBS = 10_000_000
TASKS_PER_CORE, USUAL_CORES = 8, 4
"""Jobs differ in length: small shares keep all cores busy to the end."""
MAX_ERROR_CHARACTERS = 500


@dataclass(frozen=True, slots=True)
class Backtest:
    """What to try. A `SyntheticPlan` is made anew for each seed; a recorded `GroupTrace` gets other member ids for
    each seed but 0.
    """

    histories: tuple[SyntheticPlan | GroupTrace, ...]
    candidates: tuple[BacktestCandidate, ...]
    seeds: tuple[int, ...]
    model: HandoverModel = field(default_factory=HandoverModel)
    deadline_ms: int = DEADLINE_MS
    """For one plan of an assignor that is a plugin."""

    def __post_init__(self) -> None:
        names = [history.name for history in self.histories]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"two histories are called {twice[0]!r}; their names must differ")
        if not self.histories or not self.candidates or not self.seeds:
            raise ValueError("nothing to try; expected at least one history, one assignor and one seed")
        if len(self.jobs) > MAX_JOBS:
            raise ValueError(f"{len(self.jobs)} replays are too many; expected at most {MAX_JOBS}")

    @property
    def jobs(self) -> range:
        """Their numbers: histories, in each the seeds, in each the candidates."""
        return range(len(self.histories) * len(self.seeds) * len(self.candidates))

    def place(self, job: int) -> tuple[int, int, int]:
        """(history, seed, candidate) of a job, as places in the three lists."""
        rest, candidate = divmod(job, len(self.candidates))
        history, seed = divmod(rest, len(self.seeds))
        return history, seed, candidate


class BacktestRow(NamedTuple):
    """What came of one job; `score` None: the assignor failed, `error` says how."""

    job: int
    history: str
    seed: int
    candidate: str
    error: str
    score: ReplayScore | None

    def flat(self) -> dict[str, Any]:
        """One level, as tables and files want it."""
        score = astuple(self.score) if self.score is not None else (None,) * len(SCORE_FIELDS)
        return {
            "job": self.job,
            "history": self.history,
            "seed": self.seed,
            "candidate": self.candidate,
            "error": self.error,
        } | dict(zip(SCORE_FIELDS, score, strict=True))


def run_here(test: Backtest) -> Iterator[BacktestRow]:
    """One job after the other in this process."""
    return replay_jobs(test, test.jobs)


def replay_jobs(test: Backtest, jobs: Iterable[int]) -> Iterator[BacktestRow]:
    """Neighbouring jobs share their history, which is made once. Who overran a deadline is not tried again here:
    each of its jobs would cost as long.
    """
    overran: dict[int, str] = {}

    @lru_cache(maxsize=1)
    def made(history: int, seed: int) -> GroupTrace:
        chosen = test.histories[history]
        return chosen.make(seed) if isinstance(chosen, SyntheticPlan) else chosen.renamed(seed)

    for job in jobs:
        history, number, which = test.place(job)
        seed, candidate = test.seeds[number], test.candidates[which]
        score, error = None, overran.get(which, "")
        try:
            score = None if error else replay(made(history, seed), candidate, test.model, test.deadline_ms)
        except AssignorError as failure:
            error = str(failure)[:MAX_ERROR_CHARACTERS]
            if isinstance(failure, PluginOverran):
                overran[which] = error
        yield BacktestRow(job, test.histories[history].name, seed, candidate.label, error, score)


def run_on_spark(test: Backtest, spark: Any, tasks: int | None = None) -> list[BacktestRow]:
    """The same rows from a Spark session; `tasks` is the number of tasks, a multiple of the cores unless given.

    The assignors of plugins must be importable on the executors. Raises ImportError without pyspark and pyarrow.
    """
    import pyarrow as pa
    from pyspark.sql.functions import arrow_udf  # type: ignore[attr-defined]

    def replayed(jobs: pa.Array) -> pa.Array:
        find_plugins_here()
        return build_arrow_table(replay_jobs(test, jobs.to_pylist())).to_struct_array().combine_chunks()

    # An Arrow function from column to column. `applyInArrow` and `mapInArrow` refuse a driver without pandas, though
    # no executor of theirs uses it; grouping would also deal jobs out by hash, and a history be made more than once.
    wanted = tasks or TASKS_PER_CORE * count_cores(spark)
    numbers = spark.range(0, len(test.jobs), 1, min(wanted, len(test.jobs)))
    rows = numbers.select(arrow_udf(replayed, build_spark_schema())("id").alias("row")).select("row.*")
    return sorted(read_arrow_table(rows.toArrow()), key=lambda row: row.job)


def count_cores(spark: Any) -> int:
    """A session of Spark Connect does not tell; there, as many as usual."""
    from pyspark.errors import PySparkException

    try:
        return int(spark.sparkContext.defaultParallelism)
    except PySparkException:
        return USUAL_CORES


def find_plugins_here() -> None:
    """Where executors run in the driver's directory, plugins of it are found as they are found without Spark."""
    import sys

    if "" not in sys.path:
        sys.path.append("")


WHOLE_NUMBER_COLUMNS = ("decisions", "rounds", "moves", "avoidable_moves", "moved_lag", "worst_lag", "unsettled")
HEAD_COLUMNS = {"job": "long", "history": "string", "seed": "long", "candidate": "string", "error": "string"}


def build_spark_schema() -> str:
    """The rows' columns in Spark's words."""
    return ", ".join(f"{name} {kind}" for name, kind in list_columns().items())


def list_columns() -> dict[str, str]:
    return HEAD_COLUMNS | {name: "long" if name in WHOLE_NUMBER_COLUMNS else "double" for name in SCORE_FIELDS}


def build_arrow_table(rows: Iterable[BacktestRow]) -> Any:
    """The rows as an Arrow table; also what the Parquet file holds."""
    import pyarrow as pa

    kinds = {"long": pa.int64(), "double": pa.float64(), "string": pa.string()}
    schema = pa.schema([(name, kinds[kind]) for name, kind in list_columns().items()])
    return pa.Table.from_pylist([row.flat() for row in rows], schema=schema)


def read_arrow_table(table: Any) -> Iterator[BacktestRow]:
    """The rows of a table that `build_arrow_table` made."""
    for row in table.to_pylist():
        score = None if row["error"] else ReplayScore(**{name: row[name] for name in SCORE_FIELDS})
        yield BacktestRow(row["job"], row["history"], row["seed"], row["candidate"], row["error"], score)


def are_same_rows(one: Sequence[BacktestRow], other: Sequence[BacktestRow]) -> bool:
    """Equal to the last digit: floats are compared by their bits."""
    return [row_digits(row) for row in one] == [row_digits(row) for row in other]


def row_digits(row: BacktestRow) -> tuple[object, ...]:
    return tuple(value.hex() if isinstance(value, float) else value for value in row.flat().values())
