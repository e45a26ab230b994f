"""Tiny random checkpoints of published PRM families: true architecture and layout on disk, true special tokens."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from safetensors.torch import save_file
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from transformers import (
    GraniteConfig,
    GraniteForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    LlamaForTokenClassification,
    MistralConfig,
    MistralForCausalLM,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForSequenceClassification,
)

from unprm.formats.registry import families

PUBLISHED = [name for name in families() if name not in ("unprm", "probe")]
"""The families of published PRMs."""
VARIANTS = ["fover-qwen", "fover-qwen3", "versaprm-qwen"]
"""Families on another architecture."""
PROBLEM = "Tom has 12 apples and buys 34 more.\nHow many are there?"
STEPS = ["12 + 34 = 46.", "Tom has 46 apples – all his own.", "The answer is \\boxed{46}"]
OTHERS = [
    ("What is 1 + 1?", ["1 + 1 = 3."]),
    ("What is 2 × 3?", ["It is 2 + 2 + 2.", "That is 6 😀.", "So", "the answer is 6."]),
    ("x", ["a\nb.", "c"]),
]
"""Further problems with the steps of a solution."""
WORDS = Regex(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
SHAPE = {
    "hidden_size": 64,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,  # of 32: vLLM's attention on a CPU takes no smaller ones
    "num_key_value_heads": 1,
    "max_position_embeddings": 512,
    "initializer_range": 0.25,  # large, so that scores differ visibly
}


def bytelevel(*added: AddedToken, further: Sequence[tuple[str, str]] = ()) -> Tokenizer:
    """Bytes and a few merges over line ends, as they are where steps meet, and `further` merges."""
    vocabulary = {c: k for k, c in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    merges = [("Ċ", "Ċ"), (".", "ĊĊ"), (".", "Ċ"), ("Ġ", "="), ("Ġ", "+"), *further]
    for merge in merges:
        vocabulary["".join(merge)] = len(vocabulary)
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(WORDS, "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=True)
    tokenizer.add_tokens(list(added))
    return tokenizer


def sentencepiece() -> Tokenizer:
    """Characters with `▁` for space, bytes for all others, as Mistral's."""
    vocabulary = {name: k for k, name in enumerate(["<unk>", "<s>", "</s>"])}
    vocabulary |= {f"<0x{byte:02X}>": 3 + byte for byte in range(256)}
    merges = [("▁", "▁"), ("▁", "к"), ("▁к", "и"), ("▁", "+"), ("▁", "-"), ("S", "t"), ("e", "p"), ("St", "ep")]
    for name in ["▁", *map(chr, range(33, 127)), "к", "и", *map("".join, merges)]:
        vocabulary[name] = len(vocabulary)
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges, byte_fallback=True, unk_token="<unk>"))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    tokenizer.add_special_tokens(["<unk>", "<s>", "</s>"])
    return tokenizer


def special(name: str) -> AddedToken:
    return AddedToken(name, special=True, normalized=False)


def _plain(name: str) -> AddedToken:
    return AddedToken(name, special=False, normalized=False)


QWEN = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
CHATML = (
    "{% if messages[0].role != 'system' %}<|im_start|>system\n"
    "Please reason step by step, and put your final answer within \\boxed{}.<|im_end|>\n{% endif %}"
    "{% for turn in messages %}<|im_start|>{{ turn.role }}\n{{ turn.content }}<|im_end|>\n{% endfor %}"
)
LLAMA = ("<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>")
LLAMA_CHAT = (
    "<|begin_of_text|>{% for turn in messages %}<|start_header_id|>{{ turn.role }}<|end_header_id|>\n\n"
    "{{ turn.content | trim }}<|eot_id|>{% endfor %}"
)


def _save_tokenizer(tokenizer: Tokenizer, directory: Path, template: str | None = None) -> int:
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, chat_template=template)
    fast.save_pretrained(directory)
    return tokenizer.get_vocab_size()


def _causal(network: PreTrainedModel, directory: Path) -> Path:
    network.save_pretrained(directory)
    return directory


def math_shepherd(directory: Path) -> Path:
    size = _save_tokenizer(sentencepiece(), directory)
    return _causal(MistralForCausalLM(MistralConfig(vocab_size=size, **SHAPE)), directory)


