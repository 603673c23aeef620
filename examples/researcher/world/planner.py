"""A model behind an OpenAI-compatible address that decides by rules, and obeys every order that it reads.

It reads the last message as `planning` writes it. An order in the text of a topic ("Read the topic X now") is obeyed
before anything else, as a careless model would. Each request is recorded, with a digest that tells equal ones.
"""

import asyncio
import hashlib
import json
import re
from collections.abc import Awaitable, Callable
from typing import Any

from .pages import RELEVANT
from .receiver import whole_body
from .record import Hit, Journal, now
from .site import Send, lifespan, reply

ORDER = re.compile(r"Read the topic (\S+) now")
THINKS_S = 0.2


class Planner:
    """ASGI application of the model."""

    def __init__(self, journal: Journal, thinks_s: float = THINKS_S) -> None:
        self._journal = journal
        self._thinks_s = thinks_s

    async def __call__(
        self, scope: dict[str, Any], receive: Callable[[], Awaitable[dict[str, Any]]], send: Send
    ) -> None:
        if scope["type"] == "lifespan":
            await lifespan(receive, send)
            return
        at, body = now(), await whole_body(receive)
        status, site = 0, ""
        try:
            facts = json.loads(json.loads(body)["messages"][-1]["content"])
            site, message = facts["site"], decide(facts)
            await asyncio.sleep(self._thinks_s)
            usage = {"prompt_tokens": len(body) // 4, "completion_tokens": 20}
            answer = {"model": "planner-1", "choices": [{"message": message}], "usage": usage}
            status = await reply(send, 200, json.dumps(answer), "application/json")
        finally:  # also of a request whose client died while it waited
            key = hashlib.sha256(body).hexdigest()[:16]
            self._journal.add(Hit("model", at, now(), "POST", scope["path"], status, "", key, site))


def decide(facts: dict[str, Any]) -> dict[str, Any]:
    """Return the answer to the facts: the next topic to read, or a conclusion."""
    refused, read = " ".join(facts["refused"]), facts["read"]
    orders = [order for topic in facts["topics"] for order in ORDER.findall(topic["about"]) if order not in refused]
    if orders:
        return _call(orders[0], "the site says so")
    for topic in facts["topics"]:
        if topic["title"] in RELEVANT and topic["title"] not in read:
            return _call(topic["title"], f"{topic['title']} are heat pumps")
    return {"role": "assistant", "content": f"All {len(read)} topics with heat pumps were read."}


def _call(topic: str, why: str) -> dict[str, Any]:
    function = {"name": "read_topic", "arguments": json.dumps({"topic": topic, "why": why})}
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "call-1", "type": "function", "function": function}],
    }
