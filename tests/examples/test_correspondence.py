"""The view of all letters to one supplier agrees with what the supplier received."""

import sys

import pytest

from examples.negotiation import correspondence
from examples.negotiation.workflow import negotiation
from outlast.testing import AppFactory
from tests.examples.bidders import Bidders
from tests.examples.tenders import world

pytestmark = pytest.mark.req("APP-1")
KINDS = {
    "invitations": "invitation",
    "proposals": "proposal",
    "feedback": "feedback",
    "orders": "order",
    "messages": "letter",
}


@pytest.mark.parametrize("seed", [0, 1])
def test_each_letter_to_a_supplier_is_shown_in_order(
    outlast_app: AppFactory, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], seed: int
) -> None:
    here, app = world(seed), outlast_app(negotiation, store="sqlite")
    bidders = Bidders(app, monkeypatch, here.suppliers)
    run = app.start(negotiation, here.purchase | {"governance": {}})
    run.approve()
    assert run.status == "completed"

    def shown(*words: str) -> int:
        monkeypatch.setattr(sys, "argv", ["correspondence", *words, "--store", app.store.url])
        return correspondence.main()

    for supplier in here.suppliers:
        assert shown(run.now.run, supplier) == 0
        lines = capsys.readouterr().out.splitlines()
        expected = [KINDS[each.kind] for each in bidders.sent if each.supplier == supplier]
        assert [line.split()[1] for line in lines] == expected and len(expected) > 2
        assert all(line.split()[2] == "done" for line in lines)
    assert shown(run.now.run, "nobody") == 1
    assert "wrote no letter to nobody" in capsys.readouterr().out
    assert shown("nego_none", "acme") == 2
    assert "correspondence: " in capsys.readouterr().err
