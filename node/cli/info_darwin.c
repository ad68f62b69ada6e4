/* SPDX-License-Identifier: MIT
 * info_darwin.c: the program's Info.plist, in the section where macOS looks for that of a program
 * without a bundle. Local Network privacy (macOS 15) asks the user by these words, keeps the answer
 * by this identifier, and gives Bonjour only the services named here. */
#include "node/cli/cli.h"

__attribute__((used, section("__TEXT,__info_plist"))) static const char info_plist[] =
    "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
    "<!DOCTYPE plist PUBLIC \"-//Apple//DTD PLIST 1.0//EN\" "
    "\"http://www.apple.com/DTDs/PropertyList-1.0.dtd\">\n"
    "<plist version=\"1.0\">\n"
    "<dict>\n"
    "\t<key>CFBundleIdentifier</key>\n"
    "\t<string>org.shoal.shoal</string>\n"
    "\t<key>CFBundleName</key>\n"
    "\t<string>Shoal</string>\n"
    "\t<key>CFBundleExecutable</key>\n"
    "\t<string>shoal</string>\n"
    "\t<key>CFBundlePackageType</key>\n"
    "\t<string>APPL</string>\n"
    "\t<key>CFBundleInfoDictionaryVersion</key>\n"
    "\t<string>6.0</string>\n"
    "\t<key>CFBundleShortVersionString</key>\n"
    "\t<string>" SHOAL_VERSION "</string>\n"
    "\t<key>CFBundleVersion</key>\n"
    "\t<string>" SHOAL_VERSION "</string>\n"
    "\t<key>LSMinimumSystemVersion</key>\n"
    "\t<string>14.0</string>\n"
    "\t<key>NSLocalNetworkUsageDescription</key>\n"
    "\t<string>Shoal finds your other machines that run it, and shares the model's files with "
    "them.</string>\n"
    "\t<key>NSBonjourServices</key>\n"
    "\t<array>\n"
    "\t\t<string>_shoal._tcp</string>\n"
    "\t</array>\n"
    "</dict>\n"
    "</plist>\n";
