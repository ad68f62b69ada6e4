/* SPDX-License-Identifier: MIT
 * bench_peer.c: what `shoal bench peer` measures (peer/bench.h), judged: exit 1 when the mesh moves
 * objects at less than PEER_BENCH_GOAL of the plain program's rate.
 * usage: bench_peer [SECONDS] (default 20) */
#include "peer/bench.h"

#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
    double seconds = argc > 1 ? strtod(argv[1], NULL) : 20;
    char dir[] = "/tmp/shoal-bench-XXXXXX", cmd[64];
    struct peer_bench b;
    struct err e = {0};
    if (!(seconds > 0) || !mkdtemp(dir)) {
        fprintf(stderr, "usage: bench_peer [SECONDS]\n");
        return 2;
    }
    struct peer_bench_opts o = {.dir = dir, .seconds = seconds, .software = "bench_peer"};
    int r = peer_bench(&o, &b, &e);
    snprintf(cmd, sizeof cmd, "rm -rf '%s'", dir);
    if (system(cmd) || r) {
        fprintf(stderr, "bench_peer: %s\n", r ? e.msg : "the temporary folder stays");
        return 2;
    }
    printf(
        "%s %s; one thread seals %.0f MB/s, hashes %.0f MB/s: one connection at most %.0f MB/s\n",
        b.version, b.suite, b.seal_bytes_s / 1e6, b.hash_bytes_s / 1e6, b.bound_bytes_s / 1e6);
    printf("objects     bare %7.1f MB/s   mesh %7.1f MB/s   ratio %.3f (%.2f to %.2f)\n",
           b.bare.bytes_s / 1e6, b.mesh.bytes_s / 1e6, b.ratio.bytes_s, b.ratio_min, b.ratio_max);
    printf("processor   bare %7.2f s/GB   mesh %7.2f s/GB   ratio %.3f; records and hashes are "
           "%.0f %% "
           "of bare\n",
           b.bare.cpu_s_byte * 1e9, b.mesh.cpu_s_byte * 1e9, b.ratio.cpu_s_byte,
           100 * b.crypto_share);
    printf("one by one  bare %7.0f /s     mesh %7.0f /s     ratio %.3f\n", b.bare.one_s,
           b.mesh.one_s, b.ratio.one_s);
    printf("%u at once  bare %7.0f /s     mesh %7.0f /s     ratio %.3f\n", PEER_BENCH_BATCH,
           b.bare.batch_s, b.mesh.batch_s, b.ratio.batch_s);
    return b.ratio.bytes_s < PEER_BENCH_GOAL;
}
