"""The reasoner's calculator, on the digits of a tokenizer."""

import pytest

from training.smol.calculator import Calculator


class Characters:
    """A tokenizer with a token for each character."""

    def convert_tokens_to_ids(self, tokens):
        return [ord(token) for token in tokens]

    def decode(self, ids):
        return "".join(map(chr, ids))

    def encode(self, text, add_special_tokens):
        return [ord(character) for character in text]


def follow(text, drawn):
    ids = Calculator(Characters())(list(map(ord, text)), ord(drawn))
    return "".join(map(chr, ids))


@pytest.mark.parametrize(
    ("text", "drawn", "written"),
    [
        ("Ann has 3 + 4 = ", "9", "7"),
        ("First line: 1 + 1 = 2\n51 - 91 = ", "4", "-40"),
        ("She sold 48/2=", "3", "24"),
        ("It costs $3 x $4 = $", "1", "12"),
        ("(3 + 5) / 3 = ", "2", "2.67"),
        ("3 + 4 = ", "a", "a"),  # no number begins
        ("3 + 4 = 1", "2", "2"),  # it has begun
        ("She has ", "3", "3"),
        ("x = ", "3", "3"),
        ("3 / 0 = ", "3", "3"),
    ],
)
def test_a_result_is_that_of_the_expression_before(text, drawn, written):
    assert follow(text, drawn) == written
