# SPDX-License-Identifier: Apache-2.0
# What a user of the SDK links: baton::baton, one static library of all layers and the public headers, and baton::shared,
# the same objects as a shared library. The names are those of find_package(baton CONFIG) and of add_subdirectory.

# baton_dependencies(target): adds the project's own layers below a target to `layers` and libraries of others that
# have something to link to `others`, in the caller's scope.
function(baton_dependencies target)
  get_target_property(libraries ${target} LINK_LIBRARIES)
  foreach(library IN LISTS libraries)
    string(REGEX REPLACE "^\\$<(BUILD_INTERFACE|LINK_ONLY):(.*)>$" "\\2" library "${library}")
    if(library MATCHES "^(baton_flags|nlohmann_json::nlohmann_json)$" OR library IN_LIST layers OR library IN_LIST others)
      continue()
    elseif(library MATCHES "^baton_")
      list(APPEND layers ${library})
      baton_dependencies(${library})
    elseif(TARGET ${library})
      list(APPEND others ${library})
    endif()
  endforeach()
  set(layers ${layers} PARENT_SCOPE)
  set(others ${others} PARENT_SCOPE)
endfunction()

set(layers baton_sdk)
set(others "")
baton_dependencies(baton_sdk)

set(headers $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/sdk/include> $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/engine/base>
  $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
set(objects ${layers})
list(TRANSFORM objects REPLACE "(.+)" "$<TARGET_OBJECTS:\\1>")
add_library(baton_library STATIC ${objects})
add_library(baton::baton ALIAS baton_library)
set_target_properties(baton_library PROPERTIES OUTPUT_NAME baton EXPORT_NAME baton LINKER_LANGUAGE CXX)
target_compile_features(baton_library INTERFACE cxx_std_20)
target_include_directories(baton_library INTERFACE ${headers})
target_link_libraries(baton_library PRIVATE ${others} PUBLIC Threads::Threads)

# The objects are position-independent in either library; what is exported is said here and not by their visibility.
# Linux alone has been given the list in the form that its linker reads.
if(BATON_SHARED AND CMAKE_SYSTEM_NAME STREQUAL "Linux" AND NOT BATON_STATIC AND NOT BATON_SANITIZE)
  set(exports ${PROJECT_SOURCE_DIR}/sdk/exports.map)
  add_library(baton_shared SHARED ${objects})
  add_library(baton::shared ALIAS baton_shared)
  # Before 1.0 each minor version has an ABI of its own.
  set_target_properties(baton_shared PROPERTIES OUTPUT_NAME baton EXPORT_NAME shared LINKER_LANGUAGE CXX
    SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR} LINK_DEPENDS ${exports}
    LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib)  # as installed: ../share/baton
  target_compile_features(baton_shared INTERFACE cxx_std_20)
  target_include_directories(baton_shared INTERFACE ${headers})
  target_link_options(baton_shared PRIVATE -Wl,--version-script=${exports} -Wl,--no-undefined)
  target_link_libraries(baton_shared PRIVATE ${others} ${CMAKE_DL_LIBS} PUBLIC Threads::Threads)
endif()

# A project that adds this folder links these from its own scope.
foreach(library IN LISTS others ITEMS Threads::Threads)
  get_target_property(imported ${library} IMPORTED)
  get_target_property(global ${library} IMPORTED_GLOBAL)
  if(imported AND NOT global)
    set_target_properties(${library} PROPERTIES IMPORTED_GLOBAL TRUE)
  endif()
endforeach()
