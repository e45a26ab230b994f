"""How likely a language model that was not trained to score finds each step: what a PRM must be better than."""

import hashlib
import math
from collections.abc import Sequence
from pathlib import Path

import torch

from training.evaluate.scorers import Identity, SolutionToScore
from training.schema import Scores
from unprm.checkpoints.files import load_base, read_tokenizer
from unprm.uncertainty import surprisal_mean


class LikelihoodScorer:
    """Scores a step by the geometric mean of its tokens' probabilities after the problem and the steps before, a line
    each; in (0, 1]. `directory`: of the language model, which is named `name` in files of scores."""

    def __init__(self, directory: Path, name: str) -> None:
        self._model, self._tokenizer = load_base(directory, torch.float32), read_tokenizer(directory)
        weights = hashlib.sha256()
        for file in sorted(directory.glob("*.safetensors")):
            weights.update(file.read_bytes())
        self.identity = Identity(name, "float32", weights.hexdigest()[:16])

    def score(self, batch: Sequence[SolutionToScore]) -> list[Scores]:
        return [self._score(solution) for solution in batch]

    @torch.inference_mode()
    def _score(self, solution: SolutionToScore) -> tuple[float, ...]:
        lines = (solution.problem, *solution.steps)
        pieces = [self._tokenizer.encode(f"{line}\n", add_special_tokens=False) for line in lines]
        ids = torch.tensor([[token for piece in pieces for token in piece]])
        problem, *steps = map(len, pieces)
        states = self._model.get_decoder()(input_ids=ids, use_cache=False).last_hidden_state
        logits = self._model.get_output_embeddings()(states[0, problem - 1 : -1])
        logprobs = logits.log_softmax(-1).gather(1, ids[0, problem:, None])[:, 0].split(steps)
        return tuple(math.exp(-surprisal_mean(step.clamp(max=0).tolist())) for step in logprobs)
