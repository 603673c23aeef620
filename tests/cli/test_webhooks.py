"""`outlast webhooks` and `outlast dispatcher`: output, refusals and exit codes."""

import re
import signal
from pathlib import Path
from typing import Any

import pytest

from outlast.cli.exit_codes import CONFLICT, NOT_FOUND
from outlast.core.webhooks.webhook_details import WEBHOOK_DETAILS
from outlast.runtime import webhooks
from tests.cli.conftest import PATIENCE_S, Answer, Terminal, eventually
from tests.cli.hooks import ALLOWED, Hooks, listening

pytestmark = pytest.mark.req("OUT-1", "OUT-2")


def add(outlast: Terminal, hooks: Hooks, *args: str) -> Any:
    answer = outlast("-o", "json", "webhooks", "add", hooks.url, *args, env=ALLOWED)
    assert answer.code == 0, answer
    return answer.json


def listed(outlast: Terminal, name: str) -> Any:
    (one,) = [w for w in outlast("-o", "json", "webhooks", "ls").json["webhooks"] if w["webhook"] == name]
    return one


def test_from_the_first_word_to_a_repetition(outlast: Terminal) -> None:
    """A webhook is added, tested, refused by its receiver, sent again, changed, disabled, enabled, removed."""
    outlast.start()
    with listening() as hooks:
        made = add(outlast, hooks, "--name", "shop", "--type", "dev.outlast.workflow.*")
        name, secret = made["webhook"], made["secret"]
        tried = outlast("webhooks", "test", name, env=ALLOWED)
        assert tried.code == 0 and "accepted with 204" in tried.out, tried
        assert hooks.next(secret)["type"] == "dev.outlast.webhook.test"
        hooks.status = 422
        assert outlast("webhooks", "test", name, env=ALLOWED).code == 1
        hooks.next(secret)

        process = outlast.spawn("dispatcher", **ALLOWED)
        outlast.start(run="r2")
        refused = hooks.next(secret)
        eventually(lambda: listed(outlast, name)["dead"] == 1)
        asked = outlast("webhooks", "deliveries", name, "--status", "dead")
        assert asked.code == 0 and f"{name}:r2:{int(refused['sequence'])}" in asked.out and "answered 422" in asked.out
        assert f"outlast webhooks redeliver {name}" in asked.err
        board = outlast("attention", "ls")
        assert f"webhook_dead {name}" in board.out and "1 event given up" in board.out
        hooks.status = 204
        again = outlast("webhooks", "redeliver", f"{name}:r2:{int(refused['sequence'])}")
        assert again.code == 0 and "1 event will be sent again" in again.out
        assert hooks.next(secret)["webhook-id"] == refused["webhook-id"]
        eventually(lambda: listed(outlast, name)["dead"] == 0)
        assert "nothing needs a person" in outlast("attention", "ls").out

        changed = outlast("-o", "json", "webhooks", "rotate", name, "--keep", "0s").json
        assert changed["secret"] != secret
        outlast.start(run="r3")
        hooks.next(changed["secret"])

        assert outlast("webhooks", "disable", name, "--reason", "it moves").code == 0
        assert listed(outlast, name)["why"] == "it moves"
        shown = outlast("webhooks", "show", name).out
        assert f"{name}  disabled · it moves" in shown and "0 given up · 0 retrying" in shown
        assert "dev.outlast.workflow.* of every workflow" in shown
        outlast.start(run="r4")
        assert outlast("webhooks", "enable", name, env=ALLOWED).code == 0
        assert hooks.next(changed["secret"])["subject"] == "r4"
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0 and "Stopped." in err
        assert outlast("webhooks", "rm", name).code == 0
        assert outlast("webhooks", "show", name).code == NOT_FOUND


def test_a_secret_is_shown_once(outlast: Terminal, tmp_path: Path) -> None:
    outlast.start()
    (tmp_path / "key").write_text("from-a-file\n")
    with listening() as hooks:
        made = add(outlast, hooks, "--header", "X-Api-Key=on-the-line", "--header", "Api-Key=@key")
        assert made["headers"] == ["api-key", "x-api-key"]
        said = [
            outlast(*format_, "webhooks", *words, env=ALLOWED)
            for format_ in ((), ("-o", "json"))
            for words in (("ls",), ("show", made["webhook"]), ("deliveries",), ("test", made["webhook"]))
        ]
        assert all(answer.code == 0 for answer in said)
        hidden = (made["secret"], "on-the-line", "from-a-file")
        assert not [one for answer in said for one in hidden if one in answer.out + answer.err]
        headers, _ = hooks.got.get(timeout=PATIENCE_S)
        assert (headers["x-api-key"], headers["api-key"]) == ("on-the-line", "from-a-file")


def test_the_facts_of_a_webhook_are_options_and_are_shown(outlast: Terminal) -> None:
    outlast.start()
    given = {name: f"given {name}" for name in WEBHOOK_DETAILS.by_place["option"]}
    options = [part for name, text in given.items() for part in (f"--{name.replace('_', '-')}", text)]
    with listening() as hooks:
        added = [
            add(outlast, hooks, *options),
            outlast("-o", "json", "notify", "add", "ntfys://1.1.1.1/topic", "--every", *options).json,
        ]
    for made in added:
        assert {name: made[name] for name in given} == given
        page = outlast("webhooks", "show", made["webhook"]).out
        for name, each in WEBHOOK_DETAILS.by_place["terminal"].items():
            assert re.search(rf"{each.noun} +given {name}\n", page)


