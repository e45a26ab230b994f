"""The trainer's network: a language model, all of it trained or frozen with a LoRA adapter, and a head."""

from functools import partial

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from peft.tuners.tuners_utils import BaseTunerLayer
from transformers import AutoConfig, PreTrainedConfig, PreTrainedModel

from unprm.checkpoints import lora
from unprm.engines.torch import attention
from unprm.engines.torch.devices import multiplies_bf16_fast
from unprm.engines.torch.quantized import widen_all
from unprm.errors import ModelInvalid

from .collate import MicroBatch
from .prefixes import sees
from .settings import TrainSettings


def base_dtype(settings: TrainSettings, device: str) -> torch.dtype:
    """Number type of the base on a device of type `device`. What is trained is always in float32."""
    frozen = settings.tune == "lora"
    return torch.bfloat16 if frozen and (settings.bf16 or device == "cuda") else torch.float32


def computes_in_bf16(settings: TrainSettings, device: str) -> bool:
    """Whether matrix products are computed in bfloat16, too: not on a CPU without fast instructions for it."""
    return settings.bf16 and (device == "cuda" or multiplies_bf16_fast(torch.device(device)))


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


def check_sharing(model: PreTrainedModel, longest: int) -> None:
    """Raises `ModelInvalid` unless the model's attention can be computed over solutions that share prefixes, of at most
    `longest` tokens."""
    config = model.config
    window = getattr(config, "sliding_window", None)
    reason = attention.unsupported(config)
    if config._attn_implementation != "sdpa":
        reason = f"it computes attention by {config._attn_implementation}, not by sdpa"
    elif window and window < longest:
        reason = f"it sees {window} tokens back, and the longest solution has {longest}"
    if reason:
        raise ModelInvalid(f"{config.name_or_path} can't be trained with share_prefixes: {reason}")


def prepare(base: PreTrainedModel, settings: TrainSettings, device: str) -> PreTrainedModel | PeftModel:
    """The base in training mode for a device of type `device`: all its weights are trained, or a new adapter; with
    gradient checkpointing if the settings say so. Errors as in `with_adapter`."""
    tuned = with_adapter(base, settings) if settings.tune == "lora" else base
    if settings.gradient_checkpointing:
        # the reentrant variant would need a gradient at the first layer's input
        tuned.gradient_checkpointing_enable({"use_reentrant": False})
    if settings.tune == "lora" and settings.bf16 and not computes_in_bf16(settings, device):
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


def drop_output(model: PreTrainedModel | PeftModel) -> None:
    """Removes the output layer from the model, unless it shares its weights with the embedding."""
    if model.get_output_embeddings().weight is not model.get_input_embeddings().weight:
        model.set_output_embeddings(torch.nn.Identity())


class Network(torch.nn.Module):
    """A language model, from `prepare`, and a head of `training.prm.heads`, which reads margins from its states."""

    def __init__(self, model: PreTrainedModel | PeftModel, head: torch.nn.Module) -> None:
        super().__init__()
        self.model = model
        self.head = head

    def forward(self, micro: MicroBatch, bf16: bool) -> torch.Tensor:
        """What the head reads at the tags, margins (tags,) or outputs (tags, 2), in fp32. `bf16`: compute matrix
        products in bfloat16."""
        read: torch.Tensor = self.head(partial(self._states, micro, bf16), micro)
        return read

    def _states(self, micro: MicroBatch, bf16: bool) -> torch.Tensor:
        """The last hidden state of each token, (tokens, hidden), in the order of the flattened `ids`."""
        device = next(self.model.parameters()).device
        with torch.autocast(device.type, torch.bfloat16, enabled=bf16):
            positions = None if micro.positions is None else micro.positions.to(device)
            # without a mask and a cache, packed solutions are kept apart by their positions
            mask = None if micro.ends is None else sees(micro.ends.to(device))[None, None]
            ids, decoder = micro.ids.to(device), self.model.get_decoder()
            hidden = decoder(input_ids=ids, attention_mask=mask, position_ids=positions, use_cache=False)
        states: torch.Tensor = hidden.last_hidden_state.flatten(0, 1)
        return states
