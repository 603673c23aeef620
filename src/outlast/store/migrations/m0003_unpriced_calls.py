"""Schema 3: the calls that reported tokens without a price.

Rows of earlier versions have 0, because it is not known whether their money was a price.
"""

from typing import Final

STATEMENTS: Final = (
    "ALTER TABLE call_usage ADD COLUMN unpriced {integer} NOT NULL DEFAULT 0",
    "DROP INDEX call_usage_day",
    "CREATE INDEX call_usage_day ON call_usage (tenant, day, activity, tokens, money, calls, unpriced)",
)
