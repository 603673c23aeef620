"""The systems for which the stand-in has rules."""

from collections.abc import Sequence
from typing import Final

from tests.reading_model import acquisition, desk, negotiation, researcher
from tests.reading_model.reading import Skill

SKILLS: Final[Sequence[Skill]] = (
    Skill(acquisition.answer, acquisition.lie),
    Skill(desk.answer, desk.lie),
    Skill(researcher.answer, researcher.lie),
    Skill(negotiation.answer, negotiation.lie),
)
