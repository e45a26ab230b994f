"""OpenAI's HTTP API from the client's side: its objects, a client, and several completions of one prompt."""
