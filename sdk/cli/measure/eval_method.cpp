// SPDX-License-Identifier: Apache-2.0
#include "sdk/cli/measure/eval_method.h"

#include <baton/reuse_method.h>

#include <fmt/format.h>

#include "sdk/cli/console/exit_code.h"

namespace baton::cli {

EvalMethod EvalMethod::parse(const std::string& text) {
  EvalMethod method;
  method.text = text;
  const std::size_t colon = text.find(':');
  method.name = text.substr(0, colon);
  if (method.name.empty()) throw Failure(kUsage, fmt::format("--methods: '{}' names no method", text));
  for (std::size_t at = colon; at != std::string::npos;) {
    const std::size_t end = text.find(';', at + 1);
    const std::string setting = text.substr(at + 1, end == std::string::npos ? end : end - at - 1);
    const std::size_t equals = setting.find('=');
    if (equals == std::string::npos || equals == 0) {
      throw Failure(kUsage,
                    fmt::format("--methods {}: expected KEY=VALUE after ':' or ';', found '{}'", text, setting));
    }
    method.settings.emplace_back(setting.substr(0, equals), setting.substr(equals + 1));
    at = end;
  }
  return method;
}

bool EvalMethod::is_reference() const {
  const ReuseMethod* method = find_reuse_method(name);
  return method != nullptr && !method->reuses;
}

bool EvalMethod::remembers_questions() const {
  const ReuseMethod* method = find_reuse_method(name);
  return method != nullptr && (method->anchors || (method->prefixes && !method->ahead));
}

Workflow EvalMethod::load(const WorkflowArguments& arguments, const std::string& pool) const {
  WorkflowArguments changed = arguments;
  const ReuseMethod* method = find_reuse_method(name);  // an unknown one is refused by load
  if (method == nullptr || !(method->segments && method->ahead)) changed.set.push_back("relay.min_tokens=1");
  if (method == nullptr || !method->prefixes || method->ahead)
    changed.set.push_back("relay.prefix=false");  // the methods see the same prompts one after the other
  if (method != nullptr && method->anchors) changed.set.push_back("relay.anchors.pool=eval-" + pool);
  return load_with(std::move(changed), arguments);
}

Workflow EvalMethod::load_as_run(const WorkflowArguments& arguments) const { return load_with(arguments, arguments); }

Workflow EvalMethod::load_with(WorkflowArguments changed, const WorkflowArguments& arguments) const {
  changed.relay = name;
  for (const auto& [key, value] : settings) changed.set.push_back(fmt::format("relay.{}={}", key, value));
  try {
    return changed.load();
  } catch (const WorkflowError& error) {
    arguments.load();  // the mistake may be the file's own
    throw Failure(kUsage, fmt::format("--methods {}: {}", text, error.what()));
  }
}

}  // namespace baton::cli
