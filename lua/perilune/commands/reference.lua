-- SPDX-License-Identifier: MIT
-- perilune reference: what the library has, on the terminal, as a site, or for an editor.

local command = {
  about = "what the library has: on the terminal, as a site, or for an editor",
  usage = "perilune reference [NAME | --search WORD | --html DIR | --stub FILE]",
  options = {
    html = "DIR for the site",
    pages = "DIR of the source tree, whose pages the site gets, too",
    search = "WORD that is looked for",
    stub = "FILE for editors: declarations of everything for the Lua language server",
  },
}

function command.run(found, words)
  local reference = require "perilune.reference"
  if found.html then
    local files, missing = require("perilune.reference.html").write(found.html, found.pages)
    print(("%d pages in %s"):format(#files, found.html))
    if missing then print(missing) end
  end
  if found.stub then
    local file, message = io.open(found.stub, "w")
    if not file then
      io.stderr:write("perilune: ", message, "\n")
      return 1
    end
    file:write(require "perilune.reference.stub" ())
    file:close()
  end
  if found.search then print(reference.search(found.search)) end
  if words[1] then
    local entries = reference.find(words[1])
    print(reference.help(words[1]))
    if #entries == 0 then return 1 end
  elseif not (found.html or found.stub or found.search) then
    for _, e in ipairs(reference.entries()) do print(e.name) end
  end
  return 0
end

return command
