#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# The gate: is this build, on this device, safe to train with?  gate.sh [--engine KIND] [--report DIR] [--quick]
#
# Runs parity under every schedule, the red proofs, the hazard loop and the attention loop on the engine KIND (PERILUNE_ENGINE, else cuda) and
# ends with one line and an exit status:
#   0  VALIDATION_OK and what was run     3  parity failed                    6  the hazard loop failed
#   2  usage                              4  the engine is not there, or      7  the attention loop failed
#                                            too few checks ran
#                                         5  a red proof stayed green
# A skipped check is never a passed one: what ran is counted and has to reach a minimum. --quick takes the first samples of each op, and says so.
# Everything that was printed and one JSON file per run is in DIR (./gate-report), with the verdict in gate.json, whatever it is. PERILUNE names the
# command to test.
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
engine=${PERILUNE_ENGINE:-cuda}
report=gate-report
quick=
usage='usage: gate.sh [--engine KIND] [--report DIR] [--quick]'

while [ $# -gt 0 ]; do
  case $1 in
    --engine | --report)
      if [ $# -lt 2 ] || [ -z "$2" ]; then echo "$usage" >&2; exit 2; fi
      if [ "$1" = --engine ]; then engine=$2; else report=$2; fi
      shift ;;
    --quick) quick=--quick ;;
    -h | --help) echo "$usage"; exit 0 ;;
    *) echo "$usage" >&2; exit 2 ;;
  esac
  shift
done

perilune=${PERILUNE:-$here/perilune}
if ! perilune=$(command -v "$perilune"); then
  echo "gate: there is no command ${PERILUNE:-$here/perilune}: build first, or set PERILUNE" >&2
  exit 2
fi
perilune=$(realpath "$perilune")
mkdir -p "$report" || exit 2
report=$(cd "$report" && pwd)
made_by='"made_by": "scripts/gate.sh"' # what an earlier run left is removed, and nothing else
(
  cd "$report" || exit
  for old in *.json; do
    if grep -qsF "$made_by" "$old"; then rm -f "$old"; fi
  done
  rm -f parity.txt redproof.txt redproof-stress.txt hazard_loop{,-accumulators,-activation}.txt attention_loop{,-unsaved}.txt
)
cd "$here" || exit 2 # the record of the oracle is found from here

device= driver= version= commit= comparisons=0 proofs=0

string() { # TEXT: as JSON
  printf '"%s"' "$(printf %s "$1" | tr '\n\t' '  ' | sed 's/[\\"]/\\&/g')"
}

# What is tested, as the fields of a JSON object.
about() {
  echo "$made_by, \"engine\": $(string "$engine"), \"device\": $(string "$device"), \"driver\": $(string "$driver")," \
    "\"version\": $(string "$version"), \"commit\": $(string "$commit"), \"date\": \"$(date -u +%Y-%m-%dT%H:%M:%SZ)\""
}

verdict() { # STATUS TEXT
  cat >"$report/gate.json" <<JSON
{ "status": $1, "verdict": $(string "$2"), $(about),
  "quick": $([ -n "$quick" ] && echo true || echo false), "comparisons": $comparisons, "red_proofs": $proofs, "loops": 2, "twins": 3 }
JSON
}

fail() { # STATUS TEXT
  verdict "$1" "VALIDATION_FAILED: $2"
  echo "VALIDATION_FAILED status=$1 engine=$engine: $2 (see $report)"
  exit "$1"
}

# Runs a part, keeps what it prints; its own exit status.
part() { # NAME COMMAND...
  local name=$1
  shift
  echo "== $name"
  "$@" 2>&1 | tee "$report/$name.txt"
  return "${PIPESTATUS[0]}"
}

# The sum of the numbers before a word in a part's summary lines.
total() { # NAME WORD
  grep -E '^(PASS|FAIL) .*:' "$report/$1.txt" | grep -oE "[0-9]+ $2" | awk '{ n += $1 } END { print n + 0 }'
}

at_least() { # COUNT MINIMUM WHAT
  [ "$1" -ge "$2" ] || fail 4 "only $1 $3 ran, $2 are needed: a check that was skipped is no check that passed"
}

# --- what is tested
reason=$("$perilune" -e '
  local kind = ...
  for _, e in ipairs(require("perilune").engines()) do
    if e.kind == kind then print(e.available and "available" or tostring(e.reason)) return end
  end
  print("there is no such kind of engine")' "$engine" 2>&1) || fail 4 "$reason"
[ "$reason" = available ] || fail 4 "the engine is not there: $reason"
version=$("$perilune" --version) || fail 4 "$version"
commit=$(git -C "$here" rev-parse --short HEAD 2>/dev/null || cat "$here/commit" 2>/dev/null || echo unknown)
device=$(uname -m)
driver=none
if [ "$engine" = cuda ]; then
  device=$(nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null | head -n 1)
  driver=$(nvidia-smi --query-gpu=driver_version --format=csv,noheader 2>/dev/null | head -n 1)
fi
echo "{ $(about) }" >"$report/about.json"

# --- parity: every op and composite under every schedule, in other layouts, into destinations, fed with poison
part parity "$perilune" parity --engine "$engine" --report "$report" --about "$report/about.json" $quick || fail 3 'parity'
comparisons=$(awk '/^$/ { from = NR } { line[NR] = $0 } END { for (i = from; i <= NR; i++) print line[i] }' "$report/parity.txt" |
  grep -oE '[0-9]+ comparisons' | awk '{ n += $1 } END { print n + 0 }')
at_least "$comparisons" "$([ -n "$quick" ] && echo 20000 || echo 200000)" comparisons

# --- red proofs: those of the host's fault points on stress, all others on the engine under test
part redproof "$perilune" redproof --engine "$engine" --minimum 20 --report "$report/redproof.json" --about "$report/about.json" ||
  fail 5 'a planted fault was not caught'
proofs=$(total redproof 'faults caught')
if [ "$engine" != stress ]; then
  part redproof-stress "$perilune" redproof --engine stress --minimum 24 --report "$report/redproof-stress.json" --about "$report/about.json" ||
    fail 5 'a planted fault was not caught on stress'
  proofs=$((proofs + $(total redproof-stress 'faults caught')))
fi
at_least "$proofs" 24 'red proofs'

# --- loops, and their twins, which must fail
part hazard_loop "$perilune" "$here/examples/hazard_loop.lua" --engine "$engine" --autograd || fail 6 'the hazard loop'
grep -q 'PASS' "$report/hazard_loop.txt" || fail 6 'the hazard loop said nothing'
for twin in accumulators activation; do
  part "hazard_loop-$twin" "$perilune" "$here/examples/hazard_loop.lua" --engine "$engine" --twin "$twin"
  [ $? -eq 1 ] && grep -q FAIL "$report/hazard_loop-$twin.txt" || fail 6 "the hazard loop with the fault '$twin' did not fail"
done
part attention_loop "$perilune" "$here/examples/attention_loop.lua" --engine "$engine" || fail 7 'the attention loop'
grep -q 'PASS' "$report/attention_loop.txt" || fail 7 'the attention loop said nothing'
part attention_loop-unsaved "$perilune" "$here/examples/attention_loop.lua" --engine "$engine" --twin unsaved
[ $? -eq 1 ] && grep -q FAIL "$report/attention_loop-unsaved.txt" || fail 7 'the attention loop without its saves did not fail'

verdict 0 VALIDATION_OK
echo "VALIDATION_OK engine=$engine device=\"$device\" driver=$driver comparisons=$comparisons red_proofs=$proofs loops=2 twins=3${quick:+ quick}" \
  "version=\"$version\" commit=$commit report=$report"
