"""A program in the place of a worker: it answers at once, dies, hangs, babbles, or reports that the computation was
killed for the CPU time it took, as the answer says."""

import sys
import time

PROGRAM = """
import json, signal, sys, time
print(json.dumps({"ready": True}), flush=True)
for line in sys.stdin:
    question = json.loads(line)
    answer = question["answer"]
    if "die" in answer or "sin" in answer: sys.exit(3)
    if "ln" in answer:
        print(json.dumps({"id": question["id"], "signal": int(signal.SIGPROF)}), flush=True)
        continue
    if "hang" in answer or "cos" in answer: time.sleep(1000)
    if "babble" in answer: print("{" * 10**6, flush=True)
    if "list" in answer: print("[1]", flush=True)
    for times in range(2 if "stutter" in answer else 1):
        key = {"key": "key of " + answer, "unitless": "", "as_text": False, "refused": False}
        print(json.dumps({"id": question["id"], **key}), flush=True)
"""
FAKE = [sys.executable, "-I", "-S", "-c", PROGRAM]


def soon(seconds=30.0):
    return time.monotonic() + seconds
