"""Page that forks a run: its preview, the start, lineage, rights, typed texts that stay, and ugly data."""

import html
import json
import re
from collections.abc import Callable, Iterator
from typing import Literal

import httpx2
import pytest
from playwright.sync_api import Page, expect
from pydantic import BaseModel

from outlast import Cancel, Context, Workflow, activity, lookup
from outlast.core.rows.run_rows import EVENT
from outlast.service.identity import Principal
from outlast.telemetry.redact import GONE
from outlast.ui.routes import fork_pages
from tests.mutants import remove
from tests.service.conftest import ALL, Running, Service
from tests.slices import drawn
from tests.ui.html_page import HtmlForm, HtmlPage
from tests.ui.test_axe import complaints
from tests.ui.test_run_pages import FORM, PAGE_MAX
from tests.ui.test_sign_in import Visitor

pytestmark = pytest.mark.req("RUN-10")
UGLY = "\u202e<b>&\"'\u0000" * 20
HEBREW = "\u05e9\u05dc\u05d5\u05dd"
MADE: list[str] = []
"""Calls that the receivers got."""


class Parcel(BaseModel):
    number: str
    cents: int = 100
    password: str = ""
    notes: list[str] = []
    fails: bool = False
    rate: int = 0


class Hint(BaseModel):
    text: str


parcels = Workflow("parcel", state=Parcel)


@lookup(durable=True)
async def parcel_rate(number: str) -> int:
    MADE.append(f"rate {number}")
    return 7


@activity(key="parcel-book/{number}")
async def book_parcel(number: str) -> str:
    MADE.append(f"book {number}")
    return f"booked {number}"


@book_parcel.undo
async def unbook_parcel(response: str, number: str) -> None:
    MADE.append(f"unbook {number}")


@activity(key="parcel-post/{number}/{cents}", no_undo="it is on its way")
async def post_parcel(number: str, cents: int) -> str:
    MADE.append(f"post {number} {cents}")
    return f"posted {number}"


@parcels.node(start=True)
async def prepare_parcel(ctx: Context[Parcel]) -> Literal["hear_parcel"]:
    ctx.state.rate = await ctx.do(parcel_rate, ctx.state.number)
    await ctx.do(book_parcel, ctx.state.number)
    return "hear_parcel"


@parcels.node
async def hear_parcel(ctx: Context[Parcel]) -> Literal["send_parcel"]:
    ctx.state.notes.append((await ctx.receive("parcel-hint", Hint)).text)
    return "send_parcel"


@parcels.node
async def send_parcel(ctx: Context[Parcel]) -> None:
    await ctx.do(post_parcel, ctx.state.number, ctx.state.cents)
    if ctx.state.fails:
        raise Cancel("it was not to be")


ROLES = ("admin", "approver", "operator", "viewer", "lead")


class Desk:
    """Authenticator that trusts `Bearer NAME`: `vic` may only read, `olaf` is an operator, all others are admins."""

    async def authenticate(self, authorization: str, client: str) -> Principal:
        name = authorization.removeprefix("Bearer ") or "ana"
        roles = {"vic": ("viewer",), "olaf": ("operator",)}.get(name, ROLES)
        return Principal("acme", name, frozenset(roles), roles, person=True)


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with Running(f"sqlite:{tmp_path_factory.mktemp('ui') / 'outlast.db'}", [*ALL, parcels]) as running:
        yield running


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    url = f"sqlite:{tmp_path_factory.mktemp('ui') / 'guarded.db'}"
    with Running(url, [*ALL, parcels], authenticator=Desk()) as running:
        yield running


def parcel(service: Service, number: str, hint: str = "by hand", **given: object) -> str:
    """Return a run that has ended, with a signal."""
    run = service.start("parcel", number=number, **given)
    sent = service.post(
        f"/v1/runs/{run}/signals/parcel-hint", {"payload": {"text": hint}, "signal_id": f"hint-{number}"}
    )
    assert sent.status_code < 300, sent.text
    service.ended(run)
    return run


def page_of(service: Service, address: str, status: int = 200) -> HtmlPage:
    found = service.get(address)
    assert found.status_code == status, found.text
    assert len(found.content) <= PAGE_MAX, len(found.content)
    return HtmlPage(found.text)


def checkpoint(service: Service, run: str, node: str) -> str:
    """Return the number of the checkpoint that leads to a node."""
    points = service.get(f"/v1/runs/{run}/fork-points").json()["points"]
    return next(str(each["checkpoint"]) for each in points if each["node"] == node)


