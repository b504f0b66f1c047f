-- SPDX-License-Identifier: MIT
-- What is counted, in one process: luajit loops.lua FOLDER_OF_PERILUNE/CORE.SO [SETTING]. Each setting is a family's loop (bench/cases) on data
-- made here, run once to warm up, then SHORT and LONG times. Invariant: mark() stands before and after each counted run and nowhere else, so that
-- who counts can cut there, and what the run itself costs is the difference of the two.

local here = arg[0]:match "^(.*)/[^/]*$"
package.path = ("%s/../../lua/?.lua;%s/../../lua/?/init.lua;%s/../cases/?.lua"):format(here, here, here)
package.cpath = arg[1] .. "/?.so"
local perilune = require "perilune"
local settings = dofile(here .. "/settings.lua")

local eng = perilune.engine { "cpu", arena = "1MiB", threads = 1, seed = 1 }
local function mark() eng:sync() end

local function ramp(phase, shape, as)
  local values, n = {}, 1
  for _, size in ipairs(shape) do n = n * size end
  for k = 1, n do values[k] = as and as(k) or math.sin(phase + 0.7 * k) end
  return eng:persistent(shape, eng:tensor(values, { shape = shape, dtype = as and "i64" or "f32" }), { dtype = as and "i64" or "f32" })
end

local SAMPLES = 32

--- The inputs that the families ask for, by name.
local function inputs()
  local targets = {}
  for k = 1, SAMPLES do
    targets[k] = { 0, 0, 0, 0 }
    targets[k][k % 4 + 1] = 1
  end
  return {
    eager = { a = ramp(0.1, { 8, 8 }), b = ramp(0.2, { 8, 8 }) },
    hazard = { x = ramp(0.41, { SAMPLES, 8 }), t = eng:persistent({ SAMPLES, 4 }, targets), W1 = ramp(0.31, { 8, 8 }), W2 = ramp(0.17, { 8, 4 }) },
    attention = { x = ramp(0.41, { SAMPLES * 6, 8 }), c = ramp(0, { SAMPLES * 6 }, function(k) return k % 8 + 1 end),
      Wq = ramp(0.31, { 8, 8 }), Wk = ramp(0.17, { 8, 8 }), Wv = ramp(0.59, { 8, 8 }) },
  }
end

for _, s in ipairs(settings) do
  if not arg[2] or arg[2] == s.name then
    local loop = require(s.family)[s.run](eng, inputs()[s.inputs], {})
    loop(settings.SHORT * s.times)
    for _, count in ipairs { settings.SHORT, settings.LONG } do
      collectgarbage()
      mark()
      loop(count * s.times)
      mark()
    end
    eng:reset()
  end
end
