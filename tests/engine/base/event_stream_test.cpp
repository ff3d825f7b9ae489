// SPDX-License-Identifier: Apache-2.0
// Server-sent events, in pieces of any size.
#include <catch2/catch.hpp>

#include <random>
#include <string>
#include <vector>

#include "engine/base/event_stream.h"

namespace event_stream_test {

using namespace baton;

namespace {

std::vector<std::string> events_of(const std::string& stream, std::size_t piece) {
  std::vector<std::string> events;
  EventStream reader([&](std::string_view data) { events.emplace_back(data); });
  for (std::size_t at = 0; at < stream.size(); at += piece) reader.add(std::string_view(stream).substr(at, piece));
  return events;
}

}  // namespace

TEST_CASE("events are the same however a stream is cut") {
  const std::string stream =
      ": a comment\r\nevent: message\r\nid: 1\r\ndata: one\r\n\r\n"
      "data:two\ndata: lines\n\n"
      "retry: 5\n\n"    // no data, no event
      "data\rdata\r\r"  // two empty lines of data
      "database: no\n\n"
      "data:  a blank\n\n"
      "data: unfinished";
  const std::vector<std::string> expected = {"one", "two\nlines", "\n", " a blank"};
  for (std::size_t piece = 1; piece <= stream.size(); ++piece) {
    CAPTURE(piece);
    CHECK(events_of(stream, piece) == expected);
  }
}

TEST_CASE("a byte order mark at the beginning is no part of the first line") {
  const std::string mark = "\xEF\xBB\xBF";
  CHECK(events_of(mark + "data: a\n\n", 1) == std::vector<std::string>{"a"});
  CHECK(events_of("data: a\n\n" + mark + "data: b\n\n", 4) == std::vector<std::string>{"a"});
}

TEST_CASE("any bytes are a stream of events") {
  std::mt19937 random(1);
  const std::string letters = "data: \r\n\0x:";
  for (int round = 0; round < 2000; ++round) {
    std::string stream;
    for (unsigned i = random() % 60; i > 0; --i) stream += letters[random() % letters.size()];
    CHECK(events_of(stream, 1 + random() % 7) == events_of(stream, stream.size() + 1));
  }
}

}  // namespace event_stream_test
