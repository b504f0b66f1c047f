-- SPDX-License-Identifier: MIT
-- perilune.data: tensors from and to files, batches, checkpoints. What is read is persistent: no reset ends it.

local text = require "perilune.data.text"

return {
  csv = text.csv, raw = text.raw, text = text.text, vocabulary = text.vocabulary,
  npy = require "perilune.data.npy",
  safetensors = require "perilune.data.safetensors",
  batches = require "perilune.data.batches",
  checkpoint = require "perilune.data.checkpoint",
}