def form_of(service: Service, run: str, node: str) -> HtmlForm:
    return page_of(service, f"/ui/runs/{run}/fork?from={checkpoint(service, run, node)}").form("fork")


def press(service: Service, form: HtmlForm, path: str = "") -> httpx2.Response:
    """Send the form as a browser without JavaScript does. `path`: that of the pressed button, if it has one."""
    return service.client.post(path or form.action, content=form.body(), headers=FORM)


def previewed(service: Service, form: HtmlForm, status: int = 200) -> tuple[HtmlPage, HtmlForm]:
    shown = press(service, form)
    assert shown.status_code == status, shown.text
    page = HtmlPage(shown.text)
    return page, page.form("fork")


def forks_of(service: Service, run: str) -> list[str]:
    return [each["run"] for each in service.get(f"/v1/runs?forked_from={run}").json()["runs"]]


# --- dialog ----------------------------------------------------------------------------------------
def test_a_run_is_forked_without_javascript_and_the_lineage_shows(service: Service) -> None:
    run = parcel(service, "A1")
    before = [*MADE]
    assert f'href="/ui/runs/{run}/fork"' in service.get(f"/ui/runs/{run}").text
    at = checkpoint(service, run, "send_parcel")
    assert f'href="/ui/runs/{run}/fork?from={at}"' in service.get(f"/ui/runs/{run}/checkpoints").text
    assert f'href="/ui/runs/{run}/fork"' in service.get(f"/ui/runs/{run}/actions").text
    offered = page_of(service, f"/ui/runs/{run}/fork")
    assert {f"point-{each}" for each in (1, at)} <= set(offered.ids) and "send_parcel" in offered.text
    first = page_of(service, f"/ui/runs/{run}/fork?from={at}")
    assert "a fork needs approvers" in first.text and "start" not in first.ids
    page, form = previewed(service, first.form("fork").set(approvers="lead", state='{"number": "A1", "cents": 250}'))
    assert "cents 100 250" in page.text and "start" in page.ids and "each waits for a person" in page.text
    assert "post_parcel write parcel-post/A1/100" in page.text and "asked waits for a person" in page.text
    assert f"outlast runs fork {run} --from {at} --approvers lead --state FILE" in page.text
    assert forks_of(service, run) == [] and before == MADE, "a preview starts nothing"
    path = f"/ui/runs/{run}/fork"
    started = press(service, form, path)
    assert started.status_code == 303, started.text
    (fork,) = forks_of(service, run)
    assert started.headers["location"] == f"/ui/runs/{fork}"
    again = press(service, form, path)
    assert again.status_code == 303 and forks_of(service, run) == [fork], "a form that is sent twice is one fork"
    (approval, _), waits = service.asked(fork), service.waits(fork)["waiting_for"]
    assert [each["kind"] for each in waits] == ["approval"]
    assert before == MADE, "no write before a person approves"
    text = service.get(f"/ui/runs/{fork}/overview").text
    shown = HtmlPage(text).text
    assert f"Fork of {run} at checkpoint {at}" in shown and "Compare with ancestor" in shown
    assert f'href="/ui/runs/{fork}/compare?other={run}"' in text
    assert f'href="/ui/runs?forked_from={run}"' in service.get(f"/ui/runs/{run}/overview").text
    listed = page_of(service, f"/ui/runs?forked_from={run}")
    assert f"run-{fork}" in listed.ids and f"run-{run}" not in listed.ids
    assert f"fork of {run}" in listed.text and f"outlast runs ls fork:{run}" in listed.text
    assert f'id="forks"><li><a class="id" href="/ui/runs/{fork}"' in service.get(f"/ui/runs/{run}/fork").text
    export = service.get(f"/ui/runs/{fork}/export").json()
    assert export["run"][0]["forked_from"] == run
    assert fork_terms(export)["seq"] == int(at)
    assert f"fork of {run}" in service.get(f"/ui/approvals/{approval}").text


def fork_terms(export: dict[str, list[dict[str, object]]]) -> dict[str, object]:
    (memo,) = (each for each in export["memos"] if each["key"] == "fork?terms")
    response = memo["response"]
    found: dict[str, object] = response if isinstance(response, dict) else json.loads(str(response))
    return found


