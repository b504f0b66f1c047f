-- SPDX-License-Identifier: MIT
-- What the build promises about its products and its file lists.

local source = os.getenv "PERILUNE_SRCDIR" or "."
local build = os.getenv "PERILUNE_BUILDDIR" or "build"
local module = build .. "/lib/perilune/core.so"

local function run(command)
  local pipe = assert(io.popen(("cd '%s' && { %s; } 2>&1; echo status $?"):format(source, command)))
  local output, status = pipe:read("*a"):match "^(.*)status (%d+)\n$"
  pipe:close()
  return output, tonumber(status)
end

describe("the file lists", function()
  it("name every source in the tree", function()
    local output, status = run "sh scripts/sources.sh --check"
    assert.are.equal("", output)
    assert.are.equal(0, status)
  end)

  it("are refused when a source is missing from them", function()
    local output, status = run [[d=$(mktemp -d) && mkdir $d/src && cp -r scripts $d && sh $d/scripts/sources.sh &&
      touch $d/src/late.c && sh $d/scripts/sources.sh --check; r=$?; rm -rf $d; (exit $r)]]
    assert.are.equal(1, status)
    assert.truthy(output:find("src/late.c", 1, true), output)
  end)
end)

describe("the module", function()
  it("exports luaopen_perilune_core and nothing else", function()
    local output = run(("nm -D --defined-only '%s' | awk '{ print $NF }'"):format(module))
    assert.are.equal("luaopen_perilune_core\n", output)
  end)

  it("links neither LuaJIT nor BLAS nor the CUDA driver", function()
    local output, status = run(("objdump -p '%s' | grep NEEDED"):format(module))
    assert.are.equal(0, status)
    assert.is_nil(output:find "luajit")
    assert.is_nil(output:find "blas")
    assert.is_nil(output:find "libcuda")
  end)
end)

describe("the layers", function()
  --- Lines in `folders` that include a header whose name matches the extended regular expression `headers`.
  local function includes(folders, headers)
    return (run(("find %s -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' -o -name '*.def' 2>/dev/null | "
      .. [[xargs -r grep -nE '^ *# *include *["<](%s)']]):format(folders, headers)))
  end

  it("keep Lua and CUDA out of the core", function()
    assert.are.equal("", includes("src", [[lua|lauxlib|luajit|cuda|\.\./(\.\./)*(lua|cuda)/]]))
  end)

  it("keep Lua out of the CUDA device", function()
    assert.are.equal("", includes("cuda", [[lua|lauxlib|luajit|\.\./(\.\./)*lua/]]))
  end)

  it("see a line that breaks them", function()
    assert.are_not.equal("", includes("lua/binding", "lua|lauxlib"))
  end)
end)
