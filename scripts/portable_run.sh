#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# `run` of the folder that scripts/portable.sh makes:  ./run [--engine KIND] [--report DIR] [PART...]
#
# Parts, in this order: specs (on every engine that is here), gate, loops, sanitizers, bench; without a name all. A table comes last.
# Invariant: the status is 0 if all that could run passed: what has no device says so and is neither passed nor failed; a missed goal is told and
# fails nothing. --engine names the device (cuda); with cuda-emu its parts are rehearsed, and their figures are no measurement. SPEC names spec files.
set -uo pipefail
home=$(cd "$(dirname "$(readlink -f -- "${BASH_SOURCE[0]}")")" && pwd)
usage='usage: run [--engine cuda|cuda-emu] [--report DIR] [specs] [gate] [loops] [sanitizers] [bench]'
engine=cuda
report=portable-report
parts=
while [ $# -gt 0 ]; do
  case $1 in
    --engine | --report)
      if [ $# -lt 2 ] || [ -z "$2" ]; then echo "$usage" >&2; exit 2; fi
      if [ "$1" = --engine ]; then engine=$2; else report=$2; fi
      shift ;;
    specs | gate | loops | sanitizers | bench) parts="$parts $1" ;;
    -h | --help) echo "$usage"; exit 0 ;;
    *) echo "$usage" >&2; exit 2 ;;
  esac
  shift
done
parts=${parts:- specs gate loops sanitizers bench}
case $engine in
  cuda) quick= ;;
  cuda-emu) quick=--quick ;;
  *) echo "$usage" >&2; exit 2 ;;
esac
mkdir -p "$report" || exit 2
report=$(cd "$report" && pwd)
cd "$home" || exit 2

# Nothing but what is here.
export LUA_PATH="$home/share/lua/5.1/?.lua;$home/share/lua/5.1/?/init.lua"
export LUA_CPATH="$home/lib/lua/5.1/?.so"
export LUAJIT="$home/bin/luajit" PERILUNE="$home/perilune" PERILUNE_SRCDIR="$home" PERILUNE_BUILDDIR="$report/build" PERILUNE_PRELOAD=
export PATH="${PATH:-/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin}"
unset PERILUNE_ENGINE PERILUNE_ARENA PERILUNE_POISON PERILUNE_STALE
mkdir -p "$PERILUNE_BUILDDIR" # what specs write; the folder itself may be read-only
for part in perilune lib tests; do ln -sfn "$home/build/$part" "$PERILUNE_BUILDDIR/$part"; done

table=$report/table.tsv
: >"$table"
failed=0
row() { # WHAT RESULT GOAL MET
  printf '%s\t%s\t%s\t%s\n' "$1" "$2" "$3" "$4" >>"$table"
}
check() { # WHAT STATUS RESULT: of what must pass
  if [ "$2" -eq 0 ]; then row "$1" "$3" passes yes; else row "$1" "$3" passes NO; failed=1; fi
}
absent() { # WHAT GOAL WHY
  row "$1" "$3" "$2" '-'
}

engines=$("$PERILUNE" -e 'for _, e in ipairs(require("perilune").engines()) do print(e.kind, e.available and "available" or e.reason) end') || {
  echo "run: the engine does not start here: it needs glibc 2.34 or later and an x86-64-v2 processor" >&2
  exit 1
}
echo "$engines"
if grep -q "^$engine	available" <<<"$engines"; then why=; else why="no device: $(sed -n "s/^$engine	//p" <<<"$engines")"; fi

# --- parts

run_specs() {
  local files=${SPEC:-}
  if [ -z "$files" ]; then
    files=$(grep -l 'spec.support.engines' spec/*_spec.lua spec/contracts/*_spec.lua spec/sweep/*_spec.lua spec/nn/*_spec.lua)
    # shellcheck disable=SC2086
    files="$(grep -L 'spec.support.terminal' $files) spec/cuda_blas_spec.lua" # not what needs a terminal
  fi
  # shellcheck disable=SC2086
  "$LUAJIT" scripts/check.lua $files 2>&1 | tee "$report/specs.txt"
  check "specs on $(grep available <<<"$engines" | cut -f 1 | paste -sd ' ')" "${PIPESTATUS[0]}" "$(tail -n 1 "$report/specs.txt")"
}

run_gate() {
  if [ -n "$why" ]; then absent "gate on $engine" VALIDATION_OK "$why"; return; fi
  # shellcheck disable=SC2086 # no word where there is none
  bash scripts/gate.sh --engine "$engine" --report "$report/gate" $quick
  check "gate on $engine" $? "$(sed -n 's/.*"verdict": "\([^"]*\)".*/\1/p' "$report/gate/gate.json" 2>/dev/null)"
}

run_loops() {
  local kind
  for kind in $(cut -f 1 <<<"$engines"); do
    if ! grep -q "^$kind	available" <<<"$engines"; then
      absent "hazard loop on $kind, eager, recorded and captured" passes "no device: $(sed -n "s/^$kind	//p" <<<"$engines")"
      continue
    fi
    "$PERILUNE" examples/hazard_loop.lua --engine "$kind" --autograd --capture 2>&1 | tee "$report/hazard-$kind.txt"
    check "hazard loop on $kind, eager, recorded and captured" "${PIPESTATUS[0]}" "$(grep -c PASS "$report/hazard-$kind.txt") ways agree with the CPU"
  done
}

run_sanitizers() {
  local tool name
  tool=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2>/dev/null)
  for name in memcheck racecheck initcheck synccheck; do
    if [ "$engine" != cuda ] || [ -n "$why" ]; then absent "compute-sanitizer $name" 'no error' "${why:-no device: $engine is none}"; continue; fi
    if [ -z "$tool" ]; then absent "compute-sanitizer $name" 'no error' 'the tool is not there'; continue; fi
    LD_LIBRARY_PATH="$home/lib" LUA_PATH="$home/lua/?.lua;$home/lua/?/init.lua;$LUA_PATH" LUA_CPATH="$home/build/lib/?.so;$LUA_CPATH" \
      "$tool" --tool "$name" --error-exitcode 9 "$home/bin/luajit.bin" lua/perilune/cli.lua examples/hazard_loop.lua --engine cuda --autograd --capture \
      2>&1 | tee "$report/$name.txt"
    check "compute-sanitizer $name" "${PIPESTATUS[0]}" "$(grep -E 'ERROR SUMMARY|RACECHECK SUMMARY' "$report/$name.txt" | tail -n 1 | sed 's/^=* *//')"
  done
}

