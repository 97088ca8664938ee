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

/* IPv6 and IPv4 at once, or the latter alone where the former is switched off. */
static int listen_on(int port)
{
    const int off = 0, on = 1;
    struct sockaddr_in6 six = { .sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port), .sin6_addr = in6addr_any };
    struct sockaddr_in four = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port) };
    int listener = socket(AF_INET6, SOCK_STREAM, 0);
    if (listener >= 0) {
        setsockopt(listener, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
        setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
        if (bind(listener, (struct sockaddr *)&six, sizeof six) == 0 && listen(listener, 1024) == 0)
            return listener;
        const int error = errno;
        close(listener);
        errno = error;
        if (error != EADDRNOTAVAIL && error != EAFNOSUPPORT)
            return -1;
    }
    listener = socket(AF_INET, SOCK_STREAM, 0);
    if (listener < 0)
        return -1;
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(listener, (struct sockaddr *)&four, sizeof four) == 0 && listen(listener, 1024) == 0)
        return listener;
    const int error = errno;
    close(listener);
    errno = error;
    return -1;
}

HsStatus hs_wire_listen(int *port, int ports, int *listener)
{
    *listener = -1;
    for (int i = 0; i < ports && *listener < 0; i++)
        if (*port + i <= 65535)
            *listener = listen_on(*port + i);
    if (*listener < 0)
        return hs_fail(HS_EIO, "no port from %d to %d is free to listen on: %s", *port, *port + ports - 1,
                       strerror(errno));
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

int hs_wire_accept(int listener)
{
    const int one = accept(listener, NULL, NULL);
    if (one >= 0)
        prepare(one);
    return one;
}
