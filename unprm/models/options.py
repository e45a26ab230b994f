"""How a model is chosen and run: the options of the server, of `/admin/models` and of Python, each defined once."""

import os
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import (
    AfterValidator,
    AnyHttpUrl,
    BaseModel,
    ConfigDict,
    DirectoryPath,
    Field,
    SecretStr,
    TypeAdapter,
    ValidationError,
)

from unprm.wire import ModelName

Device = Literal["auto", "cpu", "cuda"]
Dtype = Literal["auto", "float32", "bfloat16", "int8", "float8"]
EngineName = Literal["auto", "torch", "vllm", "remote"]
JudgeReadoutName = Literal["verdict", "chain"]
JudgeLayoutName = Literal["plain", "thinkprm", "genprm"]

MEMORY = 0.9
"""Default fraction of a GPU's memory for all models together; vLLM's own default for one."""
JUDGE = "judge"
"""The model name for a language model with OpenAI's chat API as the judge."""


def checked_address(value: str) -> str:
    """The URL, unchanged. Raises `ValueError` if it is not an HTTP URL."""
    try:
        TypeAdapter(AnyHttpUrl).validate_python(value)
    except ValidationError:
        raise ValueError("expected the URL of a server, such as http://127.0.0.1:8001") from None
    return value


Address = Annotated[str, AfterValidator(checked_address)]
_Token = Annotated[str, Field(min_length=1)]


class ModelOptions(BaseModel):
    """Options of a model, other than where it is."""

    GROUP: ClassVar = "Model"

    model_config = ConfigDict(extra="forbid")

    revision: str | None = Field(default=None, description="Revision of the model on the hub.")
    adapter_revision: str | None = Field(default=None, description="Revision of the adapter on the hub.")
    family: str | None = Field(default=None, description="PRM family, if name and files don't show it; see `models`.")
    step_tag: _Token | None = Field(
        default=None, description="Token at the end of each step, for a PRM without prm_config.json."
    )
    positive: _Token | None = Field(default=None, description="Token of the verdict on a right step.")
    negative: _Token | None = Field(default=None, description="Token of the verdict on a wrong step.")
    separator: _Token | None = Field(
        default=None, description="Text after each step, for a checkpoint of TRL's: its step_separator."
    )
    reference: str | None = Field(default=None, description="Reference model of implicit rewards (eurus).")
    beta: float | None = Field(
        default=None, gt=0, allow_inf_nan=False, description="Scale of implicit rewards (eurus)."
    )


class JudgeOptions(BaseModel):
    """A language model as the judge of steps, for the model `judge`, or of answers, for the vote `select`."""

    GROUP: ClassVar = "Judge (a language model that checks steps)"

    model_config = ConfigDict(extra="forbid")

    judge_url: Address | None = Field(
        default=None, description="Server with OpenAI's chat API that runs the judge: --model judge, or vote select."
    )
    judge_model: _Token | None = Field(default=None, description="The judge's model name on that server.")
    judge_readout: JudgeReadoutName = Field(
        default="verdict",
        description="verdict: P(Yes) for each step, or a letter; chain: written checks.",
    )
    judge_layout: JudgeLayoutName = Field(
        default="plain", description="plain: for any model; otherwise the verifier whose prompts are used."
    )
    judge_repeats: int = Field(
        default=4, ge=1, le=128, description="Checks per solution (chain); without logprobs, samples per step."
    )
    judge_tokens: int = Field(
        default=2048, ge=1, description="Maximum tokens of a check (chain), or of each step's check (genprm)."
    )
    judge_concurrency: int = Field(default=32, ge=1, description="Maximum requests to the judge in flight.")
    judge_prompt_tokens: int = Field(
        default=4_194_304, ge=1, description="Maximum prompt tokens for a request; a call counts as at least 512."
    )
    judge_seconds: float = Field(
        default=60.0, gt=0, allow_inf_nan=False, description="Time limit of an attempt to get an answer from the judge."
    )
    judge_calibration: DirectoryPath | None = Field(
        default=None, description="Directory with the judge's calibration.json, for averages with other models."
    )


