"""Replies without a marked answer: what they are, and how they are compared."""

import pytest

import unprm
from unprm.answers.kinds import json_answer
from unprm.errors import NoAnswer
from unprm.wire import VoteResponse


def voted(*texts: str) -> VoteResponse:
    return unprm.vote(None, list(texts), "majority")


SHORT = [
    (["False", "True", "True."], "True", 2),
    (["London", "Paris", "Paris"], "Paris", 2),
    (["(A)", '"B"', '"(B)"'], "B", 2),
    (["Label: ham", "Label: spam", "label: Spam"], "spam", 2),
    (["Winner: Bob", "Loser: Bob", "Winner: Bob."], "Winner: Bob", 2),
    (["Seven Days Battles", "Battle of Manila (1762)", "The Seven Days Battles."], "Seven Days Battles", 2),
    (["2009", "In 2009", "2009."], "2009", 2),
    (["5 apples", "5", "6"], "5 apples", 2),
    (["March 3, 2020", "3 March 2020", "march 3 2020"], "March 3, 2020", 2),
    (["C#", "C++", "c++"], "C++", 2),
    (["B", "A, B", "a, b"], "A, B", 2),
    (["- red\n- blue", "red, blue", "blue, red"], "red, blue", 2),
    (["**Yes**", "No", "Yes, both are types of plant."], "Yes", 2),
    (["<think>Is it so?</think>No", "Yes", "no"], "No", 2),
    (["World War I", "world war i", "World War II"], "World War I", 2),
    (["нет", "Нет.", "да"], "нет", 2),
    (["巴黎", "伦敦", "巴黎。"], "巴黎", 2),
    (["mah", "ham", "ham"], "ham", 2),
    (["\\boxed{True}", "true", "False"], "True", 2),
]


@pytest.mark.parametrize(("texts", "answer", "count"), SHORT)
def test_short_replies_are_answers(texts: list[str], answer: str, count: int) -> None:
    found = voted(*texts)
    assert (found.answer, found.candidates[0].count, found.compared_as) == (answer, count, "short_text")


@pytest.mark.parametrize(
    "text",
    [
        "I can't tell.",
        "See whether it is so.",
        "Paris. It was founded by the Parisii.",
        "What?",
        "As follows:",
        "x" * 61,
        "one two three four five six seven eight nine",
        "if x:\n    y",
        "def f(): return {}",
        "First line\nSecond line",
        "No\nThat is because nobody has shown it.",
    ],
)
def test_a_sentence_or_a_long_text_is_no_short_answer(text: str) -> None:
    with pytest.raises(NoAnswer):
        voted(text, text)


def test_one_short_reply_among_texts_is_no_answer() -> None:
    with pytest.raises(NoAnswer):
        voted("Paris", "I can't tell.", "It may be London.")
    found = voted("The answer is 5.", "I can't tell.", "Paris")
    assert (found.answer, found.compared_as, found.without_answer_count) == ("5", "stated", 2)


def test_an_answer_that_is_sent_joins_those_that_are_read() -> None:
    found = unprm.vote(None, [{"text": "long ago", "answer": "paris"}, "London", "Paris."], "majority")
    assert (found.answer, found.candidates[0].count) == ("paris", 2)


def test_an_extraction_that_is_asked_for_finds_no_others() -> None:
    with pytest.raises(NoAnswer):
        unprm.vote(None, ["True", "True"], "majority", extraction="boxed")


@pytest.mark.parametrize(
    ("texts", "answer", "count"),
    [
        (['{"label": "ham"}', '{"label":"spam"}', '{ "label": "spam" }'], '{"label":"spam"}', 2),
        (["[1, 2]", "[2, 1, 3]", "[2,1,3]"], "[2,1,3]", 2),
        (['{"a": 1}', '{"b": 2, "a": 1.0}', '{"a": 1, "b": 2.0}'], '{"a":1,"b":2}', 2),
        (['{"a": "1"}', '```json\n{"a": 1}\n```', '{"a": 1}', "Sorry."], '{"a":1}', 2),
        (['{"reasoning": "r", "answer": 4}', '{"answer": 5}', '{"reasoning": "s", "answer": 5.0}'], "5", 2),
    ],
)
def test_json_is_compared_by_its_values(texts: list[str], answer: str, count: int) -> None:
    found = voted(*texts)
    assert (found.answer, found.candidates[0].count) == (answer, count)
    assert found.compared_as == ("stated" if answer == "5" else "json")


SCHEMA = {
    "properties": {"tags": {"$ref": "#/$defs/tags"}, "rank": {"type": "array"}},
    "$defs": {"tags": {"type": "array", "uniqueItems": True}},
}


