-- SPDX-License-Identifier: MIT
-- footing: what an engine stands on, for specs of things that must leave all as it was.

local footing = {}

--- Calls made and waiting, memory, draw number and mode of the engine, to be compared with what it was.
function footing.of(eng)
  local s = eng:stats()
  local seen = { calls = s.calls, queued = s.queued, draw = eng:rng()[2], recording = eng:recording(), pins = s.pins }
  for _, what in ipairs { "offset", "live_blocks", "live_bytes", "owned_bytes", "overflow_blocks", "pinned_bytes" } do seen[what] = s[what] end
  return seen
end

function footing.check_arena(eng)
  if eng:stats().capacity > 0 then assert(eng.arena:check() == "", eng.arena:check()) end
end

return footing
