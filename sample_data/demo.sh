#!/bin/sh
# The main job, end to end, against the simulator: no key, no cost, nothing leaves this machine.
# `make demo` runs it; by hand: BIN=.venv/bin sh sample_data/demo.sh
set -eu

cd "$(dirname "$0")/.."
BIN=${BIN:-.venv/bin}
INPUT=sample_data/reviews.jsonl
PREFIX=out/demo/reviews

show() {
    printf '\n$ %s\n' "$*"
}

batchinfer() {
    show batchinfer "$@"
    "$BIN/batchinfer" "$@"
}

lines() {
    wc -l <"$1" | tr -d ' '
}

rm -rf out/demo
mkdir -p out/demo

batchinfer run "$INPUT" --config configs/demo.toml --output "$PREFIX"
batchinfer stats "$INPUT" --output "$PREFIX"

show "head -n 3 $PREFIX.results.jsonl   # three fields of each line"
head -n 3 "$PREFIX.results.jsonl" | PYTHONIOENCODING=utf-8 "$BIN/python" -c '
import json, sys
for line in sys.stdin.buffer:
    result = json.loads(line)
    output = json.dumps(result["output"], ensure_ascii=False)
    print(result["id"], result["input"]["lang"], output[:200], sep="  ")
'

wanted=$(lines "$INPUT")
found=$(lines "$PREFIX.results.jsonl")
if [ "$found" -ne "$wanted" ]; then
    echo "demo: $PREFIX.results.jsonl has $found lines, the input has $wanted" >&2
    exit 1
fi

printf '\n%s\n' "$found input lines, $found results: $PREFIX.results.jsonl"
echo "Next, with a real model: export OPENAI_API_KEY=... && $BIN/batchinfer run $INPUT \
--preset openai --model gpt-4o-mini --prompt 'Positive, negative or mixed? {{ text }}' --output out/reviews"
