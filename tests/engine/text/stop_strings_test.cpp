// SPDX-License-Identifier: Apache-2.0
#include "engine/text/tokenizer.h"

#include <catch2/catch.hpp>
#include <random>

#include "tests/support/thread_time.h"

namespace stop_strings_test {

using baton::StopStrings;
using namespace baton::test;

namespace {

/// The definition: the text before the first place where any stop string stands.
std::string before_stop(const std::string& text, const std::vector<std::string>& stops) {
  std::size_t first = text.size();
  for (const std::string& stop : stops) first = std::min(first, text.find(stop));
  return text.substr(0, first);
}

}  // namespace

TEST_CASE("a stop string never shows, even when it comes in pieces", "[stop]") {
  StopStrings stops({"END", "\n\n"});
  CHECK(stops.push("hello E") == "hello ");
  CHECK(stops.push("N") == "");
  CHECK(stops.push("D and more") == "");
  CHECK(stops.found());
  CHECK(stops.length() == 6);
}

TEST_CASE("text that only began like a stop string is released", "[stop]") {
  StopStrings stops({"END"});
  CHECK(stops.push("xEN") == "x");
  CHECK(stops.push("T") == "ENT");
  CHECK(stops.push("E") == "");
  CHECK(stops.finish() == "E");
  CHECK_FALSE(stops.found());
}

TEST_CASE("without stop strings text passes through", "[stop]") {
  StopStrings stops({});
  CHECK(stops.push("abc") == "abc");
  CHECK(stops.finish().empty());
}

TEST_CASE("any split of any text gives the text before the first stop string", "[stop]") {
  std::mt19937 random(7);
  for (int run = 0; run < 2000; ++run) {
    std::string text;
    for (int i = 0; i < 12; ++i) text += static_cast<char>('a' + random() % 2);
    std::vector<std::string> list;
    for (unsigned i = 0; i < 1 + random() % 2; ++i) {
      std::string stop;
      for (unsigned n = 0; n < 1 + random() % 4; ++n) stop += static_cast<char>('a' + random() % 2);
      list.push_back(stop);
    }
    StopStrings stops(list);
    std::string out;
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t n = 1 + random() % 3;
      out += stops.push(text.substr(at, n));
      at += n;
    }
    out += stops.finish();
    INFO("text " << text << ", stop " << list.front());
    // A stop string that ends earlier is seen first when the text comes in pieces, although another began before it.
    const std::string whole = before_stop(text, list);
    if (list.size() == 1) CHECK(out == whole);
    CHECK(out.size() >= whole.size());
    for (const std::string& stop : list) CHECK(out.find(stop) == std::string::npos);
  }
}

TEST_CASE("many and long stop strings cost steps by the bytes of the output", "[stop]") {
  std::vector<std::string> stops;
  for (int i = 0; i < 4000; ++i) stops.push_back("ab" + std::to_string(i));
  std::string near;
  while (near.size() < 500'000) near += "ab";
  stops.push_back(near + "c");
  StopStrings under_test(stops);
  const double begin = thread_seconds();
  for (int i = 0; i < 1000; ++i) under_test.push("abab");
  CHECK(thread_seconds() - begin < 0.5 * slowdown());
  CHECK(under_test.length() == 0);  // all of it may be the beginning of the last one
}

}  // namespace stop_strings_test
