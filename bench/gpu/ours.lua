-- SPDX-License-Identifier: MIT
-- Figures of a device, one "name value" a line:  perilune bench/gpu/ours.lua [KIND] [--quick]; bench/gpu/peer.py prints PyTorch's under the same
-- names. Units: GB/s moved (copy, multiply, add, softmax, layer_norm, rms_norm), TFLOP/s (matmul), us of host time (launch), samples/s (hazard...).
-- Invariant: a time ends with a wait for the device, but launch's, whose calls fit into the queue. --quick: sizes for a rehearsal.

local perilune = require "perilune"
local clock = require "perilune.clock"
local here = arg[0]:match "^(.*)gpu/ours%.lua$" or "bench/"
local loop = dofile(here .. "../examples/hazard_loop.lua")

local kind, quick = "cuda", false
for _, word in ipairs(arg) do
  if word == "--quick" then quick = true else kind = word end
end

local rows, columns, side = 16384, 4096, 4096
local repeats, calls, batches = 20, 1000, { eager = 500, captured = 5000 }
if quick then
  rows, columns, side, repeats, calls, batches = 4, 64, 48, 2, 20, { eager = 2, captured = 2 }
end

local eng = perilune.engine { kind, arena = quick and "4MiB" or "1GiB", poison = false }

--- The best of several times of fn, each of `repeats` calls, in seconds a call.
local function seconds(fn)
  local best = math.huge
  for _ = 1, 5 do
    eng:sync()
    local begin = clock()
    for _ = 1, repeats do fn() end
    eng:sync()
    best = math.min(best, (clock() - begin) / repeats)
    eng:reset()
  end
  return best
end

local function say(name, value) print(("%s %.6g"):format(name, value)) end

local x, y, z = eng:persistent({ rows, columns }, 0.5), eng:persistent({ rows, columns }, 0.25), eng:persistent { rows, columns }
local bytes = rows * columns * 4
local weight, bias = eng:persistent({ columns }, 1), eng:persistent { columns }
say("copy", 2 * bytes / seconds(function() z:copy(x) end) / 1e9)
say("multiply", 2 * bytes / seconds(function() eng:mul(x, 2, z) end) / 1e9)
say("add", 3 * bytes / seconds(function() eng:add(x, y, z) end) / 1e9)
local function fresh(fn)
  return function()
    fn()
    eng:reset()
  end
end
say("softmax", 2 * bytes / seconds(fresh(function() return x:softmax() end)) / 1e9)
say("layer_norm", 2 * bytes / seconds(fresh(function() return x:layer_norm(columns, weight, bias) end)) / 1e9)
say("rms_norm", 2 * bytes / seconds(fresh(function() return x:rms_norm(columns, weight) end)) / 1e9)

local a, b, c = eng:persistent({ side, side }, 0.5), eng:persistent({ side, side }, 0.25), eng:persistent { side, side }
say("matmul", 2 * side ^ 3 / seconds(function() eng:matmul(a, b, c) end) / 1e12)

local small, into = eng:persistent({ 16 }, 1), eng:persistent { 16 }
local best = math.huge
for _ = 1, 20 do
  eng:sync()
  local begin = clock()
  for _ = 1, calls do eng:mul(small, 2, into) end
  best = math.min(best, (clock() - begin) / calls)
end
say("launch", best * 1e6)
eng:close()

for way, train in pairs { eager = loop.train, captured = loop.train_captured } do
  local engine = perilune.engine { kind, poison = false }
  local cfg = setmetatable({ batches = batches[way] }, { __index = loop.defaults })
  train(engine, setmetatable({ batches = 2 }, { __index = loop.defaults })) -- loads the kernels
  local begin = clock()
  local run = train(engine, cfg)
  say("hazard_" .. way, run.count / (clock() - begin))
  engine:close()
end
