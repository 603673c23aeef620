"""Opaque ids of what has no id of its own: an effect is named by run, visit and key."""

import json
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Any, Final

from outlast.core.limits import KEY_BYTES_MAX, NAME
from outlast.errors import NotFound

KEY: Final = re.compile(rf"[\x21-\x7e]{{1,{KEY_BYTES_MAX}}}")  # values are percent-encoded in keys


def effect_id(run: str, visit: int, key: str) -> str:
    """One word for an effect, as addresses take it."""
    return urlsafe_b64encode(json.dumps([run, visit, key], separators=(",", ":")).encode()).decode()


def with_id(view: dict[str, Any]) -> dict[str, Any]:
    """The view of an effect, with the word for it."""
    return {"id": effect_id(view["run"], view["visit"], view["key"]), **view}


def effect_of(id_: str) -> tuple[str, int, str]:
    """Run, visit and key. Raises NotFound for a word that names none."""
    try:
        run, visit, key = json.loads(urlsafe_b64decode(id_))
    except (ValueError, TypeError, RecursionError):
        raise _none(id_) from None
    sound = isinstance(run, str) and NAME.fullmatch(run) and type(visit) is int and 0 <= visit < 2**31
    if not sound or not isinstance(key, str) or not KEY.fullmatch(key):
        raise _none(id_)
    return run, visit, key


def _none(id_: str) -> NotFound:
    return NotFound(f"no effect {id_[:100]}", "ids are those that GET …/effects shows", "list them first")