class ModelSpec(JudgeOptions, ModelOptions):
    """A model to load.

    `model` is `unprm-mini` or `unprm-mini-rollouts` (embedded); the directory or hub name of a PRM made by
    `unprm train`, whose base is named in its `prm_config.json`; with `adapter`, the base; or a PRM of another
    family, recognised by its name or its `config.json`, or given by `family`. `step_tag`, `positive` and `negative`
    are for a PRM of family unprm without `prm_config.json`. `reference` and `beta` replace those of a family that is
    scored by likelihood ratios. `judge` is the language model that `judge_url` and `judge_model` name.
    """

    model: str = Field(
        min_length=1,
        description="Embedded model, directory or hub name; the base with an adapter; or `judge`.",
    )
    adapter: str | None = Field(default=None, description="Hub name or path of a PRM adapter for the model.")

    @property
    def marks(self) -> dict[str, str]:
        """The step tag and verdicts that are given for a PRM without `prm_config.json`."""
        return self.model_dump(include={"step_tag", "positive", "negative"}, exclude_none=True)


class LoadModelRequest(ModelSpec):
    """A model to load, and the name to serve it by. An existing model of that name is served until it is ready."""

    name: ModelName


class EngineOptions(BaseModel):
    """The engine that runs a model, its device and its memory.

    `engine`: `remote` is a vLLM server at `url` that serves the model. `dtype`: `int8`, on CPUs, and `float8`, by vLLM,
    compute the linear layers in eight bits and the rest as `auto` does. `memory`: the fraction of the GPU's, or of each
    of `tensor_parallel_size` GPUs', that the model takes for weights, activations, and keys and values; None: `MEMORY`.
    `prefix_cache_gb`: None: on CUDA what `memory` leaves, on a CPU 1.
    """

    GROUP: ClassVar = "Engine, device and memory"
    model_config = ConfigDict(extra="forbid")

    engine: EngineName = Field(
        default="auto", description="auto: vllm on CUDA if installed, or torch; remote: the vLLM server at --url."
    )
    url: Address | None = Field(default=None, description="URL of the vLLM server, for --engine remote.")
    url_key: SecretStr | None = Field(default=None, min_length=1, description="API key of the vLLM server.")
    judge_key: SecretStr | None = Field(default=None, min_length=1, description="API key of the judge's server.")
    memory: float | None = Field(
        default=None,
        gt=0,
        le=1,
        description="Fraction of the GPU's memory that each model takes. Default: 0.9, shared by the models, and one "
        "more with --admin-key.",
    )
    tensor_parallel_size: int = Field(default=1, ge=1, description="GPUs over which vLLM splits the model.")
    device: Device = Field(default="auto", description="auto: CUDA if available.")
    dtype: Dtype = Field(
        default="auto",
        description="auto: bfloat16 on CUDA, and for large models on CPUs that multiply it fast, or float32. int8 is "
        "for CPUs, float8 for vLLM.",
    )
    max_solution_tokens: int = Field(
        default=8192, ge=1, description="Maximum tokens of problem and solution together; at most the model's window."
    )
    batch_tokens: int = Field(default=32_768, ge=1, description="Maximum tokens that the model runs at once.")
    prefix_cache_gb: float | None = Field(
        default=None,
        ge=0,
        allow_inf_nan=False,
        description="GiB per model for the prefix cache; 0: none. Default: 1; on CUDA, and always with vLLM, what "
        "--memory leaves.",
    )


def public_name(model: str) -> str:
    """A hub name unchanged; for a directory, the last part of its path, since the rest is private to the operator."""
    local = model.startswith((".", "/", "~")) or Path(model).is_dir()
    # links are not resolved: their targets are private as well
    return os.path.basename(os.path.abspath(Path(model).expanduser())) if local else model
