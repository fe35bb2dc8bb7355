# build/<tree>/outside-recipe: examples/outside-recipe built as a user builds it, against an installation. The installation
# lies elsewhere than where it was installed to (DESTDIR), so that nothing in it may know its place. Only what changed is
# copied and compiled again. This file is also the script that does it.
if(CMAKE_SCRIPT_MODE_FILE)
  function(step)
    execute_process(COMMAND ${ARGN} OUTPUT_VARIABLE said ERROR_VARIABLE said RESULT_VARIABLE code)
    if(NOT code EQUAL 0)
      message(FATAL_ERROR "${ARGN}\n${said}")
    endif()
  endfunction()
  step(${CMAKE_COMMAND} -E env DESTDIR=${OUT} ${CMAKE_COMMAND} --install ${TREE} --prefix /opt/lockstep --component package)
  step(${CMAKE_COMMAND} -C ${OUT}/settings.cmake -G Ninja -S ${EXAMPLE} -B ${OUT}/build)
  step(${CMAKE_COMMAND} --build ${OUT}/build)
  return()
endif()

if(NOT LOCKSTEP_TORCH_FOUND)
  return()
endif()
set(outside ${CMAKE_BINARY_DIR}/outside-recipe)
set(example ${CMAKE_SOURCE_DIR}/examples/outside-recipe)
file(CONFIGURE OUTPUT ${outside}/settings.cmake @ONLY CONTENT [[
set(CMAKE_MAKE_PROGRAM "@CMAKE_MAKE_PROGRAM@" CACHE FILEPATH "")
set(CMAKE_CXX_COMPILER "@CMAKE_CXX_COMPILER@" CACHE FILEPATH "")
set(CMAKE_CXX_COMPILER_LAUNCHER "@CMAKE_CXX_COMPILER_LAUNCHER@" CACHE STRING "")
set(CMAKE_PREFIX_PATH "@outside@/opt/lockstep" CACHE PATH "")
]])
file(GLOB sources CONFIGURE_DEPENDS ${example}/*)
add_custom_command(OUTPUT ${outside}/built VERBATIM
  COMMAND ${CMAKE_COMMAND} -DTREE=${CMAKE_BINARY_DIR} -DEXAMPLE=${example} -DOUT=${outside} -P ${CMAKE_CURRENT_LIST_FILE}
  COMMAND ${CMAKE_COMMAND} -E touch ${outside}/built
  DEPENDS lockstep-train ${sources} ${outside}/settings.cmake ${CMAKE_BINARY_DIR}/package/lockstepConfig.cmake
    ${CMAKE_SOURCE_DIR}/cmake/torch_target.cmake ${CMAKE_SOURCE_DIR}/cmake/cuda.cmake ${CMAKE_CURRENT_LIST_FILE}
  COMMENT "Building examples/outside-recipe against an installation")
add_custom_target(outside_recipe DEPENDS ${outside}/built)
add_dependencies(test_programs outside_recipe)
