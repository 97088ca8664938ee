/* SPDX-License-Identifier: MIT
 *
 * Sockets with deadlines, see hub_wire.h.
 */
#include "runtime/launch/hub_wire.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include "kernels/base/clock.h"

static HsStatus wait_for(int socket, short events, double deadline_s)
{
    for (;;) {
        const double left_s = deadline_s - hs_clock_s();
        struct pollfd one = { .fd = socket, .events = events };
        const int ready = poll(&one, 1, left_s > 0 ? (int)(left_s * 1e3) + 1 : 0);
        if (ready > 0)
            return HS_OK;
        if (ready == 0 && left_s <= 0)
            return hs_fail(HS_EIO, "no answer in time");
        if (ready < 0 && errno != EINTR)
            return hs_fail(HS_EIO, "poll: %s", strerror(errno));
    }
}

static HsStatus write_all(int socket, const void *content, size_t bytes, double deadline_s)
{
    const unsigned char *at = content;
    while (bytes > 0) {
        const ssize_t moved = send(socket, at, bytes, MSG_NOSIGNAL);
        if (moved > 0) {
            at += moved;
            bytes -= (size_t)moved;
        } else if (moved < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
            HS_TRY(wait_for(socket, POLLOUT, deadline_s));
        } else if (!(moved < 0 && errno == EINTR)) {
            return hs_fail(HS_EIO, "the connection is closed: %s", strerror(errno));
        }
    }
    return HS_OK;
}

HsStatus hs_wire_read(int socket, void *content, size_t bytes, double deadline_s)
{
    unsigned char *at = content;
    while (bytes > 0) {
        const ssize_t moved = recv(socket, at, bytes, 0);
        if (moved > 0) {
            at += moved;
            bytes -= (size_t)moved;
        } else if (moved < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
            HS_TRY(wait_for(socket, POLLIN, deadline_s));
        } else if (moved == 0) {
            return hs_fail(HS_EIO, "the connection was closed");
        } else if (errno != EINTR) {
            return hs_fail(HS_EIO, "the connection is closed: %s", strerror(errno));
        }
    }
    return HS_OK;
}

HsStatus hs_wire_write(int socket, const void *content, size_t bytes, double deadline_s)
{
    return write_all(socket, content, bytes, deadline_s);
}

HsStatus hs_wire_send(int socket, HsFrameKind kind, const void *content, size_t bytes, double deadline_s)
{
    const HsFrame frame = { .kind = (uint32_t)kind, .bytes = (uint32_t)bytes };
    HS_TRY(write_all(socket, &frame, sizeof frame, deadline_s));
    return bytes > 0 ? write_all(socket, content, bytes, deadline_s) : HS_OK;
}

HsStatus hs_wire_receive(int socket, HsFrame *frame, double deadline_s)
{
    return hs_wire_read(socket, frame, sizeof *frame, deadline_s);
}

/* Small frames leave at once. */
static void prepare(int socket)
{
    const int on = 1;
    fcntl(socket, F_SETFD, FD_CLOEXEC);
    fcntl(socket, F_SETFL, fcntl(socket, F_GETFL) | O_NONBLOCK);
    setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

static int listen_at(const struct sockaddr *address, socklen_t length, bool both)
{
    const int off = 0, on = 1;
    const int listener = socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (listener < 0)
        return -1;
    if (both)
        setsockopt(listener, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(listener, address, length) == 0 && listen(listener, 1024) == 0)
        return listener;
    const int error = errno;
    close(listener);
    errno = error;
    return -1;
}

/* IPv6 and IPv4 at once, or the latter alone where the former is switched off. */
static int listen_anywhere(int port)
{
    const struct sockaddr_in6 six = { .sin6_family = AF_INET6,
                                      .sin6_port = htons((uint16_t)port),
                                      .sin6_addr = in6addr_any };
    const struct sockaddr_in four = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port) };
    const int listener = listen_at((const struct sockaddr *)&six, sizeof six, true);
    if (listener >= 0 || (errno != EADDRNOTAVAIL && errno != EAFNOSUPPORT))
        return listener;
    return listen_at((const struct sockaddr *)&four, sizeof four, false);
}

/* The first of the host's addresses that this machine has and on which the port is free. */
static int listen_on(const struct addrinfo *list, int port)
{
    int listener = -1;
    /* A port that is taken at one address is left to its owner at the others: newcomers would meet that one. */
    errno = 0;
    for (const struct addrinfo *one = list; one && listener < 0 && errno != EADDRINUSE; one = one->ai_next) {
        struct sockaddr_storage address = { 0 };
        memcpy(&address, one->ai_addr, one->ai_addrlen);
        if (one->ai_family == AF_INET6)
            ((struct sockaddr_in6 *)&address)->sin6_port = htons((uint16_t)port);
        else
            ((struct sockaddr_in *)&address)->sin_port = htons((uint16_t)port);
        listener = listen_at((const struct sockaddr *)&address, one->ai_addrlen, false);
    }
    return listener;
}

static HsStatus resolve(const char *host, int flags, struct addrinfo **list)
{
    const struct addrinfo hints = { .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = flags };
    const int error = getaddrinfo(host, NULL, &hints, list);
    return error == 0 ? HS_OK : hs_fail(HS_EIO, "the host %s is not known: %s", host, gai_strerror(error));
}

static bool is_loopback(const struct sockaddr *address)
{
    static const unsigned char mapped[12] = { [10] = 0xff, [11] = 0xff }; /* ::ffff:127.0.0.1 */
    if (address->sa_family == AF_INET)
        return ntohl(((const struct sockaddr_in *)(const void *)address)->sin_addr.s_addr) >> 24 == 127;
    const struct in6_addr *six = &((const struct sockaddr_in6 *)(const void *)address)->sin6_addr;
    return IN6_IS_ADDR_LOOPBACK(six) || (memcmp(six->s6_addr, mapped, sizeof mapped) == 0 && six->s6_addr[12] == 127);
}

