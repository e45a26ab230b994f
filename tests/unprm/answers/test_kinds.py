"""Replies without a marked answer: what they are, and how they are compared."""

import time
from collections.abc import Callable

import pytest

import unprm
from unprm.answers.kinds import Schema, canonical_json, json_answer
from unprm.errors import NoAnswer
from unprm.wire import VoteResponse


def voted(*texts: str, problem: str | None = None, **settings: str) -> VoteResponse:
    return unprm.vote(problem, list(texts), "majority", **settings)


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


SCHEMA = Schema(
    {
        "properties": {"tags": {"$ref": "#/$defs/tags"}, "rank": {"type": "array"}},
        "$defs": {"tags": {"type": "array", "uniqueItems": True}},
    }
)


def test_lists_are_in_order_unless_the_schema_calls_their_items_unique() -> None:
    one, other = '{"tags": ["b", "a"], "rank": [2, 1]}', '{"tags": ["a", "b"], "rank": [2, 1]}'
    assert json_answer(one) != json_answer(other)
    assert json_answer(one, SCHEMA) == json_answer(other, SCHEMA) == '{"rank":[2,1],"tags":["a","b"]}'
    assert json_answer(one, SCHEMA, ["/tags"]) == json_answer(other, SCHEMA, ["/tags"]) == '["a","b"]'
    assert json_answer("[2, 1]", Schema({"uniqueItems": True})) == "[1,2]"
    for odd in (7, [], {"properties": 3, "items": 4}, {"properties": {"tags": {"$ref": "#/x"}}}, {"$ref": "#/$ref"}):
        assert json_answer(one, Schema(odd)) == json_answer(one)


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


@pytest.mark.parametrize(
    ("sent", "written"),
    [
        (
            [1.0, 2, 1e20, 10**20, -0.0, 0.5, True, None],
            "[1,2,100000000000000000000,100000000000000000000,0,0.5,true,null]",
        ),
        ([1e21, 10**21, 10**22, 1e308, -1e308], "[1e+21,1e+21,1e+22,1e+308,-1e+308]"),
        ([10**21 + 1, 10**400], f"[{10**21 + 1},{10**400}]"),
        ({"b": "é\n😀", "a": {"d": [], "c": {}}}, '{"a":{"c":{},"d":[]},"b":"é\\n😀"}'),
    ],
)
def test_equal_values_have_one_text_which_is_not_much_longer(sent: object, written: str) -> None:
    assert canonical_json(sent) == written


def test_pointers_to_the_same_values_make_no_long_answer() -> None:
    text, pointers = '{"a":' * 60 + f'"{"x" * 9000}"' + "}" * 60, ["/a" * depth for depth in range(1, 61)]
    assert json_answer(text, None, pointers[:4]) is not None
    assert json_answer(text, None, pointers) is None


def _enum(size: int) -> tuple[str, Schema]:
    return f"[{'1,' * 2000}1]", Schema({"items": {"$ref": "#/$defs/d"}, "$defs": {"d": {"enum": [*range(size)]}}})


_OBJECT = '{"a":1},'


def _path(size: int) -> tuple[str, Schema]:
    items = {"properties": {"a": {"$ref": "#/a" + "/a" * size}}}
    return f"[{_OBJECT * 2000}1]", Schema({"items": items})


@pytest.mark.parametrize("make", [_enum, _path])
def test_a_schema_costs_no_more_with_each_item(make: Callable[[int], tuple[str, Schema]]) -> None:
    def seconds(size: int) -> float:
        text, schema = make(size)
        begun = time.process_time()
        json_answer(text, schema)
        return time.process_time() - begun

    assert seconds(50_000) < 4 * max(seconds(5), 0.01)


def test_lists_in_lists_are_put_in_order_once() -> None:
    def seconds(depth: int) -> float:
        schema = {"uniqueItems": True, "items": {"$ref": "#/$defs/list"}}
        text = "[" * depth + ",".join(map(str, range(20_000))) + "]" * depth
        begun = time.process_time()
        assert json_answer(text, Schema(schema | {"$defs": {"list": schema}})) is not None
        return time.process_time() - begun

    assert seconds(150) < 4 * max(seconds(2), 0.01)


