"""Schema 2: the visit in which an effect was first intended.

Rows of earlier versions have 0, which means that the visit is not known.
"""

from typing import Final

STATEMENTS: Final = ("ALTER TABLE effect ADD COLUMN first_visit {integer} NOT NULL DEFAULT 0",)
