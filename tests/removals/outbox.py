"""Safeguards of messages to approvers."""

from typing import Any

from tests.removals import Patch, replace


def markup_kept(patch: Patch) -> None:
    from outlast.core import approval_notices

    patch.setattr(approval_notices, "_STOPS", {})


def messages_to_any_address(patch: Patch) -> None:
    from outlast.outbox import apprise_client

    replace(patch, apprise_client._check, lambda target, host, port, found: None)


def no_wait_that_was_asked_for(patch: Patch) -> None:
    from outlast.outbox import apprise_client

    kept = apprise_client._failed

    def at_once(*given: Any) -> Any:
        return kept(*given)._replace(retry_after_ms=0)

    replace(patch, kept, at_once)
