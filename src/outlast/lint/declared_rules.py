"""Rules about limits that a module declares: waits, memories of receivers, sizes of states, and times of calls."""

import ast
import time
from collections.abc import Iterator
from typing import Final

from outlast.core.durations import FAR, Liveness, longest_claim, milliseconds, span
from outlast.core.limits import NAME, OUTCOME_BYTES_MAX, STATE_BYTES_MAX
from outlast.lint.key_rules import activities_of
from outlast.lint.rules import Found, rule
from outlast.lint.source_file import WAITS, AnyFunction, SourceFile, constant, duration, option

RECEIVERS: Final = {"api.stripe.com": 24 * 3_600_000}
"""Host → milliseconds for which it remembers an Idempotency-Key: https://docs.stripe.com/api/idempotent_requests."""
TIME_LIMITS: Final = ("timeout", "within", "until", "valid_for")
FIELD: Final = ("pydantic.Field", "pydantic.fields.Field")


# --- waits -----------------------------------------------------------------------------------------------------
@rule(
    "OL401",
    "No signal can end this wait, so the run waits until its ceiling.",
    "wait for a name of letters, digits, dots, dashes or underscores, at least one signal, and a model that has values",
)
def _wait_without_a_signal(source: SourceFile) -> Found:
    classes = {each.name: each for each in source.classes}
    for call in source.calls:
        if not source.context_call(call, ("receive", "collect")):
            continue
        name = constant(call.args[0]) if call.args else None
        if isinstance(name, str) and not NAME.fullmatch(name):
            yield call, f"no signal can have the name {name!r}"
        if constant(option(call, "limit")) == 0:
            yield call, "limit=0"
        model = call.args[1] if len(call.args) > 1 else None
        declared = classes.get(model.id) if isinstance(model, ast.Name) else None
        for field, why in _impossible(source, declared) if declared is not None else ():
            yield call, f"no value of {declared.name}.{field} is {why}" if declared is not None else ""


def _impossible(source: SourceFile, model: ast.ClassDef) -> Iterator[tuple[str, str]]:
    """Yield the fields of a model that no value fits, each with its limits."""
    for each in model.body:
        if not isinstance(each, ast.AnnAssign) or not isinstance(each.target, ast.Name):
            continue
        limits = _limits(source, each)
        for low, high, meet in (("gt", "lt", True), ("gt", "le", True), ("ge", "lt", True), ("ge", "le", False)):
            if (
                low in limits
                and high in limits
                and (limits[low] > limits[high] or (meet and limits[low] == limits[high]))
            ):
                yield each.target.id, f"{low} {limits[low]:g} and {high} {limits[high]:g}"
        if limits.get("min_length", 0) > limits.get("max_length", float("inf")):
            yield each.target.id, f"of at least {limits['min_length']:g} and at most {limits['max_length']:g}"


def _limits(source: SourceFile, field: ast.AnnAssign) -> dict[str, float]:
    """Return the limits of a field by their names: those of `Field(…)` beside it or in `Annotated`."""
    found: dict[str, float] = {}
    for call in (each for part in (field.annotation, field.value) if part is not None for each in ast.walk(part)):
        if isinstance(call, ast.Call) and source.meaning(call.func) in FIELD:
            for word in call.keywords:
                value = constant(word.value)
                if word.arg and isinstance(value, int | float) and not isinstance(value, bool):
                    found[word.arg] = value
    return found


@rule(
    "OL405",
    "A duration is a text such as 90s or 1h30m, or a timedelta, of at most 100 years; the engine refuses any other.",
    "correct the duration; for a wait without end, leave the time limit out",
)
def _refused_duration(source: SourceFile) -> Found:
    for call in source.calls:
        if not source.context_call(call, WAITS):
            continue
        sleeps = source.context_call(call, ("sleep",)) and call.args
        for given in (*(call.args[:1] if sleeps else ()), *(option(call, name) for name in TIME_LIMITS)):
            value = source.module_values.get(given.id) if isinstance(given, ast.Name) else given
            if value is not None and (why := _refused(source, value)):
                yield call, why


def _refused(source: SourceFile, value: ast.expr) -> str:
    """Return why the engine refuses a duration or an instant, or '' if the file does not tell."""
    text = constant(value)
    if isinstance(text, str):
        try:
            milliseconds(text)
        except ValueError as error:
            return str(error)
    if (length := duration(source, value)) is not None and length > FAR:
        return f"{ast.unparse(value)} is more than 100 years"
    meant = source.meaning(value)
    if meant in ("datetime.timedelta.max", "datetime.datetime.max"):
        return f"{meant} is more than 100 years"
    year = constant(value.args[0]) if isinstance(value, ast.Call) and value.args else None
    if meant == "datetime.datetime()" and isinstance(year, int) and year > time.gmtime().tm_year + 100:
        return f"the year {year} is more than 100 years ahead"
    return ""


