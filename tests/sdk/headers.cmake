# SPDX-License-Identifier: Apache-2.0
# Each public header compiles alone, with nothing but what is installed and no third-party headers before it.
set(public ${PROJECT_SOURCE_DIR}/sdk/include ${PROJECT_SOURCE_DIR}/engine/base)
set(headers "")
foreach(folder IN LISTS public)
  file(GLOB found RELATIVE ${folder} CONFIGURE_DEPENDS ${folder}/baton/*.h)
  list(APPEND headers ${found})
endforeach()
set(sources "")
foreach(header IN LISTS headers)
  string(MAKE_C_IDENTIFIER ${header} name)
  set(source ${CMAKE_CURRENT_BINARY_DIR}/headers/${name}.cpp)
  file(CONFIGURE OUTPUT ${source} CONTENT "#include <@header@>\n#include <@header@>  // twice does no harm\n" @ONLY)
  list(APPEND sources ${source})
endforeach()
# baton/c.h is C as well; a prototype without parameters would be one in C++ only.
set(source ${CMAKE_CURRENT_BINARY_DIR}/headers/baton_c_h.c)
file(CONFIGURE OUTPUT ${source} CONTENT "#include <baton/c.h>\n#include <baton/c.h>\n" @ONLY)
list(APPEND sources ${source})
add_library(baton_test_headers OBJECT ${sources})
target_include_directories(baton_test_headers PRIVATE ${public})
target_compile_options(baton_test_headers PRIVATE -O0 -Wall -Wextra -Wpedantic -Wshadow -Werror
  $<$<COMPILE_LANGUAGE:C>:-Wstrict-prototypes>)
set_target_properties(baton_test_headers PROPERTIES C_STANDARD 11 C_STANDARD_REQUIRED ON C_EXTENSIONS OFF)
