# SPDX-License-Identifier: Apache-2.0
# baton_script_policy(variable script): what a Content-Security-Policy calls this script alone, 'sha256-...': the hash in
# base64. A page with it runs no other script, whatever a text in it says.
function(baton_script_policy variable script)
  string(SHA256 hex "${script}")
  set(alphabet "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/")
  set(base64 "")
  string(APPEND hex "00")  # 66 digits are 44 characters; of the last two only padding is left
  foreach(at RANGE 0 63 3)
    string(SUBSTRING ${hex} ${at} 3 digits)
    math(EXPR high "0x${digits} >> 6")
    math(EXPR low "0x${digits} & 63")
    string(SUBSTRING ${alphabet} ${high} 1 first)
    string(SUBSTRING ${alphabet} ${low} 1 second)
    string(APPEND base64 ${first}${second})
  endforeach()
  string(SUBSTRING ${base64} 0 43 base64)
  set(${variable} "'sha256-${base64}='" PARENT_SCOPE)
endfunction()
