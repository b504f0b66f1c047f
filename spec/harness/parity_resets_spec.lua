-- SPDX-License-Identifier: MIT
-- Parity of every op and composite under the schedules that reset.

require("spec.support.parity").declare(describe, it, "resets")
