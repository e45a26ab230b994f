"""The trainer's network: a language model, all of it trained or frozen with a LoRA adapter, and a head."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Self

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from peft.tuners.tuners_utils import BaseTunerLayer
from safetensors.torch import save_file
from torch import nn
from transformers import AttentionInterface, AutoConfig, PreTrainedConfig, PreTrainedModel

from unprm.checkpoints import lora
from unprm.engines.torch import varlen
from unprm.engines.torch.attention import unsupported
from unprm.engines.torch.heads import LayersHead
from unprm.engines.torch.quantized import widen_all
from unprm.errors import ModelInvalid
from unprm.formats.family import LAYER, Verdicts

from .collate import MicroBatch
from .train_settings import TrainSettings

NAME = "unprm_training"
WIDEST = 256
"""The largest head that FlashAttention computes."""
STRIDE = 8
"""What FlashAttention's gradients ask a head's width to be a multiple of."""


class Packs(NamedTuple):
    """Sequences one after another: where each begins and the last ends, int32, (sequences + 1,), and the length of the
    longest."""

    starts: torch.Tensor
    longest: int

    @classmethod
    def of(cls, lengths: Sequence[int], device: torch.device) -> "Packs":
        ends = torch.tensor((0, *lengths), dtype=torch.int32).cumsum(0, dtype=torch.int32)
        return cls(ends.to(device), max(lengths))


def computes(config: PreTrainedConfig) -> bool:
    """Whether `attention` computes what a model's own does, as far as its configuration shows."""
    if unsupported(config) is not None or config._attn_implementation not in ("sdpa", NAME):
        return False
    width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    # caps, keys and values of different widths, and dropout of what is attended to
    others = ("attn_logit_softcapping", "v_head_dim", "attention_dropout", "attn_pdrop")
    return width <= WIDEST and width % STRIDE == 0 and not any(getattr(config, name, None) for name in others)


def use(model: PreTrainedModel) -> None:
    """Makes a model's forward pass use this attention, for which it must be given `layout` and `kernel`."""
    AttentionInterface.register(NAME, attention)
    model.set_attn_implementation(NAME)


def attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    layout: Packs,
    kernel: varlen.Varlen,
    scaling: float,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: torch.Tensor | None = None,
    dropout: float = 0.0,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """What each token gets of those that it sees: (1, tokens, heads, width).

    `query`: (1, heads, tokens, width); `key`, `value`: (1, key heads, tokens, width). `layout`: where solutions are.
    `scaling`: of the products. `sliding_window`: tokens that each sees, itself included; None: all.
    Raises `NotImplementedError` for attention with `softcap`, sinks, `s_aux`, or `dropout`.
    """
    if softcap is not None or s_aux is not None or dropout:
        raise NotImplementedError("its attention has capped scores, sinks or dropout, which are not computed here")
    kind = query.device.type
    # rotary embeddings leave queries and keys in the type of the hidden states
    dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else value.dtype
    query, key, value = (tensor.to(dtype) for tensor in (query, key, value))
    rows = (tensor[0].transpose(0, 1).contiguous() for tensor in (query, key, value))
    spans = layout.starts, layout.starts, layout.longest, layout.longest
    window = -1 if sliding_window is None else sliding_window - 1
    return kernel(*rows, *spans, scale=scaling, window_size=(window, 0))[None], None


class Compute(NamedTuple):
    """How a run computes. `device`: its type. `base`: number type of the base's weights; what is trained is in float32.
    `autocast`: whether matrix products are in bfloat16. `kernel`: that of the attention, if the device has one."""

    device: str
    base: torch.dtype
    autocast: bool
    kernel: varlen.Varlen | None = None

    @classmethod
    def of(cls, settings: TrainSettings, device: str, fast: bool) -> Self:
        """How to compute with these settings on a device of this type; `fast`: whether it multiplies in bfloat16 as
        fast as in float32. Unless the settings say otherwise, bfloat16 is for fast GPUs, and for fast processors where
        nothing is trained. Only fast GPUs have a kernel."""
        on_card = device == "cuda"
        frozen = settings.tune == "none"
        bf16 = fast and (on_card or frozen) if settings.bf16 is None else settings.bf16
        stored = settings.tune != "all" and (bf16 or on_card)
        autocast = bf16 and fast
        kernel = varlen.installed() if on_card and fast and (stored or autocast) else None
        return cls(device, torch.bfloat16 if stored else torch.float32, autocast, kernel)

    @property
    def widens(self) -> bool:
        """Whether weights in bfloat16 are multiplied in float32."""
        return self.device == "cpu" and self.base is torch.bfloat16 and not self.autocast

    @contextmanager
    def products(self) -> Iterator[None]:
        """Within this block products of a GPU that stay in float32 are computed in TF32."""
        before = torch.get_float32_matmul_precision()
        if self.device == "cuda":
            torch.set_float32_matmul_precision("high")
        try:
            yield
        finally:
            torch.set_float32_matmul_precision(before)


def read_shape(base: str) -> PreTrainedConfig:
    """The configuration of a causal language model, by directory or hub name; weights are not loaded.

    Raises `ModelInvalid` if there is none, or if the model needs code of its own.
    """
    try:
        config = AutoConfig.from_pretrained(base, trust_remote_code=False)
    except (OSError, ValueError) as error:
        reason = str(error).partition("\n")[0]
        raise ModelInvalid(f"{base} has no configuration of a known language model: {reason}") from error
    return config.get_text_config()


