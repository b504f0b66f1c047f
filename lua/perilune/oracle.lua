-- SPDX-License-Identifier: MIT
-- oracle: ops against PyTorch, forward and backward, through files. `export` writes one bundle per op: manifest.json and raw
-- little-endian files of inputs, cotangents, results and gradients. scripts/oracle/check.py replays bundles in PyTorch, in double, reports how far
-- the two are apart and can keep PyTorch's side as a record; `compare` holds a record against an engine, without PyTorch.
--
-- Bundles and records name what made them. A record carries its inputs, so it stays good when samples change.

local core = require "perilune.core"
local cases = require "perilune.cases"
local compare = require "perilune.compare"
local engine = require "perilune.engine"
local json = require "perilune.json"
local samples = require "perilune.samples"
local schedule = require "perilune.schedule"
local tally = require "perilune.tally"
require "perilune" -- what tensors can do

local oracle = {}

local T, A = core.tensor, core.autograd

--- Random draws have no counterpart, what `empty` holds has no right answer.
local LEFT_OUT = { rand = true, randn = true, randint = true, empty = true }
local LARGEST = 300 -- elements of an input or result

local rows = {}
for _, row in ipairs(core.ops.rows) do rows[row.name] = row end

--- The cases of bundles: small samples, in the sample's own dtype or f32, and once in every other dtype.
function oracle.registry(opts)
  local list = {}
  for _, case in ipairs(cases.of_table { ops = opts and opts.ops, dtypes = false }) do
    if not LEFT_OUT[case.op] and case.numel <= LARGEST then list[#list + 1] = case end
  end
  return list
end

local function make(eng, array) return samples.layouts.contiguous.make(eng, array) end

--- Runs an op on arrays. `args` has an array, a list of arrays or a value for each slot; `grad[k]` is set where gradients are wanted.
--- Returns lists of compare.copy: results, cotangents, gradients ({ arg, item, copy }).
local function evaluate(eng, row, args, grad)
  local params = {}
  local function tensor(array, k, item)
    local t = make(eng, array)
    if not (grad[k] and cases.is_float(array.dtype)) then return t end
    t = eng:param(array.shape, t, { dtype = array.dtype })
    params[#params + 1] = { arg = k, item = item, t = t }
    return t
  end
  local built = samples.map(row, args, tensor)
  if row.random then eng:rng { 11, 1000 } end
  local results, roots = samples.call(eng, row, built), {}
  local out = { results = {}, cotangents = {}, gradients = {} }
  for k, y in ipairs(results) do
    out.results[k] = compare.copy(y)
    if A.requires_grad(y) then
      local c = make(eng, schedule.cotangent(T.shape(y), T.dtype(y), 1, k))
      roots[#roots + 1] = { y = y, c = c }
      out.cotangents[#out.cotangents + 1] = { result = k, copy = compare.copy(c) }
    end
  end
  if #roots == 1 then
    roots[1].y:backward(roots[1].c)
  elseif roots[1] then
    local loss
    for _, root in ipairs(roots) do
      local part = (root.y * root.c):sum()
      loss = loss and loss + part or part
    end
    loss:backward()
  end
  if roots[1] then
    for k, p in ipairs(params) do out.gradients[k] = { arg = p.arg, item = p.item, copy = compare.copy(p.t.grad) } end
  end
  return out
end

-- Bundles ----------------------------------------------------------------------------------------------

local function write(path, text)
  local file, message = io.open(path, "wb")
  if not file then error("oracle: " .. message, 0) end
  file:write(text)
  file:close()
end

--- Bytes that become one file; put(copy) appends a tensor and returns where it is.
local function heap(name)
  local parts, size = {}, 0
  return {
    put = function(copy)
      local shape = { n = #copy.shape, unpack(copy.shape) }
      local at = { file = name, offset = size, shape = shape, dtype = copy.dtype }
      parts[#parts + 1], size = copy.bytes, size + #copy.bytes
      return at
    end,
    text = function() return table.concat(parts) end,
  }
end

local function array_copy(array) return { shape = array.shape, dtype = array.dtype, bytes = samples.encode(array) } end

local function value_of(v)
  if type(v) == "table" then return { n = #v, unpack(v) } end
  return v
end

local function argument(slot, v, put)
  if v == nil then return { slot = slot.name, kind = "absent" } end
  if samples.is_array(v) then return { slot = slot.name, kind = "tensor", tensor = put(array_copy(v)) } end
  if slot.kind == "tensors" then
    local list = { n = #v }
    for i, one in ipairs(v) do list[i] = put(array_copy(one)) end
    return { slot = slot.name, kind = "tensors", tensors = list }
  end
  return { slot = slot.name, kind = "value", value = value_of(v) }
end

local function differentiated(row)
  local grad = {}
  if not cases.differentiable(row) then return grad end
  for k, slot in ipairs(row.slots) do
    grad[k] = slot.kind == "tensor" or slot.kind == "tensor or number" or slot.kind == "tensors"
  end
  return grad
end

--- nil for a case with a large result.
local function entry_of(eng, case, heaps)
  local row = case.row
  local args = samples.values(row, case.sample, { dtype = case.dtype, seed = 1 })
  local out = evaluate(eng, row, args, differentiated(row))
  for _, copy in ipairs(out.results) do
    if cases.count(copy.shape) > LARGEST then return nil end
  end
  local entry = { sample = case.sample.text, dtype = case.dtype, rtol = row.rtol, args = { n = #row.slots }, results = { n = 0 },
    cotangents = { n = 0 }, gradients = { n = 0 } }
  for k, slot in ipairs(row.slots) do entry.args[k] = argument(slot, args[k], heaps.inputs.put) end
  for k, copy in ipairs(out.results) do entry.results[k], entry.results.n = heaps.results.put(copy), k end
  for k, c in ipairs(out.cotangents) do
    entry.cotangents[k], entry.cotangents.n = { result = c.result, tensor = heaps.cotangents.put(c.copy) }, k
  end
  for k, g in ipairs(out.gradients) do
    entry.gradients[k], entry.gradients.n = { arg = g.arg, item = g.item, tensor = heaps.gradients.put(g.copy) }, k
  end
  return entry
end

--- Writes the bundles of ops into a folder. Options: ops (names), engine ("cpu"). Returns how many bundles and cases.
function oracle.export(dir, opts)
  opts = opts or {}
  local eng, own = opts.engine or "cpu", false
  if not engine.is_engine(eng) then eng, own = engine.open(eng), true end
  local by_op, order = {}, {}
  for _, case in ipairs(oracle.registry(opts)) do
    if not by_op[case.op] then
      by_op[case.op] = {}
      order[#order + 1] = case.op
    end
    table.insert(by_op[case.op], case)
  end
  local count = 0
  for _, op in ipairs(order) do
    local folder = dir .. "/" .. op
    if os.execute(("mkdir -p '%s'"):format((folder:gsub("'", "'\\''")))) ~= 0 then error("oracle: cannot make " .. folder, 0) end
    local heaps = { inputs = heap "inputs.bin", cotangents = heap "cotangents.bin", results = heap "results.bin", gradients = heap "gradients.bin" }
    local manifest = { maker = "perilune " .. core.version, lua = jit.version, engine = eng.kind, op = op, signature = rows[op].signature,
      cases = { n = 0 } }
    for _, case in ipairs(by_op[op]) do
      local list = manifest.cases
      local entry = entry_of(eng, case, heaps)
      if entry then list[list.n + 1], list.n = entry, list.n + 1 end
      eng:reset()
    end
    count = count + manifest.cases.n
    for name, h in pairs(heaps) do write(("%s/%s.bin"):format(folder, name), h.text()) end
    write(folder .. "/manifest.json", json.encode(manifest) .. "\n")
  end
  if own then eng:close() end
  return #order, count
end

-- Records ----------------------------------------------------------------------------------------------

local SIZES = { f32 = 4, f64 = 8, i64 = 8, i32 = 4, u8 = 1, bool = 1 }

local function read(path)
  local file, message = io.open(path, "rb")
  if not file then error("oracle: " .. message, 0) end
  local text = file:read "*a"
  file:close()
  return text
end

--- A record: check.py's torch.json with torch.bin beside it. Returns it with the bytes.
function oracle.load(dir)
  local record = json.decode(read(dir .. "/torch.json"))
  record.bytes = read(dir .. "/torch.bin")
  return record
end

local function copy_at(record, ref)
  local bytes = cases.count(ref.shape) * SIZES[ref.dtype]
  local shape = { unpack(ref.shape, 1, ref.shape.n) }
  return { shape = shape, dtype = ref.dtype, bytes = record.bytes:sub(ref.offset + 1, ref.offset + bytes) }
end

local function array_at(record, ref) return compare.array(copy_at(record, ref)) end

local function arguments(record, row, entry)
  local args, grad = { n = #row.slots }, {}
  for k, a in ipairs(entry.args) do
    if a.kind == "tensor" then
      args[k] = array_at(record, a.tensor)
    elseif a.kind == "tensors" then
      args[k] = {}
      for i = 1, a.tensors.n do args[k][i] = array_at(record, a.tensors[i]) end
    elseif a.kind == "value" then
      args[k] = type(a.value) == "table" and { unpack(a.value, 1, a.value.n) } or a.value
    end
  end
  for i = 1, entry.gradients.n do grad[entry.gradients[i].arg] = true end
  return args, grad
end

--- The engine's tensor as PyTorch's stand: floats as f64.
local function widened(copy, dtype)
  if copy.dtype == dtype then return copy end
  local array = compare.array(copy)
  array.dtype = dtype
  return array_copy(array)
end

local function compare_entry(report, record, eng, entry)
  local row = rows[entry.op]
  local sample = { name = ("%s %s %s"):format(entry.op, entry.sample, entry.dtype), status = "passed", tensors = { n = 0 } }
  local function complain(text)
    sample.status = "failed"
    sample.message = sample.message or ("%s against %s on %s: %s (the op table)"):format(sample.name, record.maker, eng.kind, text)
  end
  local function judge(name, got, ref, rtol, undefined)
    if got.dtype ~= ref.native then complain(("%s: dtype %s instead of %s"):format(name, got.dtype, ref.native)) end
    local c = compare.tensors(widened(got, ref.dtype), copy_at(record, ref), rtol, rtol, undefined)
    if not c.pass then complain(name .. ": " .. compare.text(c)) end
    sample.tensors.n = sample.tensors.n + 1
    sample.tensors[sample.tensors.n] = { name = name, pass = c.pass, max_abs = c.max_abs, max_rel = c.max_rel, bits = c.bits, elements = c.elements }
  end
  local args, grad = arguments(record, row, entry)
  local out = evaluate(eng, row, args, grad)
  local rounding = entry.dtype == "f64" and 1e-15 or 1e-7
  if #out.results ~= entry.results.n then complain(("%d results instead of %d"):format(#out.results, entry.results.n)) end
  for k, copy in ipairs(out.results) do
    if k <= entry.results.n then judge("result " .. k, copy, entry.results[k], row.rtol + rounding, entry.undefined) end
  end
  for i = 1, entry.gradients.n do
    local want = entry.gradients[i]
    local found
    for _, g in ipairs(out.gradients) do
      if g.arg == want.arg and g.item == want.item then found = g end
    end
    local name = "gradient of " .. row.slots[want.arg].name .. (want.item and (" [%d]"):format(want.item) or "")
    if found then
      judge(name, found.copy, want.tensor, math.max(10 * row.rtol, 1e-5), entry.undefined)
    else
      complain(name .. " is missing")
    end
  end
  report:add({ op = entry.op }, sample)
end

--- The ops of the table that a record lacks, as it does those that PyTorch has no counterpart of: random draws and unwritten memory.
---@return string[]
function oracle.missing(record)
  local seen, list = {}, {}
  for _, entry in ipairs(record.cases) do seen[entry.op] = true end
  for _, row in ipairs(core.ops.rows) do
    if not row.internal and not seen[row.name] then list[#list + 1] = row.name end
  end
  return list
end

--- Holds an engine against a record, and counts ops that it lacks as skipped. Options: record (folder, spec/oracle), engine ("cpu"), ops (names), minimum, log.
---@return perilune.Report
function oracle.compare(opts)
  opts = opts or {}
  local record = oracle.load(opts.record or "spec/oracle")
  local eng, own = opts.engine or "cpu", false
  if not engine.is_engine(eng) then eng, own = engine.open(eng), true end
  local report = tally.new("oracle", { candidate = eng.kind, reference = record.maker })
  for _, entry in ipairs(record.cases) do
    if cases.wanted(opts.ops, entry.op) then
      if not rows[entry.op] then error("oracle: the record has an op that is not known: " .. entry.op, 0) end
      local ok, message = pcall(compare_entry, report, record, eng, entry)
      if not ok then
        local name = ("%s %s %s"):format(entry.op, entry.sample, entry.dtype)
        report:add({ op = entry.op }, { name = name, status = "errored", message = name .. ": " .. tostring(message), tensors = { n = 0 } })
        collectgarbage()
      end
      eng:reset()
    end
  end
  if own then eng:close() end
  for _, name in ipairs(oracle.missing(record)) do
    if cases.wanted(opts.ops, name) then
      report.skipped = report.skipped + 1
      if opts.log then opts.log(("SKIP %s: not in the record of %s"):format(name, record.maker)) end
    end
  end
  return report:finish(opts)
end

return oracle
