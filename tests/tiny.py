"""A tiny random causal language model on disk, for tests of what loads, trains and scores models."""

import json
from pathlib import Path
from typing import Any

import torch
from gguf import MODEL_ARCH, GGUFWriter, TokenType, get_tensor_name_map
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file
from transformers import AutoConfig, Qwen2Config, Qwen2ForCausalLM

from research.mini import tokenizer
from unprm.checkpoints.files import load_base, load_tokenizer
from unprm.engines.torch.probe import ProbeHead
from unprm.formats.probe import ProbeConfig
from unprm.formats.unprm import PrmConfig

WORDS = "Problem: what is 12 + 34 - 5? Step 1: 12 + 34 = 46. Step 2: 46 - 5 = 41. The answer is \\boxed{41}."


def write_base(directory: Path, seed: int = 0, layers: int = 2, window: int = 256) -> Path:
    """Writes a Qwen2 of random weights and its tokenizer."""
    words = tokenizer.train([WORDS] * 20 + ["ş"] * 20)
    torch.manual_seed(seed)
    config = Qwen2Config(
        vocab_size=len(words),
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=window,
        initializer_range=0.2,  # large, so that scores differ visibly
        eos_token_id=words.eos_token_id,
        pad_token_id=words.pad_token_id,
        bos_token_id=None,
    )
    Qwen2ForCausalLM(config).save_pretrained(directory)
    words.save_pretrained(directory)
    return directory


def write_gguf(base: Path, file: Path) -> Path:
    """Writes such a base as a GGUF file, with the metadata that those of Qwen2.5 have and the last message of a chat as
    its prompt."""
    config = json.loads((base / "config.json").read_text())
    words = json.loads((base / "tokenizer.json").read_text())
    special = {each["content"]: each["id"] for each in words["added_tokens"]}
    ids = words["model"]["vocab"] | special
    ordered = sorted(ids, key=ids.__getitem__)
    writer = GGUFWriter(str(file), "qwen2")
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_freq_base(config["rope_parameters"]["rope_theta"])
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(ordered)
    writer.add_token_types([TokenType.CONTROL if word in special else TokenType.NORMAL for word in ordered])
    writer.add_token_merges([" ".join(pair) for pair in words["model"]["merges"]])
    writer.add_eos_token_id(config["eos_token_id"])
    writer.add_chat_template(r"{{ messages[-1].content + '\n' }}")
    names = get_tensor_name_map(MODEL_ARCH.QWEN2, config["num_hidden_layers"])
    for name, tensor in load_file(base / "model.safetensors").items():
        writer.add_tensor(names.get_name(name, (".weight", ".bias")), tensor.float().numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return file


def write_prm(directory: Path, name: str, seed: int = 0, window: int = 256, **layout: str) -> Path:
    """Writes a PRM without an adapter, on such a base; `layout` as in `PrmConfig.for_base`."""
    tokenizer = load_tokenizer(write_base(directory, seed, window=window))
    PrmConfig.for_base(tokenizer, name, ".", **layout).write(directory)
    return directory


def write_adapter(directory: Path, base: Path, seed: int, name: str, **options: Any) -> Path:
    """Writes a PRM adapter with random weights for a base beside it; `options`: further ones of `LoraConfig`."""
    torch.manual_seed(seed)
    given = {"r": 4, "target_modules": ["q_proj", "v_proj"], "init_lora_weights": False, "task_type": "CAUSAL_LM"}
    get_peft_model(load_base(base, torch.float32), LoraConfig(**given | options)).save_pretrained(str(directory))
    PrmConfig.for_base(load_tokenizer(base), name, f"../{base.name}").write(directory)
    return directory


def write_probe(directory: Path, base: str = "../base", seed: int = 0, **config: Any) -> Path:
    """Writes a probe of random weights beside its base; `config`: further fields of `ProbeConfig`."""
    given = {"name": "tiny-probe", "base": base, "before": "", "after": "\n", "layers": (1, 2)} | config
    made = ProbeConfig(**given)
    directory.mkdir()
    made.write(directory)
    torch.manual_seed(seed)
    hidden = AutoConfig.from_pretrained(directory / base).hidden_size
    head = ProbeHead(len(made.layers) * hidden, len(made.measures))
    for parameter in head.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    head.measures.weight.data /= 4  # surprisals of random models are large, and scores shall differ
    head.save(directory)
    return directory
