-- SPDX-License-Identifier: MIT
-- The tests written in C, of parts that stand on their own: each ends with "N passed, N failed" and exits accordingly.

describe("native test", function()
  local build = assert(os.getenv "PERILUNE_BUILDDIR", "run by make check")
  for name, least in pairs { arena = 250, elementary = 500, gemm = 100 } do
    it(name .. " passes", function()
      local pipe = io.popen(("'%s/tests/%s' 2>&1"):format(build, name))
      local output = pipe:read "*a"
      pipe:close()
      local passed, failed = output:match "(%d+) passed, (%d+) failed%s*$"
      assert.is_truthy(passed, name .. " did not come to its end:\n" .. output:sub(-2000))
      assert.equal("0", failed, output:sub(-2000))
      assert.is_true(tonumber(passed) >= least, ("only %s checks ran"):format(passed))
      if name == "arena" then assert.is_true(tonumber(output:match "(%d+) random steps") >= 1e6) end
    end)
  end
end)
