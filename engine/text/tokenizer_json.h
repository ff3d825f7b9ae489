// SPDX-License-Identifier: Apache-2.0
// Reading tokenizer.json with errors that say where: "folder/tokenizer.json: pre_tokenizer.pretokenizers[1]: ...".
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "engine/base/errors.h"

namespace baton {
class Tokenizer;
}

namespace baton::text {

using Json = nlohmann::json;

struct Where {
  std::string origin;
  std::string path;

  Where in(std::string_view key) const;
  Where in(std::size_t index) const;
  /// Throws ModelError.
  [[noreturn]] void fail(std::string_view what) const;
};

/// The member, or nullptr when it is missing or null. Fails when `object` is not an object.
const Json* find(const Json& object, const char* key, const Where& where);
/// The member; fails when it is missing or null.
const Json& member(const Json& object, const char* key, const Where& where);

std::string string_member(const Json& object, const char* key, const Where& where);
std::optional<std::string> optional_string(const Json& object, const char* key, const Where& where);
bool bool_member(const Json& object, const char* key, bool otherwise, const Where& where);
/// A whole number in [0, limit).
std::int32_t index_of(const Json& value, std::int32_t limit, const Where& where);
const Json& array_member(const Json& object, const char* key, const Where& where);

struct BpeTables;

/// Tokenizer::parse of a tokenizer.json that is a value already, but for its "vocab" and "merges", which are `tables`;
/// `identity`: Tokenizer::identity.
std::shared_ptr<const Tokenizer> make_tokenizer(const Json& json, const BpeTables& tables, const std::string& origin,
                                                std::uint64_t identity);

/// Fails when a normalizer, pre_tokenizer or decoder has more steps than any tokenizer needs.
void check_step_count(std::size_t steps, const Where& where);

/// A string for error messages, shortened.
std::string in_quotes(std::string_view text);

}  // namespace baton::text
