"""Safeguards of the web UI. Modules are imported in the functions, as in `service.py`."""

from typing import Any

from tests.removals import Patch, replace


def no_form_token(patch: Patch) -> None:
    from outlast.ui import sessions

    replace(patch, sessions.check_form, lambda request, token: None)


def forms_of_any_session(patch: Patch) -> None:
    from outlast.ui import sessions

    replace(patch, sessions.binding_of, lambda request: "anyone")


def forms_of_any_site(patch: Patch) -> None:
    from outlast.ui import sessions

    replace(patch, sessions.check_sender, lambda request: None)


def any_next_page(patch: Patch) -> None:
    from outlast.ui import sessions

    replace(patch, sessions.local_path, lambda request, given: given)


def endless_sessions(patch: Patch) -> None:
    from outlast.ui import sessions

    patch.setattr(sessions, "LIFETIME_S", 10**9)


def unsealed_sessions(patch: Patch) -> None:
    from outlast.ui import sessions

    replace(patch, sessions.opened, lambda state, purpose, text, within_s: text)


def pages_for_every_role(patch: Patch) -> None:
    from outlast.ui import page_route

    patch.setattr(page_route, "permit", lambda principal, operation: None)


def forms_of_any_version(patch: Patch) -> None:
    from outlast.ui.page_route import Form

    replace(patch, Form.version, lambda self: 0)


def unescaped_text(patch: Patch) -> None:
    from outlast.ui import rendering

    made: Any = rendering.environment().overlay(autoescape=False)
    replace(patch, rendering.environment, lambda: made)


def no_page_policy(patch: Patch) -> None:
    from outlast.ui import rendering

    patch.setattr(rendering, "POLICY", "default-src 'self' 'unsafe-inline'")


def forks_not_shown(patch: Patch) -> None:
    from outlast.ui.routes.fork_pages import ForkDraft

    replace(patch, ForkDraft.digest_of, lambda self, found: self.seen)
