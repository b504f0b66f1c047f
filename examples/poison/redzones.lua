-- SPDX-License-Identifier: MIT
-- All poison, and 256 guard bytes after each block that every reset checks: finds writes past the end.
return { on = { "reset", "free", "alloc" }, redzone = 256 }
