"""Every setting in one place: its name, its default, where its value may come from, and which of those said it.

In order: what a command or a caller gives; `OUTLAST_…` in the environment; a file that `OUTLAST_…_FILE` names (for
secrets); `.env`; `outlast.toml`, or `[tool.outlast]` of `pyproject.toml`; the default. Sections are nested with two
underscores: `OUTLAST_WORKER__CONCURRENCY=200`.
"""

import os
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, SecretStr, ValidationError
from pydantic_settings import (
    BaseSettings,
    DotEnvSettingsSource,
    EnvSettingsSource,
    InitSettingsSource,
    NoDecode,
    PydanticBaseSettingsSource,
    PyprojectTomlConfigSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)
from pydantic_settings.exceptions import SettingsError

from outlast.core.durations import milliseconds
from outlast.errors import InvalidInput

PREFIX: Final = "OUTLAST_"
NESTED: Final = "__"
FILE: Final = "_FILE"
TOML: Final = "outlast.toml"
PYPROJECT: Final = "pyproject.toml"
DEFAULT_STORE: Final = "sqlite:outlast.db"
DEFAULT_HOST: Final = "127.0.0.1"
DEFAULT_PORT: Final = 7168  # 168 hours
ALONE: Final = frozenset(
    {"TRACEBACK", "LOG_LEVEL", "WORLD", "PYTHON", "TEST_POSTGRES", "BENCH_DIR", "BENCH_POSTGRES"}
)  # no settings, read elsewhere
UNKNOWN_SETTING: Final = "%s names no setting, and counts for nothing"


def _checked(text: str) -> str:
    milliseconds(text)
    return text


def _split(value: object) -> object:
    return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value


Words = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_split)]
"""A list; in a variable its parts stand between commas."""
Duration = Annotated[str, AfterValidator(_checked)]
"""500ms, 2s, 10m, 1h30m."""


class Section(BaseModel):
    """Some settings under one name; an unknown one is a mistake that is told."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class WorkerSettings(Section):
    """`outlast worker`, and the worker within `outlast serve`."""

    concurrency: int = Field(default=100, ge=1, le=10_000, description="Runs walked at once.")
    name: str = Field(default="", description="What people call this worker.")
    notify: str = Field(default="", description="A small JSON is POSTed there when a run needs a person.")


class LivenessSettings(Section):
    """The durations that decide when a process is taken for dead; where none is said, those of core/durations.py."""

    heartbeat_window: Duration | None = None
    heartbeat_every: Duration | None = None
    attempt_timeout: Duration | None = None
    start_budget: Duration | None = None
    settle_margin: Duration | None = None
    backoff_ceiling: Duration | None = None
    checkpoint_write: Duration | None = None
    drain_grace: Duration | None = None
    runs_kept: Duration | None = None


class ServeSettings(Section):
    """The HTTP service."""

    host: str = Field(default=DEFAULT_HOST, description="The address it binds to; any but loopback takes [auth].")
    port: int = Field(default=DEFAULT_PORT, ge=0, le=65_535, description="0: one that is free.")
    processes: int = Field(default=1, ge=1, le=64, description="How many answer HTTP at this port.")
    proxies: Words = Field(default=(), description="Addresses whose X-Forwarded-For is believed.")


class AuthSettings(Section):
    """Whose credentials the service believes: tokens of one issuer (JWT), tokens of ours, or both. All empty: nobody is
    asked who he is.

    A claim is named by its dotted path (`realm_access.roles`); one that stands under that very name, dots and all,
    comes first.
    """

    issuer: str = Field(default="", description="The `iss` of the tokens.")
    audience: str = Field(default="", description="The `aud` of the tokens.")
    jwks_url: str = Field(default="", description="Where the issuer's public keys are.")
    algorithms: Words = Field(default=("RS256", "ES256"), description="Nothing else is verified.")
    leeway_s: int = Field(default=30, description="How far the issuer's clock may be from ours; at most 60.")
    tenant: str = Field(default="", description="The tenant of every token, where the issuer names none.")
    tenant_claim: str = Field(default="tenant", description="The claim that names the tenant.")
    roles_claim: str = Field(default="roles", description="The claim that lists the roles.")
    name_claim: str = Field(default="sub", description="The claim that names the caller.")
    installation_claim: str = Field(
        default="", description="The claim that lists roles of the installation; not set: no JWT holds one."
    )
    person_claim: str = Field(
        default="", description="The claim that is true in the tokens of people; not set: no JWT decides."
    )
    tokens: SecretStr = Field(default=SecretStr(""), description="Lines of `outlast token new`: hashes, not tokens.")

    @property
    def signed(self) -> bool:
        """Are tokens of an issuer believed?"""
        return bool(self.issuer or self.jwks_url or self.audience)

    @property
    def any(self) -> bool:
        """Is there any way to prove who one is?"""
        return self.signed or bool(self.tokens.get_secret_value().strip())


class WebhookSettings(Section):
    """What the dispatcher may reach besides https:// addresses on the internet."""

    allow_private: bool = Field(
        default=False,
        description="Also this machine and private networks, at any port; http:// to them needs allow_http too.",
    )
    allow_networks: Words = Field(default=(), description="Also addresses of these networks: 10.1.0.0/16.")
    allow_http: bool = Field(default=False, description="Also http, not https alone.")


