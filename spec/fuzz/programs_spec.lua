-- SPDX-License-Identifier: MIT
-- Random programs of ops, views, destinations, scopes, resets, pins, frees and reads, run side by side on every engine: the same bits, the
-- same errors. A model of lifetimes says which tensors are alive; a dead one raises on engines that have an arena.
-- PERILUNE_FUZZ_SEEDS=n runs n seeds of each kind of program instead of a few; a failure tells its seed and step.

local core = require "perilune.core"
local perilune = require "perilune"
local chance = require "spec.support.chance"

local SEEDS = tonumber(os.getenv "PERILUNE_FUZZ_SEEDS") or 40
local STEPS = 150
local VARIABLES, ELEMENTS = 24, 4000

local SHAPES = { {}, { 0 }, { 1 }, { 3 }, { 2, 3 }, { 2, 3 }, { 2, 3 }, { 3, 2 }, { 3, 3 }, { 3, 3 }, { 1, 3 }, { 2, 1 }, { 2, 3, 3 }, { 4, 4 }, { 40, 7 } }
local SIZES = { 1, 1, 2, 2, 3, 3, 4, -1, -1, -2, 0, 6 }
local NUMBERS = { 0, 1, 2, 3, 0.5, -1, -2.5, 0 / 0, 1 / 0 }
local DTYPES = { "f32", "f32", "f32", "f64", "i64", "i32", "u8", "bool" }