def prepare(base: PreTrainedModel, settings: TrainSettings, compute: Compute) -> PreTrainedModel | PeftModel:
    """The base in training mode: all its weights are trained, or a new adapter. Errors as in `with_adapter`."""
    tuned = with_adapter(base, settings) if settings.tune == "lora" else base
    if compute.widens:
        compute_in_float32(tuned)
    return tuned.train()


def with_adapter(base: PreTrainedModel, settings: TrainSettings) -> PeftModel:
    """Adds a new adapter to the base, which is frozen. Raises `ModelInvalid` if the base lacks the layers in
    `lora_targets`, or if one of them is the output layer."""
    torch.manual_seed(settings.seed)  # for the adapter's initial weights
    targets = ", ".join(settings.lora_targets)
    config = LoraConfig(
        r=settings.lora_rank,
        lora_alpha=settings.lora_alpha,
        lora_dropout=settings.lora_dropout,
        target_modules=lora.ALL_LINEAR if targets == lora.ALL_LINEAR else list(settings.lora_targets),
        task_type="CAUSAL_LM",
    )
    try:
        tuned: PeftModel = get_peft_model(base, config)
    except ValueError as error:
        raise ModelInvalid(f"no adapter can be put on the layers {targets} of {settings.base}: {error}") from error
    if isinstance(base.get_output_embeddings(), BaseTunerLayer):
        raise ModelInvalid(
            f"the layers {targets} include the output layer: only two of its rows are read, and an adapter there would "
            "not be trained"
        )
    return tuned


def compute_in_float32(model: torch.nn.Module) -> None:
    """Makes linear layers with bfloat16 weights, which are frozen, compute in float32.

    Raises `ModelInvalid` if other layers, apart from embeddings, have bfloat16 weights that are not vectors.
    """
    for name, module in model.named_modules():
        if type(module) is not torch.nn.Linear and not isinstance(module, torch.nn.Embedding):
            for parameter in module.parameters(recurse=False):
                if parameter.dtype == torch.bfloat16 and parameter.ndim > 1:
                    raise ModelInvalid(f"this processor can't multiply the bfloat16 of {name}: train without bf16")
    widen_all(model, torch.float32)


class Network(torch.nn.Module):
    """A language model, from `prepare`, and a head of `training.prm.heads`, which reads margins from its states.

    `kernel`: that of the attention, if there is one for this model: then passes have no padding.
    """

    def __init__(self, model: PreTrainedModel | PeftModel, head: torch.nn.Module, compute: Compute) -> None:
        super().__init__()
        self.model, self.head = model, head
        self.kernel = compute.kernel if computes(model.config) else None
        self._autocast = compute.autocast
        if self.kernel:
            use(model.get_base_model() if isinstance(model, PeftModel) else model)

    def forward(self, micro: MicroBatch) -> torch.Tensor:
        """The head's margins at the tags, (tags,) in fp32."""
        device, seen = next(self.model.parameters()).device, dict[str, Any]()
        if self.kernel:
            assert micro.positions is not None, "the batch is padded"
            spans = Packs.of(micro.lengths, device)
            seen = {"position_ids": micro.positions.to(device), "layout": spans, "kernel": self.kernel}
        with torch.autocast(device.type, torch.bfloat16, enabled=self._autocast):
            output = self.model.get_decoder()(input_ids=micro.ids.to(device), use_cache=False, **seen)
        margins: torch.Tensor = self.head(output.last_hidden_state.flatten(0, 1)[micro.places.to(device)])
        return margins


FILE = "head.safetensors"
"""A trained layer, beside the adapter or the other weights."""


class VerdictRows(nn.Module):
    """Two rows of the output layer, those of both verdicts, at the tag itself (no shift by one).

    Where the layer's weights are not the embedding's, the rows are kept here: the others are never read, so training
    these two is training the layer.
    """

    def __init__(self, model: PreTrainedModel | PeftModel, verdicts: Verdicts) -> None:
        super().__init__()
        output, embedding = model.get_output_embeddings(), model.get_input_embeddings()
        self._embedding = model.get_input_embeddings
        self.kept, self._rows = None, [verdicts.positive, verdicts.negative]
        if output.weight is not embedding.weight:
            rows = output.weight.detach()[self._rows].clone()
            frozen = not output.weight.requires_grad
            self.kept, self._rows = nn.Embedding.from_pretrained(rows, freeze=frozen), [0, 1]

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        """Margins, the difference of the verdicts' logits."""
        positive, negative = (self.kept or self._embedding()).weight[self._rows].float()
        margins: torch.Tensor = states.float() @ (positive - negative)
        return margins


def make_head(
    model: PreTrainedModel | PeftModel, settings: TrainSettings, verdicts: Verdicts
) -> VerdictRows | LayersHead:
    """The head in the settings for a model from `prepare`; removes what it doesn't need of the output layer."""
    if settings.head == "verdicts":
        head: VerdictRows | LayersHead = VerdictRows(model, verdicts)
    else:
        layer = nn.Linear(model.config.get_text_config().hidden_size, 1 if settings.head == "value" else 2)
        for parameter in layer.parameters():
            nn.init.zeros_(parameter)  # no step is right or wrong before anything was learned
        head = LayersHead([layer])
    if model.get_output_embeddings().weight is not model.get_input_embeddings().weight:
        model.set_output_embeddings(nn.Identity())
    return head


def write_layer(trained: Mapping[str, torch.Tensor], directory: Path) -> None:
    """Writes the weights of a trained layer, by their names in the head, if there are any."""
    if trained:
        tensors = {f"{LAYER}.{name.rpartition('.')[2]}": t.detach().cpu().contiguous() for name, t in trained.items()}
        save_file(tensors, directory / FILE, {"format": "pt"})
