"""Schema 4: deadlines in business days, with the days that they skip.

Rows of earlier versions have '', because their deadlines are durations.
"""

from typing import Final

STATEMENTS: Final = (
    "ALTER TABLE wait ADD COLUMN due TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE approval ADD COLUMN calendar TEXT NOT NULL DEFAULT ''",
)
