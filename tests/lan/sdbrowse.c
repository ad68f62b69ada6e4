/* SPDX-License-Identifier: MIT
 * sdbrowse TYPE SECONDS: browse and resolve by dns_sd.h, one line for each event. For the self-test
 * and for looking at a LAN. */
#include <arpa/inet.h>
#include <dns_sd.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <net/if.h>
static DNSServiceRef refs[128];
static int nrefs;
static void resolved(DNSServiceRef r, DNSServiceFlags f, uint32_t i, DNSServiceErrorType e,
                     const char *full, const char *host, uint16_t port, uint16_t tl,
                     const unsigned char *txt, void *c)
{
    (void)r;
    (void)f;
    (void)c;
    (void)i;
    if (e) {
        printf("ERROR %d\n", e);
        return;
    }
    printf("RESOLVED %s %s %u", full, host, ntohs(port));
    for (uint16_t k = 0, n = TXTRecordGetCount(tl, txt); k < n; k++) {
        char key[256];
        uint8_t vl;
        const void *v;
        if (!TXTRecordGetItemAtIndex(tl, txt, k, sizeof key, key, &vl, &v)) {
            printf(" %s=%.*s", key, vl, v ? (const char *)v : "");
        }
    }
    putchar('\n');
    fflush(stdout);
}

static void browsed(DNSServiceRef r, DNSServiceFlags f, uint32_t i, DNSServiceErrorType e,
                    const char *name, const char *type, const char *dom, void *c)
{
    (void)r;
    (void)c;
    printf("%s %s\n", e ? "ERROR" : f & kDNSServiceFlagsAdd ? "ADD" : "REMOVE", name ? name : "?");
    fflush(stdout);
    if (!e && f & kDNSServiceFlagsAdd && nrefs < 128 &&
        !DNSServiceResolve(&refs[nrefs], 0, i, name, type, dom, resolved, NULL)) {
        nrefs++;
    }
}
int main(int argc, char **argv)
{
    if (argc != 3) {
        fprintf(stderr, "usage: sdbrowse TYPE SECONDS\n");
        return 2;
    }
    DNSServiceErrorType e = DNSServiceBrowse(&refs[0], 0, 0, argv[1], NULL, browsed, NULL);
    if (e) {
        printf("ERROR %d\n", e);
        return 1;
    }
    nrefs = 1;
    for (time_t end = time(NULL) + strtol(argv[2], NULL, 10); time(NULL) < end;) {
        struct pollfd p[128];
        int n = nrefs;
        for (int k = 0; k < n; k++) {
            p[k] = (struct pollfd){DNSServiceRefSockFD(refs[k]), POLLIN, 0};
        }
        if (poll(p, (nfds_t)n, 300) > 0) {
            for (int k = 0; k < n; k++) {
                if (p[k].revents && DNSServiceProcessResult(refs[k])) {
                    return 0;
                }
            }
        }
    }
    return 0;
}
