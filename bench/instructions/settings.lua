-- SPDX-License-Identifier: MIT
-- The loops whose instructions are counted: `run` of bench/cases/FAMILY.lua, called with SHORT * times and LONG * times; one of its runs is
-- `each` of what the count is given for (calls, samples).

local SAMPLES = 32

return {
  SHORT = 1, LONG = 3,
  { name = "add, new result", family = "eager", run = "add", inputs = "eager", times = 1024, each = 1 },
  { name = "add into a destination", family = "eager", run = "add_into", inputs = "eager", times = 1024, each = 1 },
  { name = "get(i, j)", family = "eager", run = "get", inputs = "eager", times = 1024, each = 1 },
  { name = "set(i, j, v)", family = "eager", run = "set", inputs = "eager", times = 1024, each = 1 },
  { name = "hazard loop, functions", family = "loops", run = "hazard_functions", inputs = "hazard", times = 4, each = SAMPLES },
  { name = "hazard loop, methods", family = "loops", run = "hazard_methods", inputs = "hazard", times = 4, each = SAMPLES },
  { name = "hazard loop, destinations", family = "loops", run = "hazard_destinations", inputs = "hazard", times = 4, each = SAMPLES },
  { name = "hazard loop, autograd", family = "loops", run = "hazard_autograd", inputs = "hazard", times = 4, each = SAMPLES },
  { name = "hazard loop, captured", family = "loops", run = "hazard_captured", inputs = "hazard", times = 4, each = SAMPLES },
  { name = "attention loop", family = "loops", run = "attention", inputs = "attention", times = 4, each = SAMPLES },
  { name = "attention loop, captured", family = "loops", run = "attention_captured", inputs = "attention", times = 4, each = SAMPLES },
}