local rows = {}
for _, row in ipairs(core.ops.rows) do
  if not row.internal and not row.host_read and row.name ~= "empty" then rows[#rows + 1] = row end
end

-- A program's state: the engines, the variables ({ [1] = tensor on the first engine, ... }) and what the model knows of their storages.
local Program = {}
Program.__index = Program

function Program:fail(message, ...)
  error(("seed %d, step %d (%s): "):format(self.seed, self.step, self.what) .. message:format(...), 0)
end

function Program:engines_with_arena(fn)
  for k = 2, #self.engines do fn(self.engines[k], k) end
end

--- Values that hold variables as values that hold their tensors on engine k.
local function on(value, k)
  if type(value) ~= "table" then return value end
  if value.storage then return value[k] end
  local out = {}
  for key, v in pairs(value) do out[key] = on(v, k) end
  return out
end

local function plain(message) -- without what differs between engines
  return (tostring(message):gsub('"[%l%-]+"', "ENGINE"):gsub(" %(at .-%)", ""):gsub(" %(eng:places.*", ""))
end

--- The same call on every engine: ok and, for each engine, a list of results or the message.
function Program:everywhere(fn)
  local answers, ok = {}, nil
  for k, eng in ipairs(self.engines) do
    local results = { pcall(fn, eng, k) }
    if ok == nil then ok = results[1] end
    if results[1] ~= ok then self:fail("engine 1 gives %s, engine %d gives %s", tostring(answers[1][1]), k, tostring(results[2])) end
    table.remove(results, 1)
    answers[k] = results
    if not ok and plain(results[1]) ~= plain(answers[1][1]) then
      self:fail("engine 1 says %s, engine %d says %s", tostring(answers[1][1]), k, tostring(results[1]))
    end
  end
  return ok, answers
end

function Program:compare(v)
  local want = v[1]
  for k = 2, #self.engines do
    local t = v[k]
    if t.dtype ~= want.dtype or table.concat(t.shape, ",") ~= table.concat(want.shape, ",") then
      self:fail("%s (%s) on engine 1, %s (%s) on engine %d", want.dtype, table.concat(want.shape, ","), t.dtype, table.concat(t.shape, ","), k)
    end
  end
  local ok, bytes = self:everywhere(function(_, k) return v[k]:bytes() end)
  if not ok then return end -- an error that only data could tell, the same everywhere
  for k = 2, #self.engines do
    if bytes[k][1] ~= bytes[1][1] then
      self:fail("other bits on engine %d:\n%s\nthan on engine 1:\n%s", k, tostring(v[k]), tostring(v[1]))
    end
  end
end

function Program:alive()
  local list = {}
  for _, v in ipairs(self.variables) do
    if v.storage.alive then list[#list + 1] = v end
  end
  return list
end

function Program:add(tensors, operands, home)
  local v = {}
  for k = 1, #self.engines do v[k] = tensors[k] end
  for _, u in ipairs(operands) do
    local shared = v[1]:same_storage(u[1])
    for k = 2, #self.engines do
      if v[k]:same_storage(u[k]) ~= shared then self:fail("a result shares an operand's memory on one engine only") end
    end
    if shared then v.storage = u.storage end
  end
  v.storage = v.storage or { alive = true, pins = 0, depth = self.depth, persistent = home == "persistent" }
  if not perilune.is_tensor(v[1]) then self:fail("a result is %s", tostring(v[1])) end
  if v[1]:numel() > ELEMENTS then return end
  if #self.variables >= VARIABLES then table.remove(self.variables, self.rnd:whole(1, #self.variables)) end
  table.insert(self.variables, v)
end

-- Steps -------------------------------------------------------------------------------------

local step = {}

function step.make(p)
  local shape, dtype, fill = p.rnd:pick(SHAPES), p.rnd:pick(DTYPES), p.rnd:whole(0, 4)
  local home = p.rnd:one_in(4) and "persistent" or "result"
  local ok, answers = p:everywhere(function(eng)
    if home == "persistent" then return eng:persistent(shape, fill, { dtype = dtype }) end
    local n = 1
    for _, size in ipairs(shape) do n = n * size end
    if dtype == "bool" or n == 0 or n > 200 then return eng:full(shape, fill, { dtype = dtype }) end
    return eng:arange(fill, fill + n, 1, dtype):view(shape)
  end)
  if not ok then return end
  local tensors = {}
  for k, results in ipairs(answers) do tensors[k] = results[1] end
  p:add(tensors, {}, home)
end

local function pick(p, list) return #list > 0 and p.rnd:pick(list) or 1 end

local function slot_value(p, slot, live)
  local rnd, kind = p.rnd, slot.kind
  if slot.optional and rnd:one_in(2) then return nil end
  if kind == "tensor" or kind == "index" or kind == "mask" then return pick(p, live) end
  if kind == "tensor or number" then return rnd:one_in(4) and rnd:pick(NUMBERS) or pick(p, live) end
  if kind == "tensors" then
    local list = {}
    for k = 1, rnd:whole(1, 3) do list[k] = pick(p, live) end
    return list
  end
  if kind == "num" then return rnd:pick(NUMBERS) end
  if kind == "bool" then return rnd:one_in(2) end
  if kind == "int" or kind == "dim" then return rnd:pick(SIZES) end
  if kind == "dims" or kind == "ints" then
    local list = {}
    for k = 1, rnd:whole(0, 3) do list[k] = rnd:pick(SIZES) end
    return list
  end
  if kind == "dtype" then return rnd:pick(DTYPES) end
  local words = {}
  for word in slot.words:gmatch "[^|]+" do words[#words + 1] = word end
  return rnd:pick(words)
end

function step.op(p)
  local rnd, live, row = p.rnd, p:alive(), nil
  row = rnd:pick(rows)
  local args, n, operands = {}, #row.slots, {}
  -- variables of one shape more often than chance would have it
  local near = live
  if #live > 0 and rnd:one_in(2) then
    local shape = table.concat(rnd:pick(live)[1].shape, ",")
    near = {}
    for _, v in ipairs(live) do
      if table.concat(v[1].shape, ",") == shape then near[#near + 1] = v end
    end
  end
  for k, slot in ipairs(row.slots) do args[k] = slot_value(p, slot, near) end
  if rnd:one_in(4) and #live > 0 then
    n = n + 1
    args[n] = rnd:pick(near)
  end
  for k = 1, n do
    local a = args[k]
    if type(a) == "table" and a.storage then
      operands[#operands + 1] = a
    elseif type(a) == "table" then
      for _, v in ipairs(a) do if type(v) == "table" then operands[#operands + 1] = v end end
    end
  end
  p.what = row.name
  local alone, want = n > #row.slots and not row.random and not row.inplace and rnd:one_in(2)
  if alone then -- with copies of the operands and without a destination: whatever shares memory must not show
    p:everywhere(function(eng) return eng:sync() end)
    local ok, results = pcall(function()
      local copies = {}
      for i = 1, n - 1 do
        copies[i] = type(args[i]) == "table" and (args[i].storage and args[i][1]:clone() or {}) or args[i]
        if type(args[i]) == "table" and not args[i].storage then
          for j, v in ipairs(args[i]) do copies[i][j] = type(v) == "table" and v[1]:clone() or v end
        end
      end
      return core.ops[row.name](p.engines[1], unpack(copies, 1, n - 1)):bytes()
    end)
    want = ok and results
  end
  local ok, answers = p:everywhere(function(eng, k)
    local mine = {}
    for i = 1, n do mine[i] = on(args[i], k) end
    return core.ops[row.name](eng, unpack(mine, 1, n))
  end)
  if not ok then return end
  if want and row.nout == 1 and p:everywhere(function(eng) return eng:sync() end) and args[n][1]:bytes() ~= want then
    p:fail("the destination holds other bits than a result on its own")
  end
  for i = 1, math.min(#answers[1], 4) do
    local tensors, given = {}, nil
    for k = 1, #p.engines do tensors[k] = answers[k][i] end
    for _, v in ipairs(operands) do
      if rawequal(v[1], tensors[1]) then given = v end
    end
    for k = 2, #p.engines do
      if #answers[k] ~= #answers[1] or given and not rawequal(given[k], tensors[k]) then p:fail("other results on engine %d", k) end
    end
    if not given then p:add(tensors, operands) end
    if rnd:one_in(3) then p:compare(given or tensors) end
  end
end

step.op2, step.op3, step.op4 = step.op, step.op, step.op

function step.view(p)
  local live = p:alive()
  if #live == 0 then return end
  local v, key = p.rnd:pick(live), {}
  for d = 1, v[1].ndim do
    if p.rnd:one_in(4) then
      key[d] = p.rnd:pick(SIZES)
    elseif p.rnd:one_in(2) then
      key[d] = { p.rnd:pick(SIZES), p.rnd:pick(SIZES), p.rnd:one_in(2) and p.rnd:pick(SIZES) or nil }
    else
      key[d] = {}
    end
  end
  if p.rnd:one_in(5) then key[#key] = nil end
  local ok, answers = p:everywhere(function(_, k) return v[k][key] end)
  if not ok then return end
  local tensors = {}
  for k, results in ipairs(answers) do tensors[k] = results[1] end
  p:add(tensors, { v })
end

function step.assign(p)
  local live = p:alive()
  if #live == 0 then return end
  local v, u = p.rnd:pick(live), p.rnd:pick(live)
  if v[1].ndim == 0 then return end
  local key, value = p.rnd:pick(SIZES), p.rnd:one_in(2) and p.rnd:pick(NUMBERS) or u
  p:everywhere(function(_, k) v[k][key] = on(value, k) end)
  p:compare(v)
end

function step.read(p)
  local live = p:alive()
  if #live > 0 then p:compare(p.rnd:pick(live)) end
end

function step.pin(p)
  local live = p:alive()
  if #live == 0 then return end
  local v = p.rnd:pick(live)
  p:everywhere(function(eng, k) return eng:pin(v[k]) end)
  v.storage.pins = v.storage.pins + 1
end

function step.unpin(p)
  local live = p:alive()
  if #live == 0 then return end
  local v = p.rnd:pick(live)
  local ok = p:everywhere(function(eng, k) return eng:unpin(v[k]) end)
  if ok ~= (v.storage.pins > 0) then p:fail("unpin of %d pins: %s", v.storage.pins, tostring(ok)) end
  if ok then v.storage.pins = v.storage.pins - 1 end
end

function step.free(p)
  if not p.rnd:one_in(3) or #p.variables == 0 then return end
  local v = p.rnd:pick(p.variables)
  local s = v.storage
  if not s.alive then -- late frees do nothing
    p:engines_with_arena(function(eng, k) eng:free(v[k]) end)
    return
  end
  local ok = p:everywhere(function(eng, k) return eng:free(v[k]) end)
  if ok ~= (s.pins == 0) then p:fail("free of a block with %d pins: %s", s.pins, tostring(ok)) end
  if ok then s.alive = false end
end

--- What a reset or the end of a scope leaves.
function Program:ended(depth, to)
  local seen = {}
  for _, v in ipairs(self.variables) do
    local s = v.storage
    if s.alive and not s.persistent and s.depth == depth and not seen[s] then
      seen[s] = true
      if s.pins == 0 then s.alive = false else s.depth = to end
    end
  end
end

function step.reset(p)
  if not p.rnd:one_in(3) then return end
  p:everywhere(function(eng) return eng:sync() end) -- errors that only data tells are raised by this wait, on late streams too
  p:everywhere(function(eng) return eng:reset() end)
  p:ended(p.depth, p.depth)
end

function step.dead(p)
  for _, v in ipairs(p.variables) do
    if not v.storage.alive then
      p:engines_with_arena(function(eng, k)
        if v[k]:is_valid() then p:fail("a dead tensor is valid on engine %d", k) end
        local live = p:alive()[1]
        for _, use in ipairs { function() return v[k] + 1 end, function() return v[k]:totable() end, function() return v[k]:view { -1 } end,
          function() return v[k][1] end, function() return eng:pin(v[k]) end, function() return live and eng:neg(live[k], v[k]) or v[k].shape end } do
          local ok, message = pcall(use)
          if ok or not (message:find("reclaimed", 1, true) or message:find("freed", 1, true)) then
            p:fail("a dead tensor's use on engine %d: %s", k, tostring(message))
          end
        end
      end)
    elseif not v[1]:is_valid() or not v[#p.engines]:is_valid() then
      p:fail("a live tensor is not valid")
    end
  end
end

function step.drop(p)
  for _ = 1, p.rnd:whole(1, 6) do
    if #p.variables > 0 then table.remove(p.variables, p.rnd:whole(1, #p.variables)) end
  end
  if p.rnd:one_in(3) then collectgarbage() else collectgarbage("step", p.rnd:whole(0, 100)) end
end

function step.poison(p)
  local events = {}
  for _, event in ipairs { "reset", "free", "alloc" } do
    if p.rnd:one_in(2) then events[#events + 1] = event end
  end
  local setting = { on = events, word = p.rnd:pick { 0x7FF8, 0, 0xFFFF }, redzone = p.rnd:pick { 0, 0, 16, 200 } }
  p:engines_with_arena(function(eng) eng:poison(setting) end)
end

function step.check(p)
  p:engines_with_arena(function(eng, k)
    local text = eng.arena:check()
    if text ~= "" then p:fail("the arena of engine %d: %s", k, text) end
  end)
  local want = p.engines[1]:rng()
  p:engines_with_arena(function(eng, k)
    if eng:rng()[2] ~= want[2] then p:fail("other draw number on engine %d", k) end
  end)
end

--- Steps in a scope of every engine, which an error may end.
function step.scope(p)
  if p.depth >= 4 or not p.rnd:one_in(2) then return end
  p.depth = p.depth + 1
  local steps, thrown = p.rnd:whole(1, 25), p.rnd:one_in(4)
  local function open(k)
    if k <= #p.engines then return p.engines[k]:scope(function() return open(k + 1) end) end
    p:run(steps)
    if thrown then error({}) end
  end
  local ok, message = pcall(open, 1)
  if ok == thrown or not ok and type(message) ~= "table" then error(message, 0) end
  p:ended(p.depth, p.depth - 1)
  p.depth = p.depth - 1
end

local names = {}
for name in pairs(step) do names[#names + 1] = name end
table.sort(names)

function Program:run(steps)
  for _ = 1, steps do
    self.step = self.step + 1
    local name = self.rnd:pick(names)
    self.what = name
    step[name](self)
  end
end

local function program(seed, engines)
  local p = setmetatable({ seed = seed, step = 0, what = "", rnd = chance.new(seed, "programs"), engines = engines, variables = {}, depth = 0 }, Program)
  for _ = 1, 6 do step.make(p) end
  p:run(STEPS)
  p.what = "end"
  step.check(p)
  for _, v in ipairs(p:alive()) do p:compare(v) end
end

local ARENAS = { "4KiB", "16KiB", "256KiB" }

local function run(seed)
  local size = ARENAS[seed % #ARENAS + 1]
  local places = seed % 3 == 0
  local list = {
    perilune.engine { "cpu", places = places }, perilune.engine { "stress", arena = size, places = places },
    perilune.engine { "cpu", arena = size, places = places, plans = seed % 2 == 0 },
  }
  perilune.on_report(false)
  local ok, message = pcall(program, seed, list)
  perilune.on_report(nil)
  for _, eng in ipairs(list) do pcall(eng.close, eng) end
  if not ok then error(message, 0) end
end

describe("random programs give the same everywhere", function()
  after_each(function()
    debug.sethook()
    jit.on()
  end)

  it("with compiled Lua", function()
    for seed = 1, SEEDS do run(seed) end
  end)

  it("with interpreted Lua", function()
    jit.off()
    for seed = 1001, 1000 + SEEDS do run(seed) end
  end)

  it("with the collector at work between any two instructions", function()
    for seed = 2001, 2000 + math.ceil(SEEDS / 4) do
      debug.sethook(function() collectgarbage("step", 20) end, "", 61)
      run(seed)
      debug.sethook()
    end
  end)
end)
