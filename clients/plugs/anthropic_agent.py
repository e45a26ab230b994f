"""Anthropic's client: an agent's loop through the gateway, with any upstream."""

from anthropic import Anthropic

client = Anthropic(base_url="http://127.0.0.1:8000", api_key="none")
numbers = {"a": {"type": "number"}, "b": {"type": "number"}}
tools = [{"name": "add", "input_schema": {"type": "object", "properties": numbers}}]
problem = (
    "Zoe has 23 coins. Zoe finds 45 coins. Zoe finds 67 coins. Zoe finds 89 coins. How many coins does Zoe have now?"
)
messages = [{"role": "user", "content": problem}]
while True:
    with client.messages.stream(model="reasoner", max_tokens=1000, messages=messages, tools=tools) as stream:
        answer = stream.get_final_message()
    messages.append({"role": "assistant", "content": answer.content})
    if answer.stop_reason != "tool_use":
        break
    calls = [block for block in answer.content if block.type == "tool_use"]
    results = [
        {"type": "tool_result", "tool_use_id": call.id, "content": str(sum(call.input.values()))} for call in calls
    ]
    messages.append({"role": "user", "content": results})
print(answer.content[-1].text)
