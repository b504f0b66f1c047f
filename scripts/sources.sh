#!/bin/sh
# SPDX-License-Identifier: MIT
# The file lists of the build, made from the tree:  sources.sh writes sources.am,  sources.sh --check says what differs
# and fails.  Invariant: sources.am names every source that lies in the folders below, so that what is in the tree is
# what is built and distributed.  Run it after adding, moving or removing a file.
set -eu
LC_ALL=C
export LC_ALL
cd "$(dirname "$0")/.."

# list VARIABLE FIND-ARGUMENTS...: one Automake variable, sorted.
list() {
  name=$1
  shift
  files=$(find "$@" 2>/dev/null | sort) || true
  if [ -z "$files" ]; then
    echo "$name ="
  else
    printf '%s =' "$name"
    printf ' \\\n\t%s' $files
    echo
  fi
}

generate() {
  echo '# SPDX-License-Identifier: MIT'
  echo '# Made by scripts/sources.sh from the tree; run it again instead of editing.'
  list core_c src -name '*.c' ! -path 'src/cpu/*'
  list cpu_c src/cpu -name '*.c' ! -path 'src/cpu/kernels/*'
  list kernel_c src/cpu/kernels -name '*.c'
  list binding_c lua/binding -name '*.c'
  list cuda_cu cuda -name '*.cu' ! -path 'cuda/emulator/*'
  list emulator_cpp cuda/emulator -maxdepth 1 -name '*.cpp'
  list headers src cuda lua/binding -name '*.h' -o -name '*.cuh' -o -name '*.def' -o -name '*.inc'
  list lua_files lua/perilune -name '*.lua'
  list doc_files README.md CHANGELOG.md LICENSE docs examples scripts/make_digits.py -type f
  list test_files tests -name '*.[ch]'
  list bench_files bench -type f ! -path 'bench/work/*' ! -name '*.o' ! -name '*.so'
  # Distributed whole; none of these is a folder of the build, too, whose products would go along.
  list folders cuda/emulator docs examples scripts spec -maxdepth 0 ! -empty
}

case ${1-} in
  --check)
    new=$(mktemp)
    trap 'rm -f "$new"' EXIT
    generate >"$new"
    if ! diff -u sources.am "$new"; then
      echo 'sources.am does not list the tree: run scripts/sources.sh' >&2
      exit 1
    fi ;;
  '')
    generate >sources.am.new
    if cmp -s sources.am.new sources.am; then rm sources.am.new; else mv sources.am.new sources.am; fi ;;
  *)
    echo 'usage: scripts/sources.sh [--check]' >&2
    exit 2 ;;
esac
