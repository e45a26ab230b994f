"""The tokenizer of the embedded model: byte-level BPE with Qwen2's splitting into words; every digit and `ş` are tokens
of their own."""

from collections.abc import Iterable

from transformers import PreTrainedTokenizerBase, Qwen2Tokenizer

VOCABULARY = 640


def train(texts: Iterable[str]) -> PreTrainedTokenizerBase:
    """Trains a tokenizer of `VOCABULARY` tokens on `texts`, which must contain the step tag often enough for it to
    become one token."""
    return Qwen2Tokenizer().train_new_from_iterator([texts], VOCABULARY, show_progress=False)
