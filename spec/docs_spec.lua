-- SPDX-License-Identifier: MIT
-- The Lua programs that the pages print run as they stand, on the engines that they name.

local launcher = os.getenv "PERILUNE_LAUNCHER" or "./perilune"

local function pages()
  local list, pipe = { "README.md" }, io.popen "find docs -name '*.md' | sort"
  for path in pipe:lines() do list[#list + 1] = path end
  pipe:close()
  return list
end

describe("the code in", function()
  local found = 0
  for _, page in ipairs(pages()) do
    local file = assert(io.open(page))
    local text, number = file:read "*a", 0
    file:close()
    for code in text:gmatch "\n```lua\n(.-)\n```" do
      number, found = number + 1, found + 1
      it(("%s, block %d, runs"):format(page, number), function()
        local path = os.tmpname()
        finally(function() os.execute("rm -f " .. path .. " " .. path .. ".lua") end)
        local script = assert(io.open(path .. ".lua", "w"))
        script:write(code)
        script:close()
        local pipe = io.popen(("'%s' %s.lua 2>&1; echo status $?"):format(launcher, path))
        local output, status = pipe:read("*a"):match "^(.*)status (%d+)\n$"
        pipe:close()
        assert.equal("0", status, output)
      end)
    end
  end

  it("the pages is there", function() assert.is_true(found >= 2) end)
end)
