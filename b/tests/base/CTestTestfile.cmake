# CMake generated Testfile for 
# Source directory: /tmp/me/merge/tests/base
# Build directory: /tmp/me/merge/b/tests/base
# 
# This file includes the relevant testing commands required for 
# testing this directory and lists subdirectories to be tested as well.
add_test([=[t_base]=] "/tmp/me/merge/b/tests/base/t_base")
set_tests_properties([=[t_base]=] PROPERTIES  TIMEOUT "120" _BACKTRACE_TRIPLES "/tmp/me/merge/tests/CMakeLists.txt;15;add_test;/tmp/me/merge/tests/base/CMakeLists.txt;1;shoal_test;/tmp/me/merge/tests/base/CMakeLists.txt;0;")
