# SPDX-License-Identifier: Apache-2.0
# What every page of sdk/report carries, as the source page_parts.cpp, made of files that a browser's tools can read.
include(${CMAKE_CURRENT_LIST_DIR}/../web/script_policy.cmake)

function(baton_report_parts)
  set(web ${PROJECT_SOURCE_DIR}/sdk/web)
  set(report ${PROJECT_SOURCE_DIR}/sdk/report)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${web}/theme.css ${web}/markdown.js
    ${report}/page.css ${report}/page.js ${report}/page_start.html)
  file(READ ${web}/theme.css theme)
  file(READ ${report}/page.css style)
  file(READ ${web}/markdown.js markdown)
  file(READ ${report}/page.js script)
  file(READ ${report}/page_start.html BATON_REPORT_START)
  set(BATON_REPORT_STYLE "${theme}${style}")
  set(BATON_REPORT_SCRIPT "${markdown}${script}")
  baton_script_policy(BATON_REPORT_POLICY "${BATON_REPORT_SCRIPT}")
  configure_file(${report}/page_parts.cpp.in ${CMAKE_CURRENT_BINARY_DIR}/page_parts.cpp @ONLY)
endfunction()

baton_report_parts()
