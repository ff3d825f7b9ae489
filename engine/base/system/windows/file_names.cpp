// SPDX-License-Identifier: Apache-2.0
// libstdc++ makes paths of strings with mbrtowc, and strings of paths as UTF-8. In the C library that MinGW-w64 links,
// mbrtowc knows no UTF-8, so that a name with other letters than ASCII would be another after a round trip. The linker
// takes this function in its place (--wrap in CMakeLists.txt).
#include <windows.h>
// after it
#include <cerrno>
#include <cwchar>

extern "C" std::size_t __wrap_mbrtowc(wchar_t* out, const char* text, std::size_t bytes, std::mbstate_t* state);

/// The next unit of UTF-16. A character of two takes three of its four bytes with the first, which leaves the second in
/// the state, and one with the second.
extern "C" std::size_t __wrap_mbrtowc(wchar_t* out, const char* text, std::size_t bytes, std::mbstate_t* state) {
  constexpr auto kInvalid = static_cast<std::size_t>(-1), kIncomplete = static_cast<std::size_t>(-2);
  static std::mbstate_t own = 0;  // as the standard has it for callers without one
  if (state == nullptr) state = &own;
  if (text == nullptr) return *state = 0, 0;
  if (bytes == 0) return kIncomplete;
  if (*state != 0) {
    if (out != nullptr) *out = static_cast<wchar_t>(*state);
    *state = 0;
    return 1;
  }
  const auto lead = static_cast<unsigned char>(*text);
  const std::size_t length = lead < 0xC0 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  if (bytes < length) return kIncomplete;
  wchar_t units[2] = {};
  const int found = MultiByteToWideChar(CP_UTF8, MB_ERR_INVALID_CHARS, text, static_cast<int>(length), units, 2);
  if (found == 0) {
    errno = EILSEQ;
    return kInvalid;
  }
  if (out != nullptr) *out = units[0];
  if (found == 2) {
    *state = units[1];
    return length - 1;
  }
  return units[0] == 0 ? 0 : length;
}
