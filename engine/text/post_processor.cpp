// SPDX-License-Identifier: Apache-2.0
#include "engine/text/post_processor.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace baton::text {
namespace {

constexpr int kMaxProcessorDepth = 16;

/// Returns the ids of a special token of a template.
std::vector<TokenId> template_ids(const Json& value, const std::string& name, const Vocabulary& vocabulary,
                                  const Where& where) {
  const Where inside = where.in("special_tokens");
  const Json& token = member(member(value, "special_tokens", where), name.c_str(), inside);
  std::vector<TokenId> out;
  for (const Json& id : array_member(token, "ids", inside.in(name))) {
    out.push_back(index_of(id, vocabulary.size(), inside.in(name)));
  }
  return out;
}

void add_template(PostProcessor& out, const Json& value, const Vocabulary& vocabulary, const Where& where) {
  std::vector<TokenId> before, after;
  bool text_seen = false;
  const Where single = where.in("single");
  for (const Json& part : array_member(value, "single", where)) {
    if (const Json* token = find(part, "SpecialToken", single)) {
      const auto ids = template_ids(value, string_member(*token, "id", single), vocabulary, where);
      auto& side = text_seen ? after : before;
      side.insert(side.end(), ids.begin(), ids.end());
    } else if (const Json* sequence = find(part, "Sequence", single)) {
      if (text_seen || string_member(*sequence, "id", single) != "A")
        single.fail("expected the sequence 'A' exactly once");
      text_seen = true;
    } else {
      single.fail("expected a SpecialToken or a Sequence");
    }
  }
  if (!text_seen) single.fail("the sequence 'A' is missing");
  out.before.insert(out.before.begin(), before.begin(), before.end());
  out.after.insert(out.after.end(), after.begin(), after.end());
}

void add(PostProcessor& out, const Json& value, const Vocabulary& vocabulary, const Where& where, int depth) {
  const std::string type = string_member(value, "type", where);
  if (type == "Sequence") {
    if (depth == kMaxProcessorDepth) where.fail("too many sequences inside each other");
    std::size_t i = 0;
    for (const Json& part : array_member(value, "processors", where)) {
      add(out, part, vocabulary, where.in("processors").in(i++), depth + 1);
    }
  } else if (type == "TemplateProcessing") {
    add_template(out, value, vocabulary, where);
  } else if (type != "ByteLevel") {  // ByteLevel changes offsets only
    where.fail(fmt::format("the post_processor {} is not supported", in_quotes(type)));
  }
}

}  // namespace

PostProcessor parse_post_processor(const Json* value, const Vocabulary& vocabulary, const Where& where) {
  PostProcessor out;
  if (value != nullptr) add(out, *value, vocabulary, where, 0);
  return out;
}

}  // namespace baton::text
