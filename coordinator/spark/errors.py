"""What can go wrong for the data source beyond what a client can meet."""

from coordinator.client.errors import ClientError

REMEDY = (
    "they expired, were deleted, or the topic was made again; set failOnDataLoss=false to go on with what is left, "
    "or start over with a new checkpoint"
)


class DataLoss(ClientError):
    """Records that were to be read are gone. `brief` says which, without what to do."""

    def __init__(self, brief: str) -> None:
        self.brief = brief
        super().__init__(f"{brief}; {REMEDY}")