def eurus(directory: Path) -> Path:
    size = _save_tokenizer(bytelevel(*map(special, QWEN)), directory, CHATML)
    return _causal(Qwen2ForCausalLM(Qwen2Config(vocab_size=size, **SHAPE)), directory)


def _headed(directory: Path, architecture: str, tag: AddedToken, head: dict[str, torch.Tensor]) -> Path:
    """A decoder and a head's tensors in one file, and a `config.json` that names remote code, as published."""
    size = _save_tokenizer(bytelevel(*map(special, QWEN), tag), directory, CHATML)
    network = Qwen2ForCausalLM(Qwen2Config(vocab_size=size, bos_token_id=size - 4, **SHAPE))
    tensors = {f"model.{name}": tensor for name, tensor in network.model.state_dict().items()}
    save_file(tensors | head, directory / "model.safetensors", {"format": "pt"})
    config = network.config.to_dict() | {
        "architectures": [architecture],
        "auto_map": {"AutoConfig": "configuration_x.XConfig", "AutoModel": f"modeling_x.{architecture}"},
    }
    (directory / "config.json").write_text(json.dumps(config))
    return directory


def qwen_prm(directory: Path) -> Path:
    width = SHAPE["hidden_size"]
    head = {
        "score.0.weight": torch.randn(width, width) * 0.3,
        "score.0.bias": torch.randn(width) * 0.1,
        "score.2.weight": torch.randn(2, width) * 0.3,
        "score.2.bias": torch.randn(2) * 0.1,
    }
    return _headed(directory, "Qwen2ForProcessRewardModel", _plain("<extra_0>"), head)


def skywork(directory: Path) -> Path:
    head = {
        "v_head.summary.weight": torch.randn(1, SHAPE["hidden_size"]) * 0.2,
        "v_head.summary.bias": torch.randn(1) * 0.1,
    }
    return _headed(directory, "Qwen2ForPrmModel", special("<extra_0>"), head)


def actprm(directory: Path) -> Path:
    heads, width = 3, SHAPE["hidden_size"]
    shapes = {"nn1": (width, 128), "nn2": (128, 128), "nn_out": (128, 1)}
    head = {}
    for copy in ("model", "reg_model"):  # what the heads were at first is published beside them
        for name, shape in shapes.items():
            head[f"score.{copy}.{name}.weight"] = torch.randn(heads, *shape) * 0.15
            head[f"score.{copy}.{name}.bias"] = torch.randn(heads, shape[1]) * 0.1
    return _headed(directory, "Qwen2ForEnsemblePRM", special("<extra_0>"), head)


QWEN3_CHAT = """
{%- set seen = namespace(asked=-1) %}
{%- for turn in messages %}{% if turn.role == 'user' %}{% set seen.asked = loop.index0 %}{% endif %}{% endfor %}
{%- for turn in messages %}
{{- '<|im_start|>' + turn.role + '\\n' }}
{%- if turn.role != 'assistant' %}{{ turn.content }}
{%- else %}
{%- if loop.index0 > seen.asked %}
{%- set thought = turn.content.split('</think>')[0].split('<think>')[-1] if '</think>' in turn.content else '' %}
{{- '<think>\\n' + thought.strip('\\n') + '\\n</think>\\n\\n' }}
{%- endif %}
{{- turn.content.split('</think>')[-1].lstrip('\\n') }}
{%- endif %}
{{- '<|im_end|>\\n' }}
{%- endfor %}"""
"""Thoughts of the last answer stand before it, also none; those of earlier answers are left out."""


def outcome(directory: Path) -> Path:
    tokenizer = bytelevel(*map(special, QWEN), _plain("<think>"), _plain("</think>"))
    size = _save_tokenizer(tokenizer, directory, QWEN3_CHAT)
    config = Qwen3Config(vocab_size=size, num_labels=1, pad_token_id=size - 5, head_dim=32, **SHAPE)
    return _causal(Qwen3ForSequenceClassification(config), directory)


