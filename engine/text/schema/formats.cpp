// SPDX-License-Identifier: Apache-2.0
// RFC 3339 (dates and times), RFC 4122 (uuid), RFC 5321 (email), RFC 3986 (uri), RFC 4291 (ipv6).
#include "engine/text/schema/schema_node.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>

#include "engine/text/pattern.h"

namespace baton {
namespace {

#define BATON_DATE                                                                                             \
  "(\\d{4}-((0[13578]|1[02])-(0[1-9]|[12]\\d|3[01])|(0[469]|11)-(0[1-9]|[12]\\d|30)|02-(0[1-9]|1\\d|2[0-8]))|" \
  "(\\d\\d(0[48]|[2468][048]|[13579][26])|([02468][048]|[13579][26])00)-02-29)"
#define BATON_FRACTION "(\\.\\d{1,9})?"
#define BATON_TIME                                     \
  "(([01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d" BATON_FRACTION \
  "([Zz]|[+-]([01]\\d|2[0-3]):[0-5]\\d)|"              \
  "23:59:60" BATON_FRACTION "([Zz]|[+-]00:00))"
#define BATON_IPV4 "(25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)(\\.(25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)){3}"
#define BATON_H16 "[0-9A-Fa-f]{1,4}"
#define BATON_LS32 "(" BATON_H16 ":" BATON_H16 "|" BATON_IPV4 ")"
#define BATON_IPV6                                                                                              \
  "((" BATON_H16 ":){6}" BATON_LS32 "|::(" BATON_H16 ":){5}" BATON_LS32 "|(" BATON_H16 ")?::(" BATON_H16        \
  ":){4}" BATON_LS32 "|((" BATON_H16 ":){0,1}" BATON_H16 ")?::(" BATON_H16 ":){3}" BATON_LS32 "|((" BATON_H16   \
  ":){0,2}" BATON_H16 ")?::(" BATON_H16 ":){2}" BATON_LS32 "|((" BATON_H16 ":){0,3}" BATON_H16 ")?::" BATON_H16 \
  ":" BATON_LS32 "|((" BATON_H16 ":){0,4}" BATON_H16 ")?::" BATON_LS32 "|((" BATON_H16 ":){0,5}" BATON_H16      \
  ")?::" BATON_H16 "|((" BATON_H16 ":){0,6}" BATON_H16 ")?::)"
#define BATON_ATOM "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+"
#define BATON_LABEL "[A-Za-z0-9](-*[A-Za-z0-9])*"
#define BATON_PCHAR "([A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})"
#define BATON_URI_END "(\\?(" BATON_PCHAR "|[/?])*)?(#(" BATON_PCHAR "|[/?])*)?"

constexpr const char* kDate = BATON_DATE;
constexpr const char* kTime = BATON_TIME;
constexpr const char* kDateTime = BATON_DATE "[Tt]" BATON_TIME;
constexpr const char* kUuid = "[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}";
constexpr const char* kIpv4 = BATON_IPV4;
constexpr const char* kIpv6 = BATON_IPV6;
constexpr const char* kEmail = "(" BATON_ATOM "(\\." BATON_ATOM ")*|\"([ !#-\\[\\]-~]|\\\\[ -~])*\")@(" BATON_LABEL
                               "(\\." BATON_LABEL ")*|\\[(" BATON_IPV4 "|IPv6:" BATON_IPV6 ")\\])";
constexpr const char* kUri =
    "[A-Za-z][A-Za-z0-9+.-]*:(//(([A-Za-z0-9._~!$&'()*+,;=:-]|%[0-9A-Fa-f]{2})*@)?(\\[(" BATON_IPV6
    "|v[0-9A-Fa-f]+\\.[A-Za-z0-9._~!$&'()*+,;=:-]+)\\]|([A-Za-z0-9._~!$&'()*+,;=-]|%[0-9A-Fa-f]{2})*)(:\\d*)?"
    "(/" BATON_PCHAR "*)*|/(" BATON_PCHAR "+(/" BATON_PCHAR "*)*)?|(" BATON_PCHAR "+(/" BATON_PCHAR
    "*)*)?)" BATON_URI_END;

bool matches_whole(std::string_view text, const char* regex, Effort& effort) {
  return Pattern(fmt::format("\\A(?:{})\\z", regex)).search(text, effort);
}

bool is_date(std::string_view text, const char* regex, Effort& effort) {
  return text.size() == 10 && matches_whole(text, regex, effort);
}

int two_digits(std::string_view text, std::size_t at) { return (text[at] - '0') * 10 + (text[at + 1] - '0'); }

/// A leap second is the last one of a day in UTC, whatever the offset; a fraction may have any number of digits.
bool is_time(std::string_view text, const char*, Effort& effort) {
  if (!matches_whole(text, "([01]\\d|2[0-3]):[0-5]\\d:([0-5]\\d|60)(\\.\\d+)?([Zz]|[+-]([01]\\d|2[0-3]):[0-5]\\d)",
                     effort))
    return false;
  if (two_digits(text, 6) != 60) return true;
  int minute = two_digits(text, 0) * 60 + two_digits(text, 3);
  if (const std::size_t sign = text.find_first_of("+-"); sign != std::string_view::npos) {
    const int offset = two_digits(text, sign + 1) * 60 + two_digits(text, sign + 4);
    minute += text[sign] == '+' ? -offset : offset;
  }
  constexpr int kDay = 24 * 60;
  return (minute + kDay) % kDay == kDay - 1;
}

bool is_date_time(std::string_view text, const char*, Effort& effort) {
  return text.size() > 11 && (text[10] == 'T' || text[10] == 't') && is_date(text.substr(0, 10), kDate, effort) &&
         is_time(text.substr(11), kTime, effort);
}

constexpr std::array<StringFormat, 8> kFormats = {{{"date", kDate, is_date},
                                                   {"time", kTime, is_time},
                                                   {"date-time", kDateTime, is_date_time},
                                                   {"uuid", kUuid, matches_whole},
                                                   {"email", kEmail, matches_whole},
                                                   {"uri", kUri, matches_whole},
                                                   {"ipv4", kIpv4, matches_whole},
                                                   {"ipv6", kIpv6, matches_whole}}};

#undef BATON_DATE
#undef BATON_FRACTION
#undef BATON_TIME
#undef BATON_IPV4
#undef BATON_H16
#undef BATON_LS32
#undef BATON_IPV6
#undef BATON_ATOM
#undef BATON_LABEL
#undef BATON_PCHAR
#undef BATON_URI_END

}  // namespace

const StringFormat* string_format(std::string_view name) {
  const auto* found =
      std::find_if(kFormats.begin(), kFormats.end(), [&](const StringFormat& one) { return one.name == name; });
  return found == kFormats.end() ? nullptr : found;
}

}  // namespace baton
