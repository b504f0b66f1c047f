-- SPDX-License-Identifier: MIT
-- perilune: a tensor engine whose memory cannot lie. `local perilune = require "perilune"`; sets no globals, installs no
-- handlers, never exits.

local core = require "perilune.core"
local ffi = require "ffi"

core.library.int64_helpers(
  function(v) -- int64_t to its halves; nil for other FFI values
    if not (ffi.istype("int64_t", v) or ffi.istype("uint64_t", v)) then return nil end
    v = ffi.cast("int64_t", v)
    local low = ffi.cast("uint64_t", v) % 4294967296ULL
    return tonumber((v - ffi.cast("int64_t", low)) / 4294967296LL), tonumber(low)
  end,
  function(high, low) return ffi.cast("int64_t", high) * 4294967296LL + ffi.cast("int64_t", low) end)

local engine = require "perilune.engine"
local tensor = require "perilune.tensor"
local autograd = require "perilune.autograd"
local report = require "perilune.report"
local clock = require "perilune.clock"

---@class perilune
local perilune = {
  version = core.version,
  engine = engine.open,
  engines = engine.list,
  on_report = report.on_report,
  is_tensor = core.tensor.is_tensor,
  is_engine = engine.is_engine,
  dtypes = core.dtypes,
  op = autograd.op,
  grad = autograd.grad,
  checkpoint = autograd.checkpoint,
  clock = clock,
}

-- every op as a plain function too: perilune.add(a, b)
for _, row in ipairs(core.ops.rows) do
  if not row.internal and not row.create then perilune[row.name] = core.ops[row.name] end
end

tensor.install()

-- parts that are loaded when they are first asked for: perilune.nn and so on
local PARTS = { nn = true, optim = true, data = true, plot = true, progress = true }
setmetatable(perilune, {
  lazy = PARTS, -- for completion
  __index = function(_, name)
    if not PARTS[name] then return nil end
    local part = require("perilune." .. name)
    rawset(perilune, name, part)
    return part
  end,
})

return perilune
