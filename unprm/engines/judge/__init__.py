"""Any language model behind OpenAI's chat API as the verifier of steps."""
