"""One command line, two ways: every command asked of the store and of a service in front of it says and does the same.

The tables are all commands, but for what works on a store alone (fsck, export, doctor …) and what draws (demo).
"""

import json
import re
from datetime import timedelta
from typing import Any

import pytest

from outlast.core.rows.run_rows import Run, is_over
from tests.cli.conftest import Answer, Terminal, waits_for
from tests.cli.test_attention import flagged, skip
from tests.cli.test_remote import Far, serve

# Fields that change with time, and fields that only one client counts.
MOVES = {"accepted_in_ms", "free", "heartbeat_ago_ms", "holds", "lease_left_ms", "lease_until_real", "loop_late_ms",
         "loop_ticked_ms", "minutes", "renewed_at_real", "resumed_ms", "settles_in_ms", "took_ms"}  # fmt: skip
MADE = {"asked_at", "assigned_at", "at", "changed_at", "chosen", "claimed_at", "created_at", "decided_at", "digest",
        "ended_at", "entered_at", "evidence", "former_until_real", "hash", "run_shown", "secret", "since", "then",
        "time", "trace_id", "until", "valid_until", "webhook", "within_until"}  # fmt: skip

READS: list[tuple[str, int]] = [
    ("runs ls", 0),
    ("runs ls --status completed", 0),
    ("runs ls --attention", 0),
    ("runs ls --workflow refund --waiting-for approval", 0),
    ("runs ls --workflow nothing", 0),
    ("runs ls --since 1h", 0),
    ("runs ls --since 1ms", 0),
    ("runs ls --search r1", 0),
    ("runs steps r1", 0),
    ("runs steps r1 --kind checkpoint --limit 1", 0),
    ("runs steps none", 3),
    ("runs ls --limit 2", 0),
    ("runs ls --status dreaming", 2),
    ("runs ls --waiting-for godot", 2),
    ("runs ls --since soon", 2),
    ("runs ls --limit 0", 2),
    *((f"runs show {run}", 0) for run in ("r1", "r2", "r3", "r4", "r5")),
    ("runs show r9", 3),
    *((f"runs show {run} --state", 0) for run in ("r1", "r3", "r4")),
    ("runs show r9 --state", 3),
    ("runs effects r1", 0),
    ("runs effects r3", 0),
    ("runs effects r9", 3),
    ("runs events r1", 0),
    ("runs events r1 --after 2", 0),
    ("runs events r1 --all", 0),
    ("runs events r1 --type dev.outlast.run.*", 0),
    ("runs events r1 --type nothing", 2),
    ("runs events r1 --type dev.outlast.run.* --all", 2),
    ("runs events r4 --all --after 2", 0),
    ("runs events r9 --all", 3),
    ("runs events r9", 3),
    ("runs results r1", 0),
    ("runs results r9", 3),
    ("runs graph r3", 0),
    ("runs graph r9", 3),
    ("runs input r1", 0),
    ("runs input r9", 3),
    ("runs outcome r1", 0),
    ("runs outcome r2", 1),
    ("runs outcome r3", 5),
    ("runs outcome r9", 3),
    ("runs tail r2", 1),
    ("runs tail r1 -q", 0),
    ("runs tail r9", 3),
    *((f"explain {run}", 0) for run in ("r1", "r2", "r4", "r5")),
    ("explain r9", 3),
    ("approvals ls", 0),
    ("approvals ls --all", 0),
    ("approvals ls --all --limit 1", 0),
    ("approvals ls --mine", 0),
    ("approvals ls --overdue", 0),
    ("approvals show {approval}", 0),
    ("approvals show ap_9", 3),
    ("attention ls", 0),
    ("attention ls --reason-name exception", 0),
    ("attention ls --reason-name boredom", 2),
    ("attention ls --assigned-to none", 0),
    ("attention ls --assigned-to ben", 0),
    ("attention show r4", 0),
    ("attention show r3", 0),
    ("attention show r9", 3),
    ("effects ls", 0),
    ("effects ls --uncertain", 0),
    ("effects ls --status done --activity issue_refund", 0),
    ("effects ls --run r1 --since 1h", 0),
    ("effects ls --limit 1", 0),
    ("effects ls --uncertain --status done", 2),
    ("effects show r4 refund/o-r4", 0),
    ("effects show r4 nothing", 3),
    ("pauses", 0),
    ("webhooks ls", 0),
    ("webhooks show {webhook}", 0),
    ("webhooks show wh_9", 3),
    ("webhooks deliveries", 0),
    ("webhooks deliveries {webhook} --status dead", 0),
    ("webhooks deliveries wh_9", 3),
    ("workers ls", 0),
    ("workers ls --all", 0),
    ("versions ls", 0),
    ("whoami", 0),
]

