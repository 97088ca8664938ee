/* SPDX-License-Identifier: MIT
 *
 * One that comes to the hub of a run and does not belong there:
 *
 *     intruder HOST:PORT garbage    answers the challenge by noise
 *     intruder HOST:PORT early      sends a rank's hello at once, without an answer
 *     intruder HOST:PORT slow       sends all of an answer but its last byte
 *     intruder HOST:PORT silent     sends nothing
 *     intruder HOST:PORT none       proves that it knows no secret
 *     intruder HOST:PORT user       the same, as a process of another user, at a run without a secret
 *     intruder HOST:PORT wrong      proves that it knows another one
 *     intruder HOST:PORT replay     an answer once more that was right on an earlier connection (HALFSTEP_SECRET is the run's)
 *     intruder HOST:PORT flood      200 connections at once, which say nothing
 *
 * Exit code 0 and the seconds that it took: it was closed, and was sent nothing but the challenge.
 */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "kernels/base/clock.h"
#include "runtime/launch/hub_internal.h"

static int port;

enum { CHALLENGE = 8 + HS_SECRET_BYTES, ANSWER = 2 * HS_SECRET_BYTES, FLOOD = 200 };
static const double patience_s = 30;

static int come(const char *host)
{
    int socket = -1;
    for (int i = 0; i < 100 && socket < 0; i++) {
        if (hs_wire_connect(host, port, hs_clock_s() + 2, &socket) != HS_OK)
            break;
        if (socket < 0)
            usleep(50000);
    }
    if (socket < 0) {
        fprintf(stderr, "nothing listens on port %d\n", port);
        exit(2);
    }
    return socket;
}

/* Whether the connection ends without another byte. */
static bool is_closed(int socket)
{
    unsigned char byte;
    struct pollfd one = { .fd = socket, .events = POLLIN };
    if (poll(&one, 1, (int)(patience_s * 1e3)) <= 0)
        return false;
    return recv(socket, &byte, 1, 0) <= 0;
}

static void read_challenge(int socket, unsigned char challenge[CHALLENGE])
{
    if (hs_wire_read(socket, challenge, CHALLENGE, hs_clock_s() + 5) != HS_OK) {
        fprintf(stderr, "no challenge: %s\n", hs_error_message());
        exit(2);
    }
}

static bool send_bytes(const char *host, const char *kind)
{
    unsigned char challenge[CHALLENGE], noise[4096] = { 0 };
    const int socket = come(host);
    size_t length = 0;
    if (strcmp(kind, "early") == 0) {
        const HsFrame frame = { .kind = HS_FRAME_HELLO, .bytes = sizeof(HsHubMember) };
        const HsHubMember member = { .magic = hs_hub_magic, .rank = 1, .size = 2 };
        memcpy(noise, &frame, sizeof frame);
        memcpy(noise + sizeof frame, &member, sizeof member);
        length = sizeof frame + sizeof member;
    } else if (strcmp(kind, "garbage") == 0) {
        memset(noise, 0xa5, length = sizeof noise);
    } else if (strcmp(kind, "slow") == 0) {
        length = ANSWER - 1;
    }
    read_challenge(socket, challenge);
    return hs_wire_write(socket, noise, length, hs_clock_s() + 5) == HS_OK && is_closed(socket);
}

static bool prove(const char *host, const char *kind)
{
    const HsSecret other = { .known = true, .key = "another secret of 32 bytes....." };
    const HsHub hub = { .secret = strcmp(kind, "wrong") == 0 ? &other : NULL };
    bool is_other = false;
    const int socket = come(host);
    const HsStatus status = hs_hub_enter(&hub, socket, hs_clock_s() + 5, &is_other);
    return status != HS_OK && is_other == (strcmp(kind, "user") != 0); /* a user is not even challenged */
}

static bool replay(const char *host)
{
    HsSecret secret;
    unsigned char challenge[CHALLENGE], answer[ANSWER], proof[HS_SECRET_BYTES];
    if (hs_secret_read(&secret) != HS_OK || !secret.known || hs_secret_nonce(answer) != HS_OK)
        return false;
    int socket = come(host);
    read_challenge(socket, challenge);
    hs_secret_prove(&secret, HS_SIDE_NEWCOMER, answer, challenge + 8, answer + HS_SECRET_BYTES);
    hs_wire_write(socket, answer, sizeof answer, hs_clock_s() + 5);
    if (hs_wire_read(socket, proof, sizeof proof, hs_clock_s() + 5) != HS_OK) {
        fprintf(stderr, "the right answer is not taken\n");
        return false;
    }
    close(socket);
    socket = come(host);
    read_challenge(socket, challenge);
    hs_wire_write(socket, answer, sizeof answer, hs_clock_s() + 5);
    return is_closed(socket);
}

static bool flood(const char *host)
{
    int sockets[FLOOD], closed = 0;
    unsigned char challenge[CHALLENGE];
    for (int i = 0; i < FLOOD; i++)
        sockets[i] = come(host);
    for (int i = 0; i < FLOOD; i++) /* those that were admitted have a challenge to read first */
        closed += hs_wire_read(sockets[i], challenge, CHALLENGE, hs_clock_s() + 5) != HS_OK || is_closed(sockets[i]);
    return closed == FLOOD;
}

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    char *const colon = strrchr(argv[1], ':'), *const host = argv[1];
    if (!colon)
        return 2;
    *colon = '\0';
    port = atoi(colon + 1);
    const char *const kind = argv[2];
    const double start_s = hs_clock_s();
    const bool proves = strcmp(kind, "none") == 0 || strcmp(kind, "wrong") == 0 || strcmp(kind, "user") == 0;
    const bool closed = strcmp(kind, "replay") == 0  ? replay(host)
                        : strcmp(kind, "flood") == 0 ? flood(host)
                        : proves                     ? prove(host, kind)
                                                     : send_bytes(host, kind);
    printf("%s after %.1f s\n", closed ? "closed" : "not closed", hs_clock_s() - start_s);
    return !closed;
}
