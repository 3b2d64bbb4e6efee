"""What can go wrong for the data source beyond what a client can meet."""

from muster.client.errors import ClientError, ConfigError

REMEDY = (
    "they expired, were deleted, or the topic was made again; set failOnDataLoss=false to go on with what is left, "
    "or start over with a new checkpoint"
)

NOT_READ_REMEDY = (
    "name it again, use a new checkpoint for what is read now, or set failOnDataLoss=false to go on without it"
)


class OptionError(ConfigError):
    """An option of the data source that is unknown, malformed, or contradicts another one."""


class DataLoss(ClientError):
    """Records that were to be read are gone. `brief` says which, without what to do."""

    def __init__(self, brief: str, remedy: str = REMEDY) -> None:
        self.brief = brief
        super().__init__(f"{brief}; {remedy}")


class NoShare(ClientError):
    """A group that is waiting for nobody has given a driver no share."""

    def __init__(self, group_id: str, waited_ms: int, state: str, members: str) -> None:
        super().__init__(
            f"group {group_id!r} gave this driver no share within {waited_ms} ms, though it waits for nobody; "
            f"it is {state}, with the members {members}; see muster groups describe {group_id}"
        )
