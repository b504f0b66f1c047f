-- SPDX-License-Identifier: MIT
-- The picture of the README, on standard output:  perilune scripts/picture.lua >docs/arena.svg
--
-- It runs a training step whose arena is reset between forward and backward, asks the engine after each line what lies where, and draws the
-- answers side by side. Invariant: what is drawn is what eng.arena:blocks() said; the same program gives the same bytes.

local perilune = require "perilune"

local WIDTH, HEIGHT, TOP, LEFT, BYTES = 84, 200, 78, 76, 1536
local COLOUR = { live = "#4c8dd6", pinned = "#e08a2c", gone = "#d9dce0" }

local function escape(text) return (text:gsub("[&<>]", { ["&"] = "&amp;", ["<"] = "&lt;", [">"] = "&gt;" })) end

local eng = perilune.engine { "cpu", arena = "4KiB", seed = 1, places = true, poison = true }
local W1, W2 = eng:param({ 4, 16 }, eng:randn { 4, 16 }), eng:param({ 16, 4 }, eng:randn { 16, 4 })
local x = eng:persistent({ 8, 4 }, eng:randn { 8, 4 })
eng:reset()

local columns, names, used = {}, {}, {}

--- A column: what was run, the tensors that it made by name, and all blocks as they are now.
local function snapshot(code, made, kind)
  for name, t in pairs(made or {}) do names[t:place()] = name end
  local blocks = {}
  for _, b in ipairs(eng.arena:blocks()) do
    if b.state == "live" then
      blocks[#blocks + 1] = { at = b.offset, bytes = b.bytes, name = names[b.place], kind = b.pins > 0 and "pinned" or "live" }
      used[#used + 1] = { b.offset, b.bytes }
    end
  end
  columns[#columns + 1] = { code = code, kind = kind, blocks = blocks, used = { unpack(used) } }
end

local h = x:matmul(W1)
snapshot("h = x·W1", { h = h })
local a = h:tanh()
snapshot("a = tanh h", { a = a })
local y = a:matmul(W2)
snapshot("y = a·W2", { y = y })
eng:reset()
snapshot("reset", nil, "reset")
local _, message = pcall(function() return h:totable() end)
local dy = eng:ones { 8, 4 }
snapshot("dy = ...", { dy = dy })
y:backward(dy)
snapshot "backward"
for _, W in ipairs { W1, W2 } do eng:sgd(W, W.grad, { lr = 0.1 }) end
snapshot "update"
eng:reset()
snapshot("reset", nil, "reset")

local width, height = LEFT + #columns * WIDTH + 16, TOP + HEIGHT + 128
local out = {}
local function put(format, ...) out[#out + 1] = format:format(...) end
local function text(at, down, size, words, more)
  put('<text x="%g" y="%g" font-size="%d"%s>%s</text>', at, down, size, more and " " .. more or "", escape(words))
end
local function box(at, down, wide, high, fill) put('<rect x="%g" y="%g" width="%g" height="%g" fill="%s"/>', at, down, wide, high, fill) end

put('<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="system-ui, sans-serif" fill="#1b1f24">', width, height)
put "<title>What lies in the arena during a training step that is reset between forward and backward</title>"
put('<rect width="%d" height="%d" rx="8" fill="#ffffff"/>', width, height)
text(16, 26, 15, "What lies in the arena after each line, with a reset between forward and backward", 'font-weight="600"')
text(16, TOP + 14, 12, "the arena")
for i, column in ipairs(columns) do
  local at = LEFT + (i - 1) * WIDTH
  text(at + WIDTH / 2, TOP - 10, 11, column.code, ('text-anchor="middle" font-family="ui-monospace, monospace"%s'):format(
    column.kind == "reset" and ' font-weight="700" fill="#b3261e"' or ""))
  put('<rect x="%g" y="%g" width="%g" height="%g" fill="none" stroke="#c3c8ce"/>', at + 3, TOP, WIDTH - 6, HEIGHT)
  local function block(from, bytes, fill)
    box(at + 4, TOP + from / BYTES * HEIGHT + 1, WIDTH - 8, bytes / BYTES * HEIGHT - 2, fill)
  end
  for _, gone in ipairs(column.used) do block(gone[1], gone[2], COLOUR.gone) end
  for _, b in ipairs(column.blocks) do
    block(b.at, b.bytes, COLOUR[b.kind])
    if b.name then text(at + WIDTH / 2, TOP + (b.at + b.bytes / 2) / BYTES * HEIGHT + 4, 12, b.name, 'text-anchor="middle" fill="#ffffff" font-weight="700"') end
  end
end
local below = TOP + HEIGHT + 14
text(16, below + 15, 12, "persistent")
box(LEFT + 3, below, #columns * WIDTH - 6, 22, "#3d7d57")
text(LEFT + 12, below + 15, 12, "x, W1, W2 and their gradients: outside the arena, no reset concerns them", 'fill="#ffffff"')
local key = below + 48
for i, item in ipairs { { "live", "valid until the next reset" }, { "pinned", "saved for the backward: stays" }, { "gone", "poisoned, will be used again" } } do
  box(LEFT + 3 + (i - 1) * 220, key - 11, 14, 14, COLOUR[item[1]])
  text(LEFT + 23 + (i - 1) * 220, key, 12, item[2])
end
text(16, key + 28, 12, "h:totable() after the first reset:")
text(16, key + 46, 11, message:gsub("^%S+ ", ""):gsub("[^ ]*picture%.lua", "script.lua"):gsub(" %(arena epoch.*", ""), 'font-family="ui-monospace, monospace" fill="#b3261e"')
put "</svg>"
io.write(table.concat(out, "\n"), "\n")
