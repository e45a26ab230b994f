"""A PRM's model card: what a training run writes beside its weights, and what is published with the merged model."""

import json
import shlex
from collections.abc import Callable
from dataclasses import MISSING, fields
from pathlib import Path

import torch
from huggingface_hub import DatasetInfo, HfApi, ModelCard, ModelInfo
from huggingface_hub.errors import HfHubHTTPError, HFValidationError

from unprm.checkpoints.files import load_tokenizer, locate, read_config
from unprm.commands import option
from unprm.engines.vllm.model import prepare
from unprm.formats.family import Verdicts
from unprm.formats.probe import ProbeConfig
from unprm.formats.unprm import PrmConfig, UnprmFormat

from .train_settings import ProbeSummary, TrainSettings, TrainSummary

CARD = "README.md"
PLACE = "PATH_OF_THIS_DIRECTORY"
"""Stands in a training run's card for the model's name, which is known when it is published."""
BY_THE_MACHINE = ("batch_tokens", "gradient_checkpointing", "checkpoint_every", "report_to")
"""Settings that depend on the machine or its user and are no part of the command in the card."""

_TRAINED = """---
library_name: {library}
{base_model}datasets: {datasets}
tags: [process-reward-model, unprm]
---

# {config.name}

A process reward model: {what} `{base}` that scores each step of a solution at the step tag
`{config.step_tag}`: {config.measure}.

    unprm serve --model {place}

| trained on | |
|---|---|
| solutions | {summary.examples} ({summary.dropped_too_long} dropped, longer than the model's window) |
| data | {data} |
| optimiser steps | {summary.steps} of {settings.batch_size} solutions, {settings.epochs} epochs |
| loss at the end | {summary.loss:.4f} ({settings.loss}, mean of the last tenth of the steps) |
| trained weights | {trained} |
| learning rate | {settings.learning_rate:g}, {settings.warmup:.0%} warm-up, cosine to zero |
| seed | {settings.seed} |

Trained by

```sh
{command}
```
"""
_PROBE = """---
{base_model}datasets: {datasets}
tags: [process-reward-model, unprm]
---

# {config.name}

A process reward model: a probe of `{base}`, of which nothing was trained. It scores each
step of a solution by its hidden states (layers {layers}) and by how surprising its tokens are. A score is the
probability that such a step is right.

    unprm serve --model {place}

| trained on | |
|---|---|
| solutions | {summary.examples} ({summary.dropped_too_long} dropped, longer than the model's window) |
| labelled steps | {summary.steps}, {summary.right:.1%} of them right |
| data | {data} |

Each problem's steps scored by what was fitted to others:

| read from | log-loss | AUROC |
|---|---|---|
{rows}

Of all of it, accuracy {summary.crossed.accuracy:.3f} and calibration error {summary.crossed.calibration_error:.3f}.

Trained by

```sh
{command}
```
"""
_PUBLISHED = """
## Use it

The root of this repository is the adapter merged into its base, so it takes the base's memory. `prm_config.json` says
how its input is made: the problem in `problem_template`, the steps, and the token `step_tag_id` after each. Every piece
is encoded apart, and text that looks like a special token, or like the step tag, as plain characters.

With vLLM, which takes token ids at `/pooling` (task `token_classify`) {columns}:

```sh
{serve}
```
"""
_PROGRAM = """
With transformers alone:

```python
import torch
from transformers import AutoModelForTokenClassification, PreTrainedTokenizerFast

tokenizer = PreTrainedTokenizerFast.from_pretrained("{repository}", split_special_tokens=True)
tokenizer.add_tokens([name for name in tokenizer.get_added_vocab() if len(name.strip()) > 1], special_tokens=True)
model = AutoModelForTokenClassification.from_pretrained("{repository}")

def encode(text):  # the step tag in a text is spelled
    ids = tokenizer.encode(text, add_special_tokens=False)
    return [each for token in ids for each in ({spelled} if token == {config.step_tag_id} else [token])]

def score(problem, steps):
    ids, tags = encode({template!r}.replace("{{problem}}", problem)), []
    for step in steps:
        ids += [*encode(step), {config.step_tag_id}]
        tags.append(len(ids) - 1)
    with torch.no_grad():
        logits = model(torch.tensor([ids])).logits[0, tags]
    return logits.float().softmax(-1)[:, 1].tolist()
```
"""
_MEASURED = """
## Measured

By `unprm evaluate`:

{figures}
"""


