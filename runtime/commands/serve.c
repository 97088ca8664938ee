/* SPDX-License-Identifier: MIT
 *
 * See serve.h.  HTTP is GNU libmicrohttpd's: one separate thread answers one request after another.
 */
#include "runtime/commands/serve.h"

#include <arpa/inet.h>
#include <microhttpd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "runtime/pages/report.h"

/* Seconds until the browser asks again, and how many connections there may be. */
#define REFRESH "5"
enum { CONNECTIONS = 16, IDLE_SECONDS = 20 };

typedef struct Server {
    const char *out_dir;
    char hosts[2][32]; /* what a browser calls this address */
} Server;

static enum MHD_Result answer_text(struct MHD_Connection *connection, unsigned code, const char *text, bool again)
{
    struct MHD_Response *response =
        MHD_create_response_from_buffer(strlen(text), (void *)(uintptr_t)text, MHD_RESPMEM_MUST_COPY);
    if (!response)
        return MHD_NO;
    MHD_add_response_header(response, "Content-Type", "text/plain; charset=utf-8");
    if (again)
        MHD_add_response_header(response, "Refresh", REFRESH);
    const enum MHD_Result result = MHD_queue_response(connection, code, response);
    MHD_destroy_response(response);
    return result;
}

static enum MHD_Result answer_page(const Server *server, struct MHD_Connection *connection)
{
    char *page = NULL;
    size_t bytes = 0;
    bool ended = false;
    FILE *stream = open_memstream(&page, &bytes);
    const HsStatus status =
        stream ? hs_report_print_on(stream, server->out_dir, &ended) : hs_fail(HS_ENOMEM, "no memory for the page");
    if (stream)
        fclose(stream);
    if (status != HS_OK) { /* a run that has only begun has no record yet */
        free(page);
        return answer_text(connection, MHD_HTTP_SERVICE_UNAVAILABLE, hs_error_message(), true);
    }
    struct MHD_Response *response = MHD_create_response_from_buffer(bytes, page, MHD_RESPMEM_MUST_FREE);
    if (!response) {
        free(page);
        return MHD_NO;
    }
    MHD_add_response_header(response, "Content-Type", "text/html; charset=utf-8");
    MHD_add_response_header(response, "Cache-Control", "no-store");
    MHD_add_response_header(response, "Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'");
    if (!ended)
        MHD_add_response_header(response, "Refresh", REFRESH);
    const enum MHD_Result result = MHD_queue_response(connection, MHD_HTTP_OK, response);
    MHD_destroy_response(response);
    return result;
}

static enum MHD_Result answer(void *user, struct MHD_Connection *connection, const char *path, const char *method,
                              const char *version, const char *upload, size_t *upload_bytes, void **state)
{
    (void)version;
    (void)upload;
    const Server *server = user;
    if (!*state) { /* the headers alone have come */
        *state = connection;
        const bool reads = strcmp(method, "GET") == 0 || strcmp(method, "HEAD") == 0;
        return reads ? MHD_YES : answer_text(connection, MHD_HTTP_METHOD_NOT_ALLOWED, "GET or HEAD\n", false);
    }
    *upload_bytes = 0; /* of a GET: nothing is taken */
    const char *host = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "Host");
    if (!host || (strcmp(host, server->hosts[0]) != 0 && strcmp(host, server->hosts[1]) != 0))
        return answer_text(connection, MHD_HTTP_FORBIDDEN, "this page is for a browser on this machine\n", false);
    if (strcmp(path, "/") != 0 && strcmp(path, "/report.html") != 0)
        return answer_text(connection, MHD_HTTP_NOT_FOUND, "the run's page is at /\n", false);
    return answer_page(server, connection);
}

HsStatus hs_report_serve(const char *out_dir, uint16_t port)
{
    Server server = { .out_dir = out_dir };
    struct sockaddr_in address = { .sin_family = AF_INET,
                                   .sin_port = htons(port),
                                   .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGHUP);
    pthread_sigmask(SIG_BLOCK, &signals, NULL);
    struct MHD_Daemon *daemon =
        MHD_start_daemon(MHD_USE_INTERNAL_POLLING_THREAD, port, NULL, NULL, answer, &server, MHD_OPTION_SOCK_ADDR,
                         &address, MHD_OPTION_CONNECTION_LIMIT, (unsigned)CONNECTIONS, MHD_OPTION_CONNECTION_TIMEOUT,
                         (unsigned)IDLE_SECONDS, MHD_OPTION_END);
    if (!daemon)
        return hs_fail(HS_EIO, "port %d of 127.0.0.1 cannot be had: give another one with --port, 0 for any free one",
                       port);
    const union MHD_DaemonInfo *info = MHD_get_daemon_info(daemon, MHD_DAEMON_INFO_BIND_PORT);
    const int bound = info ? info->port : port;
    snprintf(server.hosts[0], sizeof server.hosts[0], "127.0.0.1:%d", bound);
    snprintf(server.hosts[1], sizeof server.hosts[1], "localhost:%d", bound);
    printf("http://127.0.0.1:%d/ shows %s and follows it; Ctrl-C ends\n", bound, out_dir);
    fflush(stdout);
    int number;
    sigwait(&signals, &number);
    MHD_stop_daemon(daemon);
    return HS_OK;
}
