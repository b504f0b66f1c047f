-- SPDX-License-Identifier: MIT
-- Two spirals: a small network learns which of two interleaved spirals a point belongs to, and draws where it sees the border.
--
--   perilune examples/spiral.lua [STEPS] [SEED]
--
-- The whole step is captured once and replayed, many steps at a time: no Lua runs between their ops.

local perilune = require "perilune"
local nn, optim = perilune.nn, perilune.optim

local spiral = {}

--- n points of two spirals, every other one of the same: positions (n, 2) and classes 1, 2.
function spiral.points(n)
  local xy, classes = {}, {}
  for i = 1, n do
    local class = i % 2
    local t = (i - class) / n
    local angle, radius = 3.5 * math.pi * t + class * math.pi, 0.1 + 0.9 * t
    xy[i], classes[i] = { radius * math.cos(angle), radius * math.sin(angle) }, class + 1
  end
  return xy, classes
end

function spiral.model(eng)
  return nn.Sequential { nn.Linear(eng, 2, 32), nn.Tanh(), nn.Linear(eng, 32, 32), nn.Tanh(), nn.Linear(eng, 32, 2) }
end

--- Trains for some steps; returns the model, the share of points that it gets right, and the losses after each of about forty parts.
function spiral.train(eng, steps, seed)
  eng:rng { seed, 0 }
  local points, classes = spiral.points(200)
  local x, y = eng:persistent({ 200, 2 }, points), eng:persistent({ 200 }, classes, { dtype = "i64" })
  local model = spiral.model(eng)
  local opt = optim.AdamW(model, { lr = 0.01 })
  local schedule = optim.cosine(opt, { steps = steps })
  local step, loss = eng:capture(function()
    opt:zero_grad()
    local loss = nn.loss.cross_entropy(model(x), y)
    loss:backward()
    opt:step()
    schedule:step()
    return loss
  end)
  local losses, part = {}, math.ceil(steps / 40)
  for i in perilune.progress { math.ceil(steps / part), title = "training" } do
    step:replay(math.min(part, steps - (i - 1) * part))
    losses[i] = loss:item()
  end
  step:release()
  local right = eng:no_grad(function() return model(x):argmax(2):eq(y):to("f32"):mean():item() end)
  return model, right, losses
end

--- The model's view of the square -1.1 .. 1.1 as text: dots and shades for the two classes, o and x for the points.
function spiral.draw(eng, model, columns, rows)
  local xy = {}
  for r = 1, rows do
    for c = 1, columns do xy[#xy + 1] = { -1.1 + 2.2 * (c - 0.5) / columns, 1.1 - 2.2 * (r - 0.5) / rows } end
  end
  local seen = eng:no_grad(function() return model(eng:tensor(xy)):argmax(2):totable() end)
  local cells = {}
  for i, class in ipairs(seen) do cells[i] = class == 1 and "." or "\226\150\145" end
  local points, classes = spiral.points(200)
  for i, p in ipairs(points) do
    local c, r = math.floor((p[1] + 1.1) / 2.2 * columns), math.floor((1.1 - p[2]) / 2.2 * rows)
    cells[r * columns + c + 1] = classes[i] == 1 and "o" or "x"
  end
  local lines = {}
  for r = 1, rows do lines[r] = table.concat(cells, "", (r - 1) * columns + 1, r * columns) end
  return table.concat(lines, "\n")
end

function spiral.main(args)
  local steps, seed = tonumber(args[1] or 1500), tonumber(args[2] or 1)
  if not steps or not seed or steps < 1 or steps % 1 ~= 0 or args[3] then
    io.stderr:write "usage: perilune examples/spiral.lua [STEPS] [SEED]\n"
    return 2
  end
  local eng = perilune.engine()
  local started = perilune.clock()
  local model, right, losses = spiral.train(eng, steps, seed)
  local seconds = perilune.clock() - started
  print(spiral.draw(eng, model, 64, 30))
  print(perilune.plot.line(losses, { title = "loss", xlabel = "part", log = "y", height = 12 }))
  print(("%d steps in %.1f s, loss %.5f, %.1f %% of the points right"):format(steps, seconds, losses[#losses], 100 * right))
  return 0
end

if arg and arg[0] and arg[0]:match "spiral%.lua$" then os.exit(spiral.main(arg), true) end

return spiral
