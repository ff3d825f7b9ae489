// SPDX-License-Identifier: Apache-2.0
#include "engine/learning/auto_files.h"

#include <catch2/catch.hpp>
#include <string>

#include "engine/base/errors.h"
#include "engine/base/files.h"
#include "tests/support/own_cache.h"

namespace place_file_test {

using namespace baton;
using namespace baton::test;

namespace {

StoredPlaces stored() {
  StoredPlaces places{"f00d", {}};
  places.history.restore(0xfedcba9876543210u, {{0.8, 0.01, 0.03}, {0.75, 0.002}}, 5);
  places.history.restore(7, {}, 0);
  places.history.restore(3, {{0.9, 0.5, 1.25}}, 15);
  return places;
}

std::string replaced(const std::string& from, const std::string& to) {
  std::string text = to_json(stored());
  const std::size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

std::string problem(const std::string& text) {
  try {
    parse_places(text, "file.json");
    return "none";
  } catch (const ModelError& error) {
    return error.what();
  }
}

}  // namespace

TEST_CASE("place file: what is written is read, with the order of use", "[history]") {
  const StoredPlaces read = parse_places(to_json(stored()), "here");
  CHECK(read.fingerprint == "f00d");
  CHECK(read.history == stored().history);
  CHECK(parse_places(to_json(StoredPlaces{"f00d", {}}), "here").history == RelayHistory());
  StoredPlaces large{"f00d", {}};
  large.history.restore(1, {{0.8, 1e9, 1e12}}, 0);
  CHECK(parse_places(to_json(large), "here").history.places().at(1).observations[0] == RelayObservation{0.8, 1e6, 1e6});
  RelayHistory full;
  for (PlaceId place = 0; place < RelayHistory::kMaxPlaces; ++place) {
    for (std::size_t i = 0; i < RelayHistory::kMaxObservations; ++i)
      full.add(place, {0.123457, 1.23457e-05, 1.23457e-05});
  }
  const std::string text = to_json(StoredPlaces{"f00d", full});
  CHECK(text.size() < std::size_t{8} << 20);  // what read_profile_file takes
  CHECK(parse_places(text, "here").history.places().size() == RelayHistory::kMaxPlaces);
}

TEST_CASE("place file: the one in the cache is found, and ignored when it is damaged or of other weights",
          "[history]") {
  const OwnCache cache;
  CHECK(!find_places("f00d"));
  write_whole(places_in_cache("f00d"), to_json(stored()));
  CHECK(find_places("f00d") == stored().history);
  write_whole(places_in_cache("beef"), to_json(stored()));
  CHECK(!find_places("beef"));
  write_whole(places_in_cache("f00d"), "{");
  CHECK(!find_places("f00d"));
}

TEST_CASE("place file: a wrong field is named, with what was expected", "[history]") {
  using Catch::Matchers::Contains;
  CHECK_THAT(problem("{"), Contains("file.json"));
  CHECK_THAT(problem(replaced("\"schema\": 2", "\"schema\": 1")), Contains("schema"));
  CHECK_THAT(problem(replaced("\"f00d\"", "\"\"")), Contains("fingerprint"));
  CHECK_THAT(problem(replaced("fedcba9876543210", "fedcba987654321")), Contains("places[0].place"));
  CHECK_THAT(problem(replaced("fedcba9876543210", "fedcba987654321g")), Contains("places[0].place"));
  CHECK_THAT(problem(replaced("fedcba9876543210", "0000000000000007")), Contains("each place once"));
  CHECK_THAT(problem(replaced("\"turns\": 5", "\"turns\": -5")), Contains("places[0].turns"));
  CHECK_THAT(problem(replaced("0.8", "1.5")), Contains("places[0].observations"));
  CHECK_THAT(problem(replaced("0.002", "-1")), Contains("places[0].observations"));
  CHECK_THAT(problem(replaced("0.002", "\"x\"")), Contains("places[0].observations"));
  CHECK_THAT(problem(replaced("-1]", "-1.5]")), Contains("places[0].observations"));
  CHECK_THAT(problem(replaced("[0.9, 0.5, 1.25]", "3")), Contains("places[2].observations"));
  CHECK_THAT(problem(replaced("[0.9, 0.5, 1.25]", "[0.9, 0.5]")), Contains("places[2].observations"));
  CHECK_THAT(problem(replaced("\"observations\"", "\"obstructions\"")), Contains("observations"));
  std::string many;
  for (std::size_t i = 0; i <= RelayHistory::kMaxObservations; ++i)
    many += std::string(i == 0 ? "" : ", ") + "[0.8, 0.1, -1]";
  CHECK_THAT(problem(replaced("[0.9, 0.5, 1.25]", many)), Contains("places[2].observations"));
  const std::string text = to_json(stored());
  for (std::size_t length = 0; length < text.size() - 2; ++length) CHECK(problem(text.substr(0, length)) != "none");
}

}  // namespace place_file_test
