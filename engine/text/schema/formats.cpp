// SPDX-License-Identifier: Apache-2.0
// RFC 3339 (dates, times, durations), RFC 4122 (uuid), RFC 5321 (email), RFC 3986 (uri), RFC 4291 (ipv6), RFC 1123
// (hostname), RFC 6901 (json-pointer), RFC 6570 (uri-template), and some of those that Pydantic and Zod name.
#include "engine/text/schema/schema_node.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>

#include "engine/text/pattern.h"

namespace baton {
namespace {

#define BATON_DATE                                                                                     \
  "((000[1-9]|00[1-9]\\d|0[1-9]\\d\\d|[1-9]\\d{3})-"                                                   \
  "((0[13578]|1[02])-(0[1-9]|[12]\\d|3[01])|(0[469]|11)-(0[1-9]|[12]\\d|30)|02-(0[1-9]|1\\d|2[0-8]))|" \
  "(\\d\\d(0[48]|[2468][048]|[13579][26])|(0[48]|[2468][048]|[13579][26])00)-02-29)"
#define BATON_FRACTION "(\\.\\d{1,9})?"
#define BATON_TIME "(([01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d" BATON_FRACTION "([Zz]|[+-]([01]\\d|2[0-3]):[0-5]\\d))"
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
#define BATON_NAME "[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
#define BATON_SHORT_NAME "[A-Za-z0-9](-?[A-Za-z0-9]){0,20}"
#define BATON_AMOUNT "\\d{1,9}"
#define BATON_CLOCK \
  "T(" BATON_AMOUNT "H(" BATON_AMOUNT "M)?(" BATON_AMOUNT "S)?|" BATON_AMOUNT "M(" BATON_AMOUNT "S)?|" BATON_AMOUNT "S)"
#define BATON_POINTER "(/([^/~]|~[01])*)*"
#define BATON_VARIABLE "([A-Za-z0-9_]|%[0-9A-Fa-f]{2})(\\.?([A-Za-z0-9_]|%[0-9A-Fa-f]{2}))*(\\*|:[1-9]\\d{0,3})?"
#define BATON_UUID(version) \
  "[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-" version "[0-9A-Fa-f]{3}-[89ABab][0-9A-Fa-f]{3}-[0-9A-Fa-f]{12}"

constexpr const char* kDuration =
    "P(" BATON_AMOUNT "W|(" BATON_AMOUNT "Y(" BATON_AMOUNT "M)?(" BATON_AMOUNT "D)?|" BATON_AMOUNT "M(" BATON_AMOUNT
    "D)?|" BATON_AMOUNT "D)(" BATON_CLOCK ")?|" BATON_CLOCK ")";
constexpr const char* kAnyDuration =
    "[+-]?P(?!.*[.,]\\d+[A-Z].)(?=.*\\d)(\\d+([.,]\\d+)?W|(\\d+([.,]\\d+)?Y)?(\\d+([.,]\\d+)?M)?(\\d+([.,]\\d+)?D)?"
    "(T(?=\\d)(\\d+([.,]\\d+)?H)?(\\d+([.,]\\d+)?M)?(\\d+([.,]\\d+)?S)?)?)";
constexpr const char* kHostname =
    "(" BATON_NAME "(\\." BATON_NAME "){0,2}|" BATON_SHORT_NAME "(\\." BATON_SHORT_NAME "){0,5})";  // at most 253 bytes
constexpr const char* kAnyHostname = "(?=.{1,253}\\z)" BATON_NAME "(\\." BATON_NAME ")*";
constexpr const char* kPointer = BATON_POINTER;
constexpr const char* kRelativePointer = "(0|[1-9]\\d{0,8})(#|" BATON_POINTER ")";
constexpr const char* kUriTemplate =
    "([!#$&(-;=?-\\[\\]_a-z~]|[^\\x00-\\x7F]|%[0-9A-Fa-f]{2}|\\{[+#./;?&=,!@|]?" BATON_VARIABLE "(," BATON_VARIABLE
    ")*\\})*";
constexpr const char* kBase64 = "([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?";
constexpr const char* kBase64Url = "[A-Za-z0-9_-]*={0,2}";
constexpr const char* kPhone = "\\+[1-9]\\d{6,14}";
constexpr const char* kAnyIp = "(" BATON_IPV4 "|" BATON_IPV6 ")";
#define BATON_AUTHORITY                                                                                      \
  "//(([A-Za-z0-9._~!$&'()*+,;=:-]|%[0-9A-Fa-f]{2})*@)?(\\[(" BATON_IPV6                                     \
  "|v[0-9A-Fa-f]+\\.[A-Za-z0-9._~!$&'()*+,;=:-]+)\\]|([A-Za-z0-9._~!$&'()*+,;=-]|%[0-9A-Fa-f]{2})*)(:\\d*)?" \
  "(/" BATON_PCHAR "*)*|/(" BATON_PCHAR "+(/" BATON_PCHAR "*)*)?"
#define BATON_URI "[A-Za-z][A-Za-z0-9+.-]*:(" BATON_AUTHORITY "|(" BATON_PCHAR "+(/" BATON_PCHAR "*)*)?)" BATON_URI_END

constexpr const char* kUri = BATON_URI;
constexpr const char* kUriReference =
    "(" BATON_URI "|(" BATON_AUTHORITY "|(([A-Za-z0-9._~!$&'()*+,;=@-]|%[0-9A-Fa-f]{2})+(/" BATON_PCHAR
    "*)*)?)" BATON_URI_END ")";

bool matches_whole(std::string_view text, const char* regex, Effort& effort) {
  return Pattern(fmt::format("\\A(?:{})\\z", regex)).search(text, effort);
}

bool is_date(std::string_view text, const char* regex, Effort& effort) {
  if (text.size() != 10) return false;
  const bool year_0 = text.starts_with("0000");  // which the grammar leaves out, since many readers have none
  return matches_whole(year_0 ? "0004" + std::string(text.substr(4)) : std::string(text), regex, effort);
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

bool is_duration(std::string_view text, const char*, Effort& effort) {
  return matches_whole(text, kAnyDuration, effort);
}

bool is_hostname(std::string_view text, const char*, Effort& effort) {
  return matches_whole(text, kAnyHostname, effort);
}

/// The text with a letter for each byte that is not ASCII: formats whose names begin with `i` allow those everywhere.
std::string without_foreign_letters(std::string_view text) {
  std::string out(text);
  for (char& byte : out) {
    if (static_cast<unsigned char>(byte) > 0x7F) byte = 'x';
  }
  return out;
}

bool is_international(std::string_view text, const char* regex, Effort& effort) {
  return matches_whole(without_foreign_letters(text), regex, effort);
}

bool is_regex(std::string_view text, const char*, Effort&) {
  try {
    Pattern::of_ecmascript(text);
    return true;
  } catch (const std::invalid_argument&) {
    return false;
  }
}

constexpr std::array<StringFormat, 28> kFormats = {{{"date", kDate, is_date},
                                                    {"time", kTime, is_time},
                                                    {"date-time", kDateTime, is_date_time},
                                                    {"uuid", kUuid, matches_whole},
                                                    {"email", kEmail, matches_whole},
                                                    {"uri", kUri, matches_whole},
                                                    {"ipv4", kIpv4, matches_whole},
                                                    {"ipv6", kIpv6, matches_whole},
                                                    {"duration", kDuration, is_duration},
                                                    {"hostname", kHostname, is_hostname},
                                                    {"uri-reference", kUriReference, matches_whole},
                                                    {"iri", kUri, is_international},
                                                    {"iri-reference", kUriReference, is_international},
                                                    {"idn-email", kEmail, is_international},
                                                    {"uri-template", kUriTemplate, matches_whole},
                                                    {"json-pointer", kPointer, matches_whole},
                                                    {"relative-json-pointer", kRelativePointer, matches_whole},
                                                    {"regex", nullptr, is_regex},
                                                    {"uuid1", BATON_UUID("1"), matches_whole},
                                                    {"uuid3", BATON_UUID("3"), matches_whole},
                                                    {"uuid4", BATON_UUID("4"), matches_whole},
                                                    {"uuid5", BATON_UUID("5"), matches_whole},
                                                    {"uuid6", BATON_UUID("6"), matches_whole},
                                                    {"uuid7", BATON_UUID("7"), matches_whole},
                                                    {"ipvanyaddress", kAnyIp, matches_whole},
                                                    {"base64", kBase64, matches_whole},
                                                    {"base64url", kBase64Url, matches_whole},
                                                    {"e164", kPhone, matches_whole}}};

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
#undef BATON_AUTHORITY
#undef BATON_URI
#undef BATON_NAME
#undef BATON_SHORT_NAME
#undef BATON_AMOUNT
#undef BATON_CLOCK
#undef BATON_POINTER
#undef BATON_VARIABLE
#undef BATON_UUID

}  // namespace

const StringFormat* string_format(std::string_view name) {
  const auto* found =
      std::find_if(kFormats.begin(), kFormats.end(), [&](const StringFormat& one) { return one.name == name; });
  return found == kFormats.end() ? nullptr : found;
}

}  // namespace baton
