-- SPDX-License-Identifier: MIT
-- Lua code runs where nobody looks: finalizers wherever Lua allocates, metamethods wherever a table is read, reports wherever an arena
-- overflows. Whatever such code ends (tensors, epochs, engines), the call in the middle of which it ran gives the right values or an error.

local perilune = require "perilune"
local engines = require "spec.support.engines"

local ROUNDS = 12000

local launcher = os.getenv "PERILUNE_LAUNCHER" or "./perilune"

--- Garbage whose finalizer is fn: it runs some allocations from now.
local function trap(fn) getmetatable(newproxy(true)).__gc = fn end

local function leaves(value, fn)
  if type(value) == "table" then
    for _, v in ipairs(value) do leaves(v, fn) end
  else
    fn(value)
  end
end

-- Every call on x = {3, 3, 3, 3} whose results are 3 or 6, by what it allocates between reading its arguments and acting.
local calls = {
  add = function(x) return x + x end,
  add_out = function(x, eng) return eng:add(x, x, eng:empty { 4 }) end,
  view = function(x) return x:view { 2, 2 } end,
  concat = function(x) return perilune.concat({ x, x }, 1) end,
  range = function(x) return x[{ { 1, 2 } }] end,
  split = function(x) return { x:split(1) } end,
  options = function(x, eng) return eng:add { a = x, b = x } end,
  totable = function(x) return x:totable() end,
  clone = function(x) return x:clone() end,
  detach = function(x) return x:detach() end,
  persistent = function(x, eng) return eng:persistent({ 4 }, x) end,
  upload = function(_, eng) return eng:tensor { 3, 3, 6 } end,
}

-- What a finalizer ends.
local endings = {
  reset = function(eng) eng:reset() end,
  free = function(eng, x) eng:free(x) end,
  close = function(eng) eng:close() end,
}

describe("finalizers that end", function()
  after_each(function()
    collectgarbage("setpause", 200)
    collectgarbage("setstepmul", 200)
    engines.close()
  end)

  engines.each(function(kind, open)
    for ending, finish in pairs(endings) do
      it(("what is in use (%s) on %s"):format(ending, kind), function()
        collectgarbage("setpause", 50)
        collectgarbage("setstepmul", 1000)
        local options = kind ~= "cpu" and { arena = "16KiB", poison = true } or nil
        local eng, hits, answers = open(options), 0, 0
        local x, armed -- what the finalizer ends, of garbage from any round before, and whether a call is under way
        local quiet = 0 -- rounds since a finalizer ran: fast to the phase that runs them, slow through it
        local function strike()
          quiet = 0
          collectgarbage("setstepmul", 20)
          if not armed then return end
          armed = false
          hits = hits + 1
          pcall(finish, eng, x)
        end
        local names = {}
        for name in pairs(calls) do names[#names + 1] = name end
        table.sort(names)
        for i = 1, ROUNDS do
          if eng:closed() then eng = perilune.engine { kind:match "^[%w-]+", arena = kind ~= "cpu" and "16KiB" or nil, poison = true } end
          x = eng:full({ 4 }, 3)
          trap(strike)
          quiet = quiet + 1
          if quiet == 50 then collectgarbage("setstepmul", 4000) end
          local name = names[i % #names + 1]
          armed = true
          local ok, y = pcall(calls[name], x, eng)
          armed = false
          local read, values = pcall(function()
            if type(y) ~= "table" then return y:totable() end
            local all = {}
            for k, v in ipairs(y) do all[k] = type(v) == "number" and v or v:totable() end
            return all
          end)
          if ok and read then
            answers = answers + 1
            leaves(values, function(v)
              if v ~= 3 and v ~= 6 then error(("round %d: %s gave %s, 3 or 6 was expected"):format(i, name, tostring(v))) end
            end)
          end
        end
        assert.is_true(hits > ROUNDS / 200, ("finalizers ran in the middle of %d calls only"):format(hits))
        assert.is_true(answers > ROUNDS / 2, "most calls gave values")
        pcall(eng.close, eng)
      end)
    end
  end)
end)

describe("metamethods that end", function()
  after_each(engines.close)

  engines.each(function(kind, open)
    it("what was read before them is an error or right on " .. kind, function()
      for _, finish in pairs(endings) do
        local eng = open()
        local x = eng:full({ 2, 2 }, 3)
        local options = setmetatable({ keepdim = true }, { __index = function(_, key)
          if key == "dim" then pcall(finish, eng, x) end
        end })
        local ok, y = pcall(perilune.sum, x, options)
        assert.is_true(not ok or eng:closed() or y:item() == 12)
        if not ok then assert.matches("sum", y) end
      end
    end)
  end)

  it("lists of tensors, whose elements may go while they are read", function()
    local eng = engines.open "cpu"
    for _ = 1, 100 do
      local list = { eng:full({ 2 }, 3), eng:full({ 2 }, 3) }
      local ok, y = pcall(perilune.concat, list, setmetatable({ dim = 1 }, { __index = function()
        list[1], list[2] = nil, nil
        collectgarbage()
      end }))
      assert.is_true(not ok or y:sum():item() == 12)
    end
  end)
end)

describe("reports that end", function()
  after_each(function()
    perilune.on_report(nil)
    engines.close()
  end)

  engines.each_arena(function(kind, open)
    it("the engine that overflowed, on " .. kind, function()
      for _, finish in pairs { function(e) e:close() end, function(e) e:reset() end } do
        local eng = open { arena = "4KiB" }
        perilune.on_report(function() finish(eng) end)
        local ok, message = pcall(function()
          for _ = 1, 100 do local _ = eng:ones { 100 } + 1 end
        end)
        assert.is_true(ok or eng:closed() or message:find("is stale", 1, true) ~= nil, message) -- the ones went with the reset
      end
    end)
  end)
end)

describe("finalizers at the end of a state", function()
  for _, kind in ipairs { "cpu", "stress" } do
    it("older than the module find tensors and engines that are gone, on " .. kind, function()
      local path = os.tmpname()
      local file = assert(io.open(path, "w"))
      file:write(([[
        local p = newproxy(true)
        local perilune, eng, x
        getmetatable(p).__gc = function()
          print("sum", pcall(function() return x:sum():item() end))
          print("shape", pcall(function() return x.shape end))
          print("text", pcall(tostring, x))
          print("make", pcall(function() return eng:ones(3) end))
          print("new", pcall(function() return perilune.engine "cpu":ones(3):sum():item() end))
        end
        perilune = require "perilune"
        eng = perilune.engine "%s"
        x = eng:ones { 4 }
      ]]):format(kind))
      file:close()
      local pipe = assert(io.popen(("'%s' '%s' 2>&1; echo status $?"):format(launcher, path)))
      local text = pipe:read "*a"
      pipe:close()
      os.remove(path)
      for _, what in ipairs { "sum", "shape", "text", "make" } do assert.matches(what .. "%s+false", text) end
      assert.matches("new%s+true%s+3", text)
      assert.matches("status 0", text)
    end)
  end
end)