# Each command acts on a separate run for each client: {x} is n (store) or f (service). The runs are prepared below.
ACTS: list[tuple[str, int]] = [
    ("runs cancel {x}-cancel --reason stop --yes", 0),
    ("runs cancel {x}-cancel --yes", 2),
    ("runs cancel none --reason stop --yes", 3),
    ("runs cancel r1 --reason late --yes", 4),
    ("approvals claim {x}-hand", 0),
    ("approvals reassign {x}-hand --to legal&lead --reason theirs", 0),
    ("approvals reassign {x}-hand --to && --reason theirs", 2),
    ("approvals approve {x}-yes --reason fine --alternative 1", 0),
    ("approvals approve {x}-yes --reason twice", 4),
    ("approvals approve ap_9 --reason who", 3),
    ("approvals approve {x}-hand --reason many --alternative 7", 3),
    ("approvals reject {x}-no --reason dear", 0),
    ("approvals reject {x}-hand --again --reason more", 4),
    ("signal {x}-wait paid --data {data} --id s1", 0),
    ("signal {x}-wait paid --data nonsense", 2),
    ("signal r1 paid --data {data}", 4),
    ("signal none paid", 3),
    ("runs continue {x}-go --reason mended", 0),
    ("runs continue r1", 4),
    ("runs continue none", 3),
    ("runs extend {x}-go --reason slow", 4),
    ("attention resolve {x}-fail fail --reason useless --yes", 0),
    ("attention resolve {x}-stay dance --reason useless", 2),
    ("attention resolve {x}-stay extend --reason more", 4),
    ("attention resolve {x}-stay continue --reason-name poisoned --reason more", 4),
    ("attention resolve none continue --reason x", 3),
    ("attention resolve none cancel --reason x", 3),
    ("attention assign {x}-stay ben --note theirs", 0),
    ("attention assign {x}-stay ben", 0),
    ("attention assign {x}-stay me --reason-name exception", 0),
    ("attention assign {x}-stay --unassign", 0),
    ("attention assign {x}-stay none", 2),
    ("attention assign {x}-stay", 2),
    ("attention assign {x}-stay ben --unassign", 2),
    ("attention assign {x}-stay ben --reason-name poisoned", 4),
    ("attention assign r1 ben", 4),
    ("attention assign none ben", 3),
    ("attention resolve {x}-stay continue --reason mended", 0),
    ("effects resolve {x}-happened refund/o-{x}-happened --happened R-1 --response {answer} --reason seen", 0),
    ("effects resolve {x}-happened refund/o-{x}-happened --give-up --reason again", 4),
    ("effects resolve {x}-gone refund/o-{x}-gone --give-up --reason unknown", 0),
    ("effects resolve {x}-gone nothing --give-up --reason unknown", 3),
    ("effects resolve {x}-gone refund/o-{x}-gone --give-up", 2),
    ("pause activity {x}.other --reason archive", 0),
    ("pause activity {x}.other --reason again", 4),
    ("pause robot {x} --reason why", 2),
    ("resume activity {x}.other", 0),
    ("resume activity {x}.other", 3),
    ("webhooks add https://93.184.216.34/{x} --name {x} --type dev.outlast.workflow.* --workflow refund", 0),
    ("webhooks add https://127.0.0.1/{x}", 2),
    ("webhooks disable {x}-hook --reason noisy", 0),
    ("webhooks disable {x}-hook --reason again", 4),
    ("webhooks test {x}-hook", 4),
    ("webhooks rotate {x}-hook", 4),
    ("webhooks enable {x}-hook", 0),
    ("webhooks rotate {x}-hook --keep 2h", 0),
    ("webhooks redeliver {x}-hook", 0),
    ("webhooks redeliver {x}-hook:r1:1", 4),
    ("webhooks redeliver wh_9:r1:x", 3),
    ("webhooks rm {x}-hook", 0),
    ("webhooks rm {x}-hook", 3),
    ("workers drain w-1 --reason gone", 3),
    ("workers drain w-1", 2),
    ("versions move refund 9 {x}-hand", 3),
    ("versions move refund 1 {x}-hand none --reason try", 4),
    ("versions move refund 1", 2),
]


