// SPDX-License-Identifier: Apache-2.0
// Renders a chat template for check_chat.py: one JSON object a line in, {"text": ...} or {"error": ...} a line out.
#include <fstream>
#include <iostream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "engine/model/config.h"
#include "engine/text/templates.h"

namespace {

using Json = nlohmann::json;

std::string render(const baton::ChatTemplate& chat, const Json& question) {
  std::vector<baton::ChatMessage> messages;
  for (const Json& message : question.at("messages")) messages.push_back({message.at("role"), message.at("content")});
  baton::ChatOptions options;
  options.add_generation_prompt = question.value("add_generation_prompt", false);
  options.bos_token = question.value("bos_token", "");
  options.eos_token = question.value("eos_token", "");
  const Json flags = question.value("flags", Json::object());
  for (const auto& [name, value] : flags.items()) options.variables.emplace_back(name, value.dump());
  return chat.render(messages, options);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: baton_render_check TEMPLATE < questions\n";
    return 2;
  }
  std::ifstream file(argv[1], std::ios::binary);
  const std::string source{std::istreambuf_iterator<char>(file), {}};
  std::shared_ptr<const baton::ChatTemplate> chat;
  std::string broken;
  try {
    chat = baton::ChatTemplate::parse(source, argv[1]);
  } catch (const baton::ModelError& error) {
    broken = error.what();
  }
  for (std::string line; std::getline(std::cin, line);) {
    Json answer;
    try {
      if (!chat) throw baton::ModelError(broken);
      answer["text"] = render(*chat, Json::parse(line));
    } catch (const baton::ModelError& error) {
      answer["error"] = error.what();
    }
    std::cout << answer.dump() << '\n';
  }
}
