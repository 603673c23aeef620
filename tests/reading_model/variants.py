"""Three characters of the stand-in: it reads, it is careless, or it lies."""

import json
from collections.abc import Callable, Sequence
from typing import Any, Final, Literal, get_args

from outlast.agent import ModelAnswer
from tests.reading_model.reading import Calls, Fields, Reading, Reply, Skill, encoded
from tests.reading_model.skills import SKILLS

Variant = Literal["reading", "careless", "lying"]
VARIANTS: Final[tuple[Variant, ...]] = get_args(Variant)
LOST: Final = "I do not understand the question."
TEXTS: Final = ("text", "subject", "problem", "summary")
"""Fields with words that a careless model writes in another way."""


def reader(
    variant: Variant = "reading", seed: int = 0, skills: Sequence[Skill] = SKILLS
) -> Callable[[dict[str, Any]], ModelAnswer | str]:
    """Return the function that answers a request, for `ModelServer` or `completions`."""

    def answer(body: dict[str, Any]) -> ModelAnswer | str:
        reading = Reading(body)
        for skill in skills:
            if (reply := skill.answer(reading)) is not None:
                if variant == "lying":
                    return encoded(reading, skill.lie(reading, reply, seed))
                return _careless(reading, reply) if variant == "careless" else encoded(reading, reply)
        return LOST

    return answer


def _careless(reading: Reading, reply: Reply) -> ModelAnswer | str:
    """Return a reply that forgets fields, repeats itself and rephrases. After a correction it is complete."""
    if isinstance(reply, str):
        return f"Well. {reply}"
    if isinstance(reply, Calls):
        return encoded(reading, Calls(reply.calls * 2))
    fields = _rephrased(reply)
    text = json.dumps(fields, ensure_ascii=False, indent=1)
    if reading.is_corrected:
        return f"Sorry! Here it is:\n```json\n{text}\n```\nIs there anything else?"
    forgets, repeats, _ = (reading.dice(3) == n for n in range(3))
    if forgets:
        return encoded(reading, {name: value for name, value in fields.items() if name != min(fields)})
    if repeats:
        return f"I think it is {text}\nSo my answer is:\n{text}"
    return f"Let me think … done.\n```\n{text}\n```"


def _rephrased(value: Any) -> Any:
    """Return a value with other words, capitals and spaces in its texts."""
    if isinstance(value, list):
        return [_rephrased(each) for each in value]
    if not isinstance(value, dict):
        return value
    found: Fields = {}
    for name, each in value.items():
        if name == "quote" and each:
            found[name] = f"“{'  '.join(each.split()).upper()}”"
        elif name in TEXTS and isinstance(each, str):
            found[name] = f"In short – {each}"
        else:
            found[name] = _rephrased(each)
    return found
