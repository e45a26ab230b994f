"""Samples solutions from the generator of the embedded model."""

from collections.abc import Iterator, Sequence

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

LONGEST = 192
"""Maximum number of tokens of a sampled solution; the longest right ones have about 150."""


@torch.inference_mode()
def sample(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    problems: Sequence[str],
    temperature: float,
    seed: int,
    batch: int = 96,
) -> Iterator[list[str]]:
    """Samples one solution per problem; yields batches of texts in the order of the problems.

    Each batch has its own seed, so that sampling can start at any multiple of `batch`.
    """
    for start in range(0, len(problems), batch):
        torch.manual_seed(seed + start)
        prompts = [problem + "\n" for problem in problems[start : start + batch]]
        inputs = tokenizer(prompts, return_tensors="pt", padding=True, padding_side="left", add_special_tokens=False)
        ids = model.generate(
            input_ids=inputs["input_ids"],
            attention_mask=inputs["attention_mask"],
            do_sample=True,
            temperature=temperature,
            top_k=0,
            top_p=1.0,
            max_new_tokens=LONGEST,
            pad_token_id=tokenizer.pad_token_id,
            eos_token_id=tokenizer.eos_token_id,
        )
        yield tokenizer.batch_decode(ids[:, inputs["input_ids"].shape[1] :], skip_special_tokens=True)
