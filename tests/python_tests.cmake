# lockstep_python_tests(prefix folder): each method of tests/<folder>/test_*.py becomes the ctest entry
# <prefix>.<file>.<Class>.<method>, run in a process of its own by run_one.py; the methods of a class with TOGETHER = True
# become one entry <prefix>.<file>.<Class>. Class attributes TIMEOUT (seconds) and SERIAL (a word or a tuple of words; "all"
# runs alone) become ctest properties. A test that exits with 77 is skipped.
find_program(LOCKSTEP_PYTHON3 python3 REQUIRED)
set(LOCKSTEP_VENV_PYTHON ${CMAKE_SOURCE_DIR}/.venv/bin/python CACHE FILEPATH "Interpreter of the integration tests")

function(lockstep_python_tests prefix folder)
  set(runner ${CMAKE_CURRENT_SOURCE_DIR}/integration)
  file(GLOB files CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${folder}/test_*.py)
  if(NOT files)
    return()
  endif()
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${files} ${runner}/list_tests.py
    ${runner}/harness.py)
  execute_process(COMMAND ${LOCKSTEP_PYTHON3} ${runner}/list_tests.py ${files}
    OUTPUT_VARIABLE listing OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
  string(REPLACE "\n" ";" listing "${listing}")
  foreach(line ${listing})
    string(REPLACE "|" ";" field "${line}")
    list(GET field 0 file)
    list(GET field 1 class)
    list(GET field 2 method)
    list(GET field 3 timeout)
    list(GET field 4 locks)
    string(REPLACE "," ";" locks "${locks}")
    if(method)
      string(PREPEND method .)
    endif()
    set(name ${prefix}.${file}.${class}${method})
    add_test(NAME ${name} COMMAND ${LOCKSTEP_VENV_PYTHON} ${runner}/run_one.py
      ${CMAKE_CURRENT_SOURCE_DIR}/${folder}/${file}.py ${class}${method})
    # run_one.py ends a hanging test itself and cleans up after it; ctest's own limit is the second line.
    math(EXPR limit "${timeout} + 30")
    set_tests_properties(${name} PROPERTIES TIMEOUT ${limit} SKIP_RETURN_CODE 77 LABELS ${prefix} ENVIRONMENT
      "LOCKSTEP_BIN=${LOCKSTEP_BIN_DIR};LOCKSTEP_PYTHON=${LOCKSTEP_VENV_PYTHON};LOCKSTEP_TEST_TIMEOUT=${timeout}")
    if("all" IN_LIST locks)
      set_tests_properties(${name} PROPERTIES RUN_SERIAL TRUE)
    elseif(locks)
      set_tests_properties(${name} PROPERTIES RESOURCE_LOCK "${locks}")
    endif()
  endforeach()
endfunction()