def test_lists_are_in_order_unless_the_schema_calls_their_items_unique() -> None:
    one, other = '{"tags": ["b", "a"], "rank": [2, 1]}', '{"tags": ["a", "b"], "rank": [2, 1]}'
    assert json_answer(one) != json_answer(other)
    assert json_answer(one, SCHEMA) == json_answer(other, SCHEMA) == '{"rank":[2,1],"tags":["a","b"]}'
    assert json_answer(one, SCHEMA, ["/tags"]) == json_answer(other, SCHEMA, ["/tags"]) == '["a","b"]'
    assert json_answer("[2, 1]", {"uniqueItems": True}) == "[1,2]"
    for odd in (7, [], {"properties": 3, "items": 4}, {"properties": {"tags": {"$ref": "#/x"}}}, {"$ref": "#/$ref"}):
        assert json_answer(one, odd) == json_answer(one)


def test_pointers_pick_what_is_compared() -> None:
    text = '{"label": "spam", "score": {"a/b": [0.5, 7.0]}}'
    assert json_answer(text, None, ["/label"]) == '"spam"'
    assert json_answer(text, None, ["/score/a~1b/1"]) == "7"
    assert json_answer(text, None, ["/label", "/score/a~1b/0"]) == '{"/label":"spam","/score/a~1b/0":0.5}'
    for missing in (
        "/lable",
        "/label/x",
        "/score/a~1b/2",
        "/score/a~1b/x",
        "/score/a~1b/-1",
        "/score/a~1b/01",
        "/score/a~1b/١",
    ):
        assert json_answer(text, None, [missing]) is None


@pytest.mark.parametrize("text", ["7", '"a"', "{", "[1, NaN]", '{"a":' * 300, "Here: {}", "{} {}", ""])
def test_what_is_no_json_object_or_array_is_none(text: str) -> None:
    assert json_answer(text) is None


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("= 150", "150"),
        ("He drives 3 hours.\nTotal: 150", "150"),
        ("Therefore he travels 150 miles", "150 miles"),
        ("He drives on. It travels $150$ miles.", "150 miles"),
        ("3 * 50 = 150", "150"),
        ("So she pays $18.", "$18"),
        ("Thus, the value of a + b is -3.", "-3"),
        ("**Step 2:** In total, he spent $200 + $600 = $800 on ties.", "$800"),
        ("There were 54 - 30 = 24 more pink flamingos.", "24"),
        ("Thus $x = 5$.", "5"),
        ("Therefore, she bought 52 more tins of cat food than dog food.", "52"),
        ("So, there are 8 bars in a box.", "8 bars"),
        ("The cost per pair, which is what we need, is $180 / 90 = $2.", "$2"),
        ("To find how many more he needs at least: 3 \\times 5 hours = 15 hours", "15 hours"),
        (r"The mean is $\frac{1 + 2014}{2} = \frac{2015}{2}$.", r"\frac{2015}{2}"),
    ],
)
def test_the_result_of_the_last_sentence_is_read_where_nothing_is_stated(text: str, answer: str) -> None:
    found = voted(text, "I can't tell.", text)
    assert (found.answer, found.candidates[0].count, found.compared_as) == (answer, 2, "stated")
    assert found.read_from == "last_sentence"
    joined = voted(text, f"The answer is {answer}.", "I can't tell.")
    assert (joined.candidates[0].count, joined.read_from) == (2, "last_sentence")


def test_the_last_sentence_is_not_read_where_most_state_an_answer() -> None:
    stated = [rf"The answer is \boxed{{{number}}}." for number in (1, 2, 3)]
    last = ["So the total is = 2", "We add them.\nTotal: 2"]
    assert voted(*stated, *last).without_answer_count == 2
    assert voted(*stated[:2], *last).without_answer_count == 0


@pytest.mark.parametrize(
    "text",
    [
        "The war, as it is told, began in 1732.",
        "It has 12 employees.",
        "Is it 5?",
        "It is not 5.",
        "Therefore a = 1 and b = 2.",
        "So x = 5 or 6.",
        "We divide this by 12.",
        "The minimum is reached when x = 3.",
        "So it is about 5.",
        "Total: 150\nNow I check it.",
        "Therefore there are 5, as was shown before.",
        "So each is at least x = 5.",
        "So there are 2 roots for which a + 5b = 0 has a solution.",
        "So we set n / 2 * 7 = 21 and solve for n.",
        "So we check 2 * 3 = 6.",
        "So he walks about 2 * 3 = 6 miles.",
        "So he is one of 3 who came to see the show that was on in the town.",
    ],
)
def test_other_numbers_in_the_last_sentence_are_no_results(text: str) -> None:
    with pytest.raises(NoAnswer):
        voted(text, text)


def test_one_result_among_texts_is_no_answer() -> None:
    with pytest.raises(NoAnswer):
        voted("Therefore it is 5.", "I can't tell.", "It may be so.")
