-- SPDX-License-Identifier: MIT
-- perilune oracle: writes bundles for scripts/oracle/check.py, or holds an engine against a record that it made.

local options = require "perilune.options"

local command = {
  about = "do results and gradients agree with PyTorch's record? Or bundles for making one",
  usage = "perilune oracle export DIR [OPS...] [--engine KIND]\n       perilune oracle compare [RECORD] [--engine KIND] [--report FILE]",
  options = {
    engine = "KIND of engine to compute on (cpu)",
    report = "FILE for the report as JSON",
    about = "FILE with a JSON object that goes into each report: commit, device, driver",
    minimum = "N fail if fewer tensors were compared",
  },
}

function command.run(found, words)
  local oracle = require "perilune.oracle"
  local what = table.remove(words, 1)
  if not (what == "export" and words[1] or what == "compare") then
    io.stderr:write("usage: ", command.usage, "\n")
    return 2
  end
  local eng, message = options.engine(found.engine or "cpu")
  if not eng then
    io.stderr:write("perilune: ", message, "\n")
    return 2
  end
  if what == "export" then
    local dir = table.remove(words, 1)
    local bundles, count = oracle.export(dir, { engine = eng, ops = words[1] and words or nil })
    print(("%d bundles with %d cases in %s"):format(bundles, count, dir))
    return bundles > 0 and 0 or 1
  end
  local report = oracle.compare { record = words[1], engine = eng, minimum = tonumber(found.minimum), log = print }
  if found.report then report:write(found.report, found.about) end
  return report.pass and 0 or 1
end

return command
