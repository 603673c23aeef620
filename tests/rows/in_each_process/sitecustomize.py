"""Takes one safeguard away in this Python process, and in each one that it starts.

Python imports this module at its start if its folder is in PYTHONPATH. `tests/rows/proving.py` puts it there.
"""

import os

from tests.rows.removed import remove

remove(os.environ["TEST_WITHOUT"])
