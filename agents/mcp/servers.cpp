// SPDX-License-Identifier: Apache-2.0
#include "agents/mcp/servers.h"

#include <thread>

#include "engine/base/errors.h"

namespace baton {

McpServers::~McpServers() {
  std::vector<std::jthread> ending;  // a server may take two seconds
  for (auto& server : running_) {
    if (server) try_to([&] { ending.emplace_back([one = std::move(server)]() mutable { one.reset(); }); });
  }
}

std::vector<McpServers::Started> McpServers::start(const std::stop_token& stop) {
  const std::lock_guard lock(mutex_);
  std::vector<Started> out;
  for (const McpServerSpec& spec : specs_) out.push_back({spec, nullptr, {}, 0.0});
  running_.resize(specs_.size());
  {
    std::vector<std::jthread> starting;
    for (std::size_t i = 0; i < specs_.size(); ++i) {
      if (running_[i] && !running_[i]->ended().empty()) running_[i].reset();
      if (running_[i]) continue;
      starting.emplace_back([&, i] {
        const Clock::time_point begin = Clock::now();
        try {
          running_[i] = std::make_shared<const McpServer>(specs_[i], version_, stop);
        } catch (const std::exception& error) {
          if (!try_to([&] { out[i].error = message_of(error); })) out[i].error = "no memory";
        }
        out[i].start_ms = milliseconds(Clock::now() - begin);
      });
    }
  }
  if (stop.stop_requested()) throw Interrupted();
  for (std::size_t i = 0; i < specs_.size(); ++i) out[i].server = running_[i];
  return out;
}

}  // namespace baton