@pytest.mark.parametrize("text", ["7", '"a"', "{", "[1, NaN]", '{"a":' * 300, "Here: {}", "{} {}", ""])
def test_what_is_no_json_object_or_array_is_none(text: str) -> None:
    assert json_answer(text) is None


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("He drives 3 hours.\nTotal: 150", "150"),
        ("Therefore he travels 150 miles in 3 hours.", "150"),
        ("He drives on. It travels $150$ miles.", "150"),
        ("3 * 50 = 150, which he drives in 3 hours", "150"),
        ("So she pays $18.", "$18"),
        ("Thus, the value of a + b is -3.", "-3"),
        ("**Step 2:** In total, he spent $200 + $600 = $800 on ties.", "$800"),
        ("Thus $x = 5$.", "5"),
        (r"The mean is $\frac{1 + 2014}{2} = \frac{2015}{2}$.", r"\frac{2015}{2}"),
        ("So it takes 9 hours (6300 / 700).", "9"),
        ("<think>It is 7.</think> So it is 8.", "8"),
        ("The king lives there, so it is Paris.", "Paris"),
        ("We expand: (x+1)^2 = x^2 + 2x + 1", "x^2 + 2x + 1"),
        ("So the derivative is 3x^2.", "3x^2"),
        ("The area is 36 cm^2.", "36"),
        ("The smallest value of f(2007) is 2007.", "2007"),
        ("Thus x = 3 or x = -3.", "x = 3 or x = -3"),
        ("So we get $x=2$ and $y = 5$.", "x=2 and y = 5"),
        ("It follows that x = ±5.", "±5"),
        ("Ten days later it is 4 January 2024.", "4 January 2024"),
        ("We saw last week that the film ends at 9:30 pm.", "9:30 pm."),
        ("**Step 2:** In total, he walks 800 miles.", "800"),
        ("So 3 hours bring her **40 miles** further in these 3 hours, of 41.", "40"),
        ("She has 24 marbles in 3 may boxes.", "24"),
    ],
)
def test_a_weak_reading_counts_with_a_witness(text: str, answer: str) -> None:
    alone = voted(text, "I can't tell.", r"\boxed{77}")
    assert (alone.answer, alone.without_answer_count) == ("77", 2)
    weak = voted(text, "I can't tell.", text, problem="How far in 3 hours?")
    assert (weak.answer, weak.candidates[0].count, weak.compared_as, weak.read_from) == (answer, 2, "stated", "weak")
    witnessed = voted(text, f"The answer is {answer}.", "I can't tell.", problem="How far in 3 hours?")
    assert (witnessed.candidates[0].count, witnessed.read_from) == (2, None)


def test_a_stated_answer_is_no_weak_one() -> None:
    """Which the reply has beside it."""
    assert voted(r"\boxed{5} So it is 6.", "So it is 6.", "So it is 7.").without_answer_count == 2


def test_whoever_asks_for_stated_answers_gets_no_others() -> None:
    with pytest.raises(NoAnswer):
        voted("So it is 5.", "So it is 5.", extraction="stated")


@pytest.mark.parametrize(
    ("texts", "answer", "count"),
    [
        (["False", "True", "The statement is false."], "False", 2),
        (["Lyon", "Paris", "The capital of France is Paris."], "Paris", 2),
        (["The capital of France is Paris.", "Paris", "I can't tell, it was long ago."], "Paris", 2),
    ],
)
def test_short_texts_are_witnesses(texts: list[str], answer: str, count: int) -> None:
    found = voted(*texts)
    assert (found.answer, found.candidates[0].count) == (answer, count)


def test_long_texts_do_not_elect_how_they_end() -> None:
    with pytest.raises(NoAnswer):
        voted(*["This is long. Good luck!"] * 3)


@pytest.mark.parametrize("more", [{}, {"extraction": "auto"}])
def test_letters_are_read_if_the_problem_lists_options(more: dict[str, str]) -> None:
    texts = ["C", "(B) 2/3", "The answer is B) 2/3."]
    found = voted(*texts, problem="Which is largest?\nA) 0.5\nB) 2/3\nC) 0.6", **more)
    assert found.answer == "C" if more else (found.answer, found.candidates[0].count) == ("B", 2)
    assert voted("14", "14", "B", problem="(A) 3 (B) 14 (C) 7").answer == "14"  # most choose no letter


def test_one_result_among_texts_is_no_answer() -> None:
    with pytest.raises(NoAnswer):
        voted("Therefore it is 5.", "I can't tell.", "It may be so.")
