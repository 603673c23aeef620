"""Page of a webhook: it shows the facts that its declaration places there."""

import pytest

from outlast.core.detail_fields import DeclaredFacts, DetailField
from outlast.ui.routes import delivery_pages
from tests.service.conftest import Service


def test_the_page_of_a_webhook_shows_the_facts_of_its_place(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """The place is planted, because the one present fact is the heading of the page."""
    made = service.post("/v1/webhooks", {"url": "https://93.184.216.34/hook", "name": "shop <b>"}).json()
    page = f"/ui/webhooks/{made['webhook']}"
    assert "<h1>shop &lt;b&gt;</h1>" in service.get(page).text
    assert "<dt>Label</dt>" not in service.get(page).text
    field = DetailField("name", 100, heading="Label")
    monkeypatch.setattr(
        delivery_pages, "WEBHOOK_DETAILS", DeclaredFacts({"name": field}, {"page": {"name": field}}, (), ())
    )
    assert "<dt>Label</dt><dd>shop &lt;b&gt;</dd>" in service.get(page).text
