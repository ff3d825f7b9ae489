// SPDX-License-Identifier: Apache-2.0
// baton doctor --device: a device against the CPU, down to the tokens of an answer.
#include "engine/backend/self_test.h"

#include <baton/system.h>
#include <fmt/format.h>

#include <algorithm>

#include "engine/backend/make_backend.h"
#include "engine/model/forward.h"
#include "sdk/src/internal.h"

namespace baton::inline v1 {
namespace {

/// Returns the greedy tokens that follow a text.
std::vector<TokenId> continued(Backend& backend, const std::filesystem::path& path, std::size_t count) {
  const auto model = open_model(backend, path, ModelOptions{});
  std::vector<TokenId> ids = model->tokenizer->encode(
      "A farm has 7 hens and 3 cows. Hens have 2 legs and cows have 4 legs.", SpecialTokens::as_text);
  Forward forward(backend, *model);
  KvCache cache(backend, model->kv_layout(), static_cast<std::int32_t>(ids.size() + count));
  std::vector<TokenId> answer;
  while (answer.size() < count) {
    StepRows rows;
    const std::int32_t index = rows.add_cache(&cache);
    for (const TokenId id : ids) rows.add_row(index, cache.length() + static_cast<std::int32_t>(rows.size()), id);
    rows.logits_rows.push_back(static_cast<std::int32_t>(rows.size()) - 1);
    rows.choices.emplace_back();  // greedy
    forward.run(rows);
    cache.commit(cache.length() + static_cast<std::int32_t>(ids.size()));
    ids = {forward.chosen()[0].id};
    answer.push_back(ids[0]);
  }
  return answer;
}

/// Returns where the device's tokens part from the CPU's, or an empty text.
std::string compare_answers(Backend& subject, Backend& reference) {
  constexpr std::size_t kTokens = 24;
  const std::filesystem::path path = find_model("nano");
  const auto found = continued(subject, path, kTokens), expected = continued(reference, path, kTokens);
  const auto [own, other] = std::mismatch(found.begin(), found.end(), expected.begin());
  if (own == found.end()) return {};
  return fmt::format("token {} of {} is {}, the CPU's {}", own - found.begin() + 1, kTokens, *own, *other);
}

}  // namespace

void check_device(const std::string& device, const std::function<void(const DeviceCheck&)>& on_check) {
  const auto subject = with_resource_errors([&] { return make_backend({device, 0}); });
  const auto reference = make_backend({"cpu", 0});
  const auto report = [&](const SelfTestPart& part) { on_check({part.name, part.problem, part.milliseconds}); };
  run_self_test(*subject, *reference, report);
  report(
      run_self_test_part("an answer of nano, token by token", [&] { return compare_answers(*subject, *reference); }));
}

}  // namespace baton::inline v1