def test_recorded_and_live_forks_do_what_their_pages_say(service: Service) -> None:
    run = parcel(service, "B1")
    before = [*MADE]
    page, form = previewed(service, form_of(service, run, "prepare_parcel").set(effects="recorded", approvers="lead"))
    assert page.text.count("answered answered from the recording") == 3
    recorded = press(service, form.set(signal="hint-B1"), f"/ui/runs/{run}/fork")
    assert recorded.status_code == 200 and "have changed" in HtmlPage(recorded.text).text, "the signal was not shown"
    page = HtmlPage(recorded.text)
    started = press(service, page.form("fork"), f"/ui/runs/{run}/fork")
    fork = started.headers["location"].rpartition("/")[2]
    service.ended(fork)
    assert before == MADE
    page, form = previewed(service, form_of(service, run, "send_parcel").set(effects="live"))
    assert "policy made if the policy allows it" in page.text
    refused = press(service, form, f"/ui/runs/{run}/fork")
    assert refused.status_code == 200 and len(forks_of(service, run)) == 1, "it has another address"
    started = press(service, form, f"/ui/runs/{run}/fork-live")
    service.ended(started.headers["location"].rpartition("/")[2])
    assert [*before, "post B1 100"] == MADE


@pytest.mark.parametrize(
    ("typed", "problem"),
    [
        ("{", "is not JSON"),
        ("[1]", "is not a JSON object"),
        ('{"number": "C", "cents": "many"}', "cents"),
        ('{"cents": 1}', "number"),
        (f'{{"number": "{GONE}"}}', GONE),
        ("[" * 5_000, "is not JSON"),
    ],
)
def test_a_wrong_state_is_named_and_everything_typed_stays(service: Service, typed: str, problem: str) -> None:
    run = runs_of(service)["plain"]
    form = form_of(service, run, "send_parcel").set(
        state=typed, approvers="lead, or <b>ana</b>", effects="recorded", lookups="live", id="my-own"
    )
    page, again = previewed(service, form, status=422)
    assert problem in page.text and "Nothing was started." in page.text and "start" not in page.ids
    assert "answered as recorded, any other waits" in page.text, "the other terms are previewed"
    kept = dict(again.fields)
    assert kept["state"].strip() == typed
    assert (kept["approvers"], kept["effects"], kept["lookups"], kept["id"]) == (
        "lead, or <b>ana</b>",
        "recorded",
        "live",
        "my-own",
    )
    assert forks_of(service, run) == []


def runs_of(service: Service) -> dict[str, str]:
    """Return runs by what they are for, started once for each service."""
    if not (found := SHARED.setdefault(service.url, {})):
        found["plain"] = parcel(service, "P1")
        found["undone"] = parcel(service, "U1", fails=True)
        found["secret"] = parcel(service, "S1", password="tiger-of-ana")
    return found


SHARED: dict[str, dict[str, str]] = {}


