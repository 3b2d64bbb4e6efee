"""The users of a node as Kafka's tools see and change them."""

from collections.abc import Mapping, Sequence

from muster.coordinator.kafka.dispatch import KafkaCall
from muster.coordinator.kafka.handlers.scram_users import Alterations, Deletions
from muster.coordinator.security.scram import SCRAM_NUMBERS
from muster.coordinator.server.security.accounts import Outcome, SaltedCredential, UserAccounts
from muster.coordinator.server.security.audit import AuditLog


class NodeScramUsers:
    """Implements `muster.coordinator.kafka.handlers.scram_users.ScramUserStore`."""

    def __init__(self, accounts: UserAccounts, audit: AuditLog) -> None:
        self._accounts = accounts
        self._audit = audit

    def names(self) -> list[str]:
        return [name for name, user in self._accounts.users().items() if user.scram]

    def scram_of(self, name: str) -> Sequence[tuple[int, int]]:
        user = self._accounts.users().get(name)
        scram = {} if user is None else user.scram
        return sorted((SCRAM_NUMBERS[mechanism], each.iterations) for mechanism, each in scram.items())

    async def alter(
        self,
        call: KafkaCall,
        upsertions: Alterations,
        deletions: Deletions,
    ) -> Mapping[str, Outcome]:
        outcomes = await self._accounts.alter_scram([SaltedCredential(*each) for each in upsertions], deletions)
        for name, (code, _) in outcomes.items():
            outcome = f"refused: {code}" if code else "done"
            self._audit.acted(call.identity, "kafka", "AlterUserScramCredentials", name, outcome)
        return outcomes
