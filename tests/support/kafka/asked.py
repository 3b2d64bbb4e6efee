"""Asks a node's handlers in memory as somebody: each request and each answer goes through its bytes."""

import asyncio
from typing import Any

from muster.coordinator.kafka.codec.codec import decode_frame, encode, struct
from muster.coordinator.kafka.dispatch import ClientPeer, DeferredAnswer, Dispatcher, EncodedAnswer, HangUp, KafkaCall
from muster.coordinator.kafka.protocol import APIS
from muster.coordinator.security.access_model import Identity, parse_principal

KEYS = {api.name: api.key for api in APIS}
HUNG_UP = "hung up"


class Asked:
    """One connection of `principal`, that asks one thing after the other."""

    def __init__(self, dispatch: Dispatcher, principal: str, host: str = "10.0.0.1") -> None:
        self._dispatch = dispatch
        eof: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.peer = ClientPeer(host, eof, identity=self.identity(principal, host))

    @staticmethod
    def identity(principal: str, host: str = "10.0.0.1") -> Identity:
        return Identity(parse_principal(principal), host)

    async def __call__(self, api: str, version: int, message: object = None, **fields: object) -> Any:
        """The answer as a client decodes it; HUNG_UP where the connection would end."""
        sent = struct(f"{api}Request")(**fields) if message is None else message
        body = await self.raw(api, version, b"".join(encode(f"{api}Request", version, sent)))
        return body if body is HUNG_UP else decode_frame(f"{api}Response", version, body)

    async def raw(self, api: str, version: int, frame: bytes) -> Any:
        form = self._dispatch.form(KEYS[api], version)
        assert form is not None, f"{api} version {version} is not served"
        request, _ = form.reader()(frame, 0)
        try:
            answer = await self._answer(form, request, KafkaCall(version, "tests", self.peer))
        except HangUp:
            return HUNG_UP
        return b"".join(answer.body if isinstance(answer, EncodedAnswer) else form.write(answer))

    async def _answer(self, form: Any, request: Any, call: KafkaCall) -> Any:
        if form.immediate is not None:
            answer = form.immediate(request, call)
            if isinstance(answer, DeferredAnswer):
                came = asyncio.Event()
                answer.then(came.set)
                await came.wait()
                return answer.respond()
            if answer is not None or form.handler is None:
                return answer
        return await form.handler(request, call)