class MetricsSettings(Section):
    """Where `worker` and `dispatcher` answer Prometheus; `serve` does at its own port."""

    host: str = Field(default=DEFAULT_HOST, description="The address; any but loopback takes a token.")
    port: int | None = Field(default=None, ge=0, le=65_535, description="Not set: none. 0: one that is free.")
    token: SecretStr = Field(default=SecretStr(""), description="The bearer token that is asked for; not set: none.")


class Settings(BaseSettings):
    """All of them. Made by `load`."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, env_nested_delimiter=NESTED, env_ignore_empty=True, extra="forbid", frozen=True,
        pyproject_toml_table_header=("tool", "outlast"),
    )  # fmt: skip

    store: str = Field(default=DEFAULT_STORE, description="The store: sqlite:FILE or postgresql://…")
    url: str = Field(default="", description="A service that commands speak to instead of the store.")
    token: SecretStr = Field(default=SecretStr(""), description="The credential for that service.")
    tenant: str = Field(default="default", description="The tenant.")
    module: str = Field(default="", description="The module that declares the workflows.")
    output: str = Field(default="table", pattern="^(table|json|ndjson)$", description="How answers are printed.")
    utc: bool = Field(default=False, description="Exact instants instead of «3m ago».")
    audit: str = Field(default="", description="A file: one line for each command, and each request that changes.")
    worker: WorkerSettings = WorkerSettings()
    liveness: LivenessSettings = LivenessSettings()
    serve: ServeSettings = ServeSettings()
    auth: AuthSettings = AuthSettings()
    webhooks: WebhookSettings = WebhookSettings()
    metrics: MetricsSettings = MetricsSettings()

    @classmethod
    def settings_customise_sources(
        cls, settings_cls: type[BaseSettings], *args: PydanticBaseSettingsSource, **more: PydanticBaseSettingsSource
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Where values come from, the first that says one counts."""
        given = next(source for source in (*args, *more.values()) if type(source) is InitSettingsSource)
        return (given, *(source for _, source in _sources(settings_cls)))


class _Variables(EnvSettingsSource):
    """The environment, but for what names a file."""

    def _load_env_vars(self) -> Mapping[str, str | None]:
        return {name: value for name, value in super()._load_env_vars().items() if not name.endswith(FILE.lower())}


class _Files(EnvSettingsSource):
    """`OUTLAST_AUTH__TOKENS_FILE=/run/secrets/tokens`: the value is what the file holds.

    An empty file is a mistake: a secret that was never written would else count as none, and nobody be asked for one.
    """

    def _load_env_vars(self) -> Mapping[str, str | None]:
        found: dict[str, str | None] = {}
        for name, path in os.environ.items():
            if name.startswith(PREFIX) and name.endswith(FILE) and path:
                try:
                    text = Path(path).read_text(encoding="utf-8").strip()
                except (OSError, UnicodeDecodeError) as error:
                    why = (isinstance(error, OSError) and error.strerror) or error
                    raise SettingsError(f"{name} names {path}, which cannot be read: {why}") from error
                if not text:
                    raise SettingsError(f"{name} names {path}, which is empty")
                found[name.removesuffix(FILE).lower()] = text
        return found


