"""A first guess at the size of a training run's passes, from its parameters and the free memory. If a card runs out of
memory all the same, they are halved."""

from dataclasses import dataclass

import torch

from unprm.engines.torch.memory import feed_forward_width, left_to_container
from unprm.errors import ModelInvalid

from .network import Network
from .train_settings import TrainSettings

MOST_TOKENS = 16_384
"""Maximum tokens of a pass: more would gain nothing."""
PASS_SECONDS = 10
"""About as long a pass may take on a CPU, so that a run can be watched."""
CORE_RATE = 40e9
"""Operations per second assumed of a CPU's thread: a product's multiplication and sum are two."""
ENOUGH_TOKENS = 4_096
"""Tokens of a pass from which on larger passes gain less than gradient checkpointing costs."""
KEPT = 5
"""Numbers that a layer keeps of a token for the gradient, per number of its hidden and feed-forward width: 3 to 8 in
Qwen2.5 and Llama 3, by what is trained and the number types."""
SPARE = 0.2
"""Share of the free memory that no guess takes: for allocators, kernels, and what the guess lacks."""


@dataclass(frozen=True, slots=True)
class PassSize:
    """What a run takes at once, in bytes: `fixed` for gradients and AdamW's moments, `per_token` for the activations of
    each token of a pass, of `free` beside the weights."""

    free: int
    fixed: int
    per_token: int
    batch_tokens: int
    gradient_checkpointing: bool

    def __str__(self) -> str:
        return (
            f"memory: {self.free / 1e9:,.3g} GB free beside the weights, {self.fixed / 1e9:,.3g} GB for gradients and "
            f"AdamW, about {self.per_token / 1e6:,.3g} MB a token; passes of up to {self.batch_tokens:,} tokens "
            f"{'with' if self.gradient_checkpointing else 'without'} gradient checkpointing"
        )


def guess(network: Network, settings: TrainSettings, free: int, longest: int) -> PassSize:
    """Chooses `batch_tokens` and `gradient_checkpointing` where the settings leave them open.

    `network`: loaded; `free`: the device's free bytes beside it; `longest`: tokens of the longest solution. Gradient
    checkpointing is chosen only if `ENOUGH_TOKENS`, or the longest solution, do not fit in a pass otherwise; on a CPU a
    pass takes about `PASS_SECONDS`. Raises `ModelInvalid` if gradients and moments alone do not fit.
    """
    config = network.model.config.get_text_config()
    trained = [parameter for parameter in network.parameters() if parameter.requires_grad]
    fixed = 3 * sum(parameter.nbytes for parameter in trained)
    usable = (1 - SPARE) * free - fixed
    if usable <= 0:
        raise ModelInvalid(
            f"training {settings.base} takes {fixed / 1e9:,.3g} GB for gradients and AdamW beside its weights, and "
            f"{free / 1e9:,.3g} GB are free: train an adapter, or a smaller base"
        )
    number, layers = next(network.model.parameters()).itemsize, config.num_hidden_layers
    layer = KEPT * number * (config.hidden_size + feed_forward_width(config))
    inputs = number * config.hidden_size  # of each layer, from which it is computed again
    per_token = {False: layers * layer, True: layers * inputs + 2 * layer}
    most = MOST_TOKENS
    if next(network.parameters()).device.type == "cpu":
        parameters = sum(parameter.numel() for parameter in network.parameters())
        # forward, for the gradients of the activations, and for those of the weights
        operations = 2 * parameters * (3 if settings.tune == "all" else 2)
        most = min(most, max(1, round(PASS_SECONDS * CORE_RATE * torch.get_num_threads() / operations)))
    twice = settings.gradient_checkpointing
    if twice is None:
        enough = min(settings.batch_tokens or most, ENOUGH_TOKENS, settings.batch_size * longest)
        twice = usable < max(longest, enough) * per_token[False]
    tokens = settings.batch_tokens or max(1, min(most, int(usable / per_token[twice])))
    return PassSize(free, fixed, per_token[twice], tokens, twice)


def free_memory(device: torch.device) -> int:
    """Bytes that this process can still allocate on a device; on a CPU at most what its container's limit leaves."""
    if device.type == "cuda":
        torch.cuda.empty_cache()
        return torch.cuda.mem_get_info(device)[0]
    import psutil  # on a GPU nobody needs it

    return min(psutil.virtual_memory().available, left_to_container())
