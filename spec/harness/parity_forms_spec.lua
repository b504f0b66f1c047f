-- SPDX-License-Identifier: MIT
-- Parity of every op and composite under the schedules that are left, in other layouts, into destinations, and fed with poison.

local parity = require "perilune.parity"
local support = require "spec.support.parity"

support.declare(describe, it, "rest")

for _, candidate in ipairs(support.candidates()) do
  describe("parity on " .. candidate.name .. " of", function()
    for _, layout in ipairs { "transposed", "offset", "stepped" } do
      it(layout .. " inputs", function()
        support.run(parity.run, candidate, { schedule = "reset-between-fwd-bwd", layout = layout })
      end)
    end

    it("destinations", function() support.run(parity.destinations, candidate, nil, nil, 200) end)
    it("poison", function() support.run(parity.poison, candidate, nil, nil, 100) end)
  end)
end
