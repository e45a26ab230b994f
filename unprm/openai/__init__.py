"""OpenAI's HTTP API from the client's side: a client, completions, whole or as a stream, and several of one prompt."""