figure() { awk -v name="$2" '$1 == name { print $2 }' "$report/$1.txt" 2>/dev/null; }

# Whether a goal is met: AWK'S CONDITION; a rehearsal meets none.
met() {
  if [ "$engine" != cuda ]; then echo -; else awk "BEGIN { print ($1) ? \"yes\" : \"NO\" }"; fi
}

# A figure beside another: WHAT FIGURE OF GOAL
share() {
  if [ -z "$2" ] || [ -z "$3" ]; then absent "$1" "${4:+>= $4}" 'no figure'; return; fi
  row "$1" "$(awk -v a="$2" -v b="$3" 'BEGIN { printf "%.3f (%s of %s)", a / b, a, b }')" "${4:+>= $4}" \
    "$(if [ -z "$4" ]; then echo -; else met "$2 / $3 >= $4"; fi)"
}

run_bench() {
  local name copy launch peer='no PyTorch here'
  if [ -z "$why" ]; then
    # shellcheck disable=SC2086
    "$PERILUNE" bench/gpu/ours.lua "$engine" $quick 2>&1 | tee "$report/ours.txt"
    check "bench runs on $engine" "${PIPESTATUS[0]}" "$(wc -l <"$report/ours.txt") figures"
    : >"$report/peer.txt"
    if [ "$engine" = cuda ] && python3 -c 'import torch, sys; sys.exit(not torch.cuda.is_available())' 2>/dev/null; then
      env -u LD_LIBRARY_PATH python3 bench/gpu/peer.py 2>&1 | tee "$report/peer.txt"
      check "PyTorch's figures" "${PIPESTATUS[0]}" "$(wc -l <"$report/peer.txt") figures"
      peer='no figure'
    fi
  fi
  for name in multiply add softmax layer_norm rms_norm matmul launch hazard_eager hazard_captured; do
    case $name in
      multiply | add) what="$name: share of a device copy's bandwidth" goal=0.9 ;;
      softmax | layer_norm | rms_norm) what="$name: share of a device copy's bandwidth" goal=0.8 ;;
      matmul) what='matmul: share of cuBLAS through PyTorch' goal=0.98 ;;
      launch) what='host time of an eager call, us' goal=2.5 ;;
      hazard_eager) what='hazard loop, samples/s beside PyTorch eager' goal= ;;
      hazard_captured) what='hazard loop captured, samples/s beside CUDA graphs of PyTorch' goal= ;;
    esac
    if [ -n "$why" ]; then absent "$what" "$([ "$name" = launch ] && echo '<' "$goal" || echo "${goal:+>= $goal}")" "$why"; continue; fi
    case $name in
      matmul | hazard_*)
        if [ -n "$(figure peer "$name")" ]; then share "$what" "$(figure ours "$name")" "$(figure peer "$name")" "$goal"
        else absent "$what" "${goal:+>= $goal}" "ours $(figure ours "$name"); $peer"; fi ;;
      launch)
        launch=$(figure ours launch)
        row "$what" "$launch" "< $goal" "$(met "${launch:-9e9} < $goal")" ;;
      *)
        copy=$(printf '%s\n%s\n' "$(figure ours copy)" "$(figure peer copy)" | sort -g | tail -n 1)
        share "$what" "$(figure ours "$name")" "$copy" "$goal" ;;
    esac
  done
}

for part in $parts; do
  echo "== $part"
  case $part in
    specs) run_specs ;;
    gate) run_gate ;;
    loops) run_loops ;;
    sanitizers) run_sanitizers ;;
    bench) run_bench ;;
  esac
done

echo
{ printf 'what\tresult\tgoal\tmet\n'; cat "$table"; } | awk -F '\t' '
  { for (i = 1; i <= 4; i++) { cell[NR, i] = $i; if (length($i) > width[i]) width[i] = length($i) } }
  END { for (r = 1; r <= NR; r++) printf "%-*s  %-*s  %-*s  %s\n", width[1], cell[r, 1], width[2], cell[r, 2], width[3], cell[r, 3], cell[r, 4] }'
if [ "$engine" != cuda ]; then echo "rehearsal on $engine: these figures measure nothing"; fi
exit $failed
