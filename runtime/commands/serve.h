/* SPDX-License-Identifier: MIT
 *
 * A run's page for a browser on this machine, as it is now at each request: trainer report --serve.
 */
#ifndef HS_RUNTIME_COMMANDS_SERVE_H
#define HS_RUNTIME_COMMANDS_SERVE_H

#include <stdint.h>

#include "kernels/base/status.h"

/* Serves out_dir's page at http://127.0.0.1:port/ (0: a free port), and at no other address, until SIGINT, SIGTERM or
 * SIGHUP.  While the run trains the browser is asked to come again every few seconds; the page itself has no script.
 * What names another host (a page elsewhere whose name was pointed at this address) is refused.  errors: HS_EIO where the
 * port is taken */
HsStatus hs_report_serve(const char *out_dir, uint16_t port);

#endif
