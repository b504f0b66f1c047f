-- SPDX-License-Identifier: MIT
-- perilune gradcheck: gradients of all differentiable ops and composites against central differences. Exit status 0 iff all agree.

local gradcheck = require "perilune.gradcheck"
local options = require "perilune.options"

return function(args)
  local found, words = options.read(args, "perilune gradcheck [OPS...] [--engine KIND] [--report FILE]", {
    engine = "KIND of engine to compute on (cpu)",
    report = "FILE for the report as JSON",
    about = "FILE with a JSON object that goes into each report: commit, device, driver",
    minimum = "N fail if fewer gradients were checked",
  })
  if not found then return words end
  local about, wrong = options.about(found.about)
  if about == false then
    io.stderr:write("perilune: --about: ", wrong, "\n")
    return 2
  end
  local eng, message = options.engine(found.engine or "cpu")
  if not eng then
    io.stderr:write("perilune: ", message, "\n")
    return 2
  end
  local ok, report = pcall(gradcheck.run, { ops = words[1] and words or nil, engine = eng, minimum = tonumber(found.minimum), log = print })
  if not ok then error(report, 0) end
  if found.report then report:write(found.report, about) end
  return report.pass and 0 or 1
end
