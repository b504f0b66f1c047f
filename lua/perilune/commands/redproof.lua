-- SPDX-License-Identifier: MIT
-- perilune redproof: switches on one planted fault after the other and prints what caught it, and how it was named. Exit status 0 iff each was.

local options = require "perilune.options"

local command = {
  about = "can the other checks fail? Planted faults, each of which must be caught and named",
  usage = "perilune redproof [FAULTS...] [--engine KIND] [--report FILE]",
  options = {
    engine = "KIND of engine under test (stress)",
    minimum = "N fail if fewer faults were caught",
    report = "FILE for the table as JSON",
    about = "FILE with a JSON object that goes into the report: commit, device, driver",
  },
}

function command.run(found, words)
  local redproof = require "perilune.redproof"
  local eng, message = options.engine(found.engine or "stress")
  if not eng then
    io.stderr:write("perilune: ", message, "\n")
    return 2
  end
  eng:close()
  print(redproof.heading)
  local result = redproof.run { engine = found.engine, names = words[1] and words or nil, minimum = tonumber(found.minimum), log = print }
  if found.report then redproof.write(result, found.report, found.about) end
  return result.pass and 0 or 1
end

return command
