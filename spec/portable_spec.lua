-- SPDX-License-Identifier: MIT
-- The folder for another machine (scripts/portable.sh): what it holds, that it uses nothing else of this machine, and what its `run` says.

local perilune = require "perilune"

local source = assert(os.getenv "PERILUNE_SRCDIR", "run by make check")
local build = assert(os.getenv "PERILUNE_BUILDDIR", "run by make check")
local preload = os.getenv "PERILUNE_PRELOAD" or ""

local function quote(s) return "'" .. s:gsub("'", "'\\''") .. "'" end

--- Output and status of a command in a folder of its own, with an empty environment but for `environment`.
local function run(command, environment)
  local pipe = assert(io.popen(("cd / && env -i %s sh -c %s 2>&1 </dev/null; echo status $?"):format(environment or "", quote(command))))
  local output, status = pipe:read("*a"):match "^(.*)status (%d+)\n$"
  pipe:close()
  return output, tonumber(status)
end

local function done(command, environment)
  local output, status = run(command, environment)
  assert(status == 0, output)
  return output
end

local function write(path, text)
  local file = assert(io.open(path, "w"))
  file:write(text)
  file:close()
end

local kinds = {}
for _, e in ipairs(perilune.engines()) do kinds[e.kind] = e end

-- What LuaJIT, with the engine, OpenBLAS and busted's C modules loaded, has in memory.
local MAPS = [[
  require "lfs" require "system" require "term"
  local perilune = require "perilune"
  for _, e in ipairs(perilune.engines()) do if e.available then perilune.engine(e.kind):ones{2}:sum():item() end end
  pcall(require("ffi").load, "libopenblas.so.0")
  for line in io.lines "/proc/self/maps" do print((line:match "(/.*)$")) end
]]

describe("the folder for another machine", function()
  local base, folder
  setup(function()
    base = done("mktemp -d"):gsub("\n", "")
    folder = base .. "/a folder"
    local output, status = run(("%s/scripts/portable.sh %s %s"):format(quote(source), quote(folder), quote(build)),
      "HOME=/ PATH=" .. quote(os.getenv "PATH"))
    assert(status == 0, output)
  end)
  teardown(function() done("rm -rf " .. quote(base)) end)

  local function starts(arguments, environment)
    return run(("%s/run --report %s/report %s"):format(quote(folder), quote(base), arguments), environment)
  end

  it("is at most 60 MB and names no folder of this machine", function()
    assert.is_true(tonumber(done("du -sb " .. quote(folder)):match "^%d+") < 60e6)
    for _, path in ipairs { source, build, base } do
      local found, status = run(("grep -rlF -- %s %s"):format(quote(path), quote(folder)))
      assert.equal(1, status, found)
    end
  end)

  -- A build with a sanitizer needs the sanitizer's runtime loaded first, which is this machine's.
  local plain = preload == "" and it or function() end

  plain("uses nothing of this machine but libc", function()
    write(base .. "/maps.lua", MAPS)
    local own = 0
    local paths = ("LUA_PATH='%s/share/lua/5.1/?.lua;%s/share/lua/5.1/?/init.lua' LUA_CPATH='%s/lib/lua/5.1/?.so'"):format(folder, folder, folder)
    for path in done(("%s/perilune %s/maps.lua"):format(quote(folder), quote(base)), paths):gmatch "[^\n]+" do
      local name = path:match "([^/]*)$"
      if path:sub(1, #folder) == folder then
        own = own + 1
      else
        assert(name:find "^lib[cm]%.so" or name:find "^libc%-" or name:find "^libm%-" or name:find "^lib[dp][lt]" or name:find "^librt" or name:find "^ld%-"
          or name == "locale-archive" or path == "nil" or path:find "^/dev" or path:find "gconv", path)
      end
    end
    assert.is_true(own >= 20, "only " .. own .. " pieces are the folder's")
  end)

  plain("runs specs and loops from anywhere with an empty environment, and ends with a table", function()
    local output, status = starts("specs loops sanitizers", "SPEC=spec/create_spec.lua")
    assert.equal(0, status, output)
    assert.matches("specs on cpu[^\n]*  %d+ passed, 0 failed +passes +yes\n", output)
    assert.matches("hazard loop on cpu, [^\n]*3 ways agree with the CPU +passes +yes\n", output)
    if not kinds.cuda.available then
      assert.matches("hazard loop on cuda, [^\n]*  no device: [^\n]+ passes +%-\n", output)
      for _, tool in ipairs { "memcheck", "racecheck", "initcheck", "synccheck" } do
        assert.matches("compute%-sanitizer " .. tool .. " +no device: [^\n]+ no error +%-\n", output)
      end
    end
  end)

  plain("fails when a spec does", function()
    write(folder .. "/spec/wrong_spec.lua", 'describe("a fault", function() it("is seen", function() assert.equal(1, 2) end) end)\n')
    local output, status = starts("specs", "SPEC=spec/wrong_spec.lua")
    assert.equal(1, status, output)
    assert.matches("specs on cpu[^\n]*  0 passed, 1 failed +passes +NO\n", output)
    os.remove(folder .. "/spec/wrong_spec.lua")
  end)

  plain("has a row for each figure, with its goal", function()
    local output, status = starts("bench")
    assert.equal(0, status, output)
    if not kinds.cuda.available then
      assert.matches("matmul: share of cuBLAS through PyTorch +no device: [^\n]+ >= 0.98 +%-\n", output)
      assert.matches("host time of an eager call, us +no device: [^\n]+ < 2.5 +%-\n", output)
    end
    if kinds["cuda-emu"].available then
      output, status = starts("--engine cuda-emu bench")
      assert.equal(0, status, output)
      assert.matches("bench runs on cuda%-emu +10 figures +passes +yes\n", output)
      for _, name in ipairs { "multiply", "add", "softmax", "layer_norm", "rms_norm" } do
        assert.matches(name .. ": share of a device copy's bandwidth +%d+%.%d+ %([%d.e+-]+ of [%d.e+-]+%) +>= 0%.%d +%-\n", output)
      end
      assert.matches("rehearsal on cuda-emu: these figures measure nothing", output, 1, true)
    end
  end)

  plain("refuses options that it does not have", function()
    assert.equal(2, select(2, starts "all"))
    assert.equal(2, select(2, starts "--engine cpu"))
  end)

  it("is never put over other files", function()
    local path = "PATH=" .. quote(os.getenv "PATH")
    done(("mkdir %s/other && touch %s/other/file"):format(quote(base), quote(base)))
    local output, status = run(("%s/scripts/portable.sh %s/other %s"):format(quote(source), quote(base), quote(build)), path)
    assert.equal(1, status)
    assert.matches("is there already and was not made by this script", output, 1, true)
    done(("test -f %s/other/file"):format(quote(base)))
    output, status = run(("%s/scripts/portable.sh %s/new %s/nowhere"):format(quote(source), quote(base), quote(base)), path)
    assert.equal(1, status)
    assert.matches("there is no build in", output, 1, true)
  end)
end)
