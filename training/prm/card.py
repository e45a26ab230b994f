"""A PRM's model card: what a training run writes beside its weights, and what is published with the merged model."""

import shlex
from collections.abc import Callable
from dataclasses import MISSING, fields
from pathlib import Path

import torch
from huggingface_hub import DatasetInfo, HfApi, ModelCard, ModelCardData, ModelInfo
from huggingface_hub.errors import HfHubHTTPError, HFValidationError

from unprm.checkpoints.files import load_tokenizer, locate, read_config
from unprm.commands import option
from unprm.engines.vllm.model import prepare
from unprm.formats.family import Verdicts
from unprm.formats.probe import ProbeConfig
from unprm.formats.unprm import PrmConfig

from .train_settings import ProbeSummary, TrainSettings, TrainSummary

CARD = "README.md"
TEMPLATE = Path(__file__).with_name("card.md.jinja")
PLACE = "PATH_OF_THIS_DIRECTORY"
"""Stands in a training run's card for the model's name, which is known when it is published."""
BY_THE_MACHINE = ("batch_tokens", "gradient_checkpointing", "checkpoint_every", "report_to")
"""Settings that depend on the machine or its user and are no part of the command in the card."""
TAGS = ["process-reward-model", "unprm"]


def write_card(
    output: Path, config: PrmConfig | ProbeConfig, settings: TrainSettings, summary: TrainSummary | ProbeSummary
) -> None:
    """Writes `README.md` into the PRM's directory. Models and data of the hub are named in full, and paths by
    their last part, as the rest is private."""
    base, library = config.base, {"lora": "peft", "all": "transformers", "none": None}[settings.tune]
    local = base.startswith(".")
    data = ModelCardData(
        base_model=None if local else base,
        library_name=library,
        datasets=[str(path) for path in settings.data if not path.exists()],
        tags=TAGS,
    )
    card = ModelCard.from_template(
        data,
        template_path=str(TEMPLATE),
        base=Path(base).name if local else base,
        data=", ".join(map(_public, settings.data)),
        command=_command(settings),
        config=config,
        settings=settings,
        summary=summary,
        place=PLACE,
    )
    card.save(output / CARD)


def published_card(place: Path, repository: str, base: str | None, figures: str | None, api: HfApi) -> ModelCard:
    """The card of a merged checkpoint in the directory `place`, to be published as `repository`: the one that is there,
    if any, then how to use the model, figures and licences.

    `base`: its name on the hub, None if it is not known; `figures`: a page in Markdown.
    """
    config, architectures = PrmConfig.read(place), read_config(place)["architectures"]
    known = ModelCard.load(place / CARD) if (place / CARD).exists() else ModelCard(f"---\n---\n# {config.name}\n")
    datasets, base = known.data.get("datasets") or [], base or known.data.get("base_model")
    classifies = any(name.endswith("ForTokenClassification") for name in architectures)
    verdicts = Verdicts(config.positive_id, config.negative_id, rows_alone=True)
    options = prepare(locate(str(place), None, None, None), verdicts, load_tokenizer(place), torch.float32).options
    licences = {name: _licence(api.dataset_info, name) for name in datasets}
    if base:
        licences[base] = _licence(api.model_info, base)
    data = ModelCardData(
        base_model=base,
        datasets=datasets,
        library_name="transformers",
        license=licences.get(base) if base else None,
        pipeline_tag="token-classification" if classifies else None,
        tags=TAGS,
    )
    card: ModelCard = ModelCard.from_template(
        data,
        template_path=str(TEMPLATE),
        before=known.text.replace(PLACE, repository).strip(),
        config=config,
        classifies=classifies,
        serve=shlex.join(["vllm", "serve", repository, *options]),
        figures=figures and figures.strip(),
        licences=licences,
    )
    return card


def _command(settings: TrainSettings) -> str:
    """The command of a run, without options that have their default."""
    words = ["unprm", "train"]
    for field in fields(settings):
        value = getattr(settings, field.name)
        name = option(field.name)
        if field.name in BY_THE_MACHINE or (field.default is not MISSING and value == field.default):
            continue
        if isinstance(value, tuple) and all(isinstance(each, str) for each in value):
            words += [name, ",".join(value)]
        elif isinstance(value, bool):
            words.append(name if value else f"--no-{name[2:]}")
        else:
            for each in value if isinstance(value, tuple) else (value,):
                words += [name, _public(each)]
    return shlex.join(words)


def _public(value: object) -> str:
    """A value as text; of a local path only the last part."""
    return Path(str(value)).name if Path(str(value)).exists() else str(value)


def _licence(info: Callable[[str], ModelInfo | DatasetInfo], name: str) -> str | None:
    """The licence that a model or data set states on the hub, None if none is known there."""
    try:
        card = info(name).card_data
    except (HfHubHTTPError, HFValidationError):
        return None
    return card.get("license") if card else None
