"""A stand-in for a model without a script: it answers from what it reads in the request, by rules over the text.

One program for the example systems. It imports none of them. Each system has a module here, a `Skill`: it recognizes
its questions by the type of the result, and answers from the facts, the rules in the instructions, and what its tools
returned. Another system is added with a module and a line in `SKILLS`.

`reader("careless")` forgets fields, repeats itself and rephrases. `reader("lying", seed)` claims what was not in the
records, about the question that the seed chooses. Each answer depends on the request only, as that of a script does.
"""

from tests.reading_model.skills import SKILLS
from tests.reading_model.variants import VARIANTS, Variant, reader

__all__ = ["SKILLS", "VARIANTS", "Variant", "reader"]
