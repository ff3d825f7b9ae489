#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs the GPU tests and the benchmark tables, each part under its own time limit; ./dev gpu and a pack's run.sh call it.
# What the parts are, and how to read the results: docs/performance/gpu.md, "How to measure on a GPU".
set -uo pipefail

usage() {
  cat <<'END'
Usage: measure.sh --bin DIR --root DIR [--out DIR] [--device cuda|cpu] [--sanitize] [--budget SECONDS] [--only PART,PART]

  --bin       the programs, and gpu_tests.txt, which names the GPU tests
  --root      the folder that holds tests/, samples/ and workflows/
  --out       where results go (results)
  --device    cuda, cuda:N, or cpu: the same tables with small sizes, without the GPU tests (cuda)
  --sanitize  also the GPU tests under compute-sanitizer, where it is installed
  --budget    seconds for everything (470; with --sanitize 710)
  --only      parts: tests, shapes, agents, launch, load, scaling, grid, peer, team, memory, anchors, hosted, sanitize; they
              run in this order, so that a budget that is over costs the last ones

Exit codes: 0 all parts ran well, 1 a part failed, 2 usage, 4 no usable GPU.
END
}

say() { printf '%s\n' "$*" >&2; }
die() { say "measure: $*"; exit 2; }

bin='' root='' out=results device=cuda sanitize=no budget='' only=''
while (($#)); do
  case $1 in
    --bin | --root | --out | --device | --budget | --only) [ $# -ge 2 ] || die "$1 needs a value" ;;&
    --bin) bin=$2; shift 2 ;;
    --root) root=$2; shift 2 ;;
    --out) out=$2; shift 2 ;;
    --device) device=$2; shift 2 ;;
    --budget) budget=$2; shift 2 ;;
    --only) only=$2; shift 2 ;;
    --sanitize) sanitize=yes; shift ;;
    -h | --help) usage; exit 0 ;;
    *) usage >&2; die "'$1' is not known" ;;
  esac
done
case $device in cuda | cuda:[0-9]* | cpu) ;; *) die "--device: '$device' is not known; expected cuda, cuda:N or cpu" ;; esac
[ -x "$bin/baton" ] || die "--bin: no program baton in '$bin'"
[ -d "$root/tests" ] || die "--root: no folder tests in '$root'"
[ -n "$budget" ] || { budget=470; [ $sanitize = no ] || budget=710; }
[[ $budget =~ ^[0-9]+$ ]] || die "--budget: '$budget' is not a number of seconds"
bin=$(cd "$bin" && pwd) root=$(cd "$root" && pwd)
mkdir -p "$out/parts" || die "--out: cannot make '$out'"
out=$(cd "$out" && pwd)
parts=$out/parts
rm -f "$parts"/*
readonly begin=$SECONDS every_method=full,prefix,direct,epic,cacheblend,rectify,lockstep,anchors
export BATON_TEST_DIR=$root/tests BATON_MODEL_PATH=$root/samples/models NO_COLOR=1

# cuBLAS where the loader does not look by itself: a toolkit's folder, or the packages of a Python.
find_cublas() {
  ldconfig -p 2>/dev/null | grep -q 'libcublasLt\.so' && return
  local folder found=''
  for folder in /usr/local/cuda*/lib64 /usr/local/cuda*/targets/*/lib \
    $(python3 -c 'import sys; print(*(p + "/nvidia/" + d for p in sys.path if p for d in ("cu13/lib", "cublas/lib")))' 2>/dev/null); do
    compgen -G "$folder/libcublasLt.so*" >/dev/null && found=$found:$folder
  done
  [ -z "$found" ] || export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}${found#:}
}

# record NAME STATE SECONDS WHY: one line of parts.tsv; states: ok, failed, not run.
failed=0
record() { printf '%s\t%s\t%s\t%s\n' "$@" >>"$parts/parts.tsv"; }
skip() { say "  not run: $1: $2"; record "$1" 'not run' 0 "$2"; }
wanted() { [ -z "$only" ] || [[ ,$only, == *,$1,* ]]; }

# part NAME LIMIT_SECONDS RESULT COMMAND...: standard output goes to RESULT, the rest to NAME.log.
part() {
  local name=$1 limit=$2 result=$parts/$3 log=$parts/$1.log start=$SECONDS left code why
  shift 3
  left=$((budget - (SECONDS - begin)))
  if ((left < 5)); then
    skip "$name" "the $budget seconds are over"
    failed=1
    return
  fi
  ((limit < left)) || limit=$left
  printf '  %-34s' "$name" >&2
  timeout -s INT -k 10 "$limit" "$@" >"$result" 2>"$log" </dev/null
  code=$?
  if ((code == 0)); then
    say "ok       $((SECONDS - start)) s"
    record "$name" ok $((SECONDS - start)) ''
    return
  fi
  why="exit code $code"
  ((code != 124 && code != 137)) || why="no end within $limit s"
  say "FAILED   $((SECONDS - start)) s  ($why)"
  { tail -n 15 "$log"; [[ $result == *.json ]] || tail -n 25 "$result"; } 2>/dev/null | sed 's/^/    | /' >&2
  record "$name" failed $((SECONDS - start)) "$why"
  failed=1
}

# The programs of gpu_tests.txt (program, tab, test). All of a program's tests run, in one process.
test_programs() { cut -f1 "$bin/gpu_tests.txt" 2>/dev/null | sort -u; }
tests_of() { awk -F'\t' -v p="$1" '$1 == p { print $2 }' "$bin/gpu_tests.txt"; }

test_parts() {
  local program
  for program in $(test_programs); do
    part "tests-$program" 150 "tests-$program.txt" "$bin/$program" -d yes
    grep -h '^SKIPPED: ' "$parts/tests-$program.txt" | sort | uniq -c | sed 's/^ */    | /' >&2
  done
  [ -n "$(test_programs)" ] || skip tests "this build has no test with the label gpu"
}

