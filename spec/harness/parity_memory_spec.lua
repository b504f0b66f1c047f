-- SPDX-License-Identifier: MIT
-- Parity of every op and composite under the schedules that free, spill and interleave.

require("spec.support.parity").declare(describe, it, "memory")
