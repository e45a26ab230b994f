"""The server's settings: each is an option (`--max-solutions`), a variable (`UNPRM_MAX_SOLUTIONS`) and a name in the
file of `--config` (`max-solutions`).

The environment is read here and nowhere else. Options override variables, which override the file; unknown ones of any
kind are errors.
Variables that Kubernetes sets in a container for a Service whose name is or begins with unprm are ignored.
"""

import difflib
import os
import re
import tomllib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    FilePath,
    SecretStr,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic.fields import FieldInfo

from unprm import validation_messages
from unprm.commands import PREFIX, SettingsInvalid, option, variable
from unprm.models.options import (
    JUDGE,
    MEMORY,
    Address,
    EngineOptions,
    JudgeOptions,
    LoadModelRequest,
    ModelOptions,
    checked_address,
)
from unprm.votes.registry import Strategy
from unprm.wire import MAX_SOLUTIONS

_OF_OTHERS = re.compile(
    r"UNPRM_(CLIENT_.*|(\w+_)?(SERVICE_HOST=.*|SERVICE_PORT(_\w+)?=\d+|PORT=(tcp|udp|sctp)://.*|"
    r"PORT_\d+_(TCP|UDP|SCTP)(_\w+)?=.*))",
    re.IGNORECASE | re.DOTALL,
)
"""Matches NAME=VALUE of the client's variables, and of those by which Kubernetes describes a Service to a container:
UNPRM_SERVICE_HOST, UNPRM_PORT=tcp://10.0.0.11:80, UNPRM_PORT_80_TCP_ADDR and the like."""


Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
_Key = Annotated[SecretStr, Field(min_length=1)]
_Word = Annotated[str, Field(min_length=1)]
NONE = "none"
"""As a model: none is served, and votes are by answers alone."""
CHECKS = "checks"
"""As a model: none is served, and equations in the steps are checked."""
FIRST = "first"
"""Name of an upstream that is given without one."""
_NAMED = re.compile(r"([\w.-]{1,64})=(.+)", re.ASCII | re.DOTALL)


# `GROUP`: the section of `--help` that has the fields


class _Served(BaseModel):
    GROUP: ClassVar = "Model"

    model: list[str] = Field(
        default=["unprm-mini"],
        description="Embedded model, hub name, path, judge, checks (of equations, without a model), or none (votes by "
        "answers alone); the base with --adapter. Several: NAME=MODEL each.",
    )
    adapter: list[_Word] = Field(
        default=[],
        description="Hub name or path of a PRM adapter for the model. Several that share it: NAME=ADAPTER each.",
    )


class _Listening(BaseModel):
    GROUP: ClassVar = "Server"

    config: FilePath | None = Field(
        default=None, description="Settings file, keyed by option names: TOML, or YAML if its name ends in .yaml."
    )
    host: list[str] = Field(
        default=["127.0.0.1"],
        min_length=1,
        description="Address to listen on; 0.0.0.0 for all networks, :: also for IPv6. Repeat, or use commas.",
    )
    port: int = Field(default=8000, ge=0, le=65535, description="Port to listen on; 0 picks a free one.")
    ssl_certfile: Path | None = Field(default=None, description="Certificate (PEM) for HTTPS.")
    ssl_keyfile: Path | None = Field(default=None, description="Private key (PEM), if not in the certificate file.")
    vote_calibration: FilePath | None = Field(
        default=None, description="Basis of `risk` in a vote: a file made by `unprm evaluate calibrate-votes`."
    )


class _Access(BaseModel):
    GROUP: ClassVar = "Access"

    api_key: SecretStr | None = Field(
        default=None,
        min_length=1,
        description="Bearer token that callers must send. As an option it is visible to other users of the machine.",
    )
    api_keys_file: Path | None = Field(
        default=None,
        description="File with a line NAME KEY [TOKENS PER MINUTE] for each caller; read again when it changes.",
    )
    admin_key: SecretStr | None = Field(
        default=None, min_length=1, description="Bearer token for /admin/models; without it, the route does not exist."
    )
    share_caches: bool = Field(
        default=False,
        description="Share caches among callers, which response times reveal; by default each caller has its own.",
    )
    open_metrics: bool = Field(
        default=False,
        description="Allow reading /metrics without a key, except through a proxy that sends X-Forwarded-For; it then "
        "numbers callers.",
    )