# --- receivers -------------------------------------------------------------------------------------------------
@rule(
    "OL402",
    "A call that is repeated after the receiver has forgotten its key is a second call.",
    "state a remembered_for that the receiver promises, and retries that end before",
)
def _resend_after_the_receiver_forgot(source: SourceFile) -> Found:
    for each in source.functions:
        mode = option(each.decorator, "if_uncertain")
        if not isinstance(mode, ast.Call) or source.meaning(mode.func) not in ("outlast.resend", "outlast.flow.resend"):
            continue
        remembered = duration(source, option(mode, "remembered_for") or (mode.args[0] if mode.args else None))
        if remembered is None:
            continue
        texts = {constant(part) for part in ast.walk(each.node)} | source.module_texts
        for host, known in RECEIVERS.items():
            if remembered > known and any(isinstance(text, str) and host in text for text in texts):
                yield mode, f"{host} remembers a key for {span(known)}, not {span(remembered)}"
        retry = option(each.decorator, "retry")
        total = duration(source, option(retry, "total_wait")) if isinstance(retry, ast.Call) else None
        if total is not None and total >= remembered:
            yield mode, f"its retries may take {span(total)}, and the receiver remembers for {span(remembered)}"


# --- states ----------------------------------------------------------------------------------------------------
@rule(
    "OL403",
    "The state is written at each checkpoint and has a limit; files belong into a store of objects.",
    "keep the address of the file in the state, or bound the field: Field(max_length=…)",
)
def _state_over_its_limit(source: SourceFile) -> Found:
    models = dict(_state_models(source))
    for model in (each for each in source.classes if each.name in models):
        limit, total = models[model.name], 0
        for field in model.body:
            if not isinstance(field, ast.AnnAssign) or not isinstance(field.target, ast.Name):
                continue
            bounds = _limits(source, field)
            if _has_bytes(field.annotation) and "max_length" not in bounds:
                yield field, f"{model.name}.{field.target.id} holds bytes without a limit"
            total += int(bounds.get("max_length", 0)) if _is_text(field.annotation) else 0
            if total > limit:
                yield field, f"{model.name} may have {total:,} characters by its types, and {limit:,} bytes are stored"
                break


def _state_models(source: SourceFile) -> Iterator[tuple[str, int]]:
    """Yield the names of the models of states with the bytes that they may have."""
    for call in source.calls:
        if source.meaning(call.func) == "outlast.Workflow" and isinstance(state := option(call, "state"), ast.Name):
            yield state.id, STATE_BYTES_MAX if option(call, "outcome") is not None else OUTCOME_BYTES_MAX


def _has_bytes(annotation: ast.expr) -> bool:
    return any(isinstance(each, ast.Name) and each.id in ("bytes", "bytearray") for each in ast.walk(annotation))


def _is_text(annotation: ast.expr) -> bool:
    """Return True for a text, so that its longest length is its size."""
    inner = annotation.slice if isinstance(annotation, ast.Subscript) else annotation
    first = inner.elts[0] if isinstance(inner, ast.Tuple) and inner.elts else inner
    return isinstance(first, ast.Name) and first.id in ("str", "bytes")


# --- calls -----------------------------------------------------------------------------------------------------
@rule(
    "OL404",
    "A worker gives a run back after its longest claim, so the calls of one visit must fit into it.",
    "make the calls in several visits (a node that returns its own name), or concurrently with ctx.do_all",
)
def _calls_beyond_the_claim(source: SourceFile) -> Found:
    known = activities_of(source)
    stated = [(each.timeout_ms, each.attempts) for each in known.values() if each.timeout_ms is not None]
    claim = longest_claim(Liveness(), stated).ms
    for code in source.node_code:
        total = 0
        for call in sorted(source.own_calls(code), key=lambda each: (each.lineno, each.col_offset)):
            if source.context_call(call, WAITS):
                total = 0  # a run that waits begins a new claim
            elif source.context_call(call, ("do",)) and call.args and isinstance(call.args[0], ast.Name):
                activity = known.get(call.args[0].id)
                total += ((activity.timeout_ms or 0) if activity else 0) * _rounds(source, call, code.node)
                if total > claim:
                    yield call, f"the calls of {code.node.name} may take {span(total)}, and a claim {span(claim)}"
                    break


def _rounds(source: SourceFile, call: ast.Call, function: AnyFunction) -> int:
    """Return how often literal loops around a call make it: `for … in range(10)`."""
    rounds = 1
    for each in source.around(call):
        if each is function:
            break
        if (
            isinstance(each, ast.For)
            and isinstance(each.iter, ast.Call)
            and getattr(each.iter.func, "id", "") == "range"
        ):
            ends = [constant(given) for given in each.iter.args]
            if ends and all(isinstance(end, int) for end in ends):
                rounds *= len(range(*[end for end in ends if isinstance(end, int)]))
    return rounds
