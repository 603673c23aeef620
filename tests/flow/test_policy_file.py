"""Rules in a file: read and checked when loaded, versioned by their bytes, and failing closed (GATE-6)."""

import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from outlast.errors import DefinitionError, InvalidInput
from outlast.flow import Allow, Deny, NeedsApproval, PolicyFile, PolicyRequest, policy_from_file, role

RULES = """
@id("small-refund")
permit(principal, action == Action::"refund", resource) when { context.arguments.cents <= 10000 };

@id("four-eyes") @ask("finance & lead") @quorum("2") @not_requester
permit(principal, action == Action::"refund", resource) when { context.arguments.cents > 10000 };

@id("limit") @detail("never above 10,000 EUR")
forbid(principal, action, resource) when { context has arguments && context.arguments has cents
  && context.arguments.cents > 1000000 };

@id("no-mail-at-night")
forbid(principal, action == Action::"mail", resource);
"""
Load = Callable[[str], PolicyFile]


@pytest.fixture
def load(tmp_path: Path) -> Load:
    pytest.importorskip("cedarpy", reason="needs the extra `policy`")

    def make(text: str) -> PolicyFile:
        path = tmp_path / "rules.cedar"
        path.write_text(text)
        return policy_from_file(path)

    return make


def asked(activity: str = "refund", occasion: Any = "commit", **arguments: Any) -> PolicyRequest:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    return PolicyRequest(activity, "k", arguments, "t", "shop", 1, "r1", "pay", 1, "ana", now, occasion)


@pytest.mark.req("GATE-6")
def test_rules_allow_deny_and_ask(load: Load) -> None:
    policy = load(RULES)
    assert policy(asked(cents=5)) == Allow("small-refund")
    assert policy(asked(cents=1_000_001)) == Deny("limit", "never above 10,000 EUR")
    assert policy(asked(cents=20_000)) == NeedsApproval(
        "four-eyes", role("finance") & role("lead"), quorum=2, not_requester=True
    )


@pytest.mark.req("GATE-6")
@pytest.mark.parametrize(
    "arguments",
    [{}, {"cents": None}, {"cents": "5"}, {"cents": 2**70}, {"cents": 0.123456}, {"cents": {"__entity": {}}}],
)
def test_a_call_that_cannot_be_evaluated_is_denied(load: Load, arguments: dict[str, Any]) -> None:
    """A rule that fails might have forbidden it; Cedar itself would pass over it."""
    assert isinstance(load(RULES)(asked(**arguments)), Deny)
    open_ = '@id("all") permit(principal, action, resource); @id("no") forbid(principal, action, resource) '
    assert isinstance(load(open_ + "when { context.arguments.cents > 5 };")(asked(**arguments)), Deny)


@pytest.mark.req("GATE-6")
def test_an_unlisted_call_is_denied_and_an_offer_waits_for_the_arguments(load: Load) -> None:
    policy = load(RULES)
    assert policy(asked("ship")) == Deny("no-rule", "no rule of rules.cedar permits ship here")
    assert isinstance(policy(asked(occasion="offer")), Allow)
    assert isinstance(policy(asked("mail", occasion="offer")), Deny)
    assert isinstance(policy(asked("ship", occasion="offer")), Deny)


@pytest.mark.req("GATE-6")
def test_the_version_is_that_of_the_bytes(load: Load) -> None:
    first = load(RULES).version
    assert first == load(RULES).version != load(RULES + "\n").version


@pytest.mark.req("GATE-6")
@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("permit(principal, action", "cannot be read"),
        ("", "has no rule"),
        ("permit(principal, action, resource);", "no @id on rule 1"),
        ('@id("a") @aks("x") permit(principal, action, resource);', "@aks is unknown"),
        ('@id("a") @ask("x y") permit(principal, action, resource);', "@ask is no rule of roles"),
        ('@id("a") @ask("person:") permit(principal, action, resource);', "@ask is no rule of roles"),
        ('@id("a") @ask("x") forbid(principal, action, resource);', "@ask has no @ask"),
        ('@id("a") @quorum("2") permit(principal, action, resource);', "@quorum has no @ask"),
        ('@id("a") @ask("x") @quorum("two") permit(principal, action, resource);', "@quorum is 'two'"),
        ('@id("a") permit(principal, action, resource); @id("a") forbid(principal, action, resource);', "two rules"),
    ],
)
def test_a_mistake_is_reported_when_the_file_is_loaded(load: Load, text: str, told: str) -> None:
    with pytest.raises(DefinitionError, match=told):
        load(text)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="cannot be read"):
        policy_from_file(tmp_path / "none.cedar")


def test_the_missing_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cedarpy", None)
    (tmp_path / "rules.cedar").write_text(RULES)
    with pytest.raises(DefinitionError, match=r"pip install 'outlast\[policy\]'"):
        policy_from_file(tmp_path / "rules.cedar")
