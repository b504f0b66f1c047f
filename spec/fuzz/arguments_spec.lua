-- SPDX-License-Identifier: MIT
-- Every op with arguments of every kind at every slot. Whatever is passed, the call gives tensors or an error at the caller's line that
-- names the op; after an error nothing has changed: no argument, no memory, no draw number; and no call takes long.
-- PERILUNE_FUZZ_SEEDS=n runs n seeds instead of one; a failure tells its seed.

local ffi = require "ffi"
local core = require "perilune.core"
local perilune = require "perilune"
local engines = require "spec.support.engines"
local footing = require "spec.support.footing"
local chance = require "spec.support.chance"

local SEEDS = tonumber(os.getenv "PERILUNE_FUZZ_SEEDS") or 1
local ROUNDS = 60 -- calls of each op and seed
local SLOW = 2    -- seconds

local SHAPES = { {}, { 0 }, { 1 }, { 2 }, { 3 }, { 2, 3 }, { 3, 2 }, { 3, 3 }, { 2, 0, 3 }, { 1, 3 }, { 2, 3, 4 }, { 4, 4 }, { 1, 1, 1, 1, 1, 1, 1, 2 } }
-- small, or so large that there is no memory for it
local SIZES = { 0, 1, 1, 2, 2, 3, 3, 4, -1, -1, -2, -3, 5, 8, 1.5, 0 / 0, 1 / 0, -1 / 0, 2 ^ 45, -2 ^ 45, 2 ^ 53, -2 ^ 53, 2 ^ 53 + 2, 1e300 }
local NUMBERS = { 0, -0.0, 1, 2, 0.5, -1, -2.5, 0.1, 1e-5, 1e38, 1e-320, 1e300, -1e300, 0 / 0, 1 / 0, -1 / 0, 2 ^ 45, 2 ^ 53 + 2 }

local cyclic = {}
cyclic[1] = cyclic

local JUNK = {
  function() return nil end, function() return true end, function() return false end, function() return "sum" end, function() return "1" end,
  function() return "" end, function() return {} end, function() return { 1, 2 } end, function() return cyclic end,
  function() return print end, function() return coroutine.create(print) end, function() return io.stdout end, function() return newproxy() end,
  function() return ffi.new "int64_t" end, function() return ffi.new "double[4]" end, function() return ffi.new("void *", nil) end,
  function() return setmetatable({}, { __index = function() return 1 end, __len = function() return 3 end }) end,
  function() return { dim = 1 } end, function() return { out = 1 } end, function() return { [2] = 1 } end, function() return { 1, nil, 3 } end,
}

