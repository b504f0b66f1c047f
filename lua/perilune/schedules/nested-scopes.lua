-- SPDX-License-Identifier: MIT
-- Lifetimes within lifetimes: a graph made outside has its backward inside and one made inside has it after the scope's end.
return {
  name = "nested-scopes",
  run = function(s)
    s:forward(1)
    s:scope(function()
      for i = 2, s.n do
        s:scope(function()
          s:forward(i)
          s:reset()
        end)
        if i % 2 == 0 then s:backward(i) end
      end
      s:backward(1)
    end)
    for i = 3, s.n, 2 do s:backward(i) end
    s:reset()
  end,
}
