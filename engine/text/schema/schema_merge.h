// SPDX-License-Identifier: Apache-2.0
// Schemas that must hold together (allOf, and what stands next to anyOf) as one schema.
#pragma once

#include <nlohmann/json.hpp>

#include <string>

namespace baton::constrain {

/// Keeps the order in which the author wrote the properties: an answer has them in that order.
using OrderedJson = nlohmann::ordered_json;

/// True for keywords that constrain nothing.
bool is_annotation(const std::string& keyword);

/// Returns the schema of what fulfils both, neither of which is a $ref. Throws ConstraintError, with `pointer` as the
/// place, where no single schema says that.
OrderedJson merged(const OrderedJson& a, const OrderedJson& b, const std::string& pointer);

}  // namespace baton::constrain
