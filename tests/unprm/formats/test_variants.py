"""Families with models of several architectures or templates, and models that are published as adapters."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from tokenizers import Tokenizer, models
from transformers import AutoModelForCausalLM

from tests import checkpoints
from tests.checkpoints import OTHERS, PROBLEM, STEPS
from tests.server.harness import serving
from tests.support import columns
from tests.unprm.formats import references
from unprm.errors import ModelInvalid
from unprm.formats.chat import Chat, Conversation, VerdictChatFormat
from unprm.formats.family import Verdicts
from unprm.models.load import load_engine
from unprm.types import Encoded, Engine


def load(place: Path, **options: Any) -> Engine:
    return load_engine(str(place), device="cpu", **options)


def compare(engine: Engine, expected: references.Score) -> None:
    """Asserts that ids and scores are those of the authors' way."""
    solutions = [(PROBLEM, STEPS), *OTHERS]
    encoded = [engine.format.encode(*solution) for solution in solutions]
    for solution, item, values in zip(solutions, encoded, columns(engine.score(encoded)).values, strict=True):
        ids, scores = expected(*solution)
        assert list(item.ids) == ids
        assert values == pytest.approx(scores, abs=1e-5)


def adapter(base: Path, place: Path, **config: Any) -> Path:
    """Writes a random adapter of a base, as PEFT does."""
    torch.manual_seed(5)
    layers = ["q_proj", "v_proj", "down_proj"]
    network = get_peft_model(
        AutoModelForCausalLM.from_pretrained(base),
        LoraConfig(r=4, lora_alpha=8, target_modules=layers, task_type="CAUSAL_LM"),
    )
    for name, parameter in network.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.3)
    network.save_pretrained(place)
    path = place / "adapter_config.json"
    path.write_text(json.dumps(json.loads(path.read_text("utf-8")) | config), "utf-8")
    return place


def merged(base: Path, parts: Path, place: Path) -> Path:
    """The base with its adapter merged by PEFT, for the authors' way."""
    from peft import PeftModel

    network = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base), parts).merge_and_unload()
    shutil.copytree(base, place, ignore=shutil.ignore_patterns("*.safetensors"))
    network.save_pretrained(place)
    return place


@pytest.mark.parametrize("family", ["fover", "versaprm"])
def test_models_on_qwen_have_its_template(family, tmp_path):
    place = checkpoints.write(f"{family}-qwen", tmp_path / family)
    engine = load(place, family=family)
    compare(engine, getattr(references, family)(place))
    text = engine.format.text(engine.format.encode("p", ["a", "b"]))
    expected = {
        "fover": "a<|im_end|>\n<|im_start|>assistant\ncorrect<|im_end|>\n<|im_start|>user\nb<|im_end|>\n",
        "versaprm": "p \n\na \n\n\n\nb \n\n\n\n",
    }
    assert expected[family] in text


def test_a_template_that_adds_a_thought_to_the_last_answer_is_applied(tmp_path):
    place = checkpoints.write("fover-qwen3", tmp_path / "m")
    engine, expected = load(place, family="fover"), references.fover(place)
    for problem, steps in [(PROBLEM, STEPS), *OTHERS]:
        encoded = engine.format.encode(problem, steps)
        assert list(encoded.ids) == expected(problem, steps)[0]
        answers = [engine.format.text(Encoded(encoded.ids[index + 1 : index + 8], ())) for index in encoded.positions]
        assert answers == ["correct"] * len(steps)
    assert engine.format.text(encoded).count("<think>") == 1


THOUGHTS = [
    "",
    "<think>\n12 + 34 = 45?\n\nNo, 46.\n</think>\n\n",
    "<think>Hm.</think>",
    "12 + 34 = 45?</think>\n",
    "<think>A</think>B<think>C</think>",
]


@pytest.mark.parametrize("thought", THOUGHTS)
def test_thoughts_of_a_solution_are_where_the_template_has_them(thought, tmp_path):
    place = checkpoints.write("outcome", tmp_path / "m")
    with serving(load(place, family="outcome")) as running:
        for thoughts in ("leave_out", "score"):
            text = thought + "\n\n".join(STEPS)
            body = {"problem": PROBLEM, "solutions": [text], "thoughts": thoughts, "split": "paragraph"}
            (solution,) = running.post("/score_steps", body).json()["solutions"]
            assert thoughts == "score" or not any("think>" in step for step in solution["steps"])
            ids, scores = references.outcome(place)(PROBLEM, solution["steps"])
            assert solution["step_scores"] == pytest.approx(scores, abs=1e-5)
            sent = {"problem": PROBLEM, "solution": text, "thoughts": thoughts, "split": "paragraph"}
            assert running.post("/preview", sent).json()["token_ids"] == ids


def test_a_solution_forges_no_token_of_a_template_with_thoughts(tmp_path):
    form = load(checkpoints.write("outcome", tmp_path / "m"), family="outcome").format
    harmless = form.tokens(form.encode("p", ["a"]))
    for text in (
        "</think><think>",
        "a</think>b<think>c",
        "<think></think><|im_end|>",
        "<|im_start|>\ue000\ue002",
        "".join(map(chr, range(0xE000, 0xF900))) + "<|im_end|>",
    ):
        for problem, steps in ((text, ["a"]), ("p", [text])):
            tokens = form.tokens(form.encode(problem, steps))
            for mark in ("<think>", "</think>", "<|im_start|>", "<|im_end|>"):
                assert tokens.count(mark) == harmless.count(mark), (text, mark)


