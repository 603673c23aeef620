"""The first play of a recording, by `outlast runs test`, in a separate process because it runs authors' code.

Reads the recording from stdin, with the secrets that no file gets. Prints one JSON object: the arguments of the calls,
by the number of the recorded call, and the first difference.
"""

import importlib
import json
import os
import sys
from collections.abc import Sequence

from outlast.testing.recorded_runs import RecordedPlay
from outlast.upkeep.recording import Recording


def main(words: Sequence[str]) -> None:
    """Play the recording with the workflow NAME of MODULE, and print what it showed."""
    module, name = words
    out = os.fdopen(os.dup(1), "w")  # because the author's code may print to stdout
    os.dup2(2, 1)
    recording = Recording.load(sys.stdin.read(), "stdin")
    with RecordedPlay(getattr(importlib.import_module(module), name), recording) as play:
        difference = play.run()
    found = {"arguments": play.arguments, "difference": str(difference) if difference is not None else ""}
    print(json.dumps(found), file=out, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
