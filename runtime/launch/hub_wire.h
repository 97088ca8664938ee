/* SPDX-License-Identifier: MIT
 *
 * Frames on a TCP connection: a kind, a length, bytes.  Private to the hub.  Sockets do not block: every call has a
 * deadline, and continues after interruptions and partial transfers.
 */
#ifndef HS_RUNTIME_LAUNCH_HUB_WIRE_H
#define HS_RUNTIME_LAUNCH_HUB_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/base/status.h"

typedef enum HsFrameKind {
    HS_FRAME_HELLO = 1, /* HsHubMember */
    HS_FRAME_WELCOME,   /* nothing: the hello was read and fits */
    HS_FRAME_TABLE,     /* HsHubMember [size] */
    HS_FRAME_REFUSED,   /* text */
    HS_FRAME_BYTES,     /* what hs_hub_broadcast sends */
    HS_FRAME_BEAT,      /* HsHubBeat */
    HS_FRAME_ABORT,     /* text */
    HS_FRAME_BYE        /* nothing */
} HsFrameKind;

typedef struct HsFrame {
    uint32_t kind, bytes;
} HsFrame;

/* deadline_s: by hs_clock_s.  errors: HS_EIO */
HsStatus hs_wire_write(int socket, const void *content, size_t bytes, double deadline_s);
HsStatus hs_wire_send(int socket, HsFrameKind kind, const void *content, size_t bytes, double deadline_s);
/* The frame's header alone, then its content. */
HsStatus hs_wire_receive(int socket, HsFrame *frame, double deadline_s);
HsStatus hs_wire_read(int socket, void *content, size_t bytes, double deadline_s);
/* All addresses of the host are the loopback's (127.0.0.1, ::1, localhost); false for this machine's own name, which means
 * another address to others. */
bool hs_wire_is_loopback(const char *host);
/* A socket that listens on the first free port of the range; *port: which.  port 0: any.  host: the address alone where it
 * is a number, or a loopback address; NULL, a name, or a number that this machine has not: all addresses. */
HsStatus hs_wire_listen(const char *host, int *port, int ports, int *socket);
/* *socket is -1 where nothing listens (yet). */
HsStatus hs_wire_connect(const char *host, int port, double deadline_s, int *socket);
/* Whether the other end of a connection within this machine belongs to another user, as the kernel's table of sockets says;
 * false where it does not say. */
bool hs_wire_is_other_user(int socket);
/* -1: none is waiting. */
int hs_wire_accept(int listener);

#endif
