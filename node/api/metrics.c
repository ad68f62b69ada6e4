/* SPDX-License-Identifier: MIT
 * metrics.c: a node's report as Prometheus reads it (text format 0.0.4). */
#include "node/api/api.h"

#include <stdbool.h>
#include <string.h>

struct metric {
    const char *name, *type, *help;
    const char *path;          /* in the report, with dots */
    const char *label, *value; /* NULL: none; rows of one name follow each other */
};

static const struct metric table[] = {
    {"shoal_uptime_seconds", "gauge", "Since this node was started.", "uptime_s", NULL, NULL},
    {"shoal_members", "gauge", "Members of the shoal, this node too.", "members", NULL, NULL},
    {"shoal_peers_connected", "gauge", "Members connected now.", "connected", NULL, NULL},
    {"shoal_objects", "gauge", "Objects that this node can give.", "objects", NULL, NULL},
    {"shoal_experts", "gauge", "Experts of the model, by who has them.", "coverage.experts.of",
     "held", "model"},
    {"shoal_experts", NULL, NULL, "coverage.experts.have", "held", "shoal"},
    {"shoal_experts", NULL, NULL, "coverage.own.experts", "held", "node"},
    {"shoal_taken_bytes_total", "counter", "Payload taken from each tier.", "tiers.origin.bytes",
     "tier", "origin"},
    {"shoal_taken_bytes_total", NULL, NULL, "tiers.peer_bytes", "tier", "peers"},
    {"shoal_taken_bytes_total", NULL, NULL, "tiers.disk.bytes_read", "tier", "disk"},
    {"shoal_experts_answered_total", "counter", "Requests for experts answered by each tier.",
     "tiers.ram.hits", "tier", "ram"},
    {"shoal_experts_answered_total", NULL, NULL, "tiers.disk.hits", "tier", "disk"},
    {"shoal_experts_answered_total", NULL, NULL, "tiers.origin.fetches", "tier", "origin"},
    {"shoal_ram_bytes", "gauge", "Bytes of objects in RAM.", "tiers.ram.used", NULL, NULL},
    {"shoal_disk_bytes", "gauge", "Bytes of objects in the cache.", "tiers.disk.used", NULL, NULL},
    {"shoal_disk_may_bytes", "gauge", "Bytes of objects that may lie in the cache now.",
     "tiers.disk.limits.may", NULL, NULL},
    {"shoal_disk_written_bytes_total", "counter", "Bytes written to the cache by this process.",
     "tiers.disk.written", NULL, NULL},
    {"shoal_disk_written_today_bytes", "gauge",
     "Bytes written to the cache by all processes since midnight UTC.", "tiers.disk.written_today",
     NULL, NULL},
    {"shoal_scrub_bad_total", "counter", "Damaged chunks that scrubs of the cache have found.",
     "upkeep.scrub.bad", NULL, NULL},
    {"shoal_scrub_chunks", "gauge", "The present scrub of the cache, in MiB chunks.",
     "upkeep.scrub.done", "of", "done"},
    {"shoal_scrub_chunks", NULL, NULL, "upkeep.scrub.total", "of", "all"},
    {"shoal_quarantine_bytes", "gauge", "Damaged files set aside for people to look at.",
     "upkeep.quarantine.bytes", NULL, NULL},
    {"shoal_adopted_to_look", "gauge", "Objects of adopted folders that nobody has read yet.",
     "upkeep.to_look", NULL, NULL},
    {"shoal_disk_free_bytes", "gauge", "Bytes free on the cache's volume.", "tiers.disk.free", NULL,
     NULL},
    {"shoal_bad_chunks_total", "counter", "Chunks that were not what they should be.",
     "tiers.bad_chunks", "from", "disk"},
    {"shoal_bad_chunks_total", NULL, NULL, "fetch.bad_chunks", "from", "peers"},
    {"shoal_origin_retries_total", "counter", "Attempts at the origin beyond the first.",
     "tiers.origin.retries", NULL, NULL},
    {"shoal_served_bytes_total", "counter", "Payload given to peers.", "serve.bytes", NULL, NULL},
    {"shoal_served_chunks_total", "counter", "Chunks given to peers.", "serve.chunks", NULL, NULL},
    {"shoal_fetch_failed_total", "counter", "Objects that nobody could give.", "fetch.failed", NULL,
     NULL},
    {"shoal_hedges_total", "counter", "Chunks asked of a second source.", "fetch.hedges", NULL,
     NULL},
    {"shoal_homes_bytes", "gauge", "Experts on disks: of this node, of the shoal, held once alone.",
     "homes.used", "held", "node"},
    {"shoal_homes_bytes", NULL, NULL, "homes.covered", "held", "shoal"},
    {"shoal_homes_bytes", NULL, NULL, "homes.once", "held", "once"},
    {"shoal_homes_budget_bytes", "gauge", "What can be held: by this node, of the model by all.",
     "homes.budget", "of", "node"},
    {"shoal_homes_budget_bytes", NULL, NULL, "homes.possible", "of", "shoal"},
    {"shoal_homes_waiting", "gauge", "Experts that this node is to copy from others.",
     "homes.waiting", NULL, NULL},
    {"shoal_homes_made_total", "counter", "Copies made in the background, by where they came from.",
     "homes.copied", "from", "peers"},
    {"shoal_homes_made_total", NULL, NULL, "homes.warmed", "from", "origin"},
    {"shoal_homes_made_bytes_total", "counter", "The same in bytes.", "homes.copied_bytes", "from",
     "peers"},
    {"shoal_homes_made_bytes_total", NULL, NULL, "homes.warmed_bytes", "from", "origin"},
    {"shoal_homes_offers_total", "counter",
     "Copies offered to others before they go, and what became of offers.", "homes.offered", "what",
     "offered"},
    {"shoal_homes_offers_total", NULL, NULL, "homes.released", "what", "released"},
    {"shoal_homes_offers_total", NULL, NULL, "homes.kept", "what", "kept"},
    {"shoal_refused_total", "counter", "Connections refused.", "refused.strangers", "why",
     "stranger"},
    {"shoal_refused_total", NULL, NULL, "refused.not_tls", "why", "not_tls"},
    {"shoal_refused_total", NULL, NULL, "refused.over_limit", "why", "over_limit"},
    {"shoal_refused_total", NULL, NULL, "refused.invites", "why", "invite"},
};

