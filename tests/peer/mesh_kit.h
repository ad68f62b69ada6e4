/* SPDX-License-Identifier: MIT
 * mesh_kit.h: meshes with small stores in memory for tests: homes of one shoal, objects whose bytes
 * follow from their key, a log that can be asked, waiting for states. */
#ifndef SHOAL_TESTS_PEER_MESH_KIT_H
#define SHOAL_TESTS_PEER_MESH_KIT_H

#include "tests/peer/home_util.h"

#include "peer/mesh.h"

#include <pthread.h>

#define KIT_OBJECTS 256 /* indexes of each layer */
#define KIT_LAYERS 2

/* What a lying store does to chunks that it reads. */
enum kit_lie { KIT_HONEST, KIT_FLIP, KIT_ZEROS, KIT_SILENT, KIT_DAMAGED };

struct kit_store {
    pthread_mutex_t mu;
    bool have[KIT_LAYERS][KIT_OBJECTS];
    enum kit_lie lie;
    uint64_t reads, puts, bad_puts; /* bad: bytes that are not those of the object */
    unsigned read_ms;               /* a slow disk; needs `threaded` */
    bool threaded, stop;
    pthread_t thread;
    pthread_cond_t cond;
    struct storage_read *head, *tail;
};

void kit_store_open(struct kit_store *s, bool threaded);
void kit_store_close(struct kit_store *s);
extern const struct storage_ops kit_storage;
uint64_t kit_size(struct object_key k);
void kit_fill(struct object_key k, uint32_t chunk, uint8_t *p, size_t n); /* its true bytes */
bool kit_has(struct kit_store *s, struct object_key k);
struct object_key kit_key(unsigned layer, unsigned index);

struct kit_mesh {
    char *home;
    struct kit_store store;
    struct mesh *m;
    struct mesh_opts o;
    char statics[4][64];
    const char *static_list[4];
    pthread_mutex_t mu;
    char *log; /* all lines */
    size_t log_n;
    bool closed; /* by mesh_close: a line that comes now ends the program */
};

/* A home with an identity; `keeper` NULL: it makes a shoal, else that one takes it in. */
void kit_home(struct kit_mesh *k, struct kit_mesh *keeper);
/* Fill o with defaults (127.0.0.1, no Bonjour, 200 ms heartbeat, the kit's storage and model). */
void kit_opts_for(struct kit_mesh *k);
void kit_static(struct kit_mesh *k, int port);
void kit_open(struct kit_mesh *k);
void kit_close(struct kit_mesh *k);
void kit_free(struct kit_mesh *k); /* and delete the home */
/* Put objects first .. first + n - 1 of a layer into the store and tell the mesh. */
void kit_give(struct kit_mesh *k, unsigned layer, unsigned first, unsigned n);
bool kit_said(struct kit_mesh *k, const char *words);
/* Wait until it is so; fails the test after 20 s (times what sanitizers cost). */
#define mesh_until(x)                                                \
    do {                                                             \
        int tries_ = 0;                                              \
        while (!(x)) {                                               \
            if (++tries_ > 30000) {                                  \
                fail_msg("%s:%d never: %s", __FILE__, __LINE__, #x); \
            }                                                        \
            usleep(2000);                                            \
        }                                                            \
    } while (0)

/* One fetch and its outcome. */
struct kit_fetch {
    _Atomic(int) done; /* 1: there */
    uint64_t id;
    struct object_key key;
    struct fetch_result r;
    int order; /* of the ends, from 1 */
};
void kit_fetch(struct kit_mesh *k, struct kit_fetch *f, struct object_key key,
               enum fetch_prio prio);
void kit_fetch_with(struct kit_mesh *k, struct kit_fetch *f, struct object_key key,
                    struct mesh_want w);
void kit_wait(struct kit_fetch *f);
uint32_t kit_holders(struct kit_mesh *k, struct object_key key);
/* A number of mesh_status by path, "serve.bytes"; -1 when absent. */
double kit_status(struct kit_mesh *k, const char *path);

#endif
