// SPDX-License-Identifier: Apache-2.0
#include "engine/reuse/methods.h"

#include <algorithm>
#include <array>
#include <cstddef>

#include "engine/reuse/schedule.h"

namespace baton {
namespace {

using Prefixes = Method::Prefixes;
using Layers = Method::Layers;

// Traits that a row does not name are false or none.
constexpr std::array kMethods = {
    Method{.id = MethodId::full,
           .name = "full",
           .summary = "Every token of a prompt is computed in every layer.",
           .exact = true,
           .prefixes = Prefixes::never,
           .schedule = full_schedule},
    Method{.id = MethodId::prefix,
           .name = "prefix",
           .summary = "The KV of a prefix that an earlier prompt had is reused; the rest is computed.",
           .exact = true,
           .prefixes = Prefixes::always,
           .schedule = full_schedule},
    Method{.id = MethodId::lockstep,
           .name = "lockstep",
           .summary = "A prompt is computed ahead of its request, in rows of the steps in which others decode.",
           .exact = true,
           .prefixes = Prefixes::always,
           .ahead = true,
           .schedule = full_schedule},
    Method{.id = MethodId::direct,
           .name = "direct",
           .summary = "The KV of handed-over texts is moved to its new positions and not recomputed.",
           .segments = true,
           .models = true,
           .schedule = direct_schedule},
    Method{.id = MethodId::epic,
           .name = "epic",
           .summary = "The first tokens of each handed-over text are recomputed.",
           .segments = true,
           .models = true,
           .chosen_tokens = true,
           .schedule = epic_schedule},
    Method{.id = MethodId::cacheblend,
           .name = "cacheblend",
           .summary = "The tokens whose values deviate most in an early layer are recomputed.",
           .segments = true,
           .models = true,
           .chosen_tokens = true,
           .schedule = cacheblend_schedule},
    Method{.id = MethodId::rectify,
           .name = "rectify",
           .summary = "Chosen tokens are recomputed in a range of layers, from their author's hidden states.",
           .segments = true,
           .layers = Layers::detection,
           .hidden_states = true,
           .corrections = true,
           .chosen_tokens = true,
           .schedule = rectify_schedule},
    Method{.id = MethodId::anchors,
           .name = "anchors",
           .summary = "KV is corrected by the change that similar texts had in the same place before.",
           .segments = true,
           .anchors = true,
           .schedule = anchors_schedule},
    Method{.id = MethodId::droidspeak,
           .name = "droidspeak",
           .summary = "A group of layers is recomputed for all tokens; the author may be another model.",
           .segments = true,
           .layers = Layers::group,
           .hidden_states = true,
           .models = true,
           .schedule = droidspeak_schedule},
    Method{.id = MethodId::automatic,
           .name = "auto",
           .summary = "Handed-over texts are rectified where that stays within the tolerance; the rest is exact.",
           .prefixes = Prefixes::always,
           .segments = true,
           .ahead = true,
           .layers = Layers::detection,
           .hidden_states = true,
           .corrections = true,
           .schedule = auto_schedule},
    Method{.id = MethodId::verified,
           .name = "verified",
           .summary = "An agent starts on rectified KV; what it wrote is checked once its prompt has exact KV.",
           .exact = true,
           .prefixes = Prefixes::always,
           .segments = true,
           .ahead = true,
           .layers = Layers::detection,
           .hidden_states = true,
           .corrections = true,
           .chosen_tokens = true,
           .schedule = auto_schedule},
};

constexpr bool is_ordered() {
  for (std::size_t i = 0; i < kMethods.size(); ++i) {
    if (kMethods[i].id != static_cast<MethodId>(i)) return false;
  }
  return true;
}
static_assert(is_ordered(), "method_of(id) indexes the table");

}  // namespace

std::span<const Method> methods() { return kMethods; }

const Method& method_of(MethodId id) { return kMethods[static_cast<std::size_t>(id)]; }

const Method* find_method(std::string_view name) {
  const auto found =
      std::find_if(kMethods.begin(), kMethods.end(), [&](const Method& method) { return method.name == name; });
  return found == kMethods.end() ? nullptr : &*found;
}

}  // namespace baton