def test_space_around_a_text_and_tags_within_it_are_left_out_for_versaprm(tmp_path):
    form = load(checkpoints.write("versaprm", tmp_path / "m"), family="versaprm").format
    loose = form.encode(" p\n", ["a \n\n\n\nb\n", "\tc "])
    assert loose == form.encode("p", ["ab", "c"])


@pytest.mark.parametrize("family", ["granite", "versaprm"])
def test_an_adapter_alone_is_read_with_the_base_that_it_names(family, tmp_path):
    base = checkpoints.write(family, tmp_path / "base")
    parts = adapter(base, tmp_path / "parts")
    expected = getattr(references, family)(merged(base, parts, tmp_path / "merged"))
    engine = load(parts, family=family)
    compare(engine, expected)
    assert (engine.description.name, engine.description.base) == ("parts", "base")
    assert engine.description.adapter == "parts"
    given = load(base, adapter=str(parts), family=family)
    compare(given, expected)
    assert given.description.digest == engine.description.digest != load(base, family=family).description.digest


def test_granites_logits_are_divided_as_its_configuration_says(tmp_path):
    place = checkpoints.write("granite", tmp_path / "m")
    compare(load(place, family="granite"), references.granite(place))
    config = json.loads((place / "config.json").read_text("utf-8"))
    (place / "config.json").write_text(json.dumps(config | {"logits_scaling": 8.0}), "utf-8")
    compare(load(place, family="granite"), references.granite(place))


def refused(place: Path, pattern: str, **options: Any) -> None:
    with pytest.raises(ModelInvalid, match=pattern):
        load(place, **options)


def test_adapters_that_can_not_be_read_are_refused(tmp_path):
    base = checkpoints.write("versaprm", tmp_path / "base")
    parts = adapter(base, tmp_path / "parts")
    refused(parts, r"parts' \(no architecture\) has neither .* by --family how it is read: .*versaprm")
    refused(parts, "family eurus has no adapters", family="eurus")
    nameless = adapter(base, tmp_path / "nameless", base_model_name_or_path=None)
    refused(nameless, "has no base_model_name_or_path: give the base with --model", family="versaprm")
    lost = adapter(base, tmp_path / "lost", base_model_name_or_path="./gone")
    refused(lost, "'./gone' is not a directory here", family="versaprm")


def test_chats_need_the_tokens_of_their_template(tmp_path):
    place = checkpoints.write("versaprm", tmp_path / "m")
    refused(place, "has no chat template, which this family's input is made with", family="granite")
    refused(checkpoints.write("eurus", tmp_path / "qwen"), "' \\\\n\\\\n\\\\n\\\\n' is 3 tokens", family="versaprm")


def test_answers_that_the_vocabulary_does_not_tell_apart_are_refused():
    words = Tokenizer(models.WordLevel({"?": 0, "Y": 1}, "?"))
    words.add_special_tokens([*checkpoints.GRANITE])
    start, stop, end = checkpoints.GRANITE
    asked, answered = (f"{end}\n{start}{role}{stop}" for role in ("assistant", "user"))
    chat = Chat(answered, asked, answered, asked, end, strips=False)
    with pytest.raises(ModelInvalid, match=r"answers 'yes' and 'no' don't begin with a token each .* of family x"):
        VerdictChatFormat(words, "x", Conversation("{problem}{step}", "{step}", "yes", "no"), chat)
    form = VerdictChatFormat(words, "x", Conversation("{problem}{step}", "{step}", "Y", "no"), chat)
    assert form.readout == Verdicts(1, 0)
    with pytest.raises(ModelInvalid, match="separates messages by no token of its own"):
        VerdictChatFormat(
            words, "x", Conversation("{problem}{step}", "{step}", "Y", "no"), Chat("", ":", "", ":", "", True)
        )


@pytest.mark.parametrize(
    ("template", "pattern"),
    [
        ("{% for turn in messages %}{% if loop.index < 6 %}{{ turn.content }}{% endif %}{% endfor %}", "message once"),
        (
            "{% for turn in messages %}{{ loop.index }}<|eot_id|>{{ turn.content }}{% endfor %}",
            "treat all messages alike",
        ),
    ],
)
def test_a_template_that_ends_or_numbers_the_messages_is_refused(tmp_path, template, pattern):
    place = checkpoints.write("rlhflow", tmp_path / "m")
    (place / "chat_template.jinja").write_text(template, "utf-8")
    refused(place, pattern, family="rlhflow")


def test_a_template_that_says_todays_date_says_the_same_every_day(tmp_path):
    template = "{{ strftime_now('%d %b %Y') }}" + checkpoints.LLAMA_CHAT
    for family in ("rlhflow", "outcome"):
        place = checkpoints.write(family, tmp_path / family)
        (place / "chat_template.jinja").write_text(template, "utf-8")
        form = load(place, family=family).format
        assert form.text(form.encode("p", ["a"])).startswith("24 Jun 2025<|begin_of_text|>")
