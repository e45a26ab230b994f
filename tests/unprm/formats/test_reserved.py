"""No text of a problem or a step becomes a token of the template's, the family's step tag or an added token."""

import json

import pytest
from tokenizers import AddedToken, Tokenizer, models

from tests import checkpoints
from tests.support import TEST_DATA
from tests.unprm.formats.hostile import check_reserved
from unprm import mini
from unprm.checkpoints.files import load_tokenizer
from unprm.formats.pieces import Pieces, plain
from unprm.formats.registry import families
from unprm.formats.unprm import PrmConfig, UnprmFormat
from unprm.types import Prompt

TOOL = AddedToken("<tool_call>", special=False, normalized=False)


def format_of(family: str, tmp_path):
    """The format of a tiny model whose vocabulary also has an added token that is no special one."""
    place = checkpoints.write(family, tmp_path / family)
    tokenizer = load_tokenizer(place)
    tokenizer.add_tokens([TOOL])
    return families()[family.partition("-qwen")[0]].build(tokenizer, place)


@pytest.mark.parametrize("family", [*checkpoints.PUBLISHED, *checkpoints.VARIANTS])
def test_a_reserved_token_s_name_is_spelled(family, tmp_path):
    form = format_of(family, tmp_path)
    check_reserved(form)
    call = form.pieces.tokenizer.token_to_id(TOOL.content)
    assert call not in form.encode(TOOL.content, [TOOL.content]).ids
    if form.tag and family != "outcome":  # in a rendered prompt it is what it says
        assert call in form.tokenize(Prompt(f"a {TOOL.content} b"))


@pytest.mark.parametrize("tag", ["ş", " +"])
def test_a_step_tag_s_text_is_spelled(base, tag):
    tokenizer = load_tokenizer(base)
    form = UnprmFormat(tokenizer, PrmConfig.for_base(tokenizer, "m", ".", step_tag=tag))
    check_reserved(form)
    assert form.text(form.encode("x", [f"a{tag}b"])) == f"x\na{tag}b{tag}"


@pytest.mark.parametrize("characters", [8, 8192, 8193])
def test_a_text_has_the_same_ids_beside_others_whatever_their_length(characters):
    pieces = Pieces(checkpoints.bytelevel())
    texts = ["<tool_call>", "1 + 1", "ş" * (characters - 16)] if characters > 16 else ["1 + 1", ""]
    assert pieces.encode(texts) == [pieces.encode([text])[0] for text in texts]


def test_a_tag_of_one_byte_is_text():
    """No other tokens say it."""
    pieces = Pieces(checkpoints.bytelevel())
    plus = pieces.single("+")
    pieces.reserve(plus)
    assert pieces.encode(["1+1"])[0][1] == plus


@pytest.mark.parametrize("make", [checkpoints.bytelevel, checkpoints.sentencepiece])
def test_space_and_single_letters_of_added_tokens_are_text(make):
    """As many vocabularies write runs of spaces; and some the letters that their bytes lack."""
    tokenizer = make()
    tokenizer.add_tokens([AddedToken("        ", normalized=False), AddedToken("÷", normalized=False), TOOL])
    text = "8        ÷ 2 <tool_call>"
    assert Pieces(tokenizer).encode([text.removesuffix(TOOL.content)]) == [
        tokenizer.encode(text.removesuffix(TOOL.content), add_special_tokens=False).ids
    ]
    assert tokenizer.token_to_id(TOOL.content) not in Pieces(tokenizer).encode([text])[0]


def test_what_merges_make_of_a_text_is_spelled_by_characters_or_bytes():
    """Vocabularies from SentencePiece have added tokens among their merges."""
    tokenizer = checkpoints.sentencepiece()
    name = "Step"
    tokenizer.add_special_tokens([name])
    pieces = Pieces(tokenizer)
    made = [pieces.tokenizer.id_to_token(token) for token in pieces.encode(["Step кик"])[0]]
    assert made == ["▁", "S", "t", "e", "p", "▁ки", "к"]
    pieces.reserve(tokenizer.token_to_id("к"))
    made = [pieces.tokenizer.id_to_token(token) for token in pieces.encode(["кк"])[0]]
    assert made == ["▁к", "<0xD0>", "<0xBA>"]


def test_unknown_characters_stay_unknown():
    words = Tokenizer(models.BPE(vocab={"<unk>": 0, "a": 1, "<": 2, "u": 3}, merges=[], unk_token="<unk>"))
    words.add_special_tokens(["<unk>"])
    assert Pieces(words).encode(["a😀<"]) == [[1, 0, 2]]


def test_ordinary_text_keeps_its_ids():
    """Of real problems and steps, in tiny vocabularies of both kinds and that of the embedded model."""
    rows = [
        json.loads(line)
        for name in ("gsm8k", "math")
        for line in (TEST_DATA / "processbench" / f"{name}.jsonl").read_text("utf-8").splitlines()
    ]
    texts = [text for row in rows for text in (row["problem"], *row["steps"])]
    for tokenizer in (checkpoints.bytelevel(TOOL), checkpoints.sentencepiece(), load_tokenizer(mini.BASE)):
        expected = [encoding.ids for encoding in plain(tokenizer).encode_batch(texts, add_special_tokens=False)]
        assert Pieces(tokenizer).encode(texts) == expected
