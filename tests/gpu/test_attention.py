"""FlashAttention over the tree, which only a GPU runs, against the attention of transformers."""

import copy
import random

import pytest
import torch
from torch import nn
from transformers import MistralConfig, MistralForCausalLM

from unprm.engines.torch.engine import TorchEngine
from unprm.engines.torch.readers import AtPositions
from unprm.types import Encoded, ModelDescription

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU that PyTorch sees")

WINDOW = 1024
ABOUT = ModelDescription("m", "f", "b", None, None, "torch", "cuda", "", WINDOW, "", None, False)
SHAPE = {
    "vocab_size": 500,
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": WINDOW,
    "initializer_range": 0.1,
}


class _First(nn.Linear):
    def forward(self, hidden):
        return super().forward(hidden.float())[:, 0]


def _items():
    rng = random.Random(0)
    made: list[Encoded] = []
    for _ in range(40):
        begun = list(rng.choice(made).ids[: rng.randint(1, 300)]) if made else [1, 2, 3]
        ids = begun + rng.choices(range(500), k=rng.randint(1, 200))
        made.append(Encoded(tuple(ids), tuple(sorted(rng.sample(range(len(ids)), k=min(3, len(ids)))))))
    return made


@pytest.mark.parametrize("window", [None, 100])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-4), (torch.bfloat16, 3e-2)])
def test_scores_are_those_of_the_plain_model(dtype, tolerance, window):
    torch.manual_seed(0)
    network = MistralForCausalLM(MistralConfig(**SHAPE, sliding_window=window)).to("cuda", dtype).eval()
    plain, head, device = copy.deepcopy(network.model), _First(256, 1).cuda(), torch.device("cuda")
    engine = TorchEngine(AtPositions(network.model, head, device), None, ABOUT, 700, 2**26)
    items = _items()
    for _ in range(2):  # the second time from the cache
        scores = engine.score(items).scores
        for item, values in zip(items, scores, strict=True):
            with torch.no_grad():
                hidden = plain(torch.tensor([item.ids], device="cuda")).last_hidden_state[0]
                expected = torch.sigmoid(head(hidden[list(item.positions)])).tolist()
            assert values == pytest.approx(expected, abs=tolerance)
    assert sum(engine.score(items).computed) == 0
