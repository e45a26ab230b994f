#!/bin/bash
# Step scores, a vote and the gateway, by curl alone.
#
#   bash clients/examples/curl.sh [MODEL]
#
# MODEL is the upstream's model, for the gateway, which needs a server started with --upstream-url.
# UNPRM_CLIENT_URL is the server's address, UNPRM_CLIENT_KEY its API key if it asks for one.
set -euo pipefail

url=${UNPRM_CLIENT_URL:-http://127.0.0.1:8000}
model=${1:-Qwen/Qwen2.5-Math-7B-Instruct}
send=(curl --silent --show-error --fail-with-body --header 'Content-Type: application/json')
if [ -n "${UNPRM_CLIENT_KEY:-}" ]; then
    send+=(--header "Authorization: Bearer $UNPRM_CLIENT_KEY")
fi

"${send[@]}" "$url/score_steps" --data @- <<'END'
{"problem": "Zoe has 23 coins. Zoe buys 4 bags with 15 coins in each bag. How many coins does Zoe have now?",
 "solutions": ["Step 1: 4 * 15 = 60.\nStep 2: 23 + 60 = 83. The answer is \\boxed{83}."]}
END
echo

"${send[@]}" "$url/vote" --data @- <<'END'
{"problem": "Zoe has 23 coins. Zoe buys 4 bags with 15 coins in each bag. How many coins does Zoe have now?",
 "solutions": ["Step 1: 4 * 15 = 60.\nStep 2: 23 + 60 = 83. The answer is \\boxed{83}.",
               "Step 1: 4 * 15 = 50.\nStep 2: 23 + 50 = 73. The answer is \\boxed{73}.",
               "Step 1: 15 * 4 = 60.\nStep 2: 60 + 23 = 83. The answer is \\boxed{83}."]}
END
echo

"${send[@]}" "$url/v1/chat/completions" --data @- <<END
{"model": "$model",
 "messages": [{"role": "system", "content": "Put the answer in \\\\boxed{}."},
              {"role": "user", "content": "Zoe has 23 coins. Zoe finds 45 coins. How many coins does Zoe have now?"}],
 "unprm": {"strategy": "wrf", "budget": 4}}
END
echo
