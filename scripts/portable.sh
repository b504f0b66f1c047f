#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Makes a folder with all that another x86-64 machine needs to test and measure a build:  portable.sh FOLDER [BUILD FOLDER]
#
# Modules, Lua files, specs and examples, LuaJIT, busted, OpenBLAS and the libraries that these need, but not libc's (2.34 or later, 2021).
# `FOLDER/run` runs it all (scripts/portable_run.sh). Invariant: nothing in it refers to a path of this machine; it is at most 60 MB.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
usage='usage: portable.sh FOLDER [BUILD FOLDER]'
if [ $# -lt 1 ] || [ $# -gt 2 ]; then echo "$usage" >&2; exit 2; fi
build=${2:-$here/build}
mark=.perilune-portable
limit=60000000

fail() { echo "portable: $*" >&2; exit 1; }

[ -f "$build/lib/perilune/core.so" ] || fail "there is no build in $build: make it first, or name it"
build=$(cd "$build" && pwd)
luajit=$(make -s -C "$build" show VARIABLE=LUAJIT)
luajit=$(readlink -f "$(command -v "$luajit")")
if [ -e "$1" ] && [ ! -e "$1/$mark" ] && [ -n "$(ls -A "$1")" ]; then fail "$1 is there already and was not made by this script"; fi
rm -rf "$1"
mkdir -p "$1"
to=$(cd "$1" && pwd)
touch "$to/$mark"
mkdir -p "$to"/{bin,lib,build/lib/perilune,build/tests,bench,share/lua/5.1,lib/lua/5.1}

# --- what is ours
for folder in lua spec examples scripts bench/gpu; do
  mkdir -p "$to/$(dirname "$folder")"
  cp -R "$here/$folder" "$to/$folder"
done
cp "$here/LICENSE" "$here/README.md" "$to"
if commit=$(git -C "$here" rev-parse --short HEAD 2>/dev/null); then echo "$commit" >"$to/commit"; fi
install -m 755 "$here/scripts/portable_run.sh" "$to/run"
for module in core cuda cuda_emu; do
  if [ -f "$build/lib/perilune/$module.so" ]; then cp -L "$build/lib/perilune/$module.so" "$to/build/lib/perilune"; fi
done
for test in arena elementary gemm cublas_double.so; do
  if [ -f "$build/tests/$test" ]; then cp "$build/tests/$test" "$to/build/tests"; fi
done
rm -rf "$to/lua/binding"
chmod -R u+w "$to" # the sources may be read-only
find "$to/build" -type f -exec strip --strip-unneeded {} +

cat >"$to/build/perilune" <<'SH'
#!/bin/sh
root=$(cd "$(dirname "$(readlink -f -- "$0")")/.." && pwd)
LUA_PATH="$root/lua/?.lua;$root/lua/?/init.lua;${LUA_PATH:-;}" LUA_CPATH="$root/build/lib/?.so;${LUA_CPATH:-;}" \
  exec "$root/bin/luajit" "$root/lua/perilune/cli.lua" "$@"
SH
cat >"$to/bin/luajit" <<'SH'
#!/bin/sh
root=$(cd "$(dirname "$0")/.." && pwd)
LD_LIBRARY_PATH="$root/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" exec "$root/bin/luajit.bin" "$@"
SH
chmod 755 "$to/build/perilune" "$to/bin/luajit"
ln -s build/perilune "$to/perilune"

# --- LuaJIT with its own Lua files, busted with what it requires
cp "$luajit" "$to/bin/luajit.bin"
"$luajit" - <<'LUA' >"$to/modules"
-- lines "lua|so <path> <name>": files and folders of modules, where this interpreter finds them
local function find(kind, name, path)
  local file = package.searchpath(name, path)
  if not file then return false end
  print(kind, file, name)
  return true
end
for _, name in ipairs { "busted", "cliargs", "dkjson", "luassert", "mediator", "pl", "say", "system", "term", "jit.bc" } do
  if not find("lua", name, package.path) then io.stderr:write("portable: there is no Lua module ", name, "\n") os.exit(1) end
end
for _, name in ipairs { "lfs", "system.core", "term.core" } do
  if not find("so", name, package.cpath) then io.stderr:write("portable: there is no C module ", name, "\n") os.exit(1) end
end
LUA
while read -r kind file name; do
  if [ "$kind" = so ]; then
    mkdir -p "$to/lib/lua/5.1/$(dirname "${name//.//}")"
    cp -L "$file" "$to/lib/lua/5.1/${name//.//}.so"
  elif [ "$(basename "$file")" = init.lua ] || [ "$name" = jit.bc ]; then # a folder
    cp -RL "$(dirname "$file")" "$to/share/lua/5.1/${name%.bc}"
  else
    cp -L "$file" "$to/share/lua/5.1"
    if [ -d "${file%.lua}" ]; then cp -RL "${file%.lua}" "$to/share/lua/5.1"; fi
  fi
done <"$to/modules"
rm "$to/modules"

# --- OpenBLAS, and the libraries that all of this is linked with
blas=$("$luajit" -e 'if pcall(require("ffi").load, "libopenblas.so.0") then
  for line in io.lines "/proc/self/maps" do local file = line:match "(/.*libopenblas.*)" if file then print(file) break end end end')
if [ -n "$blas" ]; then cp -L "$blas" "$to/lib/libopenblas.so.0"; else echo 'portable: there is no OpenBLAS here; the folder has none' >&2; fi
find "$to/bin" "$to/build" "$to/lib" -type f \( -name '*.so*' -o -name luajit.bin \) -exec ldd {} + 2>/dev/null |
  awk '$2 == "=>" && $3 ~ /^\// { print $1, $3 }' | sort -u | while read -r name file; do
  case $name in
    libc.so.* | libm.so.* | libdl.so.* | libpthread.so.* | librt.so.* | ld-linux*) ;;
    *) [ -e "$to/lib/$name" ] || cp -L "$file" "$to/lib/$name" ;;
  esac
done

bytes=$(du -sb "$to" | cut -f 1)
if [ "$bytes" -gt "$limit" ] && [ -e "$to/lib/libopenblas.so.0" ]; then # which the engine can do without
  rm "$to/lib/libopenblas.so.0" "$to"/lib/libgfortran* "$to"/lib/libquadmath*
  echo 'portable: OpenBLAS was left out, there was no room for it' >&2
  bytes=$(du -sb "$to" | cut -f 1)
fi
if [ "$bytes" -gt "$limit" ]; then
  du -ab "$to" | sort -rn | head -n 20 >&2
  fail "$to has $bytes bytes, more than $limit"
fi
echo "$to: $bytes bytes; copy it to another machine and start ./run there"
