-- SPDX-License-Identifier: MIT
-- Busted output handler: failures with file:line and message, skips by name, and as the last line
-- "N passed, N failed" (", N skipped" where there are any).  Errors count as failed.
-- With PERILUNE_RESULT set it also writes what scripts/check.lua adds up to that file, as a Lua table, and only when
-- the suite came to its end: a crash leaves none.

local pretty = require "pl.pretty"

local function text(message, otherwise)
  if message == nil then return otherwise end
  return type(message) == "string" and message or pretty.write(message)
end

local function line(word, item, message)
  local trace = item.element.trace or item.trace or {}
  return ("%s %s:%s: %s\n    %s"):format(word, trace.short_src or item.element.name or "?", trace.currentline or "?",
    item.name, (message:gsub("%s+$", ""):gsub("\n", "\n    ")))
end

return function(options)
  local busted = require "busted"
  local handler = require "busted.outputHandlers.base"()

  local function failure(item)
    local message = text(item.message, "error without a message")
    local traceback = options.verbose and item.trace and item.trace.traceback
    return line("FAILED", item, traceback and message .. "\n" .. traceback or message)
  end

  handler.suiteEnd = function()
    local skipped, failed = {}, {}
    for _, item in ipairs(handler.pendings) do
      skipped[#skipped + 1] = line("skipped", item, text(item.message, "no reason given"))
    end
    for _, item in ipairs(handler.failures) do failed[#failed + 1] = failure(item) end
    for _, item in ipairs(handler.errors) do failed[#failed + 1] = failure(item) end

    local total = ("%d passed, %d failed"):format(handler.successesCount, #failed)
    if #skipped > 0 then total = ("%s, %d skipped"):format(total, #skipped) end
    for _, list in ipairs { skipped, failed } do
      if #list > 0 then print(table.concat(list, "\n")) end
    end
    print(total)

    local path = os.getenv "PERILUNE_RESULT"
    if path then
      local result = { passed = handler.successesCount, failed = failed, skipped = skipped }
      local file = assert(io.open(path, "w"))
      assert(file:write("return ", pretty.write(result), "\n"))
      assert(file:close())
    end
    return nil, true
  end

  busted.subscribe({ "suite", "end" }, handler.suiteEnd)
  return handler
end
