"""Best-of-N behind OpenAI's chat API: samples candidates from another server, votes, answers with the winner."""
