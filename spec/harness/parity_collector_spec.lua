-- SPDX-License-Identifier: MIT
-- Parity of every op and composite under the schedule that collects garbage between any two ops.

require("spec.support.parity").declare(describe, it, "collector")
