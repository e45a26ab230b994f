"""The engine on vLLM's pooling runner."""
