# CMake generated Testfile for 
# Source directory: /tmp/me/merge/tests/build
# Build directory: /tmp/me/merge/b/tests/build
# 
# This file includes the relevant testing commands required for 
# testing this directory and lists subdirectories to be tested as well.
add_test([=[checksrc]=] "/tmp/me/merge/tests/build/checksrc" "/tmp/me/merge")
set_tests_properties([=[checksrc]=] PROPERTIES  TIMEOUT "120" _BACKTRACE_TRIPLES "/tmp/me/merge/tests/build/CMakeLists.txt;5;add_test;/tmp/me/merge/tests/build/CMakeLists.txt;0;")
add_test([=[checksrc_finds]=] "/tmp/me/merge/tests/build/t_checksrc")
set_tests_properties([=[checksrc_finds]=] PROPERTIES  TIMEOUT "120" _BACKTRACE_TRIPLES "/tmp/me/merge/tests/build/CMakeLists.txt;6;add_test;/tmp/me/merge/tests/build/CMakeLists.txt;0;")
add_test([=[checkflags]=] "/tmp/me/merge/tests/build/checkflags" "/tmp/me/merge/b/compile_commands.json")
set_tests_properties([=[checkflags]=] PROPERTIES  TIMEOUT "120" _BACKTRACE_TRIPLES "/tmp/me/merge/tests/build/CMakeLists.txt;7;add_test;/tmp/me/merge/tests/build/CMakeLists.txt;0;")
add_test([=[checkflags_finds]=] "/tmp/me/merge/tests/build/t_checkflags")
set_tests_properties([=[checkflags_finds]=] PROPERTIES  TIMEOUT "120" _BACKTRACE_TRIPLES "/tmp/me/merge/tests/build/CMakeLists.txt;9;add_test;/tmp/me/merge/tests/build/CMakeLists.txt;0;")
