"""SaslHandshake and SaslAuthenticate, where a listener asks who its clients are, and where it does not."""

from typing import Any

from muster.coordinator.kafka.codec.codec import struct

ILLEGAL_SASL_STATE = 34


class SaslHandlers:
    async def sasl_handshake(self, request: Any, call: Any) -> Any:
        made, login = struct("SaslHandshakeResponse"), call.peer.login
        if login is None:
            return made(error_code=ILLEGAL_SASL_STATE)
        return made(
            error_code=await login.begin(request.mechanism, call.api_version), mechanisms=list(login.mechanisms)
        )

    async def sasl_authenticate(self, request: Any, call: Any) -> Any:
        made, login = struct("SaslAuthenticateResponse"), call.peer.login
        if login is None:
            return made(error_code=ILLEGAL_SASL_STATE, error_message="this listener asks nobody who they are")
        code, message, data, lifetime_ms = await login.authenticate(bytes(request.auth_bytes))
        return made(error_code=code, error_message=message, auth_bytes=data, session_lifetime_ms=lifetime_ms)
