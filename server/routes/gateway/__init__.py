"""Best-of-N behind OpenAI's and Anthropic's APIs: samples candidates from another server, votes, answers with the
winner."""