class SettingValue(NamedTuple):
    """One setting as it counts."""

    name: str
    """As outlast.toml writes it, with dots: worker.concurrency."""
    value: Any
    source: str
    """«environment OUTLAST_STORE», «.env», «outlast.toml», «default», …"""
    about: str


def load(given: Mapping[str, Any] | None = None) -> Settings:
    """The settings as they count now, `given` first. Raises InvalidInput that names every mistake and its place."""
    try:
        return Settings(**dict(given or {}))
    except ValidationError as error:
        problems = [_problem(each, dict(given or {})) for each in error.errors(include_url=False)]
        raise InvalidInput(
            "the settings cannot be used", problems=problems, fix="correct it where it stands"
        ) from error
    except (SettingsError, ValueError) as error:
        raise InvalidInput(
            "the settings cannot be read", str(error), "mend the file or the variable it names"
        ) from error


def effective_settings(given: Mapping[str, Any] | None = None) -> Iterator[SettingValue]:
    """Every setting, its value and who said it, `given` first. Raises InvalidInput as `load`."""
    settings = load(given)
    places = [("command line", dict(given or {}))]
    places += [(name, dict(_leaves(source()))) for name, source in _sources(Settings)]
    for name, value, about in _all(settings):
        where = next((_place(place, name) for place, values in places if name in values), "default")
        yield SettingValue(name, value, where, about)


def unknown_variables() -> list[str]:
    """Variables `OUTLAST_…` that name no setting: a spelling mistake would otherwise pass unseen."""
    known = {_variable(name) for name, _, _ in _all(Settings.model_construct())}
    known |= {f"{name}{FILE}" for name in known} | {PREFIX + name for name in ALONE}
    return sorted(name for name in os.environ if name.startswith(PREFIX) and name not in known)


def _sources(cls: type[BaseSettings]) -> list[tuple[str, PydanticBaseSettingsSource]]:
    return [
        ("environment", _Variables(cls)),
        ("file", _Files(cls)),
        (".env", DotEnvSettingsSource(cls, env_file=".env", dotenv_filtering="only_existing")),
        (TOML, _toml(TomlConfigSettingsSource, cls, TOML)),
        (PYPROJECT, _toml(PyprojectTomlConfigSettingsSource, cls, PYPROJECT)),
    ]


def _toml(kind: type[TomlConfigSettingsSource], cls: type[BaseSettings], name: str) -> TomlConfigSettingsSource:
    try:
        return kind(cls, Path(name))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError, RecursionError) as error:
        raise SettingsError(f"{name}: {error}") from error


def _problem(error: Mapping[str, Any], given: Mapping[str, Any]) -> tuple[str, str]:
    """The setting, and what is wrong with it and where it is said."""
    name = _dotted(error["loc"])
    text = "names no setting" if error["type"] == "extra_forbidden" else error["msg"].removeprefix("Value error, ")
    place = _sayer(name, given) or _sayer(name.rpartition(".")[0], given)  # of a list, it is said as a whole
    return name, f"{text} ({place})" if place else text


def _sayer(name: str, given: Mapping[str, Any]) -> str:
    """Who says a setting; '' where nobody does."""
    places = [
        ("command line", dict(given)),
        *((place, dict(_leaves(source()))) for place, source in _sources(Settings)),
    ]
    return next((_place(place, name) for place, values in places if name in values), "")


def _place(source: str, name: str) -> str:
    if source == "environment":
        return f"environment {_variable(name)}"
    if source == "file":
        return f"file {os.environ[_variable(name) + FILE]}"
    return source


def _variable(name: str) -> str:
    return PREFIX + name.replace(".", NESTED).upper()


def _dotted(place: tuple[int | str, ...]) -> str:
    return ".".join(map(str, place))


def _leaves(values: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{before}{name}.")
        else:
            yield f"{before}{name}", value


def _all(model: BaseModel, before: str = "") -> Iterator[tuple[str, Any, str]]:
    for name, field in type(model).model_fields.items():
        value = getattr(model, name)
        if isinstance(value, BaseModel):
            yield from _all(value, f"{before}{name}.")
        else:
            yield f"{before}{name}", value, field.description or ""
