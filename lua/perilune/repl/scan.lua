-- SPDX-License-Identifier: MIT
-- scan: how far Lua text has come: in code, in a string or in a comment at its end.

--- Where a string or comment that opens at `at` ends (the position behind it); nil where it does not.
local function close_of(text, at)
  local level = text:match("^%[(=*)%[", at)
  if level then
    local _, last = text:find("]" .. level .. "]", at + 2, true)
    return last and last + 1
  end
  local quote, i = text:sub(at, at), at + 1
  while i <= #text do
    local c = text:sub(i, i)
    if c == quote then return i + 1 end
    if c == "\n" then return nil end
    i = i + (c == "\\" and 2 or 1)
  end
  return nil
end

--- "code", "comment" or "string" at the end of the text; of a string where its contents begin; and where the last character of code is
--- that is no blank.
---@param text string
---@return string state, integer? first, integer? last
return function(text)
  local i, last = 1, nil
  while i <= #text do
    local c = text:sub(i, i)
    if text:find("^%-%-", i) then
      local behind
      if text:find("^%[=*%[", i + 2) then behind = close_of(text, i + 2) else behind = text:find("\n", i, true) end
      if not behind then return "comment", nil, last end
      i = behind
    elseif c == '"' or c == "'" or text:find("^%[=*%[", i) then
      local behind = close_of(text, i)
      if not behind then return "string", i + #(text:match("^%[=*%[", i) or c), last end
      i, last = behind, behind - 1
    else
      if not c:match "%s" then last = i end
      i = i + 1
    end
  end
  return "code", nil, last
end
