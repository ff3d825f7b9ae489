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
