"""The theme of the pages: that of the system, or the one that the person chose in this browser."""

from typing import Final

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from outlast.core.durations import DAY, SECOND
from outlast.errors import InvalidInput
from outlast.service.service_state import root_of
from outlast.ui import sessions
from outlast.ui.page_route import OpenPageRoute, form_of, see_other
from outlast.ui.rendering import THEME_COOKIE, THEMES

router = APIRouter(prefix="/ui", route_class=OpenPageRoute)
KEPT_S: Final = 365 * DAY // SECOND


@router.post("/theme", operation_id="ui:set_theme")
async def set_theme(request: Request) -> Response:
    """Keep the theme in this browser and show the page again. `system` forgets it."""
    theme = form_of(request).text("theme")
    if theme not in THEMES:
        raise InvalidInput(f"no theme {theme[:20]!r}", f"themes are {', '.join(THEMES)}", "choose one of these")
    here = sessions.came_from(request).removeprefix(root_of(request))
    answer = see_other(request, here, f"Theme: {theme}.")
    seconds = 0 if theme == THEMES[0] else KEPT_S
    # Readable by scripts and without TLS: it is no secret, and a service on this machine has no TLS.
    answer.set_cookie(THEME_COOKIE, theme, max_age=seconds, path=f"{root_of(request)}/ui", samesite="lax")
    return answer
