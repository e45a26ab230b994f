"""What a training run leaves, an adapter or a checkpoint of all weights; and how a PRM is published: as one
checkpoint, or as a model on the hub.

Such a checkpoint has two heads. The language model's own is what this project reads verdicts from; a classifier of
tokens, made of the rows of both verdicts or of a trained layer, is what transformers and vLLM read without code of
ours.
"""

import json
import os
import shlex
import shutil
from collections.abc import Callable
from dataclasses import MISSING, fields
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from huggingface_hub import DatasetInfo, HfApi, ModelCard, ModelCardData, ModelInfo
from huggingface_hub.errors import HfHubHTTPError, HFValidationError
from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]
from peft import PeftModel
from transformers import MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING, PreTrainedModel
from transformers.modeling_layers import GenericForTokenClassification

from unprm import calibration
from unprm.checkpoints import lora
from unprm.checkpoints.files import (
    StoredDtype,
    load_base,
    load_merged,
    load_tokenizer,
    locate,
    read_config,
    read_tokenizer,
)
from unprm.commands import option
from unprm.engines.torch.heads import read_layers
from unprm.engines.vllm.model import prepare
from unprm.errors import ModelInvalid, OutputMismatch
from unprm.formats.family import LAYER, Head, Verdicts
from unprm.formats.probe import ProbeConfig
from unprm.formats.registry import is_probe
from unprm.formats.unprm import CONFIG_NAME, ModelConfig, PrmConfig

from .network import FILE, Network, write_layer
from .resume import STATE
from .train_settings import ProbeSummary, TrainSettings, TrainSummary, TuneName

CARD = "README.md"
TEMPLATE = Path(__file__).with_name("card.md.jinja")
MERGED = "transformers"
"""The library that reads a merged checkpoint, as the hub calls it."""
PLACE = "PATH_OF_THIS_DIRECTORY"
"""Stands in a training run's card for the model's name, which is known when it is published."""
BY_THE_MACHINE = ("batch_tokens", "gradient_checkpointing", "checkpoint_every")
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
        library_name=MERGED,
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


PROBE_STATES = "states"
"""Folder of the states of training's steps in a probe's directory."""
ADAPTER = "adapter"
"""The folder of the adapter in a published repository, whose root is the merged checkpoint."""
_KINDS: dict[TuneName, str] = {
    "lora": "an adapter",
    "all": "a model of which all weights were trained",
    "none": "a probe",
}


def check_output(settings: TrainSettings) -> None:
    """Raises `OutputMismatch` if the output directory holds a PRM of another kind than is trained, or what a killed run
    left of one."""
    output, kinds = settings.output, _KINDS
    if is_probe(output) or (output / PROBE_STATES).is_dir():
        held = kinds["none"]
    elif (output / lora.CONFIG).is_file():
        held = kinds["lora"]
    elif (output / "config.json").is_file():
        held = kinds["all"]
    elif settings.tune == "none" and (output / STATE).is_file():
        held = "the checkpoint of a killed run"
    else:
        return
    if held != kinds[settings.tune]:
        raise OutputMismatch(f"{output} holds {held}: {kinds[settings.tune]} takes another directory")


def write_adapter(network: Network, config: PrmConfig, output: Path) -> None:
    tuned = network.model
    assert isinstance(tuned, PeftModel)
    tuned.peft_config["default"].base_model_name_or_path = config.base
    tuned.save_pretrained(str(output), save_embedding_layers=False)
    write_layer({name: p for name, p in network.head.named_parameters() if p.requires_grad}, output)
    write_config(config, output)


@torch.no_grad()
def write_all(network: Network, base: Path, config: PrmConfig, output: Path) -> None:
    """Writes a checkpoint of the base with the trained weights of a network, in the number type of the base's files."""
    model = load_base(base, "auto")
    layer = {}
    for name, values in network.named_parameters():
        place, _, rest = name.partition(".")
        if place == "model":
            model.get_parameter(rest).copy_(values)
        elif config.head == "verdicts":
            rows = model.get_output_embeddings().weight
            rows[[config.positive_id, config.negative_id]] = values.to(rows)
        else:
            layer[rest] = values
    write_layer(layer, output)
    write_checkpoint(model, base, output, config, output)


def portable(base: str, output: Path) -> str:
    """The base's name in an adapter's configuration: a path relative to the adapter, or the hub name."""
    if not Path(base).is_dir():
        return base
    relative = os.path.relpath(Path(base).resolve(), output.resolve())
    return relative if relative.startswith(".") else f"./{relative}"


def merge_adapter(model: str, adapter: str | None, output: Path, dtype: StoredDtype) -> None:
    """Merges base and adapter into one checkpoint that `unprm serve --model OUTPUT` loads, and transformers as a
    classifier of tokens, if it has one of this architecture.

    Arguments and errors as for `load_engine`; raises `OutputMismatch` if `output` exists and is not empty.
    """
    if output.exists() and any(output.iterdir()):
        raise OutputMismatch(f"{output} is not empty")
    files = locate(model, adapter, None, None)
    _refuse_probe(files.directory)
    config = PrmConfig.read(files.directory)
    write_checkpoint(load_merged(files, dtype), files.base, files.directory, config, output)
    _copy(files.directory, output, CARD, calibration.NAME)
    if (output / CARD).exists():
        card = ModelCard.load(output / CARD)
        card.data.library_name = MERGED
        card.save(output / CARD)