sanitize_parts() {
  local program tool
  command -v compute-sanitizer >/dev/null || { skip sanitize "compute-sanitizer is not installed"; return; }
  for tool in memcheck racecheck; do
    for program in $(test_programs); do
      part "$tool-$program" 110 "$tool-$program.txt" compute-sanitizer --tool $tool --error-exitcode 9 --print-limit 20 \
        "$bin/$program"
    done
  done
}

bench() { part "$1" "$2" "$1.json" "$bin/baton-lab" bench --device "$device" --json -q "${@:3}"; }

# The bare model's rates are those of part shapes; here as little of them as there can be.
agents() { bench "$1" "$2" --shape "${1#*-}" "${@:3}" --prefill 16 --decode 1x16; }
config() { "$bin/baton-lab" bench --shape "$1" --config >"$parts/config-$1.json"; }

tables() {
  local shape
  local -a shapes prefill decode
  if [ "$device" = cpu ]; then
    shapes=(nano smollm2-135m) prefill=(--prefill 64,256) decode=(--decode 1x128,1x256,4x128)
  else
    shapes=(llama-3.1-8b qwen3-0.6b qwen2.5-7b mistral-7b smollm2-135m)
    prefill=(--prefill 512,2048,3584) decode=(--decode 1x1024,1x4096,8x1024)
  fi
  if wanted shapes; then
    for shape in "${shapes[@]}"; do
      bench "rates-$shape" 60 --shape "$shape" --methods none "${prefill[@]}" "${decode[@]}" --rows
    done
  fi
  if wanted agents; then
    if [ "$device" = cpu ]; then
      agents agents-nano 120 --agents 5 --prefix 64 --question 100 --output 64 --methods $every_method --anchors 2,5
    else  # KVComm's Table 2, RelayCaching's Table 2
      agents agents-llama-3.1-8b 150 --agents 5 --prefix 512 --question 1000 --output 512 --methods $every_method \
        --anchors 2,5,10,20 --row-methods full,rectify,lockstep
      agents agents-qwen3-0.6b 60 --agents 5 --prefix 128 --question 1000 --output 1000 --methods full,prefix,cacheblend,rectify \
        --select 0.18
    fi
  fi
  if wanted launch; then  # steps too small to be anything but the cost of starting them
    bench launch-10 30 --shape nano --layers 10 --methods none --prefill 16 --decode 1x16
    bench launch-40 30 --shape nano --layers 40 --methods none --prefill 16 --decode 1x16
  fi
  wanted load && bench load-nano 30 --model nano --methods none --prefill 16 --decode 1x16
  if wanted scaling; then
    if [ "$device" = cpu ]; then
      config nano
      agents scaling-nano 60 --agents 3 --prefix 16 --question 32 --output 64,128,256,512,900 --methods full,prefix,rectify \
        --select 0.18,0.05
    else  # RelayCaching's Figure 8: two answers, 512 to 12,288 tokens
      config qwen3-0.6b
      agents scaling-qwen3-0.6b 60 --agents 3 --prefix 128 --question 1000 --output 256,512,1024,2048,4096,6144 \
        --methods full,prefix,rectify --select 0.18,0.05
    fi
  fi
  if wanted grid; then
    if [ "$device" = cpu ]; then
      agents grid-nano 60 --agents 3 --prefix 16,64 --question 48 --output 32,128 --anchors 2 --row-methods none \
        --methods full,prefix,rectify,lockstep,anchors
    else  # KVComm's Table 3
      agents grid-llama-3.1-8b 100 --agents 3 --prefix 64,256,1024 --question 1000 --output 128,512,1024 --anchors 20 \
        --row-methods none --methods full,prefix,rectify,lockstep,anchors
    fi
  fi
}

