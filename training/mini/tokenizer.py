"""The tokenizer of the embedded model: byte-level BPE with Qwen2's own splitting into words, every digit its own
token and `ş` a token of its own."""

from collections.abc import Iterable

from transformers import PreTrainedTokenizerBase, Qwen2Tokenizer

VOCABULARY = 640


def train(texts: Iterable[str]) -> PreTrainedTokenizerBase:
    """A tokenizer of `VOCABULARY` tokens learned from `texts`, which must contain the step tag often enough
    for it to become one token."""
    return Qwen2Tokenizer().train_new_from_iterator([texts], VOCABULARY, show_progress=False)
