"""How languages other than English announce an answer and write numbers. To add one, add its words."""

import re
import unicodedata
from collections.abc import Iterator

from unprm.answers.mathtext.words import words_in

# German, Dutch, Scandinavian languages, Finnish, Estonian; Spanish, French, Portuguese,
# Italian, Romanian; Polish, Czech, Slovak, South Slavic languages, Russian, Ukrainian, Bulgarian; Hungarian, Greek;
# Turkish, Azerbaijani, Uzbek, Kazakh; Indonesian, Malay, Filipino, Vietnamese; Swahili, Hausa, Igbo, Yoruba,
# Malagasy, Chichewa, Shona, Somali; Latvian, Lithuanian, Albanian, Basque, Welsh.
_NOUNS = words_in(
    """
    antwort antwoord svar vastaus vastus respuesta réponse reponse resposta risposta răspuns odpowiedź odpověď odpoveď
    odgovor одговор ответ відповідь отговор válasz απάντηση cevap cevab yanıt cavab javob жауап jawaban jawapan sagot
    jibu idahun ìdáhùn àdáhùn amsa azịza valiny yankho mhinduro jawaab жооп atbilde atsakymas përgjigje erantzuna ateb đáp.án đáp.số trả.lời
    """
)
_VERBS = words_in(
    """
    ist lautet beträgt wäre is är er on es sería est serait é seria è sarebbe este to brzmi je είναι adalah ialah ay
    ni là равен равна равно
    """
)
# No blank stands around these. Chinese, Japanese, Korean, Thai; Bengali, Hindi, Marathi, Gujarati, Punjabi, Telugu,
# Kannada, Tamil, Malayalam; Arabic, Hebrew, Persian, Urdu.
_JOINED_NOUNS = words_in(
    """
    答案 答え 正解 解答 回答 答复 答曰 答: 答： 정답 답변 답: 답은 คำตอบ উত্তর उत्तर जवाब જવાબ ਜਵਾਬ ਉੱਤਰ
    సమాధానం జవాబు ಉತ್ತರ விடை பதில் ഉത്തരം إجابة اجابة جواب תשובה پاسخ መልስ පිළිතුර პასუხი պատասխան အဖြေ ចម្លើយ
    """
)
_JOINED_VERBS = words_in("是 为 為 等于 选 選 は 은 는 คือ হল হবে है هي هو היא הוא است")
QUESTION = "|".join(
    sorted(
        words_in(
            """
            question q problem exercise user human input instruction example task 问题 問題 题目 題目 问 問 質問 문제 질문 frage aufgabe pregunta
            problema domanda вопрос задача soal pertanyaan swali প্রশ্ন प्रश्न ప్రశ్న คำถาม โจทย์ سؤال
            """
        )
    )
)
"""A regular expression: what announces a question."""
# Words that English does not have, of languages that write 3,5 for three and a half.
_DECIMAL_COMMA = words_in(
    """
    der die das und ist sind insgesamt antwort lautet el los las una respuesta en est les des au donc réponse della
    sono risposta il è são uma resposta het een zijn antwoord och är svar jest toplam adalah jawaban là
    """
)


def _announcement(nouns: frozenset[str], verb: str, before: str = "") -> str:
    """A noun, then some words and a colon, dash, equals sign or verb, or at once a value."""
    return rf"""
    {before}(?:{"|".join(sorted(nouns))})
    (?: (?=\s?[*_("]*[-$\\]*(?:[0-9]|[A-J]\b))
      | [^\n.。:：!?=0-9$\\]{{0,40}}? (?: (?<=[:：은]) | \s?[:：ঃ=] | \s[—–-](?=\s) | {verb} )
        (?:\s(?:donc|also|daher|somit|quindi|então|entonces)\b)? )
    """


_ANNOUNCEMENT = re.compile(
    _announcement(_NOUNS, rf"\b(?:{'|'.join(sorted(_VERBS))})\b", r"(?<!\w)")
    + "|"
    + _announcement(_JOINED_NOUNS, f"(?:{'|'.join(sorted(_JOINED_VERBS))})"),
    re.IGNORECASE | re.VERBOSE,
)
_ALL_NOUNS = [noun.replace(".", " ") for noun in (*_NOUNS, *_JOINED_NOUNS)]
_ASCII_NOUNS = [noun for noun in _ALL_NOUNS if noun.isascii()]
_LIKE_ASCII = re.compile(r"[^\D0-9]|[Ａ-Ｚａ-ｚ]")
_THOUSANDS = re.compile(r"([^0-9(\[{]*[0-9]{1,3}(?:[. \u00a0\u202f][0-9]{3})+)(,[0-9]+)?([^0-9,.)\]}]*)")
_DECIMAL = re.compile(r"([^0-9(\[{]*[0-9]+),([0-9]{1,2}|[0-9]{4,}|(?<=\b0,)[0-9]+)([^0-9,.)\]}]*)")
_HAS_DECIMAL_COMMA = re.compile(rf"\b(?:{'|'.join(sorted(_DECIMAL_COMMA))})\b|[а-яё]{{3}}|[α-ω]{{4}}", re.IGNORECASE)


def with_digits(text: str) -> str:
    """The text with the digits of all scripts written 0 to 9, and wide letters as A to Z."""
    return text if text.isascii() else _LIKE_ASCII.sub(_ascii, text)


def _ascii(character: re.Match[str]) -> str:
    value = unicodedata.decimal(character[0], None)
    return chr(ord(character[0]) - ord("Ａ") + ord("A")) if value is None else str(value)


def with_decimal_point(answer: str, text: str) -> str:
    """The answer in a text with a number such as 1.234,5 written 1234.5; in a text of a language with a decimal comma,
    also 3,5 as 3.5 and 12.000 as 12000. Answers with brackets or several numbers are left alone."""
    if "," not in answer and "." not in answer:
        return answer
    if number := _THOUSANDS.fullmatch(answer):
        before, after, decimals = number[1], number[3], (number[2] or "").replace(",", ".")
        if decimals or before.count(".") > 1 or ("." in before and _HAS_DECIMAL_COMMA.search(text)):
            return re.sub(r"[. \u00a0\u202f](?=[0-9]{3})", "", before) + decimals + after
    elif (number := _DECIMAL.fullmatch(answer)) and _HAS_DECIMAL_COMMA.search(text):
        return f"{number[1]}.{number[2]}{number[3]}"
    return answer


def announcements(text: str) -> Iterator[re.Match[str]]:
    """From each noun that announces an answer to where the answer begins."""
    lower = text.lower()
    nouns = _ASCII_NOUNS if lower.isascii() else _ALL_NOUNS
    return _ANNOUNCEMENT.finditer(text) if any(noun in lower for noun in nouns) else iter(())
