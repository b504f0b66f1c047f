-- SPDX-License-Identifier: MIT
-- Results are read on the host long after they were asked for, in another order, with other work queued behind them.
return {
  name = "late-host-reads",
  run = function(s)
    s:forward_all()
    for i = s.n, 1, -1 do s:read(i) end
    s:backward_all()
    for i = 1, s.n do s:read(i) end
    s:reset()
  end,
}
