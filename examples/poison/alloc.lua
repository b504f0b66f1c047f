-- SPDX-License-Identifier: MIT
-- Fills only what is handed out uninitialized: finds ops that leave part of their result unwritten.
return { on = { "alloc" } }
