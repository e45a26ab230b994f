"""Texts of others in a conversation: marked as material, and unable to speak as anyone.

A chat template joins messages with special tokens, and many servers look for these in the messages, too. A text that
contains one could end its message and begin another role's. They are broken up here by one rule for all vocabularies.
"""

import hmac
import re
import secrets

_OPENING = re.compile(
    r"[<＜﹤](?=[^\s\d=])|[\[［](?=[/|~A-Za-z_]{2})|\](?=[~!])|"
    r"\\boxed(?=\{\W*(?:text\{\s*)?(?:correct|incorrect|(?:yes|no)\b))",
    re.IGNORECASE,
)
"""Where a special token may begin: `<|im_end|>`, `</s>`, `<｜User｜>`, `[INST]`, `[|user|]`, `]~b]`; and the forms of
the brackets that normalization (NFKC) turns into them. Also where the verdict of a check would, if it were quoted."""
_SECRET = secrets.token_bytes(32)


def plain(text: str) -> str:
    """The text with a space after whatever may begin a special token, a mark or a verdict."""
    return _OPENING.sub(r"\g<0> ", text)


def code(problem: str) -> str:
    """What marks the problem and its solutions in this process: 16 hexadecimal digits that nobody can guess."""
    return hmac.digest(_SECRET, problem.encode(), "sha256").hex()[:16]
