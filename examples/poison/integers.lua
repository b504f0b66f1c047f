-- SPDX-License-Identifier: MIT
-- Poison that stands out in integer tensors: 0x7F7F7F7F is 2139062143 as i32, and huge but finite as f32.
return { on = { "reset", "alloc" }, word = 0x7F7F }
