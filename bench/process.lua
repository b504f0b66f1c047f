-- SPDX-License-Identifier: MIT
-- A process of ours that does one thing and ends: luajit process.lua BUILD [FAMILY RUN COUNT], in whole what `require` costs; or a loop, with the
-- peak of the process's memory printed in MiB. (The system's account of an ended process counts what its parent had before the exec, too.)

local here = arg[0]:match "^(.*)/[^/]*$"
package.path = ("%s/../lua/?.lua;%s/../lua/?/init.lua;%s/cases/?.lua;%s/?.lua"):format(here, here, here, here)
package.cpath = arg[1] .. "/lib/?.so"
local perilune = require "perilune"
if arg[2] then
  local eng = perilune.engine { "cpu", arena = "64MiB", threads = 1, seed = 1 }
  local loop = require(arg[2])[arg[3]](eng, require(arg[2]).inputs(eng), {})
  loop(tonumber(arg[4]))
  for line in io.lines "/proc/self/status" do
    local kib = line:match "^VmHWM:%s*(%d+)"
    if kib then print(kib / 1024) end
  end
end
