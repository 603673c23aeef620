"""Pages of workflows: a run is started by the form of its input, once, and a signal is sent by that of its wait."""

import httpx2

from outlast.core.start_details import BY_PLACE
from tests.ui.conftest import Service
from tests.ui.html_page import HtmlPage
from tests.ui.test_run_pages import PAGE_MAX


def submit(service: Service, page: httpx2.Response, form: str, path: str, **given: str) -> httpx2.Response:
    """Submit a form of a page as a browser without scripts does."""
    body = HtmlPage(page.text).form(form).set(**given).body()
    headers = {"Content-Type": "application/x-www-form-urlencoded", "Origin": service.url}
    return service.client.post(path, content=body, headers=headers)


def test_each_workflow_has_a_page_with_its_graph_and_schema(service: Service) -> None:
    listed = service.get("/ui/workflows").text
    for each in service.get("/v1/workflows").json()["workflows"]:
        address = f"/ui/workflows/{each['workflow']}"
        assert address in listed
        page = service.get(address)
        assert page.status_code == 200
        assert len(page.content) < PAGE_MAX
        for node in service.get(f"/v1/workflows/{each['workflow']}").json()["topology"]["nodes"]:
            assert f'data-node="{node}"' in page.text
        assert service.get(f"{address}/schema").json() == service.get(f"/v1{address[3:]}").json()["input_schema"]
    assert service.get("/ui/workflows/none").status_code == 404


def test_a_form_sent_twice_starts_one_run(service: Service) -> None:
    page = service.get("/ui/workflows/order")
    once = submit(service, page, "start", "/ui/workflows/order", **{"input/number": "F-1"})
    twice = submit(service, page, "start", "/ui/workflows/order", **{"input/number": "F-1"})
    assert once.status_code == twice.status_code == 303
    assert once.headers["location"] == twice.headers["location"]
    run = once.headers["location"].removeprefix("/ui/runs/")
    assert service.get(f"/v1/runs/{run}/input").json()["input"] == {"number": "F-1"}
    other = submit(service, page, "start", "/ui/workflows/order", **{"input/number": "F-2"})
    assert other.status_code == 409
    assert "F-2" in other.text, "the input is kept"


def test_the_form_asks_for_facts_of_the_start_and_the_page_of_data_shows_them(service: Service) -> None:
    page = service.get("/ui/workflows/order")
    for name, each in BY_PLACE["form"].items():
        assert f'<label for="{name}">{each.noun.capitalize()}</label>' in page.text
        assert f'name="{name}" maxlength="{each.chars_max}"' in page.text
    texts = {name: f"of the form: {name}" for name in BY_PLACE["form"]}
    wrong = submit(service, service.get("/ui/workflows/refund"), "start", "/ui/workflows/refund", **texts)
    assert wrong.status_code == 422, "it has no order"
    assert all(f'value="{text}"' in wrong.text for text in texts.values()), "they are kept"
    started = submit(service, page, "start", "/ui/workflows/order", **{"input/number": "F-3"}, **texts)
    shown = service.get(f"{started.headers['location']}/data").text
    summary = service.get(f"/v1{started.headers['location'].removeprefix('/ui')}").json()
    for name, each in BY_PLACE["page"].items():
        assert f"<dt>{each.title}</dt><dd>{texts.get(name) or summary[name] or 'none'}</dd>" in shown


def test_an_invalid_input_is_named_at_its_field_and_kept(service: Service) -> None:
    page = service.get("/ui/workflows/refund")
    given = {"input/order_id": "A-77", "input/cents": "much"}
    answer = submit(service, page, "start", "/ui/workflows/refund", **given)
    assert answer.status_code == 422
    assert 'aria-invalid="true"' in answer.text
    assert "A-77" in answer.text
    assert "much" in answer.text


def test_a_signal_is_sent_by_the_form_of_its_schema(service: Service) -> None:
    run = service.start("wish", text="")
    service.waits(run)
    address = f"/ui/runs/{run}/signals/said"
    assert address in service.get(f"/ui/runs/{run}").text
    answer = submit(service, service.get(address), "signal", address, **{"payload/text": "hello"})
    assert (answer.status_code, answer.headers.get("location")) == (303, f"/ui/runs/{run}"), answer.text
    assert service.ended(run)["status"] == "completed"
    assert "said" in service.get(f"/ui/runs/{run}/people").text