def push(directory: Path, repository: str, figures: Path | None = None, api: HfApi | None = None) -> str:
    """Publishes a PRM on the hub, with the token from the environment; returns its URL.

    The root of the repository is the merged checkpoint in the type that the base is stored in, and its card; the folder
    `adapter` has the adapter. Other files of the repository are left alone. `figures`: a page of results for the card.

    Before anything is sent, raises `ModelInvalid` if the directory is not a PRM, if the adapter's base is not on the
    hub, or if no repository can have this name, and an `OSError` if the hub does not know the token.
    """
    api = api or HfApi()
    files = locate(str(directory), None, None, None)
    _refuse_probe(files.directory)
    try:
        validate_repo_id(repository)
    except HFValidationError as error:
        raise ModelInvalid(f"no repository of the hub can be called {repository!r}: {error}") from error
    if files.adapter and files.base_name.startswith("."):
        raise ModelInvalid(
            f"{directory} is an adapter for the local base {files.base_name}, which nobody else can load: push what "
            f"`unprm merge-adapter {directory}` makes, or train on the base's name on the hub"
        )
    results = figures.read_text("utf-8") if figures else None
    api.whoami()
    with TemporaryDirectory(prefix="unprm-push-") as folder:
        place = Path(folder)
        merge_adapter(str(directory), None, place, "auto")
        if files.adapter:
            (place / ADAPTER).mkdir()
            _copy(directory, place / ADAPTER, lora.CONFIG, lora.WEIGHTS, FILE, CONFIG_NAME, calibration.NAME)
        base = files.base_name if files.adapter else None
        published_card(place, repository, base, results, api).save(place / CARD)
        address = api.create_repo(repository, exist_ok=True)
        api.upload_folder(folder_path=place, repo_id=repository)
    return str(address)


def _refuse_probe(directory: Path) -> None:
    if is_probe(directory):
        raise ModelInvalid(f"{directory} is a probe, which has no adapter to merge: publish the directory as it is")


def write_checkpoint(network: PreTrainedModel, base: Path, source: Path, config: PrmConfig, output: Path) -> None:
    """Writes a whole PRM as a checkpoint that is served by itself, with the tokenizer of the directory `base`, and the
    trained layer of the directory `source`, if the head is one."""
    _with_classifier(network, source, config, output)
    read_tokenizer(base).save_pretrained(output)
    write_config(config.model_copy(update={"base": ".", "base_revision": None}), output)


def write_config(config: ModelConfig, output: Path) -> None:
    """Writes the last file of a PRM, its configuration. Who may read that may read the weights: safetensors writes them
    for their owner alone, and a server often runs as another user."""
    config.write(output)
    mode = (output / CONFIG_NAME).stat().st_mode
    for weights in output.glob("*.safetensors"):
        weights.chmod(mode)


def _with_classifier(network: PreTrainedModel, source: Path, config: PrmConfig, output: Path) -> None:
    """Writes the network with a second head: `score`, two classes, the wrong one first: those of the layer in the
    directory `source`, or half of what makes the margin (the difference of the verdicts' rows, or the layer's one
    output) and its negative.

    So the softmax is the step's score, and numbers are small, of which 16 bits keep more. The head is stored in
    float32. An architecture without such a classifier in transformers is written as it is, with the layer beside it.
    """
    kind = MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING.get(type(network.config), None)
    if kind is None or not issubclass(kind, GenericForTokenClassification):
        network.save_pretrained(output)
        _copy(source, output, FILE)
        return
    weight, bias = _classes(network, source, config)
    network.config.id2label = {0: config.negative, 1: config.positive}
    network.config.label2id = {config.negative: 0, config.positive: 1}
    head = {f"{LAYER}.weight": weight, f"{LAYER}.bias": bias}
    network.save_pretrained(output, state_dict=network.state_dict() | head)
    place = output / "config.json"
    written = json.loads(place.read_text("utf-8")) | {"architectures": [kind.__name__]}
    place.write_text(json.dumps(written, indent=2) + "\n", "utf-8")


def _classes(network: PreTrainedModel, source: Path, config: PrmConfig) -> tuple[torch.Tensor, torch.Tensor]:
    """Both classes: the weights of the last hidden state, (2, hidden), and the biases, (2,), in fp32."""
    if config.head == "verdicts":
        rows = network.get_output_embeddings().weight.detach()
        weight = (rows[config.positive_id].float() - rows[config.negative_id].float())[None]
        bias = torch.zeros(1)
    else:
        head = read_layers(source, Head((LAYER,)), network.config.get_text_config().hidden_size)
        weight, bias = (head.get_parameter(f"layers.0.{name}").detach() for name in ("weight", "bias"))
    return (weight, bias) if len(weight) == 2 else (torch.cat([-weight, weight]) / 2, torch.cat([-bias, bias]) / 2)


def _copy(source: Path, target: Path, *names: str) -> None:
    for name in names:
        if source != target and (source / name).is_file():
            shutil.copyfile(source / name, target / name)