class _Limits(BaseModel):
    GROUP: ClassVar = "Limits"

    max_solutions: int = Field(default=MAX_SOLUTIONS, ge=1, le=MAX_SOLUTIONS, description="Solutions per request.")
    max_steps: int = Field(default=1024, ge=1, description="Steps per solution.")
    max_body_bytes: int = Field(default=8 * 2**20, ge=1, description="Largest request body.")
    max_queued_tokens: int = Field(
        default=1_048_576, ge=1, description="Tokens that may wait, at most half of them one caller's; others get 429."
    )
    max_request_seconds: Seconds = Field(
        default=60.0, description="Time limit of a request; X-Request-Timeout may lower it."
    )
    max_batch_seconds: Seconds = Field(
        default=300.0,
        description="Time limit of a batch; beyond it the model counts as hung, and the server exits with status 1.",
    )
    equivalence_deadline: Seconds = Field(default=2.0, description="CPU seconds for comparing a request's answers.")
    keep_alive_seconds: Seconds = Field(
        default=75.0, description="Time that a connection stays open without a request; a proxy's has to be shorter."
    )
    drain_seconds: float | None = Field(
        default=None,
        ge=0,
        allow_inf_nan=False,
        description="Time for running requests to finish after SIGTERM. Default: the longest that a request may take.",
    )


class UpstreamOptions(NamedTuple):
    """Where candidates are sampled, with which key, and of which model: None for the request's."""

    url: str
    key: str | None
    model: str | None


def _named_address(value: str) -> str:
    """An address, or NAME=ADDRESS, unchanged. Raises `ValueError`."""
    checked_address(_split_name(value)[1])
    return value


def _split_name(value: str) -> tuple[str, str]:
    """The name before the first `=`, or `FIRST`, and the rest."""
    named = _NAMED.fullmatch(value)
    return (named[1], named[2]) if named else (FIRST, value)


class _Gateway(BaseModel):
    GROUP: ClassVar = "Gateway (answers sampled from an upstream, and voted on)"

    upstream_url: list[Annotated[str, AfterValidator(_named_address)]] = Field(
        default=[],
        description="Server with OpenAI's chat API that /v1/chat/completions samples from; without it, no such route. "
        "Several: NAME=URL each, the cheapest first.",
    )
    upstream_key: list[_Key] = Field(
        default=[], description="API key of the upstream; of several: NAME=KEY, for each that needs one."
    )
    upstream_model: list[_Word] = Field(
        default=[], description="Model to ask there; of several: NAME=MODEL. Default: the request's."
    )
    gateway_strategy: Strategy | None = Field(
        default=None,
        description="Vote of chat completions that name none. Default: wrf; majority where tools may be called, the "
        "conversation is not text, or a demonstration would score what is outside its domain.",
    )
    gateway_max_tokens: int = Field(
        default=8192, ge=1, description="Maximum tokens of a candidate where the request sets no limit."
    )
    gateway_budget: int | None = Field(
        default=None,
        ge=1,
        le=MAX_SOLUTIONS,
        description="Maximum number of candidates per chat completion, and the default. Without it the default is 8, "
        "and the maximum that of solutions.",
    )
    gateway_stable: float = Field(
        default=0.95,
        gt=0,
        le=1,
        description="Default of `stable`: a chat completion stops sampling once the vote won't change with at least "
        "this probability.",
    )
    gateway_seconds: Seconds = Field(default=600.0, description="Time limit of a chat completion.")


