-- SPDX-License-Identifier: MIT
-- perilune gradcheck: gradients of all differentiable ops and composites against central differences. Exit status 0 iff all agree.

local options = require "perilune.options"

local command = {
  about = "are the gradients right? All differentiable ops and composites against central differences",
  usage = "perilune gradcheck [OPS...] [--engine KIND] [--report FILE]",
  options = {
    engine = "KIND of engine to compute on (cpu)",
    report = "FILE for the report as JSON",
    about = "FILE with a JSON object that goes into each report: commit, device, driver",
    minimum = "N fail if fewer gradients were checked",
  },
}

function command.run(found, words)
  local gradcheck = require "perilune.gradcheck"
  local eng, message = options.engine(found.engine or "cpu")
  if not eng then
    io.stderr:write("perilune: ", message, "\n")
    return 2
  end
  local ok, report = pcall(gradcheck.run, { ops = words[1] and words or nil, engine = eng, minimum = tonumber(found.minimum), log = print })
  if not ok then error(report, 0) end
  if found.report then report:write(found.report, found.about) end
  return report.pass and 0 or 1
end

return command
