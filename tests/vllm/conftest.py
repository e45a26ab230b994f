"""What vLLM and the hub's library read from the environment when they are imported, before anything is."""

import os
import tempfile

os.environ |= {
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_LOGGING_LEVEL": "WARNING",
    "HF_ASSETS_CACHE": tempfile.mkdtemp(prefix="unprm-assets-"),
}
