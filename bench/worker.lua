-- SPDX-License-Identifier: MIT
-- Runs our side of one case, as bench/peer.py runs a peer's: commands on standard input, one JSON object a line, answers alike. A family is
-- bench/cases/FAMILY.lua, a table of functions (eng, inputs, params) -> loop, results. Inputs are persistent tensors.

local perilune = require "perilune"
local json = require "perilune.json"
local clock = require "perilune.clock"

local here = arg[0]:match "^(.*)/[^/]*$"
package.path = here .. "/cases/?.lua;" .. here .. "/?.lua;" .. package.path
local used = require "used"
local DTYPES = { float32 = "f32", float64 = "f64", int64 = "i64" }
local NAMES = { f32 = "float32", f64 = "float64", i64 = "int64" }

local function load_input(eng, description)
  local path, dtype, shape = unpack(description)
  local file = assert(io.open(path, "rb"))
  local t = eng:persistent(shape, nil, { dtype = DTYPES[dtype] })
  t:set_bytes(file:read "*a")
  file:close()
  return t
end

local loop, results
local seconds = clock
local actions = {}

function actions.open(command)
  local options = { "cpu", arena = "256MiB", threads = 1, seed = 1 }
  for k, v in pairs(command.engine) do options[k] = v end
  local eng = perilune.engine(options)
  local inputs = {}
  for name, description in pairs(command.inputs) do inputs[name] = load_input(eng, description) end
  seconds = command.threads == 1 and used or clock
  loop, results = require(command.family)[command.run](eng, inputs, command.params)
  return true
end

function actions.check(command)
  local written = {}
  for k, t in ipairs { results() } do
    local path = ("%s/ours%d"):format(command.folder, k)
    local file = assert(io.open(path, "wb"))
    file:write(t:contiguous():bytes())
    file:close()
    written[k] = { path, NAMES[t.dtype], t.shape }
  end
  return written
end

function actions.time(command)
  local begin = seconds()
  local own = loop(command.count)
  return own or seconds() - begin
end

for line in io.lines() do
  local ok, reply = xpcall(function()
    local command = json.decode(line)
    return actions[command["do"]](command)
  end, debug.traceback)
  if not ok then reply = { error = reply } end
  io.write((json.encode(reply):gsub("\n%s*", " ")), "\n") -- newlines within strings are escaped
  io.flush()
end
