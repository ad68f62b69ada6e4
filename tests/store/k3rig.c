/* SPDX-License-Identifier: MIT
 * k3rig.c: see k3rig.h. */
#include "tests/store/k3rig.h"

#include "model/k3gen.h"
#include "tests/store/faulty.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define DATA SHOAL_TEST_DIR "/model/data/k3"

/* Read once, before there are threads. */
static struct {
    uint64_t data;    /* where the data begins */
    uint64_t experts; /* where the first expert does; 0: there are none */
} shards[K3_SHARDS + 1];

/* The six tensors of an expert, in the order of their names. */
static const uint32_t parts[6] = {5505024, 344064, 5505024, 344064, 5505024, 344064};

int k3_table(void)
{
    FILE *f = fopen(DATA "/shards.tsv", "r");
    char line[256];
    unsigned n = 0;
    while (f && fgets(line, sizeof line, f)) {
        unsigned no;
        unsigned long long hlen, start, f32, bf16;
        char base[32];
        if (sscanf(line, "model-%5u-of-000096.safetensors %llu %llu %llu %llu %31s", &no, &hlen,
                   &start, &f32, &bf16, base) == 6 &&
            no >= 1 && no <= K3_SHARDS) {
            shards[no].data = start;
            shards[no].experts = *base == '-' ? 0 : start + strtoull(base, NULL, 10);
            n++;
        }
    }
    if (f) {
        fclose(f);
    }
    if (n != K3_SHARDS) {
        fprintf(stderr, "%s/shards.tsv names %u shards\n", DATA, n);
    }
    return n != K3_SHARDS;
}

static uint64_t word(unsigned shard, uint64_t i)
{
    uint64_t x = i * 0x9e3779b97f4a7c15u + shard * 0xd1b54a32d192ed03u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

/* Scale bytes of the experts, as the released ones are: between 110 and 130. */
static void scales(uint64_t first, uint64_t off, uint8_t *p, size_t n)
{
    uint64_t end = first + (uint64_t)K3_EXPERTS * K3_EXPERT_BYTES;
    for (size_t i = 0; i < n;) {
        uint64_t at = off + i, left = n - i;
        if (at < first || at >= end) {
            i += at < first && first - at < left ? (size_t)(first - at) : (size_t)left;
            continue;
        }
        uint64_t in = (at - first) % K3_EXPERT_BYTES;
        int k = 0;
        while (in >= parts[k]) {
            in -= parts[k++];
        }
        size_t run = parts[k] - in < left ? (size_t)(parts[k] - in) : (size_t)left;
        for (size_t j = 0; k % 2 && j < run; j++) {
            p[i + j] = (uint8_t)(110 + p[i + j] % 21);
        }
        i += run;
    }
}

void k3_bytes(unsigned shard, uint64_t off, uint8_t *p, size_t n)
{
    if (off < shards[shard].data) {
        uint64_t skip = shards[shard].data - off;
        if (skip >= n) {
            return;
        }
        off += skip;
        p += skip;
        n -= (size_t)skip;
    }
    for (size_t i = 0; i < n;) {
        uint64_t w = word(shard, (off + i) / 8);
        for (unsigned b = (off + i) % 8; b < 8 && i < n; b++) {
            p[i++] = (uint8_t)(w >> 8 * b);
        }
    }
    if (shards[shard].experts) {
        scales(shards[shard].experts, off, p, n);
    }
}

uint64_t k3_expert_at(unsigned layer, unsigned e)
{
    /* tensors follow each other by the ASCII order of their names: 0, 1, 10, 100, 101, ... */
    char own[8], other[8];
    unsigned before = 0;
    snprintf(own, sizeof own, "%u.", e);
    for (unsigned x = 0; x < K3_EXPERTS; x++) {
        snprintf(other, sizeof other, "%u.", x);
        before += strcmp(other, own) < 0;
    }
    return shards[layer + 1].experts + (uint64_t)before * K3_EXPERT_BYTES;
}

int k3_folder(const char *dir)
{
    struct k3_totals t;
    if (mkdir(dir, 0700)) {
        perror(dir);
        return 1;
    }
    fflush(NULL);
    pid_t p = fork();
    if (p == 0) {
        _exit(k3gen(DATA, dir, &t));
    }
    int status = 1;
    return p < 0 || waitpid(p, &status, 0) != p || status != 0;
}

static void fill(void *ctx, const char *path, uint64_t off, uint8_t *p, size_t n)
{
    unsigned shard;
    (void)ctx;
    if (sscanf(path, "/model-%5u-of-000096.safetensors", &shard) == 1 && shard <= K3_SHARDS) {
        k3_bytes(shard, off, p, n);
    }
}

struct faulty *k3_origin(const char *dir)
{
    struct faulty *f = faulty_start(dir);
    faulty_fill(f, fill, NULL);
    return f;
}