# What is least missed when the time is over.
last_tables() {
  local shape
  local -a shapes=(qwen3-0.6b llama-3.1-8b)
  [ "$device" != cpu ] || shapes=(nano)
  if wanted memory; then
    for shape in "${shapes[@]}"; do
      config "$shape"
      agents "memory-$shape" 40 --agents 3 --prefix 128 --question 256 --output 256 --methods $every_method --anchors 2 \
        --row-methods none --repeat 1 --memory
    done
  fi
  if wanted anchors; then
    if [ "$device" = cpu ]; then
      agents anchors-nano 60 --agents 2 --prefix 16 --question 16 --output 128,256,512 --methods anchors --anchors 2,5,10 --repeat 1
    else  # KVComm's Table A.5
      agents anchors-llama-3.1-8b 80 --agents 2 --prefix 64 --question 64 --output 1024,2048,4096 --methods anchors \
        --anchors 5,10,15,20,25 --repeat 1
    fi
  fi
  if wanted hosted && [ "$device" != cpu ]; then  # which reads host memory itself
    agents hosted-llama-3.1-8b 60 --agents 5 --prefix 512 --question 1000 --output 512 --methods prefix,direct,rectify,anchors \
      --anchors 20 --from-host
  fi
}

# The team of nano agents, on the device and on the CPU: how often it is right, and whether its answers are the same.
team() {
  local on=$1 methods=full limit=200
  [ "$on" = cpu ] || methods=full,prefix,lockstep,rectify:select.score=entropy
  [ "$device" != cpu ] || limit=20
  part "team-${on%%:*}" 90 "team-${on%%:*}.json" "$bin/baton-lab" eval "$root/workflows/library/math_team.yaml" --dataset \
    "$root/tests/data/nano_heldout.jsonl" --limit $limit --methods $methods --floor-limit 0 --jobs 16 --device "$on" --json -q \
    --answers "$parts/answers-${on%%:*}.jsonl"
}

# The same prefill, decode and first tokens by Hugging Face Transformers, where it is installed.
peer() {
  local python=${PYTHON:-python3} shape
  local -a shapes sizes
  "$python" -c 'import importlib.util as u, sys; sys.exit(not all(map(u.find_spec, ("torch", "transformers"))))' 2>/dev/null ||
    { skip peer "no $python with torch and transformers"; return; }
  if [ "$device" = cpu ]; then
    shapes=(nano) sizes=(--prefill 64,256 --decode 1x128,4x128 --agents 5 --prefix 64 --question 100 --output 64)
  else
    shapes=(llama-3.1-8b qwen3-0.6b)
    sizes=(--prefill 512,2048,3584 --decode 1x1024,1x4096,8x1024 --agents 5 --prefix 512 --question 1000 --output 512)
  fi
  for shape in "${shapes[@]}"; do
    config "$shape"
    part "peer-$shape" 90 "peer-$shape.json" "$python" "$root/tests/bench/transformers_peer.py" --device "$device" \
      --config "$parts/config-$shape.json" --name "$shape" "${sizes[@]}"
  done
}

find_cublas
"$bin/baton" doctor >"$parts/doctor.txt" 2>&1
usable=$(grep -E '^ok +device cuda' "$parts/doctor.txt")
if [ "$device" != cpu ] && [ -z "$usable" ]; then
  say "No usable GPU: $(sed -nE 's/^[a-z]+ +device cuda[^ ]* +//p' "$parts/doctor.txt" | sed 's/ (the CPU is used)$//')"
  say "GPU tests that were not run:"
  for program in $(test_programs); do tests_of "$program" | sed 's/^/  /' >&2; done
  [ -n "$(test_programs)" ] || say "  (this build has none)"
  record gpu 'not run' 0 "no usable GPU"
  say "The same tables with small sizes on the CPU: --device cpu"
  exit 4
fi

say "${usable:-on the CPU}; results go to $out"
if [ "$device" = cpu ]; then skip tests "--device cpu"; elif wanted tests; then test_parts; fi
tables
if wanted peer; then peer; fi
if wanted team; then
  [ "$device" = cpu ] || team "$device"
  team cpu
fi
last_tables
if [ $sanitize = yes ]; then if [ "$device" = cpu ]; then skip sanitize "--device cpu"; else sanitize_parts; fi; fi
if command -v python3 >/dev/null; then
  python3 "$root/tests/gpu/report.py" "$out" || failed=1
  [ ! -f "$out/results.md" ] || cat "$out/results.md"
else
  say "no python3: the results stay in $parts, without tables and plots"
fi
say "$((SECONDS - begin)) s; results in $out"
exit $failed
