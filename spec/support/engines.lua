-- SPDX-License-Identifier: MIT
-- engines: what specs run on. `each(fn)` calls fn(name, open) for every kind that this machine offers, open(options) making an engine that
-- after_each closes; `each_arena` only for those with an arena, {"cpu", arena = ...} among them.

local perilune = require "perilune"

local engines = {}

local opened = {}

local function opener(kind, base)
  return function(options)
    local spec = { kind }
    for k, v in pairs(base or {}) do spec[k] = v end
    for k, v in pairs(options or {}) do spec[k] = v end
    local e = perilune.engine(spec)
    opened[#opened + 1] = e
    return e
  end
end

--- Closes what the test opened; errors of the stream that a test left are dropped. For after_each.
function engines.close()
  for _, e in ipairs(opened) do pcall(e.close, e) end
  opened = {}
end

local function available()
  local list = {}
  for _, e in ipairs(perilune.engines()) do
    if e.available then list[#list + 1] = e.kind end
  end
  return list
end

function engines.each(fn)
  for _, kind in ipairs(available()) do fn(kind, opener(kind)) end
  fn("cpu with an arena", opener("cpu", { arena = "1MiB", poison = true }))
end

function engines.each_arena(fn)
  for _, kind in ipairs(available()) do
    if kind ~= "cpu" then fn(kind, opener(kind, { arena = "1MiB" })) end
  end
  fn("cpu with an arena", opener("cpu", { arena = "1MiB", poison = true }))
end

--- Whether an engine of `each` is one of the host's, which all give the same bits.
function engines.is_host(name) return name == "cpu" or name == "stress" or name == "cpu with an arena" end

--- An engine of that kind, closed after the test.
function engines.open(kind, options) return opener(kind)(options) end

return engines
