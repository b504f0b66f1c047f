-- SPDX-License-Identifier: MIT
-- The arena is full from the start, so that every block comes from the device's pool; its lifetime must be that of an arena block.
return {
  name = "overflow",
  engine = { arena = "4KiB" },
  spills = true,
  run = function(s)
    local plug = s.engine:empty(1024)
    s.engine:pin(plug)
    for i = 1, s.n do
      s:forward(i)
      s:reset()
      s:backward(i)
      s:reset()
    end
    s.engine:unpin(plug)
  end,
}