def write_card(output: Path, config: PrmConfig, settings: TrainSettings, summary: TrainSummary) -> None:
    """Writes `README.md` into the PRM's directory. Models and data of the hub are named in full, and paths by
    their last part, as the rest is private."""
    lora, targets = settings.tune == "lora", ", ".join(settings.lora_targets)
    sizes = f"rank {settings.lora_rank}, alpha {settings.lora_alpha}, dropout {settings.lora_dropout}"
    text = _TRAINED.format(
        config=config,
        settings=settings,
        summary=summary,
        library="peft" if lora else "transformers",
        what="a LoRA adapter for" if lora else "all weights of",
        trained=f"LoRA of {sizes}, on {targets}" if lora else "all",
        place=PLACE,
        **_sources(config.base, settings),
    )
    (output / CARD).write_text(text, "utf-8")


def write_probe_card(output: Path, config: ProbeConfig, settings: TrainSettings, summary: ProbeSummary) -> None:
    rows = [f"| {row.name} | {row.log_loss:.4f} | {row.auroc:.4f} |" for row in summary.rows]
    text = _PROBE.format(
        config=config,
        summary=summary,
        layers=", ".join(map(str, config.layers)),
        rows="\n".join(rows),
        place=PLACE,
        **_sources(config.base, settings),
    )
    (output / CARD).write_text(text, "utf-8")


def _sources(base: str, settings: TrainSettings) -> dict[str, str]:
    """What a card says of a model's base and data, and the command that made it."""
    local = base.startswith(".")
    names = [path.name if path.exists() else str(path) for path in settings.data]
    return {
        "base": Path(base).name if local else base,
        "base_model": "" if local else f"base_model: {base}\n",
        "datasets": json.dumps([str(path) for path in settings.data if not path.exists()]),
        "data": ", ".join(names),
        "command": _command(settings),
    }


def published_card(place: Path, repository: str, base: str | None, figures: str | None, api: HfApi) -> ModelCard:
    """The card of a merged checkpoint in the directory `place`, to be published as `repository`: the one that is there,
    if any, then how to use the model, figures and licences.

    `base`: its name on the hub, None if it is not known; `figures`: a page in Markdown.
    """
    config, architectures = PrmConfig.read(place), read_config(place)["architectures"]
    known = place / CARD
    card = ModelCard.load(known) if known.exists() else ModelCard(f"---\nlibrary_name: peft\n---\n\n# {config.name}\n")
    data = card.data
    base = base or data.get("base_model")
    data["library_name"], data["tags"] = "transformers", ["process-reward-model", "unprm"]
    classifies = any(name.endswith("ForTokenClassification") for name in architectures)
    verdicts = Verdicts(config.positive_id, config.negative_id, rows_alone=True)
    tokenizer = load_tokenizer(place)
    options = prepare(locate(str(place), None, None, None), verdicts, tokenizer, torch.float32).options
    text = card.text.replace(PLACE, repository)
    text += _PUBLISHED.format(
        columns=f"and returns {'two probabilities' if classifies else 'one'} for each; a step's score is the\n"
        f"{'second ' if classifies else ''}one at its tag, `{config.step_tag}`",
        serve=shlex.join(["vllm", "serve", repository, *options]),
    )
    if classifies:
        data["pipeline_tag"] = "token-classification"
        (spelled,) = UnprmFormat(tokenizer, config).pieces.encode([config.step_tag])
        text += _PROGRAM.format(repository=repository, template=config.problem_template, config=config, spelled=spelled)
    if figures:
        text += _MEASURED.format(figures=figures.strip())
    licences = {name: _licence(api.dataset_info, name) for name in data.get("datasets") or ()}
    if base:
        data["base_model"] = base
        data["license"] = licences[base] = _licence(api.model_info, base)
    if licences:
        lines = [f"- `{name}`: {each or 'not stated'}\n" for name, each in licences.items()]
        text += "\n## Licences\n\n" + "".join(lines)
    card.text = text
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
