-- SPDX-License-Identifier: MIT
-- schedule: runs a case's forward and backward passes in the order that a schedule says, with resets, frees and collections in
-- between, and gathers what must not depend on any of it: results and gradients.
--
-- Every sample makes its inputs anew in the arena, from parameters that live outside it, so that gradients add up in persistent
-- storage over the samples while all else may be recycled. Samples 1 and 3 share their parameters. Results are copied out by
-- an op on the stream, not by a read, which would wait and hide what only shows when nobody waits.

local core = require "perilune.core"
local cases = require "perilune.cases"
local compare = require "perilune.compare"
local hooks = require "perilune.hooks"
local samples = require "perilune.samples"
local settings = require "perilune.settings"

local schedule = {}

local T, A = core.tensor, core.autograd
local SAMPLES, SETS = 3, 2

--- The names of the schedules that come with perilune.
schedule.shipped = {
  "no-reset", "reset-between-fwd-bwd", "reset-mid-backward", "reset-per-sample", "eager-free", "gc-between-ops", "overflow",
  "interleaved", "nested-scopes", "late-host-reads", "captured",
}

--- A schedule: a table as a file returns it, or a name or path of one.
---@param spec string|table
function schedule.load(spec, level)
  local found = spec
  if type(spec) == "string" then found = settings.load(spec, "schedules", "PERILUNE_SCHEDULES", (level or 1) + 1) end
  if type(found) ~= "table" or type(found.run) ~= "function" or type(found.name) ~= "string" then
    error(("schedule: { name =, run = function(s) ... end } was expected%s"):format(
      type(spec) == "string" and " from the file of " .. spec or ""), (level or 1) + 1)
  end
  return found
end

--- The names of all schedules that are found: shipped ones and the user's own.
---@return string[]
function schedule.names() return settings.names("schedules", "PERILUNE_SCHEDULES") end

-- What a schedule sees ------------------------------------------------------------------------

---@class perilune.Schedule
---@field n integer number of samples
---@field engine any
local Schedule = {}

local function set_of(i) return (i - 1) % SETS + 1 end

--- A cotangent for a result: whole numbers of 1/8 between -1 and 1, none of them 0, the same for the same result everywhere.
local function cotangent(shape, dtype, i, k)
  local array, state = { shape = shape, dtype = dtype }, 7 * i + 13 * k
  for e = 1, cases.count(shape) do
    state = (state * 16807 + 11) % 2147483647
    array[e] = (state % 8 + 1) / 8 * (state % 3 == 0 and -1 or 1)
  end
  return array
end

local function put(eng, array) return samples.layouts.contiguous.make(eng, array) end

local function as_tensor(eng, value) return T.is_tensor(value) and value or put(eng, value) end

local function place_fail(text) error("schedule: " .. text, 3) end

local function check_number(s, i)
  if type(i) ~= "number" or i % 1 ~= 0 or i < 1 or i > s.n then place_fail(("there is no sample %s, s.n is %d"):format(tostring(i), s.n)) end
end

local function inputs_of(s, i)
  local eng, tensors = s.engine, {}
  for k, input in ipairs(s.private.inputs[set_of(i)]) do
    if input.param then
      tensors[k] = s.private.layout(eng, input.param:clone())
    else
      tensors[k] = put(eng, input.array)
    end
  end
  return tensors
end

local function copy_out(eng, t) return eng:persistent(T.shape(t), t, { dtype = T.dtype(t) }) end

--- Ops that Lua calls from here on are the case's own.
local function watched(s, fn, ...)
  local p = s.private
  if not p.watch then return fn(...) end
  p.inside = true
  return hooks.watch(p.watch, fn, ...)
end

--- Makes sample i's inputs. The draw numbers are the sample's own.
local function begin(s, i)
  check_number(s, i)
  local p = s.private
  if p.results[i] then place_fail(("sample %d had its forward already"):format(i)) end
  if p.case.random then s.engine:rng { 11, 1000 * i } end
  p.sample, p.call = i, 0
  p.tensors[i] = inputs_of(s, i)