class _Records(BaseModel):
    GROUP: ClassVar = "Logs and traces"

    journal: Path | None = Field(
        default=None, description="SQLite file to log requests and responses to, callers' texts included."
    )
    journal_mb: float = Field(
        default=1024.0,
        ge=1,
        allow_inf_nan=False,
        description="MiB of the journal; the oldest entries are deleted first.",
    )
    journal_without_texts: bool = Field(
        default=False, description="Keep callers' texts and answers out of the journal, and what /feedback needs in it."
    )
    otlp_endpoint: Address | None = Field(
        default=None, description="OpenTelemetry collector for traces (OTLP over HTTP)."
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(default="info", description="Lowest level logged.")
    log_format: Literal["json", "text"] = Field(default="text", description="json: one object per line.")


class Settings(_Records, EngineOptions, JudgeOptions, _Gateway, _Limits, _Access, _Listening, ModelOptions, _Served):
    """Of a server; `--help` lists those of the last base first."""

    model_config = ConfigDict(frozen=True)

    @field_validator("model", "adapter", "host", "upstream_url", "upstream_key", "upstream_model", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        return value.split(",") if isinstance(value, str) else value

    @model_validator(mode="after")
    def _named(self) -> Self:
        beside = self._beside
        if len(self.adapter) > 1 and len(beside) < len(self.adapter):
            raise ValueError("several adapters are each given as NAME=ADAPTER, with different names")
        if beside and (len(self.model) > 1 or _NAMED.fullmatch(self.model[0])):
            raise ValueError("adapters with names go with a single --model without a name, their base")
        if beside and self.adapter_revision:
            raise ValueError("--adapter-revision goes with a single --adapter without a name")
        named = self.models()
        if self.judge_url is None and self.has_judge:
            raise ValueError("--model judge needs --judge-url, a server with OpenAI's chat API, and --judge-model")
        if self.judge_url is not None and self.judge_model is None and not self.has_judge:
            raise ValueError("--judge-url needs --judge-model, the model that compares answers for the vote select")
        alone = ("adapter", *ModelOptions.model_fields)
        own = [option(name) for name in alone if getattr(self, name) not in (None, [])]
        if own and "model" not in self.model_fields_set:
            raise ValueError(f"{own[0]} needs --model, the model that it is for")
        if own and self.model in ([NONE], [CHECKS]):
            raise ValueError(f"{own[0]} needs a model, and --model {self.model[0]} serves none")
        if len(self.model) > 1:
            if "" in named or len(named) < len(self.model):
                raise ValueError("several models are each given as NAME=MODEL, with different names")
            if own:
                options = ", ".join(map(option, alone))
                raise ValueError(f"{options} go with a single --model; several are each a PRM's directory or hub name")
        if len(named) > 1 and self.engine == "remote":
            raise ValueError("--engine remote goes with a single --model: the server at --url serves one")
        self.upstreams()  # what is wrong with them is said at once
        return self

    @property
    def has_judge(self) -> bool:
        """Whether a judge of steps is among the models."""
        return any(request.model == JUDGE for request in self.models().values())

    @property
    def memory_of_each(self) -> float:
        """Fraction of a GPU's memory that each model takes: by default an equal share, where one is kept for a model
        that is loaded beside the others."""
        served = sum(request.model != JUDGE for request in self.models().values())
        return self.memory or MEMORY / max(1, served + (self.admin_key is not None))

    @property
    def sharers(self) -> int:
        """How many models share the base of adapters with names, where one may be loaded beside them; 1 without any."""
        return len(self._beside) + (self.admin_key is not None) if self._beside else 1

    @property
    def _beside(self) -> dict[str, str]:
        """The adapters that have a name."""
        return {found[1]: found[2] for found in map(_NAMED.fullmatch, self.adapter) if found}

    @property
    def max_candidates(self) -> int:
        return self.gateway_budget or self.max_solutions

    @property
    def max_drain_seconds(self) -> float:
        if self.drain_seconds is not None:
            return self.drain_seconds
        return self.gateway_seconds if self.upstream_url else self.max_request_seconds

    def models(self) -> dict[str, LoadModelRequest]:
        """The models to serve, by name; the name of a single one may be empty. Nothing for `NONE` and `CHECKS`."""
        options = self.model_dump(include={*ModelOptions.model_fields, *JudgeOptions.model_fields})
        if self.model in ([NONE], [CHECKS]):
            return {}
        if self._beside:
            options["model"] = self.model[0]
            return {name: LoadModelRequest(name=name, adapter=each, **options) for name, each in self._beside.items()}
        options["adapter"] = self.adapter[0] if self.adapter else None
        split = [spec.rpartition("=") for spec in self.model]
        return {name: LoadModelRequest(name=name or "model", model=model, **options) for name, _, model in split}

    def upstreams(self) -> dict[str, UpstreamOptions]:
        """Where candidates are sampled, by name, in the order in which they were given. Raises `ValueError`."""
        urls = dict(map(_split_name, self.upstream_url))
        if len(urls) < len(self.upstream_url):
            raise ValueError("several upstreams are each given as NAME=URL, with different names")
        keys, models = [each.get_secret_value() for each in self.upstream_key], self.upstream_model
        alone = self.upstream_url == [*urls.values()]  # without a name, so that nothing is to be split
        known = [
            {FIRST: ",".join(values)} if alone and values else _by_upstream(what, values, [*urls])
            for what, values in (("key", keys), ("model", models))
        ]
        return {name: UpstreamOptions(url, *(each.get(name) for each in known)) for name, url in urls.items()}

    @classmethod
    def read(cls, given: Mapping[str, Any]) -> Self:
        """Takes what is given by name, then the environment, then the file of `config`. Raises `SettingsInvalid`, whose
        message names a setting as it was given."""
        known = cls.model_fields
        variables = _from_environment(known)
        values = {**variables, **given}
        file = _from_file(values)
        try:
            return cls.model_validate(file | values)
        except ValidationError as error:
            wrong = error.errors(include_url=False)
        places = {
            **{name: f"{name} in {values['config']}" for name in file},
            **{name: variable(name) for name in variables},
            **{name: option(name) for name in given},
        }
        raise SettingsInvalid("\n".join(_problem(each, known, places) for each in wrong))


def _by_upstream(what: str, values: Sequence[str], names: Sequence[str]) -> dict[str, str]:
    """Keys or models by the names of upstreams. Raises `ValueError`."""
    values_by_name = dict(map(_split_name, values))
    if len(values_by_name) < len(values) or not values_by_name.keys() <= {*names}:
        expected = " or ".join(f"{name}={what.upper()}" for name in names)
        raise ValueError(f"{option(f'upstream_{what}')}: expected {expected}, each once")
    return values_by_name


def is_secret(setting: FieldInfo) -> bool:
    """Whether it is a key, or a list of keys."""
    return "SecretStr" in repr(setting.annotation)


def _problem(error: Mapping[str, Any], known: Mapping[str, FieldInfo], places: Mapping[str, str]) -> str:
    """Which setting is wrong, and how. `places`: where each was given."""
    name = str(next(iter(error["loc"]), ""))
    if error["type"] == "extra_forbidden":
        return f"{places[name]} {_unknown(name, known)}"
    message = validation_messages.message([error])
    if not name:
        return message
    if name not in known:  # a field of one of the models
        return f"{places['model']}: {name}: {message}"
    return f"{places[name]}: {message}"


def _unknown(name: str, known: Iterable[str]) -> str:
    """Says that there is no such setting, and which is the nearest; there are too many to list."""
    near = difflib.get_close_matches(name, [*known], 1)
    return f"is not a setting; `unprm serve --help` lists them{''.join(f' (did you mean {each}?)' for each in near)}"


def _from_environment(known: Collection[str]) -> dict[str, Any]:
    """The values of variables by field. Raises `SettingsInvalid` for variables of fields that are not `known`."""
    values, problems = {}, []
    for name, value in sorted(os.environ.items()):
        if not name.upper().startswith(PREFIX) or _OF_OTHERS.fullmatch(f"{name.upper()}={value}"):
            continue
        field = name.upper().removeprefix(PREFIX).lower()
        values[field] = value
        if field not in known:
            problems.append(f"the variable {name} {_unknown(name.upper(), map(variable, known))}")
    if problems:
        raise SettingsInvalid("\n".join(problems))
    return values


def _from_file(values: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of the file that the value of `config` names; none if there is no such file, which the validation of
    `config` reports. Raises `SettingsInvalid` if it has another form."""
    if (named := values.get("config")) is None or not (file := Path(named)).is_file():
        return {}
    parse: Callable[[str], Any] = tomllib.loads
    if file.suffix in (".yaml", ".yml"):
        import yaml  # takes long, and few need it

        parse = yaml.safe_load
    try:
        settings = dict(parse(file.read_text("utf-8-sig")) or {})
    except Exception as error:  # each parser has its own; none of their messages is shown, which may quote a key
        raise SettingsInvalid(f"config: {named} can't be read ({type(error).__name__})") from None
    if "config" in settings:
        raise SettingsInvalid("config: a file can't name another")
    return {name.replace("-", "_"): value for name, value in settings.items()}
