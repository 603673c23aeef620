"""Schema 4: the large parts of states, each kept once under the hash of its bytes (CKP-3)."""

from typing import Final

STATEMENTS: Final = (
    """
CREATE TABLE value (
    tenant TEXT NOT NULL,
    run TEXT NOT NULL,
    hash TEXT NOT NULL,
    packed {integer} NOT NULL,
    body {blob} NOT NULL,
    at {integer} NOT NULL,
    PRIMARY KEY (tenant, run, hash)
){clustered}
""",
)
