"""Lists page by page: the place the caller has come to is opened, that of the next page is sealed."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import Depends
from starlette.requests import Request
from starlette.responses import Response

from outlast.service.asks import Cursor, Limit
from outlast.service.house import House, In, Ops


@dataclass(frozen=True)
class Paging:
    """Which part of a list is asked for: from `place` on, at most `limit`."""

    place: str
    limit: int
    _house: House
    _request: Request
    _response: Response
    _tenant: str

    async def page(self, name: str, items: Sequence[Any], further: str) -> dict[str, Any]:
        """The answer, with the cursor of the next page, which the header `Link` names too."""
        sealed = await self._house.cursors.further(self._request, self._response, self._tenant, further)
        return {name: items, "next_cursor": sealed}


async def _paging(
    house: In, ops: Ops, request: Request, response: Response, cursor: Cursor = "", limit: Limit = 50
) -> Paging:
    place = await house.cursors.open(request, ops.tenant, cursor)
    return Paging(place, limit, house, request, response, ops.tenant)


Pages = Annotated[Paging, Depends(_paging)]
"""A parameter of a handler: the part of the list that is asked for. Raises InvalidInput for a cursor of another."""
