-- SPDX-License-Identifier: MIT
-- batches: tensors of equal length cut into batches, shuffled anew each epoch. The order is a function of seed and epoch alone, so a loader made with
-- the same arguments goes on from another's state.
--
--   local loader = data.batches({ x, y }, { size = 32, seed = 1 })
--   for epoch = 1, 10 do
--     for bx, by in loader do ... end
--   end

local bit = require "bit"
local ffi = require "ffi"
local core = require "perilune.core"
local caller = require "perilune.caller"
local check = require "perilune.nn.check"

local T, ops = core.tensor, core.ops
local fail = caller.fail

--- Numbers below 2^53 by splitmix64 (Steele, Lea and Flood 2014).
local function generator(seed, epoch)
  local state = ffi.cast("uint64_t", seed) * 0x9E3779B97F4A7C15ULL + ffi.cast("uint64_t", epoch) * 0xD1B54A32D192ED03ULL
  return function()
    state = state + 0x9E3779B97F4A7C15ULL
    local z = state
    z = bit.bxor(z, bit.rshift(z, 30)) * 0xBF58476D1CE4E5B9ULL
    z = bit.bxor(z, bit.rshift(z, 27)) * 0x94D049BB133111EBULL
    return tonumber(bit.rshift(bit.bxor(z, bit.rshift(z, 31)), 11))
  end
end

--- 1 .. n in the order of an epoch (Fisher and Yates).
local function order_of(n, shuffle, seed, epoch)
  local order = {}
  for i = 1, n do order[i] = i end
  if not shuffle then return order end
  local draw = generator(seed, epoch)
  for i = n, 2, -1 do
    local j = draw() % i + 1
    order[i], order[j] = order[j], order[i]
  end
  return order
end

---@class perilune.Batches
---@field count integer  batches in an epoch
---@field epoch integer  from 0
---@field position integer  batches of this epoch that were given out
local Batches = {}
Batches.__index = Batches

--- The next batch, one tensor for each of the loader's; nil at the end of an epoch, after which the next begins.
function Batches:next()
  if self.position >= self.count then
    self.epoch, self.position, self.order = self.epoch + 1, 0, nil
    return nil
  end
  self.order = self.order or order_of(self.length, self.shuffle, self.seed, self.epoch)
  local first = self.position * self.size + 1
  local ids, results = {}, {}
  for i = first, math.min(first + self.size - 1, self.length) do ids[#ids + 1] = self.order[i] end
  local index = self.engine:tensor(ids, { dtype = "i64" })
  for i, t in ipairs(self.tensors) do results[i] = ops.index_select(t, 1, index, self.into and self.into[i]) end
  self.position = self.position + 1
  return unpack(results)
end

Batches.__call = Batches.next

--- Seed, epoch and position, as numbers.
function Batches:state() return { seed = self.seed, epoch = self.epoch, position = self.position } end

--- Goes on from a state.
---@param state { seed: integer, epoch: integer, position: integer }
function Batches:load(state)
  if type(state) ~= "table" then fail("load: a table was expected, got %s", type(state)) end
  for _, key in ipairs { "seed", "epoch", "position" } do check.count("load", key, state[key], 0) end
  if state.position > self.count then fail("load: position %d, an epoch has %d batches", state.position, self.count) end
  self.seed, self.epoch, self.position, self.order = state.seed, state.epoch, state.position, nil
end

--- Batches of tensors whose first dims agree. Options: size; shuffle (true), seed (0), drop_last (false): leave out a last batch that is smaller;
--- into: tensors of a batch's shape that each batch is written into, for steps that are captured.
---@param tensors userdata[]
---@param options { size: integer, shuffle?: boolean, seed?: integer, drop_last?: boolean, into?: userdata[] }
---@return perilune.Batches
return function(tensors, options)
  options = check.options("batches", options, { size = check.none, shuffle = true, seed = 0, drop_last = false, into = check.none })
  check.count("batches", "size", options.size)
  check.count("batches", "seed", options.seed, 0)
  if T.is_tensor(tensors) then tensors = { tensors } end
  if type(tensors) ~= "table" or #tensors == 0 then fail("batches: a list of tensors was expected, got %s", type(tensors)) end
  local length
  for i, t in ipairs(tensors) do
    if not T.is_tensor(t) then fail("batches: tensor %d is a %s", i, type(t)) end
    if T.home(t) == "arena" then fail("batches: tensor %d is in the arena, where the next reset ends it; make it by eng:persistent", i) end
    local first = T.shape(t)[1] or fail("batches: tensor %d has no dimensions", i)
    length = length or first
    if first ~= length then fail("batches: tensor %d has %d rows, the first has %d", i, first, length) end
  end
  local count = length / options.size
  count = options.drop_last and math.floor(count) or math.ceil(count)
  if options.into and (#options.into ~= #tensors or (not options.drop_last and length % options.size ~= 0)) then
    fail("batches: into needs one tensor for each of the %d, and batches of one size (drop_last = true)", #tensors)
  end
  return setmetatable({
    tensors = { unpack(tensors) }, engine = T.engine(tensors[1]), length = length, count = count, size = options.size, shuffle = options.shuffle,
    seed = options.seed, into = options.into, epoch = 0, position = 0,
  }, Batches)
end
