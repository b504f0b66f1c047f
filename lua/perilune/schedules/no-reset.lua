-- SPDX-License-Identifier: MIT
-- Nothing is recycled: forward and backward of each sample, one after the other. What fails here fails without any hazard.
return {
  name = "no-reset",
  run = function(s)
    s:forward_all()
    s:backward_all()
  end,
}
