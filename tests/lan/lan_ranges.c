/* SPDX-License-Identifier: MIT
 * lan_ranges MODEL_FOLDER LOG [CLIENT]: which experts the origin gave, by the log of lan_origin
 * (netns.sh) and the shards' own headers: nothing of the program is asked. Without CLIENT of all
 * machines together, by address otherwise. Prints one line:
 *   requests R bytes B experts E once O more M part P
 * R requests that were answered with 206 or 200, B body bytes; of all E experts O had each of their
 * bytes sent exactly once, M some byte more than once, P only some of their bytes (none of them
 * twice). */
#include <jansson.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SPANS = 16, NAME = 128 };

struct expert {
    char name[NAME]; /* as tensors are called, up to and with the expert's number */
    int shard, n;
    struct {
        uint64_t from, to; /* in the file */
    } span[SPANS];
};
static struct expert *experts;
static size_t n_experts;
struct shard {
    char name[NAME];
    uint64_t size, data; /* the whole file; where the data begin */
    uint8_t *times;      /* how often each byte was sent, up to 255 */
};
static struct shard *shards;
static int n_shards;

static void must(int good, const char *what)
{
    if (!good) {
        fprintf(stderr, "lan_ranges: %s\n", what);
        exit(2);
    }
}

static struct expert *expert_of(const char *tensor, int shard)
{
    const char *p = strstr(tensor, ".experts.");
    if (!p) {
        return NULL;
    }
    p += strlen(".experts.");
    p += strspn(p, "0123456789");
    size_t n = (size_t)(p - tensor);
    must(n < NAME, "a long name");
    for (size_t i = n_experts; i-- > 0;) { /* neighbours in the file mostly */
        if (!strncmp(experts[i].name, tensor, n) && !experts[i].name[n]) {
            return &experts[i];
        }
    }
    experts = realloc(experts, (n_experts + 1) * sizeof *experts);
    must(experts != NULL, "no memory");
    struct expert *x = &experts[n_experts++];
    memset(x, 0, sizeof *x);
    memcpy(x->name, tensor, n);
    x->shard = shard;
    return x;
}

static int shard_open(const char *dir, const char *name)
{
    for (int i = 0; i < n_shards; i++) {
        if (!strcmp(shards[i].name, name)) {
            return i;
        }
    }
    char path[4096];
    unsigned char len[8];
    uint64_t n = 0;
    shards = realloc(shards, (size_t)(n_shards + 1) * sizeof *shards);
    must(shards != NULL && strlen(name) < NAME, "no memory");
    struct shard *s = &shards[n_shards];
    snprintf(s->name, sizeof s->name, "%s", name);
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "rb");
    must(f != NULL && fread(len, 1, 8, f) == 8, path);
    for (int i = 0; i < 8; i++) {
        n |= (uint64_t)len[i] << 8 * i;
    }
    must(n < 100u << 20, "a long header");
    char *text = malloc((size_t)n);
    must(text != NULL && fread(text, 1, (size_t)n, f) == n, "a short header");
    must(fseek(f, 0, SEEK_END) == 0, path);
    s->size = (uint64_t)ftell(f);
    s->times = calloc(1, (size_t)s->size);
    must(s->times != NULL, "no memory");
    fclose(f);
    s->data = 8 + n;
    json_t *j = json_loadb(text, (size_t)n, 0, NULL), *t;
    const char *tensor;
    must(j != NULL, "a header that is no JSON");
    json_object_foreach(j, tensor, t)
    {
        struct expert *x = expert_of(tensor, n_shards);
        json_t *at = json_object_get(t, "data_offsets");
        if (x) {
            must(x->n < SPANS && x->shard == n_shards, "an expert in many pieces");
            x->span[x->n].from = 8 + n + (uint64_t)json_integer_value(json_array_get(at, 0));
            x->span[x->n].to = 8 + n + (uint64_t)json_integer_value(json_array_get(at, 1));
            must(x->span[x->n].to <= s->size, "a tensor beyond its file");
            x->n++;
        }
    }
    json_decref(j);
    free(text);
    return n_shards++;
}

static void sent(const char *name, uint64_t from, uint64_t to)
{
    for (int i = 0; i < n_shards; i++) {
        if (!strcmp(shards[i].name, name)) {
            must(from <= to && to <= shards[i].size, "a range beyond its file");
            for (; from < to; from++) {
                shards[i].times[from] += shards[i].times[from] < 255;
            }
        }
    }
}

int main(int argc, char **argv)
{
    must(argc == 3 || argc == 4, "usage: lan_ranges MODEL_FOLDER LOG [CLIENT]");
    char path[4096], line[4096];
    json_error_t e;
    snprintf(path, sizeof path, "%s/model.safetensors.index.json", argv[1]);
    json_t *index = json_load_file(path, 0, &e), *v;
    const char *tensor;
    must(index != NULL, path);
    json_object_foreach(json_object_get(index, "weight_map"), tensor, v)
    {
        shard_open(argv[1], json_string_value(v));
    }
    json_decref(index);

    FILE *f = fopen(argv[2], "r");
    uint64_t requests = 0, bytes = 0, again = 0;
    must(f != NULL, argv[2]);
    while (fgets(line, sizeof line, f)) {
        char who[64], how[16], uri[1024], range[256];
        int status;
        unsigned long long n, a, b;
        must(sscanf(line, "%63s %15s %1023s %255s %d %llu", who, how, uri, range, &status, &n) == 6,
             "a line of the log that is not lan_origin's");
        if ((argc == 4 && strcmp(who, argv[3]) != 0) || (status != 200 && status != 206)) {
            continue;
        }
        requests++;
        bytes += n;
        if (strcmp(how, "GET") != 0) {
            continue;
        }
        if (status == 200) {
            a = 0;
        } else {
            must(sscanf(range, "bytes=%llu-%llu", &a, &b) == 2 && !strchr(range, ','),
                 "a range of another form");
        }
        sent(strrchr(uri, '/') + 1, a, a + n); /* as far as it went */
    }
    fclose(f);

    size_t once = 0, more = 0, part = 0;
    for (size_t i = 0; i < n_experts; i++) {
        uint64_t size = 0, some = 0, twice = 0;
        for (int k = 0; k < experts[i].n; k++) {
            for (uint64_t at = experts[i].span[k].from; at < experts[i].span[k].to; at++) {
                unsigned t = shards[experts[i].shard].times[at];
                size++;
                some += t > 0;
                twice += t > 1;
            }
        }
        once += some == size && !twice;
        more += twice > 0;
        part += some > 0 && some < size && !twice;
    }
    for (int i = 0; i < n_shards; i++) {
        for (uint64_t at = shards[i].data; at < shards[i].size; at++) {
            again += shards[i].times[at] > 1 ? shards[i].times[at] - 1u : 0;
        }
    }
    printf("requests %llu bytes %llu again %llu experts %zu once %zu more %zu part %zu\n",
           (unsigned long long)requests, (unsigned long long)bytes, (unsigned long long)again,
           n_experts, once, more, part);
    for (int i = 0; i < n_shards; i++) {
        free(shards[i].times);
    }
    free(shards);
    free(experts);
    return 0;
}