def plain(value: Any, without: set[str], names: dict[str, str]) -> Any:
    """The same for both ways: without what moves, cursors as whether there is one, ids by their role."""
    if isinstance(value, dict):
        return {
            key: bool(each) if key == "cursor" else plain(each, without, names)
            for key, each in value.items()
            if key not in without
        }
    if isinstance(value, list):
        return [plain(each, without, names) for each in value]
    return said(value, names) if isinstance(value, str) else value


def said(text: str, names: dict[str, str]) -> str:
    """A text without what is another for each way."""
    for name, role in sorted(names.items(), key=lambda pair: -len(pair[0])):
        text = text.replace(name, role)
    text = re.sub(r"\b(\d+[dhm])*\d+(\.\d+)?(ms|s|m)\b", "SOON", text)
    return re.sub(r"\d{4}-\d\d-\d\dT[\d:.]+Z", "INSTANT", text)


def answered(answer: Answer, without: set[str], names: dict[str, str]) -> Any:
    """Return the comparable part of an answer: the JSON, or stderr without JSON."""
    lines = [line for line in answer.out.splitlines() if line]
    try:
        out: Any = json.loads(answer.out)
    except ValueError:
        out = [json.loads(line) if line.startswith("{") else line for line in lines]
    return answer.code, plain(out, without, names), said(answer.err, names)


def differing(near: Any, far: Any, path: str = "") -> list[str]:
    """Return the differences between two answers, the order of keys included."""
    if isinstance(near, dict) and isinstance(far, dict):
        same = [*near] == [*far] or ".nodes" in path  # a store keeps graphs as canonical text
        order = [] if same else [f"{path}: keys {[*near]} ≠ {[*far]}"]
        return order + [
            text
            for key in {**near, **far}
            for text in differing(near.get(key, "-"), far.get(key, "-"), f"{path}.{key}")
        ]
    if isinstance(near, list | tuple) and isinstance(far, list | tuple) and len(near) == len(far):
        return [text for n, pair in enumerate(zip(near, far, strict=True)) for text in differing(*pair, f"{path}[{n}]")]
    return [] if near == far else [f"{path}: {near!r:.300} ≠ {far!r:.300}"]


def ready(outlast: Terminal, monkeypatch: pytest.MonkeyPatch, run: str, **env: str) -> None:
    """A run that has come to where a person is needed, or to its end."""
    outlast.start(order_id=f"o-{run}", run=run)
    outlast("approvals", "approve", outlast.approval(run), "--reason", "fine")
    with monkeypatch.context() as patch:
        for name, value in env.items():
            patch.setenv(name, value)
        outlast.serve(run, lambda row: is_over(row) or bool(row.attention))


def hook(outlast: Terminal) -> str:
    """Add a webhook and disable it."""
    made = str(outlast("-o", "json", "webhooks", "add", "https://93.184.216.34/hook").json["webhook"])
    assert outlast("webhooks", "disable", made, "--reason", "settle").code == 0
    return made


