// SPDX-License-Identifier: Apache-2.0
// A place in the prompts of a model: a placeholder with the fixed text around it. What is learned of texts (anchors,
// corrections) belongs to a place.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/reuse/prompt_part.h"

namespace baton {

struct LinearCorrection;

struct PlaceKey {
  std::uint64_t context = 0;  // hash of the fixed text and names before the placeholder, and of the text after it
  std::string slot;
  std::string pool;  // name of a pool; places of different pools share nothing
  auto operator<=>(const PlaceKey&) const = default;
};

/// Returns the key of each part of a prompt. A placeholder's key covers the fixed text and the names before the
/// placeholder, and the fixed text after it. The key of a part of fixed text is empty.
std::vector<PlaceKey> places_of(std::span<const PromptPart> prompt, const std::string& pool);

/// The shape of one token's keys and values.
struct KvWidth {
  std::int32_t layers = 0;  // L
  std::int32_t width = 0;   // K * D
  bool operator==(const KvWidth&) const = default;
};

/// A text with its computed KV in a prompt and the KV that was handed over with it. bf16, in host memory.
struct PlaceSample {
  PlaceKey key;
  std::string reader;  // the agent whose prompt holds the text
  KvWidth shape;
  std::int32_t length = 0;           // n
  std::vector<std::uint16_t> truth;  // [L, n, 2 K D] keys before RoPE, then values
  std::vector<std::uint16_t> base;   // [L, n, 2 K D]
  bool generated = false;            // the text is an answer
};

/// The learned corrections by place, a key without a pool. Immutable, so safe from any thread.
using Corrections = std::map<PlaceKey, std::shared_ptr<const LinearCorrection>>;

}  // namespace baton
