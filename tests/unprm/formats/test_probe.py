"""The input format of probes: the base's own prompt, and text that tries to forge its tokens."""

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from transformers import PreTrainedTokenizerFast

from tests.tiny import write_probe
from unprm.checkpoints.files import load_tokenizer
from unprm.errors import InvalidRequest, ModelInvalid
from unprm.formats.probe import ProbeConfig, ProbeFormat
from unprm.formats.registry import read_config
from unprm.formats.unprm import CONFIG_NAME, PrmConfig

PROBLEM = "Problem: what is 12 + 34?"
STEPS = ["Step 1: 12 + 34 = 46.", "The answer is \\boxed{46}."]
CONFIG = ProbeConfig(name="p", base="b", before="<|endoftext|>what is\n", after="<|endoftext|>answer\n", layers=(1, 2))


@pytest.fixture(scope="session")
def words(base) -> PreTrainedTokenizerFast:
    return PreTrainedTokenizerFast.from_pretrained(base)


@pytest.fixture(scope="session")
def form(base) -> ProbeFormat:
    return ProbeFormat(load_tokenizer(base), CONFIG)


def test_ids_are_the_prompt_s_and_the_steps_with_their_separators(form, words):
    def ids(text):
        return words.encode(text, add_special_tokens=False)

    prompt = ids(CONFIG.before) + ids(PROBLEM) + ids(CONFIG.after)
    assert prompt.count(words.eos_token_id) == 2
    first, second = (ids(f"{step}\n\n") for step in STEPS)
    encoded = form.encode(PROBLEM, STEPS)
    assert list(encoded.ids) == prompt + first + second
    assert encoded.response == len(prompt)
    assert encoded.positions == (len(prompt + first) - 1, len(prompt + first + second) - 1)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(max_size=30), st.lists(st.text(max_size=30), min_size=1, max_size=5))
def test_whatever_the_text_each_step_has_tokens_and_no_special_one(form, words, problem, steps):
    encoded = form.encode(problem, [*steps, "<|endoftext|>"])
    bounds = [encoded.response - 1, *encoded.positions]
    assert all(before < after for before, after in pairwise(bounds))
    assert len(encoded.positions) == len(steps) + 1
    assert encoded.ids.count(words.eos_token_id) == 2
    assert encoded.positions[-1] == len(encoded.ids) - 1


def test_there_is_no_tag_to_score_a_prompt_at(form):
    with pytest.raises(InvalidRequest, match="family probe have no step tag"):
        form.at_tags(form.encode(PROBLEM, STEPS).ids)


def test_a_solution_must_have_something_before_it(base):
    config = CONFIG.model_copy(update={"before": "", "after": ""})
    with pytest.raises(ModelInvalid, match="probe p before and after a problem"):
        ProbeFormat(load_tokenizer(base), config)


@pytest.mark.parametrize(
    ("change", "message"),
    [({"layers": (2, 1)}, "layers must ascend, 2, 1 were given"), ({"layers": (1, 1)}, "must ascend"),
     ({"layers": (0,)}, "greater than or equal to 1"), ({"layers": ()}, "at least 1 item"),
     ({"measures": ("surprise",)}, "measures surprise are none of entropy"),
     ({"separator": ""}, "at least 1 character"), ({"family": "unprm"}, "'probe'")],
)  # fmt: skip
def test_a_configuration_that_means_nothing_is_refused(change, message):
    with pytest.raises(ValidationError, match=message):
        ProbeConfig(**CONFIG.model_dump() | change)


def test_a_configuration_on_disk_is_read_by_its_family(tmp_path: Path, base, adapter):
    place = write_probe(tmp_path / "probe", base=str(base))
    config = read_config(place)
    assert config == ProbeConfig(name="tiny-probe", base=str(base), before="", after="\n", layers=(1, 2))
    assert config.measures == ("surprisal_mean", "surprisal_max", "surprisal_sum", "surprisal_top3")
    assert isinstance(read_config(adapter), PrmConfig)
    with pytest.raises(ModelInvalid, match="/family: Input should be 'unprm'"):
        PrmConfig.read(place)
    (place / CONFIG_NAME).unlink()
    with pytest.raises(ModelInvalid, match=r"has no prm_config\.json"):
        read_config(place)
