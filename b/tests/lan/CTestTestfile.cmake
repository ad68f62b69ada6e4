# CMake generated Testfile for 
# Source directory: /tmp/me/merge/tests/lan
# Build directory: /tmp/me/merge/b/tests/lan
# 
# This file includes the relevant testing commands required for 
# testing this directory and lists subdirectories to be tested as well.
add_test([=[lan_selftest]=] "/tmp/me/merge/tests/lan/selftest.sh")
set_tests_properties([=[lan_selftest]=] PROPERTIES  LABELS "lan" SKIP_RETURN_CODE "77" TIMEOUT "240" _BACKTRACE_TRIPLES "/tmp/me/merge/tests/lan/CMakeLists.txt;12;add_test;/tmp/me/merge/tests/lan/CMakeLists.txt;16;shoal_lan_test;/tmp/me/merge/tests/lan/CMakeLists.txt;0;")
add_test([=[t_disco_lan]=] "/tmp/me/merge/tests/discovery/t_disco_lan.sh" "/tmp/me/merge/b/tests/discovery/disco_node")
set_tests_properties([=[t_disco_lan]=] PROPERTIES  LABELS "lan" SKIP_RETURN_CODE "77" TIMEOUT "240" _BACKTRACE_TRIPLES "/tmp/me/merge/tests/lan/CMakeLists.txt;12;add_test;/tmp/me/merge/tests/lan/CMakeLists.txt;19;shoal_lan_test;/tmp/me/merge/tests/lan/CMakeLists.txt;0;")
