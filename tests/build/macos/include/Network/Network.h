/* SPDX-License-Identifier: MIT
 * Of Network/path.h, path_monitor.h and nw_object.h, what this project calls: names and types as in
 * Apple's, for C without Objective-C. */
#ifndef SHOAL_STUB_NETWORK_H
#define SHOAL_STUB_NETWORK_H

#include <dispatch/dispatch.h>
#include <stdbool.h>

typedef struct nw_path *nw_path_t;
typedef struct nw_path_monitor *nw_path_monitor_t;
typedef enum {
    nw_path_status_invalid = 0,
    nw_path_status_satisfied = 1,
    nw_path_status_unsatisfied = 2,
    nw_path_status_satisfiable = 3,
} nw_path_status_t;
typedef void (^nw_path_monitor_update_handler_t)(nw_path_t path);
typedef void (^nw_path_monitor_cancel_handler_t)(void);

nw_path_status_t nw_path_get_status(nw_path_t path);
bool nw_path_is_expensive(nw_path_t path);
bool nw_path_is_constrained(nw_path_t path);
nw_path_monitor_t nw_path_monitor_create(void);
void nw_path_monitor_set_queue(nw_path_monitor_t monitor, dispatch_queue_t queue);
void nw_path_monitor_set_update_handler(nw_path_monitor_t monitor,
                                        nw_path_monitor_update_handler_t update_handler);
void nw_path_monitor_set_cancel_handler(nw_path_monitor_t monitor,
                                        nw_path_monitor_cancel_handler_t cancel_handler);
void nw_path_monitor_start(nw_path_monitor_t monitor);
void nw_path_monitor_cancel(nw_path_monitor_t monitor);
void nw_release(void *obj);

#endif