end

local function run_forward(s, i)
  local p, eng, tensors = s.private, s.engine, s.private.tensors[i]
  local results = { watched(s, p.case.run, eng, unpack(tensors, 1, #tensors)) }
  p.results[i] = results
  p.copies[i] = {}
  local roots, gradients = {}, {}
  for k, y in ipairs(results) do
    if T.is_tensor(y) then
      p.copies[i][k] = eng:no_grad(copy_out, eng, y)
      if A.requires_grad(y) then
        roots[#roots + 1] = y
        gradients[#gradients + 1] = p.ready[i] and p.ready[i][k] or cotangent(T.shape(y), T.dtype(y), i, k)
      end
    end
  end
  p.roots[i], p.gradients[i] = roots, gradients
  if #roots > 1 then
    local loss
    for k, y in ipairs(roots) do
      local part = (y * as_tensor(eng, gradients[k])):sum()
      loss = loss and loss + part or part
    end
    p.roots[i] = { loss }
  end
end

--- Runs sample i forward and copies its results out.
function Schedule:forward(i)
  begin(self, i)
  run_forward(self, i)
end

--- Runs sample i's backward.
function Schedule:backward(i)
  check_number(self, i)
  local p, eng = self.private, self.engine
  if not p.results[i] then place_fail(("sample %d has had no forward"):format(i)) end
  if p.backward[i] then place_fail(("sample %d had its backward already"):format(i)) end
  p.backward[i] = true
  local root = p.roots[i][1]
  if not root then return end
  local gradients = p.gradients[i]
  if #gradients > 1 then
    root:backward()
  else
    root:backward(as_tensor(eng, gradients[1]))
  end
end

--- Captures sample i's forward and backward as one step; nothing of it has run before `replay`. What a step cannot upload is made first.
function Schedule:capture(i)
  begin(self, i)
  local p, eng = self.private, self.engine
  local ready = {}
  eng:no_grad(function()
    local tensors = inputs_of(self, i) -- others: the op may write into them
    for k, y in ipairs { p.case.run(eng, unpack(tensors, 1, #tensors)) } do
      if T.is_tensor(y) and T.dtype(y):match "^f" then ready[k] = put(eng, cotangent(T.shape(y), T.dtype(y), i, k)) end
    end
  end)
  p.ready[i] = ready
  p.steps[i] = eng:capture(function()
    run_forward(self, i)
    self:backward(i)
  end)
end

--- Runs sample i's captured step, once.
function Schedule:replay(i)
  check_number(self, i)
  local p = self.private
  if not p.steps[i] then place_fail(("sample %d has not been captured"):format(i)) end
  if p.case.random then self.engine:rng { 11, 1000 * i } end
  p.steps[i]:replay()
end

function Schedule:forward_all() for i = 1, self.n do self:forward(i) end end
function Schedule:backward_all() for i = 1, self.n do self:backward(i) end end
function Schedule:reset() self.engine:reset() end
function Schedule:scope(fn) return self.engine:scope(fn) end

--- A full collection.
function Schedule:collect() collectgarbage() end

local function try_free(s, t)
  local p = s.private
  if not T.is_valid(t) or T.home(t) == "persistent" then return end
  local ok, message = pcall(s.engine.free, s.engine, t)
  if ok then
    p.freed = p.freed + 1
  elseif not message:find("pinned or saved", 1, true) then
    error(message, 0)
  end
end

--- Frees what nobody reads any more: within a forward the intermediates whose last reader was called, after the backward all that is left
--- of the sample. What the tape saved stays.
function Schedule:free_dead()
  local p = self.private
  local i = p.sample
  if not i then return end
  if p.backward[i] then
    for _, list in ipairs { p.tensors[i], p.results[i] } do
      for _, t in ipairs(list) do if T.is_tensor(t) then try_free(self, t) end end
    end
    return
  end
  for _, number in ipairs(((p.plan or {})[i] or {})[p.call] or {}) do
    local t = p.seen[number]
    if t then try_free(self, t) end
  end
end

--- Reads sample i's results on the host, now.
function Schedule:read(i)
  check_number(self, i)
  local p = self.private
  if not p.results[i] then place_fail(("sample %d has had no forward"):format(i)) end
  for k, y in ipairs(p.results[i]) do
    if T.is_tensor(y) then p.reads[#p.reads + 1] = { sample = i, result = k, copy = compare.copy(y) } end
  end
end

--- Calls fn between any two ops of a forward ("op"), or before each node of a backward ("node").
function Schedule:on(event, fn)
  local p = self.private
  if type(fn) ~= "function" then place_fail "on(event, fn): fn is a function" end
  if event == "op" then
    p.on_op[#p.on_op + 1] = fn
    p.watch = p.watch or function(...) p.between(...) end
  elseif event == "node" then
    p.on_node[#p.on_node + 1] = fn
  else
    place_fail(('on(%q, fn): the events are "op" and "node"'):format(tostring(event)))
  end
end

-- Running -------------------------------------------------------------------------------------

--- What each op call of a forward was last to read, as numbers of tensors by their first appearance; from the calls as they are made.
local function recorder(p)
  return function(_, ...)
    p.call = p.call + 1
    for k = 1, select("#", ...) do
      local v = select(k, ...)
      local list = type(v) == "table" and v or { v }
      for _, t in ipairs(list) do
        if T.is_tensor(t) and not p.numbers[t] then
          p.seen[#p.seen + 1] = t
          p.numbers[t] = #p.seen
        end
        if T.is_tensor(t) then p.last[p.numbers[t]] = p.call end
      end
    end
  end
end

--- From a recorded forward: after which call which tensors are dead. Views of one storage die together; results do not.
local function plan_of(p, results)
  local group, dies = {}, {}
  for a = 1, #p.seen do
    group[a] = a
    for b = 1, a - 1 do
      if T.same_storage(p.seen[a], p.seen[b]) then
        group[a] = group[b]
        break
      end
    end
    dies[group[a]] = math.max(dies[group[a]] or 0, p.last[a])
  end
  local plan = {}
  for a = 1, #p.seen do
    local lives = group[a] ~= a
    for _, y in ipairs(results) do lives = lives or T.is_tensor(y) and T.same_storage(y, p.seen[a]) end
    if not lives then
      local at = dies[a]
      plan[at] = plan[at] or {}
      table.insert(plan[at], a)
    end
  end
  return plan
end

--- One run in peace, to learn which tensor dies where; needs nothing from the case but that it does the same again.
local function make_plans(eng, case)
  local plans = {}
  schedule.run(eng, case, { name = "plan", run = function(s)
    for i = 1, s.n do
      s:forward(i)
      plans[i] = plan_of(s.private, s.private.results[i])
      s:backward(i)
    end
  end, records = true })
  return plans
end

local function between(s)
  local p = s.private
  local record = recorder(p)
  return function(name, ...)
    if p.call == 0 then p.seen, p.numbers, p.last = {}, {}, {} end
    for _, fn in ipairs(p.on_op) do fn(name) end
    record(name, ...)
  end
end

local function make_inputs(eng, case)
  local sets = {}
  for set = 1, SETS do
    sets[set] = case.inputs(set)
    for _, input in ipairs(sets[set]) do
      if input.grad then
        input.param = eng:param(input.array.shape, put(eng, input.array), { dtype = input.array.dtype })
        input.home = T.address(input.param)
        input.grad_home = T.address(input.param.grad)
      end
    end
  end
  return sets
end

local function homes_kept(sets)
  for _, inputs in ipairs(sets) do
    for k, input in ipairs(inputs) do
      if input.param then
        local grad = input.param.grad
        if T.address(input.param) ~= input.home then return ("parameter %d was re-homed"):format(k) end
        if T.address(grad) ~= input.grad_home or T.home(grad) ~= "persistent" then
          return ("the gradient of input %s was re-homed"):format(input.slot or k)
        end
      end
    end
  end
end

--- What is left in the arena after a last reset, as a complaint.
local function leftovers(eng, before)
  local stats = eng:stats()
  if stats.pins ~= before.pins then return ("%d pins are left"):format(stats.pins - before.pins) end
  if (stats.overflow_bytes or 0) ~= 0 then return ("%d bytes of overflow blocks are left"):format(stats.overflow_bytes) end
  if stats.capacity > 0 and stats.live_bytes ~= before.live_bytes then
    return ("%d bytes are left in the arena"):format(stats.live_bytes - before.live_bytes)
  end
end

---@class perilune.Outcome
---@field tensors { name: string, gradient: boolean, copy: perilune.Copy }[]
---@field reads { sample: integer, result: integer, copy: perilune.Copy }[]
---@field trouble? string pins or memory that is left
---@field stats table of the engine, differences over the run for counters

--- Runs a case under a schedule. Errors of the engine go through.
---@param eng any
---@param case perilune.Case
---@param plan table a schedule
---@param layout? fun(eng, t): any how inputs lie in memory
---@return perilune.Outcome
function schedule.run(eng, case, plan, layout)
  local p = {
    case = case, results = {}, backward = {}, copies = {}, roots = {}, gradients = {}, tensors = {}, reads = {}, on_op = {}, on_node = {},
    steps = {}, ready = {}, freed = 0, call = 0, seen = {}, numbers = {}, last = {}, layout = layout or function(_, t) return t end,
  }
  p.inputs = make_inputs(eng, case)
  eng:reset()
  local before = eng:stats()
  local s = setmetatable({ n = SAMPLES, engine = eng, private = p }, { __index = Schedule })
  p.between = between(s)
  if plan.records then p.watch = p.between end
  -- a schedule that listens to ops may free what is dead: find out what that is
  local on = s.on
  function s:on(event, fn)
    on(s, event, fn)
    if event == "op" and not p.plan then p.plan = make_plans(eng, case) end
    if event == "node" then
      A.on_node(eng, function(name)
        for _, listener in ipairs(p.on_node) do listener(name) end
      end)
    end
  end
  local ok, message = xpcall(plan.run, function(m)
    return type(m) == "string" and m or debug.traceback(tostring(m), 2)
  end, s)
  if #p.on_node > 0 then A.on_node(eng, nil) end
  if not ok then error(message, 0) end
  for i = 1, s.n do
    if not p.results[i] or not p.backward[i] then
      error(("schedule %s: sample %d had no %s"):format(plan.name, i, p.results[i] and "backward" or "forward"), 0)
    end
  end
  local moved = homes_kept(p.inputs)
  if moved then error(moved, 0) end
  eng:reset()
  local outcome = { tensors = {}, reads = p.reads, freed = p.freed }
  for i = 1, s.n do
    for k, copy in pairs(p.copies[i]) do
      outcome.tensors[#outcome.tensors + 1] = { name = ("sample %d result %d"):format(i, k), copy = compare.copy(copy) }
    end
  end
  for set, inputs in ipairs(p.inputs) do
    for k, input in ipairs(inputs) do
      if input.param then
        outcome.tensors[#outcome.tensors + 1] =
          { name = ("set %d gradient of %s"):format(set, input.slot or k), gradient = true, copy = compare.copy(input.param.grad) }
      end
    end
  end
  for _, step in pairs(p.steps) do step:release() end
  if next(p.steps) then eng:reset() end
  eng:sync()
  local stats = eng:stats()
  outcome.stats = { misses = (stats.misses or 0) - (before.misses or 0), stale_frees = (stats.stale_frees or 0) - (before.stale_frees or 0) }
  outcome.trouble = leftovers(eng, before)
  return outcome
end

schedule.samples, schedule.cotangent = SAMPLES, cotangent

return schedule
