-- SPDX-License-Identifier: MIT
-- No loop of the bench takes a tenth more instructions than recorded (bench/instructions): what times on a busy machine would not show.
-- After a change that is worth its instructions: `make bench-counts`, and the reason in the commit's message.

local count = dofile "bench/instructions/count.lua"
local settings = dofile "bench/instructions/settings.lua"

local build = os.getenv "PERILUNE_BUILDDIR" or "build"
local ALLOWED = 1.1

--- Settings that grew too much, one a line.
local function grown(now, recorded)
  local list = {}
  for _, s in ipairs(settings) do
    local before = recorded[s.name]
    if not before then
      list[#list + 1] = s.name .. ": no count is recorded"
    elseif not (now[s.name] <= before * ALLOWED) then
      list[#list + 1] = ("%s: %.0f instructions, recorded %.0f"):format(s.name, now[s.name], before)
    end
  end
  return table.concat(list, "\n")
end

describe("instructions", function()
  local why = count.unable()
  if not why and (os.getenv "PERILUNE_PRELOAD" or "") ~= "" then why = "valgrind does not run a build with a sanitizer" end
  local key = not why and count.key(build)
  local recorded = key and count.recorded(key)
  if not why and not recorded then why = "no counts are recorded for " .. key end

  it("have not grown by more than a tenth", function()
    if why then return pending(why) end
    assert.equal("", grown(count.count(build .. "/lib"), recorded))
  end)

  it("that grew, or are recorded nowhere, are named", function()
    local now, before = {}, {}
    for _, s in ipairs(settings) do now[s.name], before[s.name] = 1000, 1000 end
    assert.equal("", grown(now, before))
    now[settings[1].name], before[settings[2].name] = 1101, nil
    assert.equal(settings[1].name .. ": 1101 instructions, recorded 1000\n" .. settings[2].name .. ": no count is recorded", grown(now, before))
  end)
end)
