"""A stand-in for the model, for the demo and for CI: it decides by rules from the results in the transcript.

It follows the runbook of the incident step by step, and what it says at the end depends on what was done and refused.
It has no state: the same transcript always gets the same answer.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

NAME: Final = "desk-rules-1"
EUR: Final = 100


class Call(NamedTuple):
    """A call that the stand-in proposes, and its words about it."""

    words: str
    tool: str
    arguments: dict[str, Any]


class Seen(NamedTuple):
    """A call of the transcript with its result. `refused`: why it was not made; '' if it was."""

    tool: str
    arguments: Mapping[str, Any]
    result: str
    refused: str


def answer(request: Mapping[str, Any]) -> dict[str, Any]:
    """Return the answer to a request, as `ModelAnswer` has it."""
    messages = request["messages"]
    said = Incident(messages[0]["text"], seen_in(messages)).next()
    text, calls = (
        (said, []) if isinstance(said, str) else (said.words, [{"tool": said.tool, "arguments": said.arguments}])
    )
    turn = sum(each["role"] == "assistant" for each in messages)
    listed = [{"id": f"c{turn}", **each} for each in calls]
    return {"text": text, "calls": listed, "model": NAME, "input_tokens": 900, "output_tokens": 40 + len(text) // 4}


def seen_in(messages: Sequence[Mapping[str, Any]]) -> list[Seen]:
    """Return the calls of a transcript that have a result."""
    found, calls = list[Seen](), dict[str, Mapping[str, Any]]()
    for message in messages:
        calls |= {call["id"]: call for call in message.get("calls", ())}
        if message["role"] == "tool" and (call := calls.get(message["call_id"])):
            found.append(Seen(call["tool"], call["arguments"], message["text"], _refusal(message["text"])))
    return found


def _refusal(text: str) -> str:
    """Return why a call was refused, in a few words; '' for a result."""
    try:
        read = json.loads(text)
    except ValueError:
        return ""
    error = read.get("error") if isinstance(read, dict) else None
    if not isinstance(error, dict):
        return ""
    return f"{error.get('reason', '')}".partition(":")[0] or f"{error.get('code')}"


class Incident:
    """Facts of a transcript about one incident."""

    def __init__(self, objective: str, seen: list[Seen]) -> None:
        found = re.search(r"[A-Z]+-\d+", objective)
        self._number = found.group() if found else ""
        self._seen = seen

    def next(self) -> Call | str:
        """Return the next call, or the sentence at the end."""
        if not self._number:
            return "The objective names no incident."
        return next(self._open(), None) or self._end()

    def _made(self, tool: str, **arguments: Any) -> Seen | None:
        """Return the call with this tool and these arguments, if the transcript has it."""
        fits = (s for s in self._seen if s.tool == tool and arguments.items() <= s.arguments.items())
        return next(fits, None)

    def _result(self, tool: str, **arguments: Any) -> str:
        made = self._made(tool, **arguments)
        return "" if made is None or made.refused else made.result

    def _ask(self, words: str, tool: str, /, *, told: Mapping[str, Any] | None = None, **key: Any) -> Iterator[Call]:
        """Yield a call unless the transcript has one with this key. `told`: its other arguments."""
        if self._made(tool, **key) is None:
            yield Call(words, tool, {**key, **(told or {})})

    def _open(self) -> Iterator[Call]:
        """Yield the calls that are still to be made, in order. Each one is decided from the results before it."""
        number = self._number
        yield from self._ask("I read the ticket.", "read_ticket", number=number)
        if not (ticket := _object(self._result("read_ticket", number=number))):
            return
        service = ticket["service"]
        yield from self._ask("I read the logs.", "read_logs", service=service)
        logs = self._result("read_logs", service=service)
        cause = re.search(r"\[([\w-]+)\] ([^\"\\]+)", logs)
        if cause is None:
            yield from self._comment("result", f"The logs of {service} show no cause.")
            return
        yield from self._ask("The logs name a runbook.", "read_runbook", name=cause.group(1))
        steps = re.split(r"\s*\d+\.\s+", self._result("read_runbook", name=cause.group(1)))
        for step in filter(None, steps):
            yield from self._step(step.lower(), ticket, logs, cause.group(2))
        yield from self._comment("result", self._told())

    def _step(self, step: str, ticket: Mapping[str, Any], logs: str, cause: str) -> Iterator[Call]:
        service, number = ticket["service"], self._number
        if topic := re.search(r"follow-up ticket \(([\w-]+)\)", step):
            told = {"text": f"{service}: {cause}"}
            yield from self._ask("The cause needs work.", "open_ticket", about=number, topic=topic[1], told=told)
        elif "comment the cause" in step:
            yield from self._comment("cause", f"The cause: {cause}.")
        elif "share the database" in step:
            for other in re.findall(r"(\w+) waits for", logs):
                yield from self._ask(f"{other} shares the database.", "read_logs", service=other)
                if "still slow" in self._result("read_logs", service=other):
                    yield from self._restart(other, f"slow since {service} held the connections")
        elif "restart" in step and "never" not in step and "pass again" not in logs:
            yield from self._restart(service, cause)
        elif limit := re.search(r"refund double charges up to (\d+) eur", step):
            yield from self._refunds(ticket["text"], int(limit[1]) * EUR)
        elif "answer the customer" in step and ticket["customer"]:
            topic_of_mail = f"your order {', '.join(self._orders(ticket['text']))}"
            told = {"topic": topic_of_mail, "text": self._letter()}
            yield from self._ask("The customer waits.", "send_mail", number=number, to=ticket["customer"], told=told)

    def _comment(self, topic: str, text: str) -> Iterator[Call]:
        yield from self._ask(
            f"The ticket needs the {topic}.", "comment", number=self._number, topic=topic, told={"text": text}
        )

    def _restart(self, service: str, reason: str) -> Iterator[Call]:
        told = {"reason": reason}
        yield from self._ask("A restart may help.", "restart_service", number=self._number, service=service, told=told)

    def _orders(self, text: str) -> list[str]:
        return list(dict.fromkeys(re.findall(r"order ([A-Z]+-\d+)", text, re.IGNORECASE)))

    def _refunds(self, text: str, limit: int) -> Iterator[Call]:
        for order in self._orders(text):
            yield from self._ask(f"I read order {order}.", "read_order", order=order)
            charges = _object(self._result("read_order", order=order)).get("charges", [])
            if len(charges) > 1 and charges[-1] <= limit:
                told = {"cents": charges[-1]}
                yield from self._ask("It was charged twice.", "refund", number=self._number, order=order, told=told)

    def _letter(self) -> str:
        refunds = [seen for seen in self._seen if seen.tool == "refund"]
        if not refunds:
            return "We have worked on your problem."
        done = all(not seen.refused for seen in refunds)
        return f"You were charged twice. {'We refunded it.' if done else 'We have not refunded it yet.'}"

    def _told(self) -> str:
        """Return what was done and what was refused, from the results."""
        said = {"open_ticket": "{topic} has a ticket", "restart_service": "{service} was restarted"}
        said |= {"refund": "{order} was refunded", "send_mail": "{to} has an answer"}
        refused = {"open_ticket": "{topic} has no ticket", "restart_service": "{service} was not restarted"}
        refused |= {"refund": "{order} was not refunded", "send_mail": "{to} has no answer"}
        parts = [
            refused[s.tool].format(**s.arguments) + f" ({s.refused})"
            if s.refused
            else said[s.tool].format(**s.arguments)
            for s in self._seen
            if s.tool in said
        ]
        return f"{self._number}: {', '.join(parts) or 'nothing was changed'}."

    def _end(self) -> str:
        made = self._made("comment", number=self._number, topic="result")
        if made is None:
            return f"{self._number} could not be read."
        return str(made.arguments["text"])


def _object(text: str) -> dict[str, Any]:
    try:
        read = json.loads(text)
    except ValueError:
        return {}
    return read if isinstance(read, dict) else {}
