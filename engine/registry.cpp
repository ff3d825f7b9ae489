// SPDX-License-Identifier: Apache-2.0
#include "engine/registry.h"

#include <algorithm>
#include <vector>

#include "engine/reuse/anchors/anchors.h"
#include "engine/reuse/auto/auto.h"
#include "engine/reuse/droidspeak/droidspeak.h"
#include "engine/reuse/rectify/rectify.h"
#include "engine/reuse/verified/verified.h"

namespace baton {
namespace {

struct Registry {
  std::vector<const Method*> all = {
      &full_method(),    &prefix_method(),     &lockstep_method(), &rectify_method(),
      &anchors_method(), &droidspeak_method(), &auto_method(),     &verified_method(),
  };
  std::size_t product = all.size();  // the first so many are the product's
  bool laboratory = false;
};

Registry& registry() {
  static Registry the_registry;
  return the_registry;
}

/// Keys that product programs do not know. Others are declared with MethodKey::lab.
constexpr std::string_view kLaboratoryKeys[] = {
    "layers",            // the layers that methods recompute
    "preset",            // engine/reuse/lab/scores/
    "select",            // engine/reuse/lab/scores/
    "epic_tokens",       // engine/reuse/lab/epic/
    "cacheblend_share",  // engine/reuse/lab/cacheblend/
    "cacheblend_score",  // engine/reuse/lab/cacheblend/
    "kvcomm",            // engine/reuse/lab/kvcomm/
};

}  // namespace

std::span<const Method* const> methods() { return registry().all; }

std::span<const Method* const> product_methods() { return methods().first(registry().product); }

const Method* find_method(std::string_view name) {
  const std::vector<const Method*>& all = registry().all;
  const auto found = std::find_if(all.begin(), all.end(), [&](const Method* method) {
    return method->name == name || (!method->alias.empty() && method->alias == name);
  });
  return found == all.end() ? nullptr : *found;
}

const Method& default_method() { return auto_method(); }

const Method* sampling_method() {
  const std::vector<const Method*>& all = registry().all;
  const auto found =
      std::find_if(all.begin(), all.end(), [](const Method* method) { return method->observe != nullptr; });
  return found == all.end() ? nullptr : *found;
}

bool is_laboratory_key(std::string_view name) {
  if (std::find(std::begin(kLaboratoryKeys), std::end(kLaboratoryKeys), name) != std::end(kLaboratoryKeys)) return true;
  const std::vector<SharedKey> all = method_keys();
  return std::any_of(all.begin(), all.end(), [&](const SharedKey& one) {
    return one.key.lab && (one.key.name == name || one.key.name.starts_with(std::string(name) + "."));
  });
}

bool has_laboratory() { return registry().laboratory; }

std::vector<SharedKey> method_keys(std::span<const Method* const> of) {
  std::vector<SharedKey> all;
  for (const Method* method : of) {
    if (method->keys == nullptr) continue;
    for (MethodKey& key : method->keys()) {
      const auto known =
          std::find_if(all.begin(), all.end(), [&](const SharedKey& one) { return one.key.name == key.name; });
      if (known == all.end()) {
        all.push_back({std::move(key), {method}});
      } else {
        known->methods.push_back(method);
      }
    }
  }
  return all;
}

void register_laboratory(std::span<const Method* const> more) {
  registry().laboratory = true;
  for (const Method* method : more) {
    if (find_method(method->name) == nullptr) registry().all.push_back(method);
  }
}

}  // namespace baton