def test_empty_lists_of_webhooks_suggest_the_next_command(outlast: Terminal) -> None:
    outlast.start()
    assert "outlast webhooks add https://" in outlast("webhooks", "ls").out
    assert outlast("-o", "json", "webhooks", "ls").json["webhooks"] == []
    nothing = outlast("webhooks", "deliveries")
    assert nothing.code == 0 and "accepted at the first attempt" in nothing.out
    assert outlast("webhooks", "deliveries", "--status", "dead").out == "no delivery is dead\n"
    assert outlast("-o", "json", "webhooks", "deliveries").json["deliveries"] == []


@pytest.mark.parametrize(
    ("words", "code", "word"),
    [
        (("add", "http://example.com/"), 2, "https://"),
        (("add", "https://127.0.0.1/"), 2, "not an address on the internet"),
        (("add", "https://[::ffff:10.0.0.1]/"), 2, "not an address on the internet"),
        (("add", "https://no-such-host.invalid/"), 2, "cannot be found"),
        (("add", "https://me:hunter2@example.com/"), 2, "no user and no password"),
        (("add", "https://127.0.0.1/", "--type", "dev.outlast.nothing"), 2, "dev.outlast.nothing"),
        (("add", "https://127.0.0.1/", "--header", "Host=hunter2"), 2, "Host"),
        (("add", "https://127.0.0.1/", "--header", "X-A=hunter2\nb"), 2, "printable"),
        (("add", "https://127.0.0.1/", "--header", "hunter2"), 2, "NAME=VALUE"),
        (("add", "https://127.0.0.1/", "--header", "X-A=@nowhere"), 2, "cannot be read"),
        (("add", "https://127.0.0.1/", "--header", "X-A=1", "--header", "X-A=2"), 2, "twice"),
        (("show", "wh_none"), 3, "outlast webhooks ls"),
        (("test", "wh_none"), 3, "wh_none"),
        (("rotate", "wh_none"), 3, "wh_none"),
        (("enable", "wh_none"), 3, "wh_none"),
        (("rm", "wh_none"), 3, "wh_none"),
        (("disable", "wh_none"), 2, "--reason"),
        (("deliveries", "wh_none"), 3, "wh_none"),
        (("deliveries", "--status", "lost"), 2, "lost"),
        (("redeliver", "wh_none"), 3, "wh_none"),
        (("redeliver", "wh_none:r1:1"), 3, "wh_none"),
        (("redeliver", "a:b"), 3, "WEBHOOK:RUN:SEQ"),
        (("redeliver", "a:b:x"), 3, "WEBHOOK:RUN:SEQ"),
        (("redeliver", "a:b:" + "9" * 40), 3, "WEBHOOK:RUN:SEQ"),
    ],
)
def test_a_wrong_argument_ends_in_one_sentence(outlast: Terminal, words: tuple[str, ...], code: int, word: str) -> None:
    outlast.start()
    answer = outlast("webhooks", *words)
    assert (answer.code, answer.out) == (code, ""), answer
    assert word in answer.err and "Traceback" not in answer.err and "hunter2" not in answer.err


def test_an_action_in_the_wrong_state_is_a_conflict(outlast: Terminal) -> None:
    outlast.start()
    with listening() as hooks:
        name = add(outlast, hooks)["webhook"]
        outlast.start(run="r2")
        early = outlast("webhooks", "redeliver", f"{name}:r2:1")
        assert early.code == CONFLICT and "has not received" in early.err and "outlast dispatcher" in early.err
        before = outlast("webhooks", "redeliver", f"{name}:r1:1")
        assert before.code == CONFLICT and "before the webhook was added" in before.err and "--from-start" in before.err
        assert outlast("webhooks", "enable", name, env=ALLOWED).code == CONFLICT
        assert outlast("webhooks", "disable", name, "--reason", "off").code == 0
        for words in (("disable", name, "--reason", "off"), ("rotate", name), ("test", name)):
            assert outlast("webhooks", *words, env=ALLOWED).code == CONFLICT, words
        assert outlast("webhooks", "enable", name).code == 2, "its address is checked again, and is not allowed here"


def test_unsent_events_without_a_dispatcher_are_reported(outlast: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is said while nothing waits, nor while a dispatcher lives."""
    monkeypatch.setattr(webhooks, "UNSEEN", 0)
    outlast.start()

    def reported(*words: str) -> Answer:
        answer = outlast(*words)
        assert ("no dispatcher is alive → outlast dispatcher" in answer.err) == silent, answer
        return answer

    silent = False
    with listening() as hooks:
        reported("webhooks", "ls")
        assert not [f for f in outlast("-o", "json", "doctor").json["findings"] if f["what"] == "webhooks"]
        name = add(outlast, hooks)["webhook"]
        reported("webhooks", "ls")
        outlast.start(run="r2")
        silent = True
        reported("webhooks", "ls")
        reported("attention", "ls")
        (found,) = [f for f in outlast("-o", "json", "doctor").json["findings"] if f["what"] == "webhooks"]
        assert "has waited" in found["found"] and found["fix"] == "no dispatcher sends it: outlast dispatcher"
        worker = outlast.worker()
        worker.send_signal(signal.SIGTERM)
        assert "no dispatcher is alive → outlast dispatcher" in worker.communicate(timeout=PATIENCE_S)[1]
        process = outlast.spawn("dispatcher", **ALLOWED)
        hooks.next()
        silent = False
        eventually(lambda: listed(outlast, name)["behind"] == 0)
        reported("webhooks", "ls")
        (alive,) = [f for f in outlast("-o", "json", "doctor").json["findings"] if f["what"] == "dispatcher"]
        assert "seen" in alive["found"] and not alive["fix"]
        process.kill()


def test_help_names_the_sending_commands(outlast: Terminal) -> None:
    assert "outlast dispatcher" in outlast("worker", "--help").out
    assert "outlast serve" in outlast("dispatcher", "--help").out
    assert "--no-dispatcher" in outlast("serve", "--help").out
