// SPDX-License-Identifier: Apache-2.0
// Answers questions about JSON Schemas, one a line, for check_schemas.py. A question is {"schema": TEXT, "texts":
// [TEXT]} or, of tools that one grammar holds, {"tools": [[NAME, TEXT]]}; the answer has what the checker and the
// grammar say, and under "author" why a workflow's author may not write the schema.
#include <ctime>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/text/constrain/call_grammar.h"
#include "engine/text/constrain/grammar.h"
#include "engine/text/schema/schema.h"

namespace {

using Json = nlohmann::json;
using baton::Grammar;

template <class Make>
std::shared_ptr<const Grammar> compiled(Json& answer, const Make& make) {
  const std::clock_t begin = std::clock();  // of the processor: the machine may be busy
  std::shared_ptr<const Grammar> grammar;
  try {
    grammar = make();
    answer["nodes"] = grammar->nodes();
    answer["unenforced"] = grammar->unenforced();
  } catch (const baton::ConstraintError& error) {
    answer["error"] = error.what();
  }
  answer["ms"] = 1000.0 * static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
  return grammar;
}

Json answer_of_schema(const std::string& schema, const std::vector<std::string>& texts) {
  Json answer = Json::object();
  const baton::Schema read(schema);
  const auto mistakes = read.mistakes(baton::UnknownKeywords::ignored);
  if (!mistakes.empty()) return {{"mistake", mistakes.front().text}};
  if (const std::string wrong = baton::check_json_schema(schema); !wrong.empty()) answer["author"] = wrong;
  const std::shared_ptr<const Grammar> grammar = compiled(answer, [&] { return baton::schema_grammar(schema); });
  answer["check"] = answer["accepts"] = Json::array();
  for (const std::string& text : texts) {
    answer["check"].push_back(baton::check_json(text, read));
    answer["accepts"].push_back(grammar != nullptr && baton::accepts(*grammar, text));
  }
  return answer;
}

Json answer_of(const Json& question) {
  if (!question.contains("tools"))
    return answer_of_schema(question.at("schema"), question.value("texts", std::vector<std::string>()));
  std::vector<baton::ToolSchema> tools;
  for (const Json& one : question["tools"]) tools.push_back({one.at(0), "", one.at(1)});
  Json answer = Json::object();
  compiled(answer, [&] { return baton::call_grammar({}, tools, {.max_calls = 8}); });
  return answer;
}

}  // namespace

int main() {
  for (std::string line; std::getline(std::cin, line);) {
    Json answer;
    try {
      answer = answer_of(Json::parse(line));
    } catch (const std::exception& error) {
      answer = {{"failed", error.what()}};
    }
    std::cout << answer.dump(-1, ' ', true, Json::error_handler_t::replace) << std::endl;
  }
}
