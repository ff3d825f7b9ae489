// SPDX-License-Identifier: Apache-2.0
#include "workflows/run/workers.h"

#include <fmt/format.h>

#include <system_error>

#include "engine/base/errors.h"
#include "engine/request.h"

namespace baton {

Workers::Workers(std::size_t threads) {
  threads_.reserve(threads);
  try {
    while (threads_.size() < threads) {
      threads_.emplace_back([this] {
        while (const std::unique_ptr<Task> task = tasks_.take()) {
          if (!stopping_) try_to([&] { task->run(); });
        }
      });
    }
  } catch (const std::system_error& error) {
    if (threads_.empty()) {
      throw EngineError(EngineError::Kind::memory,
                        fmt::format("the run cannot start a thread: {}", error.code().message()));
    }
  } catch (...) {
    stop();
    throw;
  }
}

Workers::~Workers() { stop(); }

void Workers::stop() noexcept {
  stopping_ = true;
  tasks_.close();
  for (std::thread& thread : threads_) thread.join();
}

}  // namespace baton