def test_a_fork_is_not_started_with_other_terms_than_those_shown(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = parcel(service, "D1")
    _, form = previewed(service, form_of(service, run, "send_parcel").set(approvers="lead"))
    changed: list[dict[str, str]] = [
        {"state": '{"number": "D2"}'}, {"effects": "recorded"}, {"lookups": "live"}, {"approvers": "ana"},
        {"accept_undone": "yes"}, {"id": "another"}, {"from": checkpoint(service, run, "prepare_parcel")}, {"seen": ""},
    ]  # fmt: skip
    for each in changed:
        shown = press(service, form.put(each), f"/ui/runs/{run}/fork")
        assert shown.status_code == 200 and "changed since they were shown" in HtmlPage(shown.text).text, each
    assert forks_of(service, run) == []
    remove("forks_not_shown", monkeypatch)
    assert press(service, form.put(changed[0]), f"/ui/runs/{run}/fork").status_code == 303
    assert len(forks_of(service, run)) == 1


def test_effects_that_may_not_be_in_force_are_listed_and_accepted(service: Service) -> None:
    run = runs_of(service)["undone"]
    first = page_of(service, f"/ui/runs/{run}/fork?from={checkpoint(service, run, 'send_parcel')}")
    assert "book_parcel parcel-book/U1: undone" in first.text
    assert "1 effect that may not be in force" in page_of(service, f"/ui/runs/{run}/fork").text
    page, form = previewed(service, first.form("fork").set(approvers="lead"))
    assert "start" not in page.ids and "may not be in force" in page.text
    page, form = previewed(service, form.set(accept_undone="yes"))
    assert "start" in page.ids
    assert press(service, form, f"/ui/runs/{run}/fork").status_code == 303


def test_a_redacted_value_stays_and_is_not_shown(service: Service) -> None:
    run = runs_of(service)["secret"]
    form = form_of(service, run, "send_parcel")
    state = json.loads(dict(form.fields)["state"])
    assert state["password"] == GONE
    page, form = previewed(service, form.set(state=json.dumps({**state, "cents": 5}), approvers="lead"))
    assert (
        "tiger-of-ana" not in page.text
        and "cents 100 5" in page.text
        and "password" not in page.text.partition("State that differs")[2].partition("Calls of")[0]
    )
    fork = press(service, form, f"/ui/runs/{run}/fork").headers["location"].rpartition("/")[2]
    first = service.call(service.state.store.load(EVENT, ("default", fork, 1)))
    assert json.loads(first.snapshot)["password"] == "tiger-of-ana"
    unchanged, form = previewed(service, form_of(service, run, "send_parcel").set(approvers="lead"))
    assert "same-state" in unchanged.ids, "the state as it was shown is that of the checkpoint"
    whole = service.get(f"/ui/runs/{run}/fork/state?from={checkpoint(service, run, 'send_parcel')}").json()
    assert whole == state


def test_a_run_that_cannot_be_forked_says_why(service: Service) -> None:
    run = service.start("parcel", number="F1")
    service.waits(run)
    page = page_of(service, f"/ui/runs/{run}/fork?from=1")
    assert "has not ended" in page.text and "both_go_on" in page.ids and "may still act" in page.text
    assert "fork-run" in page_of(service, f"/ui/runs/{run}").ids
    assert "fork-this" in page_of(service, f"/ui/runs/{run}/actions").ids
    ended = runs_of(service)["plain"]
    nowhere = page_of(service, f"/ui/runs/{ended}/fork?from=nowhere", status=404)
    assert "no checkpoint nowhere" in nowhere.text
    assert service.get("/ui/runs/nobody/fork").status_code == 404


def test_a_run_in_flight_is_forked_with_a_reason(service: Service) -> None:
    """The reason is kept in the history of both, and a fork without one is not offered."""
    run = service.start("parcel", number="K1")
    service.waits(run)
    made = [*MADE]
    page, form = previewed(service, form_of(service, run, "hear_parcel").set(approvers="lead", effects="recorded"))
    assert "start" not in page.ids and "may still act, as the fork may" in page.text and "both-act" in page.ids
    unread = press(service, form.set(both_go_on="the customer asked"), f"/ui/runs/{run}/fork")
    assert "changed since they were shown" in HtmlPage(unread.text).text and forks_of(service, run) == []
    page, form = previewed(service, form.set(both_go_on="the customer asked <b>twice</b>"))
    assert "start" in page.ids and "--both-go-on 'the customer asked <b>twice</b>'" in page.text
    changed = press(service, form.put({"both_go_on": "another"}), f"/ui/runs/{run}/fork")
    assert "changed since they were shown" in HtmlPage(changed.text).text and forks_of(service, run) == []
    started = press(service, form, f"/ui/runs/{run}/fork")
    assert started.status_code == 303, started.text
    (fork,) = forks_of(service, run)
    assert started.headers["location"] == f"/ui/runs/{fork}" and made == MADE
    ancestor, child = page_of(service, f"/ui/runs/{run}/overview"), page_of(service, f"/ui/runs/{fork}/overview")
    assert "forks" in ancestor.ids and f"{fork} by" in ancestor.text
    for each in (ancestor, child):
        assert "the customer asked <b>twice</b>" in each.text
    assert "goes on, too" in child.text


def test_rights_decide_about_the_page_and_a_live_fork(guarded: Service) -> None:
    owner = {"Authorization": "Bearer ana"}
    guarded.client.headers.update(owner)
    run = parcel(guarded, "G1")
    at = checkpoint(guarded, run, "send_parcel")
    vic, olaf, ana = Visitor(guarded), Visitor(guarded), Visitor(guarded)
    for who, name in ((vic, "vic"), (olaf, "olaf"), (ana, "ana")):
        assert who.sign_in(name).status_code == 303
    assert vic.get(f"/ui/runs/{run}/fork").status_code == 403
    assert "Fork this run" not in vic.get(f"/ui/runs/{run}").text
    assert f'href="/ui/runs?forked_from={run}"' in vic.get(f"/ui/runs/{run}/overview").text
    page = olaf.get(f"/ui/runs/{run}/fork?from={at}").text
    assert 'id="effects-live"' not in page and 'id="effects-recorded"' in page
    assert 'id="effects-live"' in ana.get(f"/ui/runs/{run}/fork?from={at}").text
    terms = {"form_token": olaf.token(), "from": at, "effects": "live", "state": "", "seen": ""}
    preview = olaf.post(f"/ui/runs/{run}/fork-preview", terms)
    assert preview.status_code == 200 and "Only the role admin" in preview.text and 'id="start"' not in preview.text
    seen = HtmlPage(preview.text).form("fork")
    for path, status in (("fork-live", 403), ("fork", 200)):
        answer = olaf.post(f"/ui/runs/{run}/{path}", dict(seen.fields))
        assert answer.status_code == status, answer.text
    assert vic.post(f"/ui/runs/{run}/fork", {"form_token": vic.token(), "from": at}).status_code == 403
    forged = olaf.post(f"/ui/runs/{run}/fork", {**dict(seen.fields), "form_token": "guessed"})
    assert forged.status_code == 403
    assert guarded.get(f"/v1/runs?forked_from={run}").json()["runs"] == []


# --- lineage and comparison ------------------------------------------------------------------------
def test_a_card_of_attention_names_the_ancestor(service: Service) -> None:
    run = service.start("call", order="A-1")
    service.flagged(run)
    (effect,) = service.get(f"/v1/runs/{run}/effects").json()["effects"]
    body = {"outcome": "happened", "external_id": "R-1", "response": "rang", "reason": "seen"}
    done = service.post(f"/v1/effects/{effect['id']}/resolve", body, If_Match=f'"v{effect["version"]}"')
    assert done.status_code == 200, done.text
    service.ended(run)
    terms = {"from": "dial", "state": {"order": "broken"}, "id": f"{run}-fork", "approvers": "lead"}
    assert service.post(f"/v1/runs/{run}/forks", terms).status_code == 201
    service.flagged(f"{run}-fork")
    for address in ("/ui/", "/ui/attention/exception"):
        assert f"fork of {run}" in page_of(service, address).text, address


def test_a_difference_leads_to_its_step(service: Service) -> None:
    run = parcel(service, "H1")
    started = service.post(
        f"/v1/runs/{run}/live-forks",
        {"from": "send_parcel", "state": {"number": "H1", "cents": 9}, "id": "h1-fork"},
    )
    assert started.status_code == 201, started.text
    service.ended("h1-fork")
    text = service.get(f"/ui/runs/h1-fork/compare?other={run}").text
    table = text.partition("<h2>Differences</h2>")[2]
    paths = {html.unescape(each) for each in re.findall(r'<a href="([^"]+)"', table)}
    assert {each.split("/")[2] for each in paths} >= {"effects"}, paths
    for path in paths:
        found = service.get(path)
        assert found.status_code in (200, 303), (path, found.text)
        if found.status_code == 303:
            where = found.headers["location"]
            assert f'id="{where.partition("#")[2]}"' in service.get(where.partition("#")[0]).text
    for visit, of in ((1, run), (3, "h1-fork")):
        assert f"/ui/runs/{of}/events" in service.get(f"/ui/runs/h1-fork/visits/{visit}").headers["location"]
    assert service.get("/ui/runs/h1-fork/visits/9").status_code == 404


# --- looks -----------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def ugly(service: Service) -> dict[str, str]:
    """Addresses of pages with ugly data."""
    long = parcel(service, "L" * 90, hint=UGLY, notes=[f"{UGLY}{n}" for n in range(3)], fails=True)
    large = parcel(service, "big", notes=[f"{n:04} {HEBREW} {'x' * 50}" for n in range(1_000)])
    assert len(json.dumps(service.get(f"/v1/runs/{large}/state").json())) > 60_000
    return {name: f"/ui/runs/{run}/fork?from=send_parcel" for name, run in (("long", long), ("large", large))}


def test_ugly_data_fits_the_page(service: Service, ugly: dict[str, str]) -> None:
    page = page_of(service, ugly["large"])
    assert "show it whole" in page.text and dict(page.form("fork").fields)["state"].strip() == ""
    page, form = previewed(service, page.form("fork").set(approvers="lead"))
    assert "same-state" in page.ids and "start" in page.ids
    shown = press(service, form.set(state=json.dumps({"number": "big", "notes": [f"{UGLY}{n}" for n in range(60)]})))
    assert len(shown.content) - len(html.escape(dict(HtmlPage(shown.text).form("fork").fields)["state"])) <= PAGE_MAX
    assert "further places differ" in HtmlPage(shown.text).text and "<b>&" not in shown.text
    page = page_of(service, ugly["long"])
    typed = dict(page.form("fork").fields)["state"]
    assert "\u202e" not in typed and "\\u202e" in typed, "a text that reorders what is beside it is spelt"
    assert json.loads(typed)["notes"][0] == f"{UGLY}0"
    assert "L" * 90 in page.text and "<b>" not in service.get(ugly["long"]).text


def test_a_preview_of_many_long_rows_is_cut_and_counted(service: Service) -> None:
    from outlast.models.fork_answers import ForkPreview

    run = runs_of(service)["plain"]
    terms = {"from": "prepare_parcel", "approvers": "lead"}
    found = ForkPreview.model_validate(service.post(f"/v1/runs/{run}/fork-preview", terms).json())
    call = found.calls[0].model_copy(update={"key": UGLY * 9, "activity": UGLY * 9})
    shown = fork_pages.shown_preview(found.model_copy(update={"calls": [call] * 200, "more_calls": 3}))
    assert 0 < len(shown.calls) < 50 and len(shown.calls) + shown.left_out[0] == 203


@pytest.mark.parametrize("width", drawn([390, 820, 1440], 1, "width of the fork page"))
def test_no_rule_is_violated_at_a_width(
    service: Service, ugly: dict[str, str], open_page: Callable[..., Page], width: int
) -> None:
    page = open_page(width=width, reduced_motion="reduce", expects="status of 4(09|22)")
    found: list[str] = []
    plain, undone = runs_of(service)["plain"], runs_of(service)["undone"]
    waiting = service.start("parcel", number=f"W{width}")
    addresses = [*ugly.values(), f"/ui/runs/{plain}/fork", f"/ui/runs/{undone}/fork?from=send_parcel"]
    addresses += [f"/ui/runs/{plain}", f"/ui/runs/{plain}/checkpoints", f"/ui/runs?forked_from={plain}"]
    for address in (*addresses, f"/ui/runs/{waiting}/fork"):
        page.set_viewport_size({"width": width, "height": 900})
        page.goto(service.url + address)
        found += complaints(page, f"{address} at {width}")  # it leaves another width
        page.set_viewport_size({"width": width, "height": 900})
        scrolls = page.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth")
        assert not scrolls, f"{address} at {width}"
    page.goto(f"{service.url}/ui/runs/{plain}/fork?from=send_parcel")
    page.fill("#fork-state", '{"number": "P1", "cents": "many"}')
    page.click("#preview")
    expect(page.locator("#state-e")).to_contain_text("cents")
    found += complaints(page, f"refused at {width}")
    assert not found, "\n".join(found)


def test_a_person_forks_a_run_in_flight_in_a_browser(service: Service, page: Page) -> None:
    run = service.start("parcel", number="Y1")
    service.waits(run)
    page.goto(f"{service.url}/ui/runs/{run}")
    page.click("#fork-run")
    page.click(f"#from-{checkpoint(service, run, 'hear_parcel')}")
    expect(page.locator("#both")).to_contain_text("both may act")
    page.fill("#approvers", "lead")
    page.click("#preview")
    expect(page.locator("#refused")).to_contain_text("may still act")
    assert page.locator("#start").count() == 0
    page.fill("#both_go_on", "the customer asked for both")
    page.click("#preview")
    expect(page.locator("#both-act")).to_contain_text("goes on, too")
    page.click("#start")
    expect(page.locator("#done")).to_contain_text("Forked from run")
    page.click("#tab-overview")
    expect(page.locator("#facts")).to_contain_text("the customer asked for both")
    page.click("#fork-of a >> nth=0")
    page.click("#tab-overview")
    expect(page.locator("#facts")).to_contain_text("the customer asked for both")


def test_a_person_forks_in_a_browser(service: Service, page: Page) -> None:
    run = parcel(service, "Z1")
    page.goto(f"{service.url}/ui/runs/{run}")
    page.click("#fork-run")
    page.click(f"#from-{checkpoint(service, run, 'send_parcel')}")
    page.fill("#approvers", "lead")
    page.fill("#fork-state", page.input_value("#fork-state").replace('"cents": 100', '"cents": 250'))
    page.click("#preview")
    expect(page.locator("#difference")).to_contain_text("250")
    page.click("#start")
    expect(page.locator("#done")).to_contain_text("Forked from run")
    expect(page.locator("#fork-of")).to_contain_text(run)
    page.click("#compare-ancestor")
    expect(page.locator("#parting")).to_be_visible()
