"""A model that adds numbers one after the other by a tool; of its candidates some go astray."""

from typing import Any

NUMBERS = (23, 45, 67, 89)
TASK = "Zoe has 23 coins. Zoe finds 45 coins. Zoe finds 67 coins. Zoe finds 89 coins. How many coins does Zoe have now?"
ADD = {"a": {"type": "number"}, "b": {"type": "number"}}
SCHEMA = {"type": "object", "properties": ADD, "required": ["a", "b"], "additionalProperties": False}
TOOLS = [{"type": "function", "function": {"name": "add", "parameters": SCHEMA, "strict": True}}]


def call(arguments: str, name: str = "add", id: str = "c") -> dict[str, Any]:
    """A tool call."""
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def calling(*calls: dict[str, Any], text: str | None = None, **more: Any) -> dict[str, Any]:
    """A message with tool calls."""
    return {"role": "assistant", "content": text, "tool_calls": list(calls), **more}


def adding(body: Any) -> dict[str, Any]:
    """The completion of a chat request: of each four candidates two add the next number to the sum so far, or state it
    if it is whole; one adds something else, and one writes broken arguments."""
    results = [message["content"] for message in body["messages"] if message["role"] == "tool"]
    done, total = len(results), int(float(results[-1])) if results else NUMBERS[0]
    number = NUMBERS[done + 1] if done + 1 < len(NUMBERS) else None
    if number is None:
        right = [{"role": "assistant", "content": f"The sum is {total}. The answer is {total}."}] * 2
    else:
        first = calling(call(f'{{"a": {total}, "b": {number}}}', id=f"call_{done}"), reasoning_content="It is my turn.")
        right = [first, calling(call(f'{{"b":{number}.0,"a":{total}}}', id=f"other_{done}"))]
    wrong = calling(call(f'{{"a": {total}, "b": 1}}', id="wrong"))
    broken = calling(call('{"a": 1', id="broken"))
    candidates = [wrong, *right, broken]
    choices = [
        {"index": index, "message": message, "finish_reason": "tool_calls" if "tool_calls" in message else "stop"}
        for index in range(body.get("n", 1))
        for message in [candidates[index % len(candidates)]]
    ]
    usage = {"prompt_tokens": 10, "completion_tokens": 5 * len(choices)}
    return {"id": "x", "object": "chat.completion", "created": 1, "model": "m", "choices": choices, "usage": usage}