bool hs_wire_is_loopback(const char *host)
{
    struct addrinfo *list = NULL;
    char own[256] = "";
    gethostname(own, sizeof own - 1);
    if (strcasecmp(host, own) == 0 || resolve(host, 0, &list) != HS_OK)
        return false; /* many systems give their own name a loopback address that no other machine has for it */
    bool all = list != NULL;
    for (const struct addrinfo *one = list; one; one = one->ai_next)
        all = all && is_loopback(one->ai_addr);
    freeaddrinfo(list);
    return all;
}

HsStatus hs_wire_listen(const char *host, int *port, int ports, int *listener)
{
    struct addrinfo *list = NULL;
    /* A name may stand for another address here than elsewhere: such a rank 0 listens on all that it has. */
    if (host && resolve(host, hs_wire_is_loopback(host) ? 0 : AI_NUMERICHOST, &list) != HS_OK)
        list = NULL;
    *listener = -1;
    for (int i = 0; i < ports && *listener < 0; i++)
        if (*port + i <= 65535)
            *listener = list ? listen_on(list, *port + i) : listen_anywhere(*port + i);
    const int error = errno;
    const bool elsewhere = list && *listener < 0 && error == EADDRNOTAVAIL && !is_loopback(list->ai_addr);
    if (list)
        freeaddrinfo(list);
    if (elsewhere) /* this machine is reached by way of another one's address */
        return hs_wire_listen(NULL, port, ports, listener);
    if (*listener < 0)
        return hs_fail(HS_EIO, "no port from %d to %d is free to listen on%s%s: %s", *port, *port + ports - 1,
                       host ? " at " : "", host ? host : "", strerror(error));
    struct sockaddr_in6 own;
    socklen_t length = sizeof own;
    if (getsockname(*listener, (struct sockaddr *)&own, &length) != 0) {
        close(*listener);
        return hs_fail(HS_EIO, "getsockname: %s", strerror(errno));
    }
    *port = ntohs(own.sin6_port); /* at the same place for IPv4 */
    prepare(*listener);
    return HS_OK;
}

static int connect_one(const struct addrinfo *to, double deadline_s)
{
    int error = 0;
    socklen_t length = sizeof error;
    const int one = socket(to->ai_family, to->ai_socktype, to->ai_protocol);
    if (one < 0)
        return -1;
    prepare(one);
    if (connect(one, to->ai_addr, to->ai_addrlen) == 0)
        return one;
    if (errno == EINPROGRESS && wait_for(one, POLLOUT, deadline_s) == HS_OK &&
        getsockopt(one, SOL_SOCKET, SO_ERROR, &error, &length) == 0 && error == 0)
        return one;
    close(one);
    return -1;
}

HsStatus hs_wire_connect(const char *host, int port, double deadline_s, int *connected)
{
    struct addrinfo hints = { .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM }, *list = NULL;
    char service[16];
    snprintf(service, sizeof service, "%d", port);
    *connected = -1;
    const int error = getaddrinfo(host, service, &hints, &list);
    if (error != 0)
        return hs_fail(HS_EIO, "the host %s is not known: %s", host, gai_strerror(error));
    for (const struct addrinfo *to = list; to && *connected < 0; to = to->ai_next)
        *connected = connect_one(to, deadline_s);
    freeaddrinfo(list);
    return HS_OK;
}

/* As /proc/net/tcp writes it: words of the address as they lie in memory, then the port. */
static void write_address(const struct sockaddr_storage *address, char *text, size_t bytes)
{
    const struct sockaddr_in *four = (const struct sockaddr_in *)(const void *)address;
    const struct sockaddr_in6 *six = (const struct sockaddr_in6 *)(const void *)address;
    const bool is_six = address->ss_family == AF_INET6;
    uint32_t words[4];
    memcpy(words, is_six ? (const void *)&six->sin6_addr : (const void *)&four->sin_addr, is_six ? 16 : 4);
    size_t used = 0;
    for (int i = 0; i < (is_six ? 4 : 1); i++)
        used += (size_t)snprintf(text + used, bytes - used, "%08X", words[i]);
    snprintf(text + used, bytes - used, ":%04X", ntohs(is_six ? six->sin6_port : four->sin_port));
}

bool hs_wire_is_other_user(int socket)
{
    struct sockaddr_storage own = { 0 }, other = { 0 };
    socklen_t own_length = sizeof own, other_length = sizeof other;
    char ours[48], theirs[48], line[512];
    if (getsockname(socket, (struct sockaddr *)&own, &own_length) != 0 ||
        getpeername(socket, (struct sockaddr *)&other, &other_length) != 0)
        return false;
    write_address(&own, ours, sizeof ours);
    write_address(&other, theirs, sizeof theirs);
    FILE *table = fopen(own.ss_family == AF_INET6 ? "/proc/self/net/tcp6" : "/proc/self/net/tcp", "re");
    bool is_other = false;
    while (table && fgets(line, sizeof line, table)) {
        char local[48], remote[48];
        unsigned long user;
        /* number: local remote state queues timer retransmissions user */
        if (sscanf(line, "%*d: %47s %47s %*s %*s %*s %*s %lu", local, remote, &user) == 3 &&
            strcmp(local, theirs) == 0 && strcmp(remote, ours) == 0)
            is_other = user != geteuid();
    }
    if (table)
        fclose(table);
    return is_other;
}

int hs_wire_accept(int listener)
{
    const int one = accept(listener, NULL, NULL);
    if (one >= 0)
        prepare(one);
    return one;
}
