"""Safeguards of messages to approvers."""

from typing import Any

from tests.removals import Patch, replace


def markup_kept(patch: Patch) -> None:
    from outlast.core.webhooks import approval_notices

    patch.setattr(approval_notices, "_STOPS", {})


def messages_to_any_address(patch: Patch) -> None:
    from outlast.outbox import address

    replace(patch, address.allowed_addresses, lambda host, found, reach: tuple(found))


def no_wait_that_was_asked_for(patch: Patch) -> None:
    from outlast.outbox import delivery_client as client

    kept = client.judged

    def at_once(*given: Any) -> Any:
        return kept(*given)._replace(retry_after_ms=0)

    replace(patch, kept, at_once)
