"""`muster transactions abort` and `force-terminate`: an operator ends a transaction.

`abort` writes a marker into one partition, behind the coordinator's back: that is for transactions that hang. Of one
that does not, the coordinator may commit the other parts. `force-terminate` is for those.
"""

from typing import TYPE_CHECKING, NamedTuple

import click

from muster.cli.common.commands import CommandError, Exit
from muster.cli.common.options import client_options, connect_admin
from muster.cli.common.output import notice
from muster.cli.transactions.hanging import PartitionTransaction, ask_coordinators
from muster.cli.transactions.inspection import NUMBER, wall_clock_ms

if TYPE_CHECKING:
    from muster.client import Admin
    from muster.client.described import ProducerDescription, TransactionDescription
    from muster.client.types import TopicPartition

OFFSET = click.IntRange(0, 2**63 - 1)


class GivenProducer(NamedTuple):
    """The other way to say which transaction: as a log's producers are described."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int


@click.command()
@client_options
@click.option("--topic", required=True, metavar="T", help="Topic.")
@click.option("--partition", required=True, type=NUMBER, metavar="P", help="Partition.")
@click.option("--start-offset", type=OFFSET, metavar="O", help="Offset where the transaction begins.")
@click.option("--producer-id", type=OFFSET, metavar="ID", help="Producer id, instead of --start-offset.")
@click.option("--producer-epoch", type=click.IntRange(0, 32767), metavar="E", help="With --producer-id: its epoch.")
@click.option(
    "--coordinator-epoch",
    type=click.IntRange(-1, 2**31 - 1),
    metavar="E",
    help="With --producer-id: the latest epoch of its coordinator.",
)
@click.option(
    "--anyway", is_flag=True, help="Abort even if it does not hang; its other partitions may still be committed."
)
def abort(
    bootstrap: str,
    overrides: dict[str, str],
    topic: str,
    partition: int,
    start_offset: int | None,
    producer_id: int | None,
    producer_epoch: int | None,
    coordinator_epoch: int | None,
    anyway: bool,
) -> None:
    """Abort a hanging transaction in one partition.

    Leaves the transaction alone if its coordinator can still end it. `muster transactions find-hanging` shows the
    --start-offset; `describe-producers` shows the producer, which names it as well.
    """
    from muster.client.types import TopicPartition

    given = named_producer(start_offset, producer_id, producer_epoch, coordinator_epoch)
    place = TopicPartition(topic, partition)
    with connect_admin(bootstrap, overrides) as admin:
        (known,) = admin.describe_producers([place]).values()
        meant = find_by_offset(place, known, start_offset) if given is None else find_by_producer(known, given)
        if meant is not None and meant.transaction_start_offset is not None and not anyway:
            refuse_kept(admin, PartitionTransaction(place, meant))
        if given is None:
            assert meant is not None, "it was found by its beginning"
            given = GivenProducer(meant.producer_id, meant.producer_epoch, meant.coordinator_epoch)
        admin.abort_transaction(topic, partition, *given)
    notice(f"aborted what producer {given.producer_id} of epoch {given.producer_epoch} had open in {topic}-{partition}")


def named_producer(
    start_offset: int | None, producer_id: int | None, producer_epoch: int | None, coordinator_epoch: int | None
) -> GivenProducer | None:
    """None: by its beginning. Raises UsageError."""
    figures = (producer_id, producer_epoch, coordinator_epoch)
    if start_offset is not None and figures == (None, None, None):
        return None
    if start_offset is not None or producer_id is None or producer_epoch is None or coordinator_epoch is None:
        raise click.UsageError(
            "expected --start-offset, or else --producer-id, --producer-epoch and --coordinator-epoch, all three"
        )
    return GivenProducer(producer_id, producer_epoch, coordinator_epoch)


def find_by_offset(
    place: "TopicPartition", known: "list[ProducerDescription]", start_offset: int | None
) -> "ProducerDescription":
    """Raises CommandError where no open transaction begins there."""
    begun = {each.transaction_start_offset: each for each in known if each.transaction_start_offset is not None}
    if start_offset in begun:
        return begun[start_offset]
    at = ", ".join(map(str, sorted(offset for offset in begun if offset is not None)))
    raise CommandError(
        f"no open transaction begins at offset {start_offset} of {place.topic}-{place.partition}",
        f"expected one of {at}" if at else "nothing is open there",
        code=Exit.NOT_FOUND,
    )


def find_by_producer(known: "list[ProducerDescription]", given: GivenProducer) -> "ProducerDescription | None":
    return next((each for each in known if each.producer_id == given.producer_id), None)


def refuse_kept(admin: "Admin", found: PartitionTransaction) -> None:
    """Raises CommandError for a transaction that its coordinator has or is just ending."""
    (asked,) = ask_coordinators(admin, [found])
    keeper = asked.keeper
    if keeper is None:
        return
    where = f"{found.place.topic}-{found.place.partition}"
    raise CommandError(
        f"the transaction does not hang: transactional id {keeper.transactional_id!r} has it {describe_kept(keeper)}, "
        f"{describe_client(keeper)}",
        f"an abort of {where} alone may tear it",
        f"use muster transactions force-terminate --transactional-id {keeper.transactional_id}, or --anyway",
        code=Exit.CONFLICT,
    )


def describe_kept(keeper: "TransactionDescription") -> str:
    if keeper.state != "Ongoing" or keeper.start_time_ms is None:
        return f"in state {keeper.state} and is ending it"
    return f"open for {max(0, wall_clock_ms() - keeper.start_time_ms) / 1000:.1f} s"


def describe_client(keeper: "TransactionDescription") -> str:
    if not keeper.client_address:
        return "of a producer that has not been heard since the node started"
    software = f" ({keeper.client_software})" if keeper.client_software else ""
    return f"of a producer at {keeper.client_address}{software}"


@click.command("force-terminate")
@client_options
@click.option("--transactional-id", "--transactionalId", required=True, metavar="ID", help="Transactional id.")
def force_terminate(bootstrap: str, overrides: dict[str, str], transactional_id: str) -> None:
    """Abort the open transaction of a transactional id and fence its producer.

    The fenced producer cannot continue; a restarted one can.
    """
    with connect_admin(bootstrap, overrides) as admin:
        admin.terminate_transaction(transactional_id)
    notice(f"{transactional_id}: what was open is aborted, and its producer is fenced")
