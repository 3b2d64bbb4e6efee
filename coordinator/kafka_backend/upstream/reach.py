"""How the upstream is reached: where it is, what is spoken there, and who we are."""

import ssl
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from muster.coordinator.config import Address
from muster.coordinator.kafka_backend.upstream.errors import UpstreamError

OWN: Final = "engine.kafka."
"""How the settings begin that say who a node is."""


@dataclass(frozen=True, slots=True)
class UpstreamCredentials:
    """By SASL. token_file: of OAUTHBEARER, read anew for each connection; the others have name and password. of: how
    the settings begin that say it."""

    mechanism: str
    username: str = ""
    password: str = field(default="", repr=False)
    token_file: str = ""
    of: str = OWN

    def token(self) -> str:
        try:
            token = Path(self.token_file).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise UpstreamError(
                f"the token for the upstream cannot be read: {getattr(error, 'strerror', None) or 'it is no text'}; "
                f"{self.of}sasl.oauthbearer.token.file names its file"
            ) from None
        if not token or any(char <= " " or char > "~" for char in token):
            raise UpstreamError(f"{self.of}sasl.oauthbearer.token.file holds no token; expected one line of it")
        return token


@dataclass(frozen=True, slots=True)
class UpstreamTlsFiles:
    """Files in PEM: whom we believe (empty: what the system believes), and what we show (empty: nothing). of: how the
    settings begin that say the latter."""

    truststore: str = ""
    keystore: str = ""
    key_password: str = field(default="", repr=False)
    of: str = OWN

    def context(self) -> ssl.SSLContext:
        """Read anew for each connection, so that certificates may change. Raises UpstreamError."""
        try:
            made = ssl.create_default_context(cafile=self.truststore or None)
            if self.keystore:
                made.load_cert_chain(self.keystore, password=self.key_password)
        except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
            raise UpstreamError(
                f"the certificates for the upstream cannot be used: {getattr(error, 'strerror', None) or error}; "
                f"{OWN}ssl.truststore.location and {self.of}ssl.keystore.location name files in PEM"
            ) from None
        return made


@dataclass(frozen=True, slots=True)
class UpstreamAddress:
    servers: tuple[Address, ...]
    """Where to begin; who else there is the upstream tells."""
    login: UpstreamCredentials | None = None
    certificates: UpstreamTlsFiles | None = None
    """None: in the clear."""
    client_id: str = "muster"
    connect_s: float = 10.0
    """Within which a connection is made, greeted and logged in."""
    answer_s: float = 30.0
    """Within which a request is answered, beside what it may wait by its own words."""