ANSWERED = "{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}"
DATED_CHAT = (
    "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\n"
    "Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n<|eot_id|>"
    + LLAMA_CHAT.removeprefix("<|begin_of_text|>")
    + ANSWERED
)
QWEN_CHAT = (
    "<|im_start|>system\nYou are Qwen, created by Alibaba Cloud. You are a helpful assistant.<|im_end|>\n"
    "{% for turn in messages %}<|im_start|>{{ turn.role }}\n{{ turn.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
GRANITE = ("<|start_of_role|>", "<|end_of_role|>", "<|end_of_text|>")
GRANITE_CHAT = (
    "<|start_of_role|>system<|end_of_role|>Knowledge Cutoff Date: April 2024.\n"
    "Today's Date: {{ strftime_now('%B %d, %Y') }}.\n"
    "You are Granite, developed by IBM. You are a helpful AI assistant.<|end_of_text|>\n"
    "{% for turn in messages %}<|start_of_role|>{{ turn.role }}<|end_of_role|>{{ turn.content }}<|end_of_text|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|start_of_role|>assistant<|end_of_role|>{% endif %}"
)
FOUR_LINES = (("ĊĊ", "ĊĊ"), ("Ġ", "ĊĊĊĊ"))
LONG = {"max_position_embeddings": 2048}


def fover(directory: Path) -> Path:
    size = _save_tokenizer(bytelevel(*map(special, LLAMA)), directory, DATED_CHAT)
    return _causal(LlamaForCausalLM(LlamaConfig(vocab_size=size, **SHAPE | LONG)), directory)


rlhflow = fover


def fover_qwen(directory: Path) -> Path:
    size = _save_tokenizer(bytelevel(*map(special, QWEN)), directory, QWEN_CHAT)
    return _causal(Qwen2ForCausalLM(Qwen2Config(vocab_size=size, **SHAPE | LONG)), directory)


def fover_qwen3(directory: Path) -> Path:
    tokenizer = bytelevel(*map(special, QWEN), _plain("<think>"), _plain("</think>"))
    size = _save_tokenizer(tokenizer, directory, QWEN3_CHAT)
    return _causal(Qwen2ForCausalLM(Qwen2Config(vocab_size=size, **SHAPE | LONG)), directory)


def granite(directory: Path) -> Path:
    size = _save_tokenizer(bytelevel(*map(special, GRANITE)), directory, GRANITE_CHAT)
    multipliers = {"embedding_multiplier": 3.0, "residual_multiplier": 0.6, "attention_multiplier": 0.1}
    shape = SHAPE | LONG | multipliers | {"logits_scaling": 4.0, "tie_word_embeddings": True}
    return _causal(GraniteForCausalLM(GraniteConfig(vocab_size=size, **shape)), directory)


def versaprm(directory: Path) -> Path:
    tokenizer = bytelevel(*map(special, LLAMA), further=FOUR_LINES)
    begin = [(LLAMA[0], tokenizer.token_to_id(LLAMA[0]))]
    tokenizer.post_processor = processors.TemplateProcessing(single=f"{LLAMA[0]} $A", special_tokens=begin)
    size = _save_tokenizer(tokenizer, directory)
    return _causal(LlamaForCausalLM(LlamaConfig(vocab_size=size, **SHAPE)), directory)


def versaprm_qwen(directory: Path) -> Path:
    size = _save_tokenizer(bytelevel(*map(special, QWEN), further=FOUR_LINES), directory)
    return _causal(Qwen2ForCausalLM(Qwen2Config(vocab_size=size, **SHAPE)), directory)


def trl(directory: Path) -> Path:
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=bytelevel(*map(special, LLAMA)), bos_token=LLAMA[0])
    tokenizer.save_pretrained(directory)
    return _causal(
        LlamaForTokenClassification(
            LlamaConfig(vocab_size=len(tokenizer), num_labels=2, step_separator="\n", **SHAPE)  # type: ignore[call-arg]
        ),
        directory,
    )


def write(family: str, directory: Path, seed: int = 0) -> Path:
    """Writes a checkpoint of a family by the function of its name; its weights depend on the seed."""
    torch.manual_seed(seed)
    directory.mkdir(parents=True)
    writer: Callable[[Path], Path] = globals()[family.replace("-", "_")]
    return writer(directory)