local function pool(eng, other, rnd)
  local list = {}
  for _, dtype in ipairs(core.dtypes) do
    local t = eng:full(rnd:pick(SHAPES), rnd:whole(0, 3), { dtype = dtype })
    list[#list + 1] = t
    if t.ndim >= 2 then list[#list + 1] = t:transpose(1, 2) end
    if t.ndim >= 1 and t.shape[1] > 1 then list[#list + 1] = t[{ { 1, t.shape[1], 2 } }] end
    list[#list + 1] = eng:full({}, 1, { dtype = dtype }):expand(rnd:pick(SHAPES))
  end
  for _ = 1, 6 do list[#list + 1] = eng:rand(rnd:pick(SHAPES)) end
  for _ = 1, 3 do list[#list + 1] = eng:persistent(rnd:pick(SHAPES), 2) end
  local dead = eng:ones(3)
  eng:free(dead)
  return list, { dead, other:ones(3) }
end

local function list_of(rnd, n, make)
  local list = {}
  for k = 1, n do list[k] = make() end
  return list
end

local DTYPES = { "f32", "f64", "i64", "u8", "bool", "f128" }

--- A value for a slot, mostly of its kind.
local function value(rnd, slot, live, odd)
  local kind = slot.kind
  if rnd:one_in(9) then return rnd:pick(JUNK)() end
  if rnd:one_in(25) then return rnd:pick(odd) end
  if slot.optional and rnd:one_in(3) then return nil end
  if kind == "tensor" or kind == "index" or kind == "mask" then return rnd:pick(live) end
  if kind == "tensor or number" then
    if rnd:one_in(3) then return rnd:pick(NUMBERS) end
    return rnd:pick(live)
  end
  if kind == "tensors" then return list_of(rnd, rnd:whole(0, 4), function() return rnd:pick(live) end) end
  if kind == "num" then return rnd:pick(NUMBERS) end
  if kind == "bool" then return rnd:one_in(2) end
  if kind == "int" or kind == "dim" then return rnd:pick(SIZES) end
  if kind == "dims" or kind == "ints" then
    if rnd:one_in(3) then return rnd:pick(SIZES) end
    return list_of(rnd, rnd:whole(0, rnd:one_in(8) and 12 or 4), function() return rnd:pick(SIZES) end)
  end
  if kind == "dtype" then return rnd:pick(DTYPES) end
  local words = {}
  for word in slot.words:gmatch "[^|]+" do words[#words + 1] = word end
  return rnd:pick(words)
end

--- Arguments and their number, by position and in part by name.
local function arguments(rnd, row, live, odd)
  local args, n = {}, 0
  local named = rnd:one_in(4) and {} or nil
  for _, slot in ipairs(row.slots) do
    local v = value(rnd, slot, live, odd)
    if named and rnd:one_in(2) then
      named[slot.name] = v
    else
      n = n + 1
      args[n] = v
    end
  end
  if rnd:one_in(3) then
    local out = rnd:one_in(6) and rnd:pick(JUNK)() or rnd:pick(live)
    if named then named.out = rnd:one_in(3) and { out, rnd:pick(live), rnd:pick(live) } or out else args[n + 1], n = out, n + 1 end
  end
  if named then
    if rnd:one_in(10) then named.bogus = 1 end
    if rnd:one_in(20) then named[1] = 1 end
    n = n + 1
    args[n] = named
  end
  if rnd:one_in(12) then n = n + 1; args[n] = rnd:pick(JUNK)() end
  if rnd:one_in(12) then n = math.max(n - 1, 0) end
  return args, n
end

local function snapshot(live)
  local seen = {}
  for k, t in ipairs(live) do seen[k] = t:bytes() .. "|" .. t:version() end
  return seen
end

local line -- of the call
local function call(fn, ...)
  line = debug.getinfo(1, "l").currentline + 1
  local results = { n = select("#", fn(...)) } -- the call: its results are dropped
  return results
end

local WATCHED = { "draw", "recording", "pins", "live_blocks", "live_bytes", "owned_bytes", "overflow_blocks", "pinned_bytes" }

local function same(before, after)
  for _, what in ipairs(WATCHED) do
    if before[what] ~= after[what] then return false, ("%s was %s, is %s"):format(what, tostring(before[what]), tostring(after[what])) end
  end
  return true
end

describe("arguments of", function()
  after_each(engines.close)

  engines.each(function(kind, open)
    for _, row in ipairs(core.ops.rows) do
      it(row.name .. " on " .. kind, function()
        perilune.on_report(false)
        for seed = 1, SEEDS do
          local rnd = chance.new(seed, row.name)
          local eng = open(kind ~= "cpu" and { arena = "256KiB" } or nil)
          local live, odd = pool(eng, open(), rnd)
          local worked = 0
          for round = 1, ROUNDS do
            local args, n = arguments(rnd, row, live, odd)
            local method = rnd:one_in(2) or row.create
            local function go() -- on its own line of this file
              if method then return call(core.ops[row.name], eng, unpack(args, 1, n)) end
              return call(core.ops[row.name], unpack(args, 1, n))
            end
            local what = ("seed %d, round %d"):format(seed, round)
            pcall(eng.sync, eng)
            collectgarbage "stop"
            local before, bytes = footing.of(eng), snapshot(live)
            local start = os.clock()
            local ok, message = pcall(go)
            local took = os.clock() - start
            local after = footing.of(eng)
            collectgarbage "restart"
            assert(took < SLOW, ("%s: the call took %.1f s"):format(what, took))
            if ok then
              worked = worked + 1
            else
              local place = ("arguments_spec.lua:%d: "):format(line)
              assert(type(message) == "string" and message:find(place, 1, true), what .. ": not at the caller's line: " .. tostring(message))
              assert(message:find(": " .. row.name .. ": ", 1, true), what .. ": the op is not named: " .. message)
              local unchanged, why = same(before, after)
              assert(unchanged, ("%s: after the error %q %s"):format(what, message, tostring(why)))
              pcall(eng.sync, eng)
              for k, seen in ipairs(snapshot(live)) do
                assert(seen == bytes[k], ("%s: after the error %q argument tensor %d has changed"):format(what, message, k))
              end
            end
            pcall(eng.sync, eng) -- data errors
            footing.check_arena(eng)
          end
          pcall(eng.close, eng)
        end
        perilune.on_report(nil)
      end)
    end
  end)
end)
