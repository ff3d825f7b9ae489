// SPDX-License-Identifier: Apache-2.0
// The filters, in two tables: those of single values and those of lists.
#pragma once

#include <span>
#include <string_view>

#include "engine/text/jinja/value.h"

namespace baton::jinja {

struct NamedFilter {
  std::string_view name;
  Value (*apply)(const Value& value, const Arguments& arguments, Budget& budget);
};

std::span<const NamedFilter> list_filters();

}  // namespace baton::jinja
