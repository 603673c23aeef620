"""The model of the desk: a stand-in that the office serves, or a real one that the environment names."""

import os
from collections.abc import AsyncIterator

import httpx2

from outlast.agent import Model, ModelAnswer, ModelRequest, provided

from .office import ENV, MODEL
from .stand_in import NAME
from .tools import trust

CONFIGURED = ("OUTLAST_MODEL", "OUTLAST_MODEL_URL")


class OfficeModel:
    """The stand-in. The office records each request, so a test can count the answers that were paid."""

    name = NAME

    async def request(self, request: ModelRequest) -> ModelAnswer:
        """Return the answer of the stand-in. Raises httpx2.HTTPError."""
        key = {"Idempotency-Key": request.digest(NAME)}
        async with httpx2.AsyncClient(base_url=os.environ[ENV], trust_env=False, verify=trust()) as http:
            answer = await http.post(MODEL, content=request.model_dump_json(), headers=key)
        return ModelAnswer.model_validate_json(answer.raise_for_status().content)

    async def stream(self, request: ModelRequest) -> AsyncIterator[str | ModelAnswer]:
        """Yield the words of the answer at once, then the answer."""
        answer = await self.request(request)
        yield answer.text
        yield answer


def desk_model() -> Model:
    """Return the configured model, or the stand-in if the environment names none."""
    return provided() if any(os.environ.get(name) for name in CONFIGURED) else OfficeModel()
