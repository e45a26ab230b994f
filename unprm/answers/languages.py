"""How languages other than English announce an answer and write numbers. To add one, add its words."""

import re
import unicodedata
from collections.abc import Iterator

from unprm.answers.mathtext.words import words_in

# German, Dutch, Scandinavian, Finnish, Estonian; Spanish, French, Portuguese, Italian, Romanian; Polish, Czech, Slovak,
# South Slavic, Russian, Ukrainian, Bulgarian; Hungarian, Greek, Latvian, Lithuanian, Albanian, Basque, Welsh; Turkish,
# Azerbaijani, Uzbek, Kazakh, Kyrgyz; Indonesian, Malay, Filipino, Vietnamese; Swahili, Hausa, Igbo, Yoruba, Malagasy,
# Chichewa, Shona, Somali.
_NOUNS = words_in(
    """
    antwort antwoord svar vastaus vastus respuesta réponse reponse resposta risposta răspuns odpowiedź odpověď odpoveď
    odgovor одговор ответ відповідь отговор válasz απάντηση atbilde atsakymas përgjigje erantzuna ateb cevap cevab yanıt
    cavab javob жауап жооп jawaban jawapan sagot đáp.án đáp.số trả.lời jibu amsa azịza idahun ìdáhùn àdáhùn valiny
    yankho mhinduro jawaab
    """
)
# Words that no blank need precede. Chinese, Japanese, Korean, Thai, Burmese, Khmer; Bengali, Hindi, Marathi, Gujarati,
# Punjabi, Telugu, Kannada, Tamil, Malayalam, Sinhala; Arabic, Hebrew, Persian, Urdu, Amharic; Georgian, Armenian.
_JOINED_NOUNS = words_in(
    """
    答案 答え 正解 解答 回答 答复 答曰 答: 答： 정답 답변 답: 답은 คำตอบ အဖြေ ចម្លើយ উত্তর उत्तर जवाब જવાબ ਜਵਾਬ ਉੱਤਰ
    సమాధానం జవాబు ಉತ್ತರ விடை பதில் ഉത്തരം පිළිතුර إجابة اجابة جواب תשובה پاسخ መልስ პასუხი պատասխան
    """
)
_VERBS = words_in(
    """
    ist lautet beträgt wäre is är er on es sería est serait é seria è sarebbe este to brzmi je είναι adalah ialah ay
    ni là равен равна равно
    """
)
_JOINED_VERBS = words_in("是 为 為 等于 选 選 は 은 는 คือ হল হবে है هي هو היא הוא است")
QUESTIONS = words_in(
    """
    question q problem exercise user human input instruction example task 问题 題目 题目 问 問 質問 문제 질문 frage
    aufgabe pregunta problema domanda вопрос задача soal pertanyaan swali প্রশ্ন प्रश्न ప్రశ్న คำถาม โจทย์ سؤال
    """
)
"""What announces a question, before a colon."""
# Words that English does not have, of languages that write 3,5 for three and a half.
_DECIMAL_COMMA = words_in(
    """
    der die das und ist sind insgesamt antwort lautet el los las una respuesta en est les des au donc réponse della
    sono risposta il è são uma resposta het een zijn antwoord och är svar jest toplam adalah jawaban là
    """
)


def _any_of(words: frozenset[str]) -> str:
    return "|".join(sorted(words))


# A noun, and at once a value; or some words, and a colon, dash or verb.
_ANNOUNCEMENT = re.compile(
    rf"""
    (?: (?<!\w)(?:{_any_of(_NOUNS)}) | {_any_of(_JOINED_NOUNS)} )
    (?: (?=\s?[*_("]*[-$\\]*(?:[0-9]|[A-J]\b))
      | [^\n.。:：!?=0-9$\\]{{0,40}}?
        (?: (?<=[:：은]) | \s?[:：ঃ=] | \s[—–-](?=\s) | \b(?:{_any_of(_VERBS)})\b | {_any_of(_JOINED_VERBS)} )
        (?:\s(?:donc|also|daher|somit|quindi|então|entonces)\b)? )
    """,
    re.IGNORECASE | re.VERBOSE,
)
_FOUND_FAST = [noun.replace(".", " ") for noun in (*_NOUNS, *_JOINED_NOUNS)]
_LIKE_ASCII = re.compile(r"[^\D0-9]|[Ａ-Ｚａ-ｚ]")
_GROUPED = re.compile(r"([^0-9(\[{]*)([0-9]{1,3}(?:[. \u00a0\u202f][0-9]{3})+)(?:,([0-9]+))?([^0-9,.)\]}]*)")
_DECIMAL = re.compile(r"([^0-9(\[{]*[0-9]+),([0-9]{1,2}|[0-9]{4,}|(?<=\b0,)[0-9]+)([^0-9,.)\]}]*)")
_HAS_DECIMAL_COMMA = re.compile(rf"\b(?:{_any_of(_DECIMAL_COMMA)})\b|[а-яё]{{3}}|[α-ω]{{4}}", re.IGNORECASE)


def announcements(text: str) -> Iterator[re.Match[str]]:
    """From each noun that announces an answer to where the answer begins."""
    lower = text.lower()
    return _ANNOUNCEMENT.finditer(text) if any(noun in lower for noun in _FOUND_FAST) else iter(())


def with_digits(text: str) -> str:
    """The text with the digits of all scripts written 0 to 9, and wide letters as A to Z."""
    return text if text.isascii() else _LIKE_ASCII.sub(_ascii, text)


def _ascii(character: re.Match[str]) -> str:
    value = unicodedata.decimal(character[0], None)
    return chr(ord(character[0]) - ord("Ａ") + ord("A")) if value is None else str(value)


def with_decimal_point(answer: str, text: str) -> str:
    """The answer in a text with a number such as 1.234,5 written 1234.5; in a text of a language with a decimal comma,
    also 3,5 as 3.5 and 12.000 as 12000. Answers with brackets or several numbers are left alone."""
    if number := _GROUPED.fullmatch(answer):
        before, whole, decimals, after = number.groups()
        if decimals or whole.count(".") > 1 or ("." in whole and _HAS_DECIMAL_COMMA.search(text)):
            return before + re.sub(r"\D", "", whole) + (f".{decimals}" if decimals else "") + after
    elif (number := _DECIMAL.fullmatch(answer)) and _HAS_DECIMAL_COMMA.search(text):
        return f"{number[1]}.{number[2]}{number[3]}"
    return answer
