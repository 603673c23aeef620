"""Waits of more than 100 years, which an earlier version stored, on pages and in answers of the service."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from pydantic import BaseModel

from outlast import Context, Workflow, activity, role
from outlast.core import durations
from outlast.core.events import FAR_TEXT
from tests.removals import replace
from tests.ui.conftest import Running, Service


class Nothing(BaseModel):
    pass


@activity(key="far", no_undo="a test")
async def act() -> int:
    return 1


sleeps: Workflow[Any] = Workflow("sleeps", state=Nothing)
asks: Workflow[Any] = Workflow("asks", state=Nothing)


@sleeps.node(start=True)
async def never(ctx: Context[Nothing]) -> None:
    await ctx.sleep(until=datetime.max.replace(tzinfo=UTC))


@asks.node(start=True)
async def ask(ctx: Context[Nothing]) -> None:
    within = "2000000d"  # a page of a run that an earlier version stored
    await ctx.approval(act.plan(), summary="far", by=role("lead"), within=within)


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service with one run of each workflow, which waits for more than 100 years."""
    with pytest.MonkeyPatch.context() as earlier:
        replace(earlier, durations.check_near, lambda what, given, ms: None)
        with Running(f"sqlite:{tmp_path_factory.mktemp('far') / 'outlast.db'}", (sleeps, asks)) as running:
            for flow in ("sleeps", "asks"):
                run = running.post(f"/v1/workflows/{flow}/runs", {"input": {}, "id": flow}).json()["run"]
                running.waits(run)
            earlier.undo()
            yield running


@pytest.mark.req("CKP-8")
@pytest.mark.parametrize("path", ["/ui/runs", "/ui/runs/{sleeps}", "/ui/runs/{asks}", "/ui/approvals"])
def test_a_page_shows_a_far_instant_as_after_2126(service: Service, path: str) -> None:
    runs = {run["workflow"]: run["run"] for run in service.get("/v1/runs").json()["runs"]}
    page = service.get(path.format(**runs))
    assert page.status_code == 200 and FAR_TEXT in page.text
    assert "in after" not in page.text and " left" not in page.text
    for tag in page.text.split("<time ")[1:]:
        assert 'datetime="2' in tag or "data-fixed" in tag.partition(">")[0], "the script would write its duration"


@pytest.mark.req("CKP-8")
@pytest.mark.parametrize("path", ["/ui/", "/ui/workflows", "/v1/runs", "/v1/approvals", "/v1/attention"])
def test_other_pages_and_lists_work_beside_it(service: Service, path: str) -> None:
    assert service.client.get(path, follow_redirects=True).status_code == 200


@pytest.mark.req("CKP-8")
def test_a_run_with_a_far_wait_can_be_cancelled(service: Service) -> None:
    (run,) = (each["run"] for each in service.get("/v1/runs").json()["runs"] if each["workflow"] == "sleeps")
    answer = service.post(f"/v1/runs/{run}/cancel", {"reason": "it never ends"})
    assert answer.status_code in (200, 202), answer.text
    assert service.ended(run)["status"] == "cancelled"
