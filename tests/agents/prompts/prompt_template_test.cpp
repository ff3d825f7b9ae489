// SPDX-License-Identifier: Apache-2.0
#include "agents/prompts/prompt.h"

#include <catch2/catch.hpp>

namespace baton {
namespace {

/// Pieces as "text" and <placeholder>@offset, errors as !offset: message.
std::string shown(std::string_view source) {
  std::vector<TemplateError> errors;
  std::string out;
  for (const TemplatePiece& piece : parse_template(source, errors)) {
    out += piece.placeholder.empty() ? "\"" + piece.text + "\"" : "<" + piece.placeholder + ">";
    out += "@" + std::to_string(piece.offset) + " ";
  }
  for (const TemplateError& error : errors) out += "!" + std::to_string(error.offset) + " ";
  return out;
}

TEST_CASE("templates are text and placeholders") {
  CHECK(shown("") == "");
  CHECK(shown("plain") == "\"plain\"@0 ");
  CHECK(shown("Q: {{ user_question }}\n") == "\"Q: \"@0 <user_question>@6 \"\n\"@22 ");
  CHECK(shown("{{a}}{{b}}") == "<a>@2 <b>@7 ");
  CHECK(shown("{{\tit.output\n}}") == "<it.output>@3 ");
  CHECK(shown("{{ agent_x_current_current }}") == "<agent_x_current_current>@3 ");
}

TEST_CASE("single braces are plain text, and four stand for two") {
  CHECK(shown("{\"a\": {\"b\": 1}} } }}") == "\"{\"a\": {\"b\": 1}} } }}\"@0 ");
  CHECK(shown("use {{{{ name }} here") == "\"use {{ name }} here\"@0 ");
  CHECK(shown("{{{{{{ a }}") == "\"{{\"@0 <a>@7 ");
}

TEST_CASE("broken placeholders are errors with their place") {
  CHECK(shown("a {{ }} b") == "\"a  b\"@0 !2 ");
  CHECK(shown("{{}}") == "!0 ");
  CHECK(shown("a {{ b") == "\"a  b\"@0 !2 ");
  CHECK(shown("{{ a {{ b }}") == "\" a \"@2 <b>@8 !0 ");
  CHECK(shown("{{ A }}{{ 1a }}{{ a b }}{{ a-b }}{{ a.b..c }}{{ a. }}{{ .a }}{{ \"x\": 1 }}") ==
        "!3 !10 !18 !27 !36 !48 !56 !64 ");
  CHECK(shown("{{{ a }}}") == "\"}\"@8 !2 ");
}

TEST_CASE("a message never cuts a character") {
  std::vector<TemplateError> errors;
  std::string name = "{{ ";
  for (int i = 0; i < 30; ++i) name += "\xC3\xA9";
  parse_template(name + " }}", errors);
  REQUIRE(errors.size() == 1);
  CHECK(errors[0].message.find("\xC3\xA9...'") != std::string::npos);
}

}  // namespace
}  // namespace baton
