# SPDX-License-Identifier: Apache-2.0
# The samples, which are part of the build where Baton is the top-level project.
if(NOT PROJECT_IS_TOP_LEVEL)
  return()
endif()
foreach(topic hello_team hello_team_python chat event_loop own_tool a_model_by_an_argument)
  add_test(NAME "sample: ${topic}"
    COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/samples/samples_test.py $<TARGET_FILE_DIR:hello_team> Samples.test_${topic})
  set_tests_properties("sample: ${topic}" PROPERTIES LABELS samples TIMEOUT 300)
  if(TARGET baton_shared AND NOT CMAKE_CROSSCOMPILING)  # which the Python of this machine cannot load
    set_tests_properties("sample: ${topic}" PROPERTIES
      ENVIRONMENT "BATON_LIBRARY=$<TARGET_FILE:baton_shared>;PYTHONPATH=${PROJECT_SOURCE_DIR}/packaging/python;PYTHONDONTWRITEBYTECODE=1")
  endif()
endforeach()
add_test(NAME "sample: desktop" COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/samples/desktop_test.py
  $<TARGET_FILE_DIR:hello_team>/desktop ${PROJECT_BINARY_DIR}/desktop.png)
set_tests_properties("sample: desktop" PROPERTIES LABELS samples TIMEOUT 600 SKIP_RETURN_CODE 77)
