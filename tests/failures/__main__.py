"""Write RELIABILITY.md: `python -m tests.failures`."""

import sys

from tests.failures.page import write

sys.stdout.write(f"{write()}\n")
