-- SPDX-License-Identifier: MIT
-- Parity of every op and composite under the schedules that are left, in other layouts, into destinations, and fed with poison.

local parity = require "perilune.parity"
local support = require "spec.support.parity"

support.declare(describe, it, "rest")

for _, candidate in ipairs(support.candidates()) do
  describe("parity on " .. candidate.name .. " of", function()
    local function options(more)
      local opts = { reference = "cpu", candidate = candidate.spec, ops = parity.registry(candidate.opts) }
      for k, v in pairs(more or {}) do opts[k] = v end
      return opts
    end

    for _, layout in ipairs { "transposed", "offset", "stepped" } do
      it(layout .. " inputs", function()
        local opts = options { schedule = "reset-between-fwd-bwd", layout = layout, ops = parity.registry { dtypes = false } }
        support.passed(parity.run(opts), #opts.ops)
      end)
    end

    it("destinations", function() support.passed(parity.destinations(options()), 200) end)
    it("poison", function() support.passed(parity.poison(options()), 100) end)
  end)
end
