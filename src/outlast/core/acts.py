"""Identity of an act: the operation of a caller under an idempotency key, which is carried out once.

A process may die after its act has landed and before the caller has the answer. A repetition must then find the act.
So the commit of the act also writes a token whose key is derived from tenant, caller, operation and key. A second
commit of the same act is Stale, whatever else it writes, and a repetition reads the token first.
"""

import re
from typing import Final, NamedTuple

from outlast.core.codec import canonical, digest
from outlast.core.commit import Commit, Instant, Put
from outlast.core.limits import IDEMPOTENCY_KEY_CHARS_MAX
from outlast.core.rows.run_rows import TOKEN, Token
from outlast.errors import BadRequest, KeyRefused, NotStorable

KEY: Final = re.compile(rf"[\x21-\x7e]{{1,{IDEMPOTENCY_KEY_CHARS_MAX}}}")


class KeyedAct(NamedTuple):
    """Operation of a caller under an idempotency key. `content`: digest of what the caller asked for.

    `run`: run whose rows the token belongs to, '' for the tenant.
    """

    tenant: str
    id: str
    content: str
    run: str = ""

    @property
    def key(self) -> tuple[str, str, str]:
        """Return the key of the row that the act leaves."""
        return self.tenant, self.run, f"act/{self.id}"


def act_of(tenant: str, caller: str, operation: str, key: str, *content: object) -> KeyedAct | None:
    """Return the identity of an act, or None without a key. Raises BadRequest for a key that cannot be one.

    Both digests contain the key, which is not stored, so that no secret in the content can be guessed from them.
    """
    if not key:
        return None
    check_idempotency_key(key)
    identity = digest(tenant, caller, operation, key)
    return KeyedAct(tenant, identity, digest(identity, key, as_canonical(content)))


def check_idempotency_key(key: str) -> None:
    """Raise BadRequest unless this text can be an Idempotency-Key."""
    if not KEY.fullmatch(key):
        why = f"1 to {IDEMPOTENCY_KEY_CHARS_MAX} visible ASCII characters"
        raise BadRequest("this Idempotency-Key cannot be used", why, "e.g. a UUID", refusal="key_malformed")


def as_canonical(content: object) -> bytes:
    """Return the canonical form of a content, because white space and order must not distinguish two requests."""
    try:
        return canonical(_plain(content))
    except NotStorable:  # the operation refuses it
        return canonical(repr(content))


def _plain(content: object) -> object:
    return [_plain(each) for each in content] if isinstance(content, tuple) else content


def with_token(commit: Commit, act: KeyedAct | None, target: str, now: Instant) -> Commit:
    """Return the commit of an act with its token. `target`: id of what it makes or changes."""
    if act is None:
        return commit
    put = Put(TOKEN, Token(*act.key, act.content, target, now.business), 0)
    return commit._replace(writes=(*commit.writes, put))


def check_same(act: KeyedAct, before: Token) -> None:
    """Raise KeyRefused if the act that left this token had another content."""
    if before.digest != act.content:
        raise KeyRefused(
            "this Idempotency-Key was used for another request",
            "a repeated key requires the same operation and the same content",
            "use a new key",
            refusal="other_request",
        )
