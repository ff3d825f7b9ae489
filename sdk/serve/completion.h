// SPDX-License-Identifier: Apache-2.0
// The answer to a request as JSON, whole or in the chunks of a stream.
#pragma once

#include <string>
#include <string_view>

#include <baton/event.h>

#include "sdk/serve/chat_request.h"

namespace baton::serve {

/// The text that answers: the only output, or "name: text" for each of several.
std::string answer_of(const RunRecord& record);

/// Of one request. Its members return JSON on one line.
class Completion {
 public:
  /// `request` must outlive it. `created`: seconds since 1970.
  Completion(const ChatRequest& request, long long created);

  std::string whole(const RunRecord& record) const;

  /// Chunks: the first one, text, the end with its reason, then the usage.
  std::string first() const;
  std::string text(std::string_view text) const;
  std::string last(const RunRecord& record) const;
  std::string usage(const RunRecord& record) const;
  /// A chunk without choices, whose member `baton` is the event, without the path of the model.
  std::string event(const Event& event, double t_ms) const;

 private:
  const ChatRequest& request_;
  std::string id_;
  long long created_;
};

}  // namespace baton::serve
