-- SPDX-License-Identifier: MIT
-- html: the site: reference.html with all entries, and README.md (as index.html) and the pages of docs/ where cmark-gfm is there to turn them into
-- HTML. No file refers to anything outside the site.

local core = require "perilune.core"
local reference = require "perilune.reference"

local html = {}

local STYLE = [[
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 0 auto; padding: 1rem; color: #1b1f24; background: #fff }
code, pre { font: 14px/1.45 ui-monospace, monospace; background: #f3f4f6; border-radius: 4px }
code { padding: .1em .3em } pre { padding: .7em 1em; overflow-x: auto } pre code { padding: 0 }
table { border-collapse: collapse } td, th { padding: .15rem .8rem .15rem 0; text-align: left; vertical-align: top }
h2 { margin-top: 2.5rem; border-bottom: 1px solid #d8dce1 } h3 { margin: 1.6rem 0 .2rem; font: 600 16px ui-monospace, monospace }
nav a { margin-right: 1em; white-space: nowrap } .note { color: #57606a } input { font: inherit; width: 100%; padding: .3em; box-sizing: border-box }
img { max-width: 100% }
@media (prefers-color-scheme: dark) {
  body { color: #dfe3e8; background: #16191d } code, pre { background: #22262c } a { color: #7ab7ff } h2 { border-color: #353a41 } .note { color: #9aa4af } }]]

local FILTER = [[
const box = document.querySelector('input')
box.oninput = () => {
  const word = box.value.toLowerCase()
  for (const e of document.querySelectorAll('section')) e.hidden = !e.textContent.toLowerCase().includes(word)
}]]

local function escape(text) return (text:gsub("[&<>\"]", { ["&"] = "&amp;", ["<"] = "&lt;", [">"] = "&gt;", ['"'] = "&quot;" })) end

local function page(title, body)
  return ([[<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>%s</title>
<style>%s</style></head><body>
<nav><a href="index.html">perilune %s</a> <a href="reference.html">Reference</a> <a href="pages.html">Pages</a></nav>
%s
</body></html>
]]):format(escape(title), STYLE, core.version, body)
end

local function anchor(name) return (name:gsub("[^%w]", "-")) end

local function entry_html(e)
  local out = { ('<section><h3 id="%s">%s</h3>'):format(anchor(e.name), escape(e.name)) }
  out[#out + 1] = ("<pre>%s</pre>"):format(escape(table.concat(e.forms, "\n")))
  if e.doc ~= "" then out[#out + 1] = ("<p>%s</p>"):format(escape(e.doc)) end
  if #e.params > 0 then
    out[#out + 1] = "<table>"
    for _, p in ipairs(e.params) do
      out[#out + 1] = ("<tr><td><code>%s</code></td><td>%s</td><td>%s</td></tr>"):format(escape(p.name), escape((p.type:gsub("perilune%.", ""))), escape(p.text))
    end
    out[#out + 1] = "</table>"
  end
  if #e.returns > 0 then out[#out + 1] = ("<p>Returns %s.</p>"):format(escape((table.concat(e.returns, ", "):gsub("perilune%.", "")))) end
  if e.note then out[#out + 1] = ('<p class="note">%s</p>'):format(escape(e.note)) end
  local example = reference.example(e)
  if example then out[#out + 1] = ("<pre>%s</pre>"):format(escape(example)) end
  out[#out + 1] = "</section>"
  return table.concat(out, "\n")
end

--- The reference as one page.
---@return string
function html.reference()
  local sections, bodies, contents = {}, {}, {}
  for _, e in ipairs(reference.entries()) do
    if not bodies[e.section] then
      sections[#sections + 1] = e.section
      bodies[e.section], contents[e.section] = {}, {}
    end
    table.insert(bodies[e.section], entry_html(e))
    table.insert(contents[e.section], ('<a href="#%s">%s</a>'):format(anchor(e.name), escape(e.name)))
  end
  local out = { "<h1>Reference</h1>", '<input type="search" placeholder="show only what contains ..." aria-label="filter">' }
  for _, s in ipairs(sections) do
    out[#out + 1] = ('<p><b><a href="#s-%s">%s</a></b> %s</p>'):format(anchor(s), escape(s), table.concat(contents[s], " "))
  end
  for _, s in ipairs(sections) do
    out[#out + 1] = ('<h2 id="s-%s">%s</h2>'):format(anchor(s), escape(s))
    out[#out + 1] = table.concat(bodies[s], "\n")
  end
  out[#out + 1] = "<script>" .. FILTER .. "</script>"
  return page("Perilune reference", table.concat(out, "\n"))
end

local function read_all(command)
  local pipe = io.popen(command)
  local text = pipe:read "*a"
  pipe:close()
  return text
end

local function quote(s) return "'" .. s:gsub("'", "'\\''") .. "'" end

local function write(path, text)
  local file = assert(io.open(path, "w"))
  assert(file:write(text))
  assert(file:close())
end

local function read(path)
  local file = assert(io.open(path, "rb"))
  local text = file:read "*a"
  file:close()
  return text
end

--- "docs/guide/tensors.md" to "docs-guide-tensors.html"; the README is the first page.
local function page_name(path) return path == "README.md" and "index.html" or (path:gsub("%.md$", ""):gsub("/", "-")) .. ".html" end

--- The file that a page means, from the root of the tree.
local function resolve(path, target)
  local full = (path:match "^(.*/)" or "") .. target
  while full:find "[^/]+/%.%./" do full = full:gsub("[^/]+/%.%./", "", 1) end
  return (full:gsub("^%./", ""))
end

--- A page's HTML for the site: headings can be linked to, links lead to the site's pages (those to other files of the tree stay text), and
--- pictures lie beside it. `known`: the pages; `pictures` gets the paths of pictures.
local function adapt(body, path, known, pictures)
  body = body:gsub("<h(%d)>(.-)</h%d>", function(level, text)
    local id = text:gsub("<[^>]*>", ""):gsub("&%a+;", ""):lower():gsub("[^%w%s_-]", ""):gsub("%s", "-")
    return ('<h%s id="%s">%s</h%s>'):format(level, id, text, level)
  end)
  body = body:gsub('<a href="([^"#:]+)(#?[^"]*)">(.-)</a>', function(target, mark, text)
    local full = resolve(path, target)
    return known[full] and ('<a href="%s%s">%s</a>'):format(page_name(full), mark, text) or text
  end)
  return (body:gsub('<img src="([^":]+)"', function(target)
    local full = resolve(path, target)
    pictures[full] = true
    return ('<img src="%s"'):format((full:gsub("/", "-")))
  end))
end

--- Paths of the pages by folder: the guide first, then the others.
local function listing(titles, paths)
  local out, heading = {}, nil
  local function rank(path) return path:match "^docs/guide/" and 1 or path:match "^docs/decisions/" and 3 or 2 end
  table.sort(paths, function(a, b) return rank(a) == rank(b) and a < b or rank(a) < rank(b) end)
  for _, path in ipairs(paths) do
    local title = ({ "Guide", "Pages", "Decisions" })[rank(path)]
    if title ~= heading then out[#out + 1] = (heading and "</ul>\n" or "") .. ("<h2>%s</h2>\n<ul>"):format(title) end
    heading = title
    out[#out + 1] = ('<li><a href="%s">%s</a></li>'):format(page_name(path), titles[path])
  end
  return table.concat(out, "\n") .. (heading and "\n</ul>" or "")
end

--- Writes the site below a folder. `source` is the source tree, for its pages. Gives the names of the files, and nil or why pages are missing.
---@param folder string
---@param source? string
---@return string[] files, string? missing
function html.write(folder, source)
  os.execute("mkdir -p " .. quote(folder))
  write(folder .. "/reference.html", html.reference())
  local files, known, paths, titles, pictures, missing = { "reference.html", "pages.html" }, {}, {}, {}, {}, nil
  if source then
    for path in read_all(("cd %s && ls README.md CHANGELOG.md 2>/dev/null; find docs -name '*.md' | sort"):format(quote(source))):gmatch "[^\n]+" do
      paths[#paths + 1] = path
      known[path] = true
    end
    if read_all "command -v cmark-gfm" == "" then missing = "cmark-gfm is not here (Debian: cmark-gfm), so the pages of docs/ are left out" end
  end
  for _, path in ipairs(missing and {} or paths) do
    local body = adapt(read_all("cmark-gfm -e table " .. quote(source .. "/" .. path)), path, known, pictures)
    titles[path] = body:match "<h1[^>]*>(.-)</h1>" or path
    write(folder .. "/" .. page_name(path), page((titles[path]:gsub("<[^>]*>", "")), body))
    files[#files + 1] = page_name(path)
  end
  for path in pairs(pictures) do
    files[#files + 1] = path:gsub("/", "-")
    write(folder .. "/" .. files[#files], read(source .. "/" .. path))
  end
  if not titles["README.md"] then
    files[#files + 1] = "index.html"
    write(folder .. "/index.html", page("Perilune", '<h1>Perilune</h1>\n<p>A tensor engine driven from LuaJIT: <a href="reference.html">the reference</a>.</p>'))
  end
  write(folder .. "/pages.html", page("Perilune: pages", "<h1>Pages</h1>\n" .. listing(titles, missing and {} or paths)))
  return files, missing
end

return html