/* The same for each peer, labelled by its short id. */
static const struct metric of_peers[] = {
    {"shoal_peer_objects", "gauge", "Objects that a peer has.", "objects", NULL, NULL},
    {"shoal_peer_received_bytes_total", "counter", "Bytes that came over its connection.",
     "bytes_in", NULL, NULL},
    {"shoal_peer_sent_bytes_total", "counter", "Bytes sent over its connection.", "bytes_out", NULL,
     NULL},
    {"shoal_peer_rtt_seconds", "gauge", "Round trip.", "rtt_ms", NULL, NULL},
};

static const json_t *find(const json_t *o, const char *path)
{
    char key[32];
    for (;;) {
        size_t n = strcspn(path, ".");
        if (n >= sizeof key) {
            return NULL;
        }
        memcpy(key, path, n);
        key[n] = 0;
        o = json_object_get(o, key);
        if (!path[n]) {
            return o;
        }
        path += n + 1;
    }
}

static int put_head(const struct metric *m, struct buf *out)
{
    return m->help
               ? buf_addf(out, "# HELP %s %s\n# TYPE %s %s\n", m->name, m->help, m->name, m->type)
               : 0;
}

static int put(const struct metric *m, const char *label, const char *value, const json_t *v,
               double scale, struct buf *out)
{
    int r = buf_addf(out, "%s", m->name);
    if (!r && label) {
        r = buf_addf(out, "{%s=\"%s\"}", label, value); /* short ids and words: nothing to escape */
    }
    return r                 ? r
           : json_is_real(v) ? buf_addf(out, " %.9g\n", json_real_value(v) * scale)
                             : buf_addf(out, " %lld\n", (long long)json_integer_value(v));
}

int api_metrics(const json_t *report, struct buf *out)
{
    int r = 0;
    size_t k;
    const json_t *p, *peers = json_object_get(report, "peers");
    for (size_t i = 0; !r && i < sizeof table / sizeof *table; i++) {
        const json_t *v = find(report, table[i].path);
        r = put_head(&table[i], out);
        if (!r && json_is_number(v)) {
            r = put(&table[i], table[i].label, table[i].value, v, 1, out);
        }
    }
    for (size_t i = 0; !r && i < sizeof of_peers / sizeof *of_peers; i++) {
        bool ms = !strcmp(of_peers[i].path, "rtt_ms");
        r = put_head(&of_peers[i], out);
        json_array_foreach(peers, k, p)
        {
            const char *id = json_string_value(json_object_get(p, "short"));
            const json_t *v = json_object_get(p, of_peers[i].path);
            if (!r && id && json_is_number(v)) {
                r = put(&of_peers[i], "peer", id, v, ms ? 1e-3 : 1, out);
            }
        }
    }
    return r;
}
