// SPDX-License-Identifier: Apache-2.0
#include "engine/text/chat_template.h"

#include <fmt/format.h>

#include "engine/base/errors.h"
#include "engine/base/utf8.h"
#include "engine/text/jinja/parser.h"
#include "engine/text/jinja/renderer.h"

namespace baton {
namespace {

// Official templates have up to 20 KB.
constexpr std::size_t kMaxTemplateBytes = 1u << 20;

class JinjaTemplate : public ChatTemplate {
 public:
  JinjaTemplate(std::string_view source, std::string origin)
      : origin_(std::move(origin)), block_(jinja::parse_template(source, origin_)) {}

  std::string render(const std::vector<ChatMessage>& messages, const ChatOptions& options,
                     const std::stop_token& stop) const override {
    using jinja::Value;
    jinja::Budget unused;
    jinja::Values list;
    for (const ChatMessage& message : messages) {
      jinja::Dict dict;
      dict.set("role", utf8::repaired(message.role), unused);
      dict.set("content", utf8::repaired(message.content), unused);
      list.push_back(Value::dict(std::move(dict)));
    }
    // The variables that Transformers passes; tokens that a model does not have are undefined.
    std::vector<std::pair<std::string, Value>> variables = {
        {"messages", Value::list(std::move(list))},
        {"tools", Value()},
        {"documents", Value()},
        {"add_generation_prompt", Value(options.add_generation_prompt)},
    };
    if (!options.bos_token.empty()) variables.emplace_back("bos_token", utf8::repaired(options.bos_token));
    if (!options.eos_token.empty()) variables.emplace_back("eos_token", utf8::repaired(options.eos_token));
    for (const auto& [name, value] : options.flags) variables.emplace_back(name, Value(value));
    return jinja::Renderer(origin_, stop).render(block_, variables);
  }

 private:
  std::string origin_;
  jinja::Block block_;
};

}  // namespace

std::shared_ptr<const ChatTemplate> ChatTemplate::parse(std::string_view source, const std::string& origin) {
  if (source.size() > kMaxTemplateBytes)
    throw ModelError(fmt::format("{}: the chat template has {} bytes, expected at most {}", origin, source.size(),
                                 kMaxTemplateBytes));
  if (!utf8::is_valid(source)) throw ModelError(origin + ": the chat template is not valid UTF-8");
  return std::make_shared<JinjaTemplate>(source, origin);
}

}  // namespace baton
