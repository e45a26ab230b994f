"""The chat layout of Qwen2 models: turns between `<|im_start|>` and `<|im_end|>`."""

from typing import ClassVar

from unprm.formats.pieces import Draft, PieceFormat

START, END = "<|im_start|>", "<|im_end|>"
SYSTEM = "Please reason step by step, and put your final answer within \\boxed{}."
"""The system turn that Qwen2.5-Math models are trained with."""


class ChatmlFormat(PieceFormat):
    """Begins every input with the system turn, and the problem as the user's turn."""

    marks: ClassVar[tuple[str, ...]] = (START, END)
    system = SYSTEM

    def opened(self, problem: str) -> Draft:
        """An input up to the mark that begins the assistant's turn."""
        start, end = [self.pieces.mark(START)], [self.pieces.mark(END)]
        system, user, between = self.pieces.encode([f"system\n{self.system}", f"user\n{problem}", "\n"])
        draft = Draft().add(start).add(system).add(end).add(between)
        return draft.add(start).add(user).add(end).add(between).add(start)

    def closed(self, draft: Draft) -> Draft:
        """The input with the assistant's turn ended."""
        (line,) = self.pieces.encode(["\n"])
        return draft.add([self.pieces.mark(END)]).add(line)