def test_both_clients_read_the_same(outlast: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    ready(outlast, monkeypatch, "r1")
    outlast.start(run="r2", cents=-1)
    outlast.serve("r2", is_over)
    outlast.start(order_id="o-r3", run="r3")
    approval = outlast.approval("r3")
    ready(outlast, monkeypatch, "r4", REFUND_DOUBT="1")
    ready(outlast, monkeypatch, "r5", REFUND_FAULT="1")
    assert outlast("pause", "activity", "elsewhere", "--reason", "the archive is down").code == 0
    names = {"approval": approval, "webhook": hook(outlast)}
    far = Far(outlast, serve(outlast, options=()))  # no lease is to run out between two reads
    wrong: list[str] = []
    drawn: set[str] = set()
    for line, code in READS:
        words = line.format(**names).split()
        command = " ".join(words[:2])
        outputs = ("json",) if code or command in drawn else ("json", "ndjson", "table")
        drawn |= set() if code else {command}
        for output in outputs:
            near, there = outlast("-o", output, *words), far("-o", output, *words)
            found = [f"exit code {near.code}: {near.err}"] if near.code != code else []
            if "tail" in words or output == "table":
                found += differing((near.code, bool(near.out)), (there.code, bool(there.out)))
            else:
                found += differing(answered(near, MOVES, {}), answered(there, MOVES, {}))
            wrong += [f"{line} -o {output} {each}" for each in found]
    assert not wrong, "\n".join(wrong)


def test_both_clients_act_the_same(outlast: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    ready(outlast, monkeypatch, "r1")
    ids: dict[str, dict[str, str]] = {"n": {}, "f": {}}
    for x in ids:
        for role, env in (
            ("go", "FAULT"),
            ("stay", "FAULT"),
            ("fail", "FAULT"),
            ("happened", "DOUBT"),
            ("gone", "DOUBT"),
        ):
            ready(outlast, monkeypatch, f"{x}-{role}", **{f"REFUND_{env}": "1"})
        ids[x]["hook"] = str(outlast("-o", "json", "webhooks", "add", f"https://93.184.216.34/{x}/h").json["webhook"])
    far = Far(outlast, serve(outlast))
    for x in ids:
        for role in ("cancel", "hand", "yes", "no"):
            ids[x][role] = far.start(f"{x}-{role}", f"o-{x}-{role}")
        outlast("approvals", "approve", far.start(f"{x}-wait", f"wait-{x}"), "--reason", "fine")
        outlast.serve(f"{x}-wait", waits_for("signal"))
    wrong: list[str] = []
    for line, code in ACTS:
        found = []
        for x, ask in (("n", outlast), ("f", far)):
            words = [_word(word, x, ids[x], line.split()[0]) for word in line.split()]
            answer = ask("-o", "json", *words)
            roles = {value: role for role, value in ids[x].items()} | {f"{x}-": "X-", f"/{x}": "/X", f"{x}.": "X."}
            moving = {"version"} if line.startswith("webhooks") else {"detail"}  # the dispatcher writes the row, too
            found.append(answered(answer, MOVES | MADE | {"name", "asked"} | moving, roles))
            if answer.code != code:
                wrong.append(f"{line} ({x}) exit code {answer.code}: {answer.err}")
        wrong += [f"{line} {each}" for each in differing(*found)]
    assert not wrong, "\n".join(wrong)


def _word(word: str, x: str, ids: dict[str, str], command: str) -> str:
    """A word of a line, for the near or the far one."""
    word = word.replace("{data}", '{"by":"Ana"}').replace("{answer}", '{"number":"R-1"}').replace("{x}", x)
    if command in ("approvals", "webhooks"):
        for role, value in ids.items():
            word = word.replace(f"{x}-{role}", value)
    return word


def test_more_time_is_given_from_afar(outlast: Terminal) -> None:
    outlast.start()
    outlast.approval()
    skip(outlast, timedelta(hours=170))
    outlast.serve("r1", lambda row: flagged("total_timeout", row))
    far = Far(outlast, serve(outlast))
    answer = far("-o", "json", "runs", "extend", "r1", "--by", "48h", "--reason", "slow")
    assert answer.code == 0 and answer.json["extended_ms"] == 48 * 3_600_000 and answer.json["by"].startswith("local:")

    def answered(row: Run) -> bool:
        return not flagged("total_timeout", row)

    outlast.serve("r1", answered)
    assert [each["reason"] for each in outlast.see()["attention"]] == ["approval_timeout"]


def test_a_service_that_is_not_there_is_7_for_every_command(outlast: Terminal) -> None:
    far = Far(outlast, "http://127.0.0.1:1")
    for line, _ in [*READS[:6], ("approvals ls", 0), ("attention ls", 0), ("effects ls", 0), ("pauses", 0),
                    ("webhooks ls", 0), ("workers ls", 0), ("versions ls", 0), ("whoami", 0)]:  # fmt: skip
        assert far(*line.split()).code == 7, line


def test_ids_and_waits_are_never_cut(outlast: Terminal) -> None:
    """However narrow: folded, not cut."""
    long = "r" + "0123456789" * 6
    outlast.start(order_id="o-" + "x" * 60, run=long)
    outlast.approval(long)
    narrow = {"COLUMNS": "40"}
    shown = outlast("runs", "ls", env=narrow).out
    assert long in shown and "by finance" in shown and "…" not in shown
    coloured = {**narrow, "FORCE_COLOR": "1", "NO_COLOR": ""}
    assert "\x1b[33m" in outlast("runs", "ls", env=coloured).out, "a run that waits for a person is highlighted"
    for plain_ in (
        outlast("runs", "ls", "--no-color", env=coloured),
        outlast("runs", "ls", env={**coloured, "NO_COLOR": "1"}),
    ):
        assert "\x1b[33m" not in plain_.out
    assert outlast("runs", "ls", "-q").err == ""
