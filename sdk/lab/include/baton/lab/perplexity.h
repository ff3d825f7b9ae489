// SPDX-License-Identifier: Apache-2.0
// The perplexity of a text: how well a model predicts it. It is computed as llama.cpp's llama-perplexity does, so that
// the two values can be compared (docs/lab.md, `baton-lab perplexity`).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <stop_token>
#include <string>

namespace baton::inline v1::lab {

/// The text, the model and the arithmetic.
struct PerplexityOptions {
  std::string model{};          // a folder, a .gguf file or a bare name
  std::string text{};           // UTF-8; it is tokenised as a whole, and special tokens in it are plain text
  std::string device = "auto";  // auto, cpu, cuda, cuda:N
  /// Of KV and of weights that are not quantised: bf16, f32. Products with quantised weights take 8-bit activations
  /// with bf16, and activations as they are with f32.
  std::string dtype = "bf16";
  std::string activations = "f32";  // of products with bf16 weights on the CPU: f32, bf16
  int threads = 0;                  // CPU threads; 0: one per core
  int context = 512;                // tokens of a chunk, 4 or more
  std::int64_t chunks = 0;          // only the first N chunks of the text; 0: all
  std::function<void(const std::string& model, double share)> on_load{};  // as in EngineOptions
  /// Called after each chunk, on the calling thread: chunks done, chunks in all, the perplexity so far.
  std::function<void(std::int64_t done, std::int64_t chunks, double perplexity)> on_chunk{};
  std::stop_token stop{};
};

/// The perplexity and what it rests on.
struct PerplexityResult {
  double perplexity = 0;         // exp of nll
  double error = 0;              // standard error of the perplexity; 0 where fewer than two tokens were scored
  double nll = 0;                // mean negative log-likelihood of the scored tokens, in nats
  std::int64_t tokens = 0;       // of the whole text
  std::int64_t scored = 0;       // tokens whose likelihood counts
  std::int64_t chunks = 0;       // measured
  bool begins_with_bos = false;  // the model's BOS takes the place of each chunk's first token
  std::string device;
};

/// Cuts the text into chunks of `context` tokens, each with a KV cache of its own, and scores the tokens behind the
/// first half of each chunk: position context / 2 and those after it predict the next token. The end of the text that
/// fills no chunk is left out. Logits are reduced in steps of few rows: memory does not grow with `context` times the
/// vocabulary. Returns nothing when it was stopped before the first chunk was complete. Throws InputError for an
/// invalid option and for a text of less than one chunk, and ResourceError.
std::optional<PerplexityResult> measure_perplexity(const PerplexityOptions& options);

}  // namespace baton::inline v1::lab
