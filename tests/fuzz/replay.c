/* SPDX-License-Identifier: MIT
 * replay.c: runs a fuzz target over every file of a corpus folder, where libFuzzer is not linked
 * in, so that each input once found keeps being tested by every build. */
#include "proto/base/buf.h"
#include "proto/base/file.h"

#include <dirent.h>
#include <stdint.h>
#include <stdio.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: %s CORPUS-FOLDER\n", argv[0]);
        return 2;
    }
    DIR *d = opendir(argv[1]);
    if (!d) {
        perror(argv[1]);
        return 1;
    }
    int n = 0;
    for (struct dirent *f; (f = readdir(d));) {
        if (f->d_name[0] == '.') {
            continue;
        }
        char path[4096];
        snprintf(path, sizeof path, "%s/%s", argv[1], f->d_name);
        struct buf b;
        struct err e = {0};
        buf_init(&b, 1 << 24);
        if (file_read_all(path, &b, &e)) {
            fprintf(stderr, "%s\n", e.msg);
            return 1;
        }
        LLVMFuzzerTestOneInput((const uint8_t *)(b.p ? b.p : ""), b.n);
        buf_free(&b);
        n++;
    }
    closedir(d);
    printf("%d inputs replayed\n", n);
    return n ? 0 : 1; /* an empty corpus tests nothing */
}
