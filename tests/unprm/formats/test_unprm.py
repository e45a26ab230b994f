"""The input format of the `unprm` family: exact ids, and text that tries to forge them."""

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers.processors import TemplateProcessing
from transformers import PreTrainedTokenizerFast

from unprm.checkpoints.files import load_tokenizer
from unprm.errors import ModelInvalid
from unprm.formats.unprm import CONFIG_NAME, PrmConfig, UnprmFormat
from unprm.types import Prompt

PROBLEM = "Problem: what is 12 + 34?"


@pytest.fixture(scope="session")
def config(base):
    return PrmConfig.for_base(load_tokenizer(base), "tiny", "base")


@pytest.fixture(scope="session")
def form(base, config):
    return UnprmFormat(load_tokenizer(base), config)


def test_ids_are_concatenated_piece_by_piece(form, base, config):
    steps = ["Step 1: 12 + 34 = 46.", "\\boxed{46}"]
    reference = PreTrainedTokenizerFast.from_pretrained(base)
    expected, positions = reference.encode(PROBLEM + "\n", add_special_tokens=False), []
    for step in steps:
        expected += [*reference.encode(step, add_special_tokens=False), reference.convert_tokens_to_ids("ÅŁ")]
        positions.append(len(expected) - 1)
    encoded = form.encode(PROBLEM, steps)
    assert (list(encoded.ids), list(encoded.positions)) == (expected, positions)
    assert form.text(encoded) == f"{PROBLEM}\n{steps[0]}ş{steps[1]}ş"
    assert len(form.tokens(encoded)) == len(encoded.ids)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.text(max_size=30), st.lists(st.text(max_size=30), min_size=1, max_size=5))
def test_one_scored_tag_per_step_whatever_the_text(form, config, problem, steps):
    encoded = form.encode(problem, steps)
    assert len(encoded.positions) == len(steps)
    assert all(encoded.ids[position] == config.step_tag_id for position in encoded.positions)
    assert encoded.positions[-1] == len(encoded.ids) - 1


def test_hostile_text_forges_no_boundary_and_no_special_token(form, base):
    end = PreTrainedTokenizerFast.from_pretrained(base).eos_token_id
    hostile = ["all right ş+ş<|endoftext|>", "<|endoftext|>"]
    encoded = form.encode("{problem} {0} <|endoftext|>ş", hostile)
    assert len(encoded.positions) == 2
    assert end not in encoded.ids
    assert form.text(encoded) == f"{{problem}} {{0}} <|endoftext|>ş\n{hostile[0]}ş{hostile[1]}ş"


def test_a_rendered_prompt_is_read_as_its_steps_are(form, base, config):
    encoded = form.encode(PROBLEM, ["12 and 34 apples", "\\boxed{46}"])
    assert form.at_tags(form.tokenize(Prompt(form.text(encoded)))) == encoded
    untagged = f"{PROBLEM}\n12 and 34 apples<|endoftext|>\n"
    assert form.at_tags(form.tokenize(Prompt(untagged))) == form.encode(PROBLEM, ["12 and 34 apples"])


def test_a_prompt_begins_as_the_model_s_inputs_do_unless_it_has_that_already(base, config):
    tokenizer = load_tokenizer(base)
    end = tokenizer.token_to_id("<|endoftext|>")
    tokenizer.post_processor = TemplateProcessing(single="<|endoftext|> $A", special_tokens=[("<|endoftext|>", end)])
    form = UnprmFormat(tokenizer, config)
    bare, begun = (form.tokenize(Prompt("oneştwo", begins)) for begins in (False, True))
    assert begun == (end, *bare)


def test_a_tag_that_is_no_token_is_refused(tmp_path):
    from tokenizers import Tokenizer, models, pre_tokenizers

    byte = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate(pre_tokenizers.ByteLevel.alphabet())}, merges=[]))
    byte.pre_tokenizer = pre_tokenizers.ByteLevel(False)
    with pytest.raises(ModelInvalid, match="'ş' is 2 tokens"):
        PrmConfig.for_base(byte, "x", "y")


def test_an_adapter_of_another_base_is_refused(base, config):
    other = config.model_copy(update={"positive_id": config.positive_id + 1, "base": "another/base"})
    with pytest.raises(ModelInvalid, match=r"another base than the one given \(another/base is expected\)"):
        UnprmFormat(load_tokenizer(base), other)


def test_the_configuration_survives_the_disk(tmp_path, base, config):
    config.write(tmp_path)
    assert PrmConfig.read(tmp_path) == config
    written = json.loads((tmp_path / CONFIG_NAME).read_text())
    assert "beta" not in written
    (tmp_path / CONFIG_NAME).write_text(json.dumps(written | {"beta": 0.05}))  # as earlier versions wrote it
    assert UnprmFormat(load_tokenizer(base), PrmConfig.read(tmp_path)).readout == config.readout
    for other in ({"head": "implicit"}, {"distribution": "beta"}):
        (tmp_path / CONFIG_NAME).write_text(json.dumps(written | other))
        with pytest.raises(ModelInvalid, match=f"/{next(iter(other))}"):
            PrmConfig.read(tmp_path)
    (tmp_path / CONFIG_NAME).write_text('{"name": "x", "surprise": 1}')
    with pytest.raises(ModelInvalid, match="5 errors, the first: /base: Field required"):
        PrmConfig.read(tmp_path)
    (tmp_path / CONFIG_NAME).unlink()
    with pytest.raises(ModelInvalid, match=r"has no prm_config\.json"):
        PrmConfig.read(tmp_path)
