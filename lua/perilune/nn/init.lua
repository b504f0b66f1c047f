-- SPDX-License-Identifier: MIT
-- perilune.nn: layers, losses and first values. Layers that have parameters take the engine first; all are called like functions.
--
--   local nn = require "perilune.nn"
--   local model = nn.Sequential { nn.Linear(eng, 64, 128), nn.GELU(), nn.Dropout(0.1), nn.Linear(eng, 128, 10) }
--   local loss = nn.loss.cross_entropy(model(x), target)

local module = require "perilune.nn.module"

local nn = { Module = module.class, is_module = module.is_module, traceback = module.traceback }

for _, file in ipairs { "linear", "norm", "activation", "container", "window", "attention", "recurrent" } do
  for name, class in pairs(require("perilune.nn." .. file)) do nn[name] = class end
end
nn.init = require "perilune.nn.initialize"
nn.loss = require "perilune.nn.loss"

return nn
