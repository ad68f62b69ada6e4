/* SPDX-License-Identifier: MIT
 * awake_darwin.c: see awake.h: a power assertion of the kind that `caffeinate -i` makes. IOKit is
 * opened when it is needed, so that the program links no framework for three calls.
 *
 * Source: IOKit/pwr_mgt/IOPMLib.h. */
#include "node/cli/awake.h"

#include <dlfcn.h>

#define FRAMEWORKS "/System/Library/Frameworks/"
#define UTF8 0x08000100u /* kCFStringEncodingUTF8 */
#define LEVEL_ON 255u    /* kIOPMAssertionLevelOn */

typedef const void *(*string_fn)(const void *alloc, const char *s, uint32_t encoding);
typedef void (*release_fn)(const void *cf);
typedef int (*create_fn)(const void *type, uint32_t level, const void *name, uint32_t *id);
typedef int (*end_fn)(uint32_t id);

/* Both stay open: the system has them in memory in any case. */
static void *framework(const char *path)
{
    return dlopen(path, RTLD_LAZY | RTLD_LOCAL);
}

bool awake_hold(uint32_t *token)
{
    void *cf = framework(FRAMEWORKS "CoreFoundation.framework/CoreFoundation");
    void *io = framework(FRAMEWORKS "IOKit.framework/IOKit");
    string_fn string = cf ? (string_fn)dlsym(cf, "CFStringCreateWithCString") : NULL;
    release_fn release = cf ? (release_fn)dlsym(cf, "CFRelease") : NULL;
    create_fn create = io ? (create_fn)dlsym(io, "IOPMAssertionCreateWithName") : NULL;
    if (!string || !release || !create) {
        return false;
    }
    const void *type = string(NULL, "PreventUserIdleSystemSleep", UTF8);
    const void *name = string(NULL, "Shoal is computing an answer or fetching a model", UTF8);
    bool held = type && name && create(type, LEVEL_ON, name, token) == 0;
    if (type) {
        release(type);
    }
    if (name) {
        release(name);
    }
    return held;
}

void awake_let_go(uint32_t token)
{
    void *io = framework(FRAMEWORKS "IOKit.framework/IOKit");
    end_fn end = io ? (end_fn)dlsym(io, "IOPMAssertionRelease") : NULL;
    if (end) {
        (void)end(token);
    }
}
