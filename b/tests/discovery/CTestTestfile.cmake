# CMake generated Testfile for 
# Source directory: /tmp/me/merge/tests/discovery
# Build directory: /tmp/me/merge/b/tests/discovery
# 
# This file includes the relevant testing commands required for 
# testing this directory and lists subdirectories to be tested as well.
add_test([=[t_disco_parts]=] "/tmp/me/merge/b/tests/discovery/t_disco_parts")
set_tests_properties([=[t_disco_parts]=] PROPERTIES  TIMEOUT "120" _BACKTRACE_TRIPLES "/tmp/me/merge/tests/CMakeLists.txt;15;add_test;/tmp/me/merge/tests/discovery/CMakeLists.txt;1;shoal_test;/tmp/me/merge/tests/discovery/CMakeLists.txt;0;")
add_test([=[t_disco_bus]=] "/tmp/me/merge/b/tests/discovery/t_disco_bus")
set_tests_properties([=[t_disco_bus]=] PROPERTIES  TIMEOUT "120" _BACKTRACE_TRIPLES "/tmp/me/merge/tests/CMakeLists.txt;15;add_test;/tmp/me/merge/tests/discovery/CMakeLists.txt;3;shoal_test;/tmp/me/merge/tests/discovery/CMakeLists.txt;0;")
add_test([=[t_disco_sources]=] "/tmp/me/merge/b/tests/discovery/t_disco_sources")
set_tests_properties([=[t_disco_sources]=] PROPERTIES  TIMEOUT "120" _BACKTRACE_TRIPLES "/tmp/me/merge/tests/CMakeLists.txt;15;add_test;/tmp/me/merge/tests/discovery/CMakeLists.txt;3;shoal_test;/tmp/me/merge/tests/discovery/CMakeLists.txt;0;")
