"""Best-of-N behind OpenAI's chat API: samples candidates of another server, votes, answers with the elected one."""
