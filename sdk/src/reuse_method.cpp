// SPDX-License-Identifier: Apache-2.0
#include <baton/reuse_method.h>

#include <algorithm>

#include "engine/reuse/methods.h"
#include "workflows/format/relay_reader.h"

namespace baton::inline v1 {

const std::vector<ReuseMethod>& reuse_methods() {
  static const std::vector<ReuseMethod> all = [] {
    std::vector<ReuseMethod> found;
    for (const Method& method : methods()) {
      found.push_back({.name = std::string(method.name),
                       .alias = std::string(method.id == kMethodAlias.method ? kMethodAlias.name : ""),
                       .summary = std::string(method.summary),
                       .exact = method.exact,
                       .reuses = method.prefixes != Method::Prefixes::never,
                       .prefixes = method.prefixes == Method::Prefixes::always,
                       .segments = method.segments,
                       .ahead = method.ahead,
                       .anchors = method.anchors,
                       .models = method.models,
                       .group = method.layers == Method::Layers::group});
    }
    return found;
  }();
  return all;
}

const ReuseMethod* find_reuse_method(std::string_view name) {
  const std::vector<ReuseMethod>& all = reuse_methods();
  const auto found =
      std::find_if(all.begin(), all.end(), [&](const ReuseMethod& method) { return method.name == name; });
  return found == all.end() ? nullptr : &*found;
}

}  // namespace baton::inline v1
